"""Suggestions that save time, from the shares of a profile; each is the flags to type.

A rule looks at one kind of waste. `bound` is Amdahl's law with the part that the rule can save: how
many times faster at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jaxrl_fast.engine.grid import ahead_of
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.memory import RolloutMemory
from jaxrl_fast.ops import scopes
from jaxrl_fast.profiling import hlo, parts

LEAST_GAIN = 1.05
ROLLOUT = (scopes.ENVIRONMENT, scopes.RESET, scopes.PREPROCESS, scopes.POLICY, scopes.STORE,
           parts.LOOPS)
UPDATES = (scopes.SAMPLE, hlo.FORWARD, hlo.BACKWARD, scopes.OPTIMIZER)


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A change of settings. same: the run learns the same; bound: times faster at most.

    timed: whether a trial, which times calls of the program, can tell.
    """

    name: str
    text: str
    flags: tuple[str, ...]
    bound: float
    same: bool = False
    timed: bool = True


@dataclasses.dataclass(frozen=True)
class Case:
    """The facts that rules look at. platform: JAX's; env_settings: of the environment, by name."""

    profile: parts.Profile
    prepared: Prepared
    platform: str
    env_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def algo(self) -> Any:
        return self.prepared.algo

    @property
    def on_host(self) -> bool:
        return parts.ACTORS in self.profile.sides

    @property
    def side(self) -> str:
        """Return the side whose parts are the program's: its own, or the learner's."""
        return parts.LEARNER if self.on_host else parts.PROGRAM

    def share(self, *names: str, side: str | None = None) -> float:
        return self.profile.share(*names, side=side or self.side)


Rule = Callable[[Case], Iterable[Suggestion]]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    """Add a rule to `RULES`."""
    RULES.append(function)
    return function


def amdahl(share: float, times: float = float("inf")) -> float:
    """Return the gain if a part of this share becomes `times` as fast."""
    return 1 / max(1 - share + share / times, 0.01)


def advise(case: Case) -> tuple[Suggestion, ...]:
    """Return the suggestions that can gain at least 5%, by their bound."""
    found = [one for each in RULES for one in each(case) if one.bound >= LEAST_GAIN]
    return tuple(sorted(found, key=lambda one: -one.bound))


@rule
def more_environments(case: Case) -> Iterable[Suggestion]:
    """A step's fixed cost is shared by more environments."""
    if case.on_host:
        acts = case.share(scopes.POLICY, side=parts.ACTORS)
        share = acts * (1 - case.share(hlo.FORWARD, hlo.BACKWARD))
    else:
        share = case.share(*ROLLOUT, parts.IDLE)
    count = 2 * case.algo.num_envs
    text = (
        f"stepping and acting take {share:.0%}; {count} environments share each step's fixed cost"
    )
    yield Suggestion("num_envs", text, ("--algo.num-envs", str(count)), amdahl(share, 2))


@rule
def fewer_minibatches(case: Case) -> Iterable[Suggestion]:
    """Larger minibatches start fewer instructions."""
    share, memory = case.share(*UPDATES), case.prepared.bound.memory()
    number = memory.num_minibatches if isinstance(memory, RolloutMemory) else 1
    if number > 1 and number % 2 == 0:
        text = f"updates take {share:.0%}; half as many minibatches are twice as large"
        flags = ("--algo.num-minibatches", str(number // 2))
        yield Suggestion("num_minibatches", text, flags, amdahl(share, 2))


@rule
def fewer_updates(case: Case) -> Iterable[Suggestion]:
    """Half as many updates of a replay, each of twice the batch."""
    share, number = case.share(*UPDATES), getattr(case.algo, "updates_per_iteration", 1)
    batch = getattr(case.algo, "batch_size", None)
    if number > 1 and number % 2 == 0 and batch:
        text = f"updates take {share:.0%}; half as many use batches of {2 * batch}"
        flags = ("--algo.updates-per-iteration", str(number // 2), "--algo.batch-size",
                 str(2 * batch))
        yield Suggestion("updates_per_iteration", text, flags, amdahl(share, 2))


@rule
def longer_rollouts(case: Case) -> Iterable[Suggestion]:
    """One update after a step of few environments: the loop around both costs."""
    share = case.share(*UPDATES)
    replays = hasattr(case.algo, "updates_per_iteration")
    if replays and case.algo.updates_per_iteration == 1 and case.algo.num_steps == 1:
        text = f"updates take {share:.0%}; two steps of each environment for an update halve them"
        yield Suggestion("num_steps", text, ("--algo.num-steps", "2"), amdahl(share, 2))


@rule
def plain_replay(case: Case) -> Iterable[Suggestion]:
    """Priorities cost a tree."""
    share = case.share(scopes.SAMPLE)
    if getattr(case.algo, "prioritized", False):
        text = f"sampling takes {share:.0%}, much of it the tree of priorities"
        yield Suggestion("prioritized", text, ("--no-algo.prioritized",), amdahl(share))


@rule
def reset_pool(case: Case) -> Iterable[Suggestion]:
    """Fewer resets, shared by a rollout's episodes."""
    share, settings = case.share(scopes.RESET), case.env_settings
    size, now = max(1, case.algo.num_envs // 4), settings.get("reset_pool")
    if now is not None and not case.on_host and (size < now or not now):
        text = f"resets take {share:.0%}; {size} are drawn for a rollout and shared"
        other = settings.get("resets", "pool") != "pool"
        flags = *(("--env.resets", "pool") if other else ()), "--env.reset-pool", str(size)
        yield Suggestion("reset_pool", text, flags, amdahl(share, 4))


@rule
def unroll(case: Case) -> Iterable[Suggestion]:
    """Several steps in a turn of the loop."""
    share, steps = case.share(*ROLLOUT), case.algo.num_steps
    by_library = case.platform == "gpu" or case.prepared.config.unroll is not None
    if not by_library and steps >= 4 and not case.on_host:
        text = f"the loop over steps takes {share:.0%}; 4 steps in a row start fewer instructions"
        yield Suggestion("unroll", text, ("--unroll", "4"), amdahl(share, 1.5), same=True)


@rule
def precision(case: Case) -> Iterable[Suggestion]:
    """Products of torsos in fewer bits."""
    limits = case.profile.limits
    products = limits.products if limits else {}
    exact = products.get("float32", 0.0)
    bound_by_products = [p for p in case.profile.side(case.side) if p.roof == parts.ARITHMETIC]
    share = sum(part.share for part in bound_by_products)
    for kind, rate in products.items():
        if kind in ("tf32", "bf16") and rate > 1.5 * exact and case.algo.precision == "highest":
            text = f"{share:.0%} is near the limit of float32 products; {kind} is faster"
            yield Suggestion("precision", text, ("--algo.precision", kind),
                             amdahl(share, rate / exact))


@rule
def layout(case: Case) -> Iterable[Suggestion]:
    """Members one after another, or all in one batch."""
    population, config = case.prepared.population, case.prepared.config
    if config.members > len(population.devices) and config.batching == "auto":
        for kind in ("map", "vmap"):
            text = f"the members of a device by {kind}"
            yield Suggestion("batching", text, ("--batching", kind), 2.0, same=True)


@rule
def longer_chunks(case: Case) -> Iterable[Suggestion]:
    """The host waits for the device too often."""
    share = case.share(parts.HOST)
    if not case.on_host:
        text = f"the host's loop takes {share:.0%}; fewer calls of the program"
        flags = ("--chunk-seconds", f"{4 * case.prepared.config.chunk_seconds:g}")
        yield Suggestion("chunk_seconds", text, flags, amdahl(share, 4), same=True, timed=False)


@rule
def ahead(case: Case) -> Iterable[Suggestion]:
    """Actors play while the learner learns."""
    config, algo = case.prepared.config, case.algo
    if case.on_host and not ahead_of(config, algo) and algo.takes_older_rollouts:
        waits = case.share(parts.WAITING)
        text = f"the learner waits {waits:.0%} and the actors wait for it: let them play at once"
        yield Suggestion("ahead", text, ("--ahead", "1"), 1 / max(waits, 1 - waits, 0.01))


@rule
def actors(case: Case) -> Iterable[Suggestion]:
    """Two groups of environments: one steps while the policy acts for the other."""
    if case.on_host and case.prepared.config.actors == 1 and case.algo.num_envs >= 2:
        steps = case.share(scopes.ENVIRONMENT, side=parts.ACTORS)
        acts = case.share(scopes.POLICY, side=parts.ACTORS)
        text = f"environments take {steps:.0%} of the actors and the policy {acts:.0%}, in turns"
        yield Suggestion("actors", text, ("--actors", "2"), amdahl(min(steps, acts)))


@rule
def processes(case: Case) -> Iterable[Suggestion]:
    """Environments in processes of their own."""
    if case.on_host and case.env_settings.get("vectorization") == "sync":
        steps = case.share(scopes.ENVIRONMENT, side=parts.ACTORS)
        text = f"environments take {steps:.0%} of the actors, one after another"
        flags = ("--env.vectorization", "async")
        yield Suggestion("vectorization", text, flags, amdahl(steps, 2), same=True)
