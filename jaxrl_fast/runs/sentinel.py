"""Checks of members at rows and evaluations: lost, diverged, at the target, best."""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, runtime
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.rollout import ACTION, OBSERVATION
from jaxrl_fast.logs.rows import Measured, without
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.memory.dropped import dropped_truncations
from jaxrl_fast.runs.checkpoints.metadata import Best
from jaxrl_fast.runs.result import Result

MOST_RETURN = 1e3  # smaller returns give no bound on losses: unfinished episodes may pay more
MOST_LOSS = 1e6  # times the squared largest return: a squared value error is a few such squares
MOST_ENTROPY = 1e4  # nats of either sign; beyond any action space
MOST_DROPPED = 0.25  # of the truncated rows in a replay
MOST_PARAMETER = 1e8  # of a network's parameters
PARAMETER = "the largest parameter"  # measured in evaluations, NaN if unknown
IN_EVALUATION = {OBSERVATION: "observations in an evaluation are not finite",
                 ACTION: "actions in an evaluation are not finite"}


def not_finite(run: Result, measured: Sequence[Measured],
               finite: Any) -> tuple[list[Measured], str | None]:
    """Return the rows without lost members' values, and a message that ends the run, or None.

    finite: whether each lane's agent is; None before any training.
    """
    said, found, stop = [], [], run.config.on_nan == "stop"
    for row in measured:
        said += [lose(run, member, row.env_steps, what) for member, what in row.faults]
        found.append(row if stop else row.without(run.lost))
    if finite is not None:
        for member in np.flatnonzero(~run.lanes.by_member(run.population.members(finite), True)):
            said.append(lose(run, int(member), measured[-1].env_steps,
                             "agent parameters or priorities are not finite"))
    return found, said[0] if said and (stop or not run.live) else None


def lose(run: Result, member: int, env_steps: int, what: str) -> str:
    """Mark a member as lost if the run goes on without it, and return the message."""
    if run.config.on_nan == "mark" and member not in run.lost:
        run.lost[member] = {"env_steps": env_steps, "reason": what}
    return f"{what} {_place(run.config, member, env_steps)}"


def _place(config: RunConfig, member: int, env_steps: int) -> str:
    return f"at {env_steps:,} environment steps in member {member} ({config.label(member)})"


def format_step(run: Result) -> str:
    """Return the run's step as " (at N environment steps)"."""
    return f" (at {run.env_steps:,} environment steps)"


def warn_of(config: RunConfig, senseless: dict[int, str], env_steps: int) -> None:
    """Warn of members that have diverged with finite values; the run goes on."""
    if senseless and distributed.is_first():
        (member, what), *others = senseless.items()
        more = f" (and members {', '.join(str(m) for m, _ in others)})" if others else ""
        warnings.warn(
            f"{what} {_place(config, member, env_steps)}{more}: training has diverged, though no "
            "number is NaN; a lower learning_rate may help",
            stacklevel=2,
        )


@functools.cache
def warn_of_idle_card() -> None:
    """Warn once in a process of a graphics card that JAX does not use."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    remedy = None if hidden else runtime.idle_card(jax.default_backend(), jax.config.jax_platforms)
    if remedy:
        warnings.warn(remedy, stacklevel=2)


@functools.cache  # the parts of a sweep have the same warnings
def _warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=1)


def warn_of_settings(algo: Algorithm) -> None:
    """Warn once in a process of settings from which a new policy cannot learn."""
    for text in algo.setting_warnings() if distributed.is_first() else []:
        _warn_once(text)


def warn_of_truncations(run: Result, sanity: Sanity) -> None:
    """Warn once if the replay drops many truncated rows, with their rewards."""
    if sanity.truncations_told or distributed.several():
        return
    share = dropped_truncations(run.state.memory)
    if share > MOST_DROPPED:
        sanity.truncations_told = True
        warnings.warn(
            f"the replay drops {share:.0%} of the truncated steps, with their rewards. Set "
            "max_episode_steps in the environment's spec, or truncation_interval to at most the "
            "shortest episode",
            stacklevel=1,
        )


class Sanity:
    """The members' returns and entropies so far: values without meaning are named once."""

    def __init__(self, members: int):
        self.returns = np.full(members, MOST_RETURN)  # the largest, of either sign
        self.entropy = np.zeros(members)  # the last positive one
        self.told: set[int] = set()
        self.truncations_told = False

    def look(self, metrics: Mapping[str, np.ndarray]) -> dict[int, str]:
        """Return {member: fault} of members not named before. metrics: [members] each."""
        for name in ("episode_return", "eval_return"):
            self.returns = np.fmax(self.returns, np.abs(metrics.get(name, self.returns)))
        found: dict[int, str] = {}
        for name, values in metrics.items():
            for member, value in enumerate(values):
                if member not in self.told and self._senseless(name, float(value), member):
                    found.setdefault(member, f"{name} is {value + 0.0:.3g}")  # no -0
        entropy = metrics.get("entropy", self.entropy)
        self.entropy = np.where(entropy > 0, entropy, self.entropy)
        self.told |= found.keys()
        return found

    def _senseless(self, name: str, value: float, member: int) -> bool:
        if name == "entropy":
            # Training separates logits step by step: entropy comes near zero, never to zero.
            return abs(value) > MOST_ENTROPY or (value == 0.0 and self.entropy[member] > 1e-6)
        if name == PARAMETER:
            return value > MOST_PARAMETER
        return (name.endswith("loss") and math.isfinite(value)
                and abs(value) > MOST_LOSS * self.returns[member] ** 2)


class EvaluationProgress:
    """Shows an evaluation's progress in `sinks`; says once if it plays fewer episodes or none."""

    def __init__(self, config: RunConfig, sinks: Sequence[Sink]):
        self.most, self.sinks = config.most_episodes, sinks
        self.unsaid = {"fewer", "none"} if config.eval_episodes is None else set()

    def __call__(self, played: int, episodes: int) -> None:
        what = "none" if not episodes else "fewer" if episodes < self.most else ""
        for sink in self.sinks:
            if what in self.unsaid:
                sink.message(self._text(episodes))
            if episodes:
                sink.evaluating(played, episodes)
        self.unsaid.discard(what)

    def _text(self, episodes: int) -> str:
        if not episodes:
            return ("an evaluation is left out while fewer than 5 episodes fit an eighth of the "
                    "steps since the one before (eval_every = STEPS leaves none out)")
        return (f"evaluations play as many episodes as fit an eighth of the steps, at least 5: "
                f"{episodes} in this one (eval_episodes = {self.most} plays {self.most} each time)")


def evaluate(run: Result, sanity: Sanity,
             progress: EvaluationProgress) -> tuple[dict[str, np.ndarray], str | None]:
    """Return log columns (`eval_return` [members]), and a message on non-finite values."""
    programs = run.lanes.programs
    with programs.paused(), programs.clock.during("evaluate"):
        found = programs.evaluate(run.state, run.rows, told=progress, last=run.over)
        if found is None:
            return {}, None
        warn_of_truncations(run, sanity)
        found = run.lanes.by_member(found, np.nan)
    progress(run.config.most_episodes, run.config.most_episodes)
    scores, message, columns = without(found.ret, run.lost), None, {}
    if found.episodes is not None:
        columns = {"eval_length": np.array(found.length, float),
                   "eval_episodes": np.array(found.episodes, float)}
        run.episodes = int(found.episodes[0])
    for member in [i for i in run.live if not np.isfinite(scores[i])]:
        what = IN_EVALUATION.get(int(found.fault[member]), f"eval_return is {scores[member]}")
        what = lose(run, member, run.env_steps, what)
        message = message or what
    warn_of(run.config, sanity.look({PARAMETER: found.largest}), run.env_steps)
    if message and (run.config.on_nan == "stop" or not run.live):
        return {"eval_return": scores, **columns}, message
    scores = without(scores, run.lost)
    target = run.config.target_return
    for i, value in enumerate(scores):
        if target is not None and run.reached[i] is None and value >= target:
            run.reached[i] = {"env_steps": run.env_steps, "eval_return": float(value)}
    mean = float(np.mean(scores[run.live])) if run.live else -math.inf
    if mean > run.best.score:
        run.best = Best(mean, scores, run.rows, programs.snapshot(run.state.agent), run.lanes.who())
    return {"eval_return": scores, **columns}, None
