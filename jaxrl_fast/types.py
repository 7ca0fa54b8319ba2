"""The pytrees that every part passes to every other. Time comes first, then environments: [T, B, ...]."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.spaces import Space
from jaxrl_fast.tree import summary

if TYPE_CHECKING:
    from jaxrl_fast.envs.own_spaces import Own, OwnDict

PyTree = Any


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What an environment is: spaces, limits, name. Static and hashable.

    observation, action   spaces; an observation that is a `Dict` with the entry `action_mask` (bool, one flag an
                          action, True where legal) restricts a Discrete action to legal choices.
    max_episode_steps     the time limit after which an episode is truncated; None when there is none.
    stack                 the environment emits single frames and the agent sees the last `stack` of them,
                          concatenated along the last axis, oldest first. `observation` describes one frame.
    own_observation       how the environment itself writes them, where that is another form (`envs.own_spaces`); None: as
    own_action            the spaces say
    """

    name: str
    observation: Space
    action: Space
    max_episode_steps: int | None = None
    stack: int = 1
    own_observation: Own | OwnDict | None = dataclasses.field(default=None, repr=False)
    own_action: Own | OwnDict | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self):
        for name, space in (("observation", self.observation), ("action", self.action)):
            if not isinstance(space, Space):
                foreign = type(space).__module__.partition(".")[0]
                hint = f". Spaces of {foreign} are for environments of {foreign}" if hasattr(space, "contains") else ""
                valid = f"jf.Discrete, jf.MultiDiscrete, jf.Box or jf.Dict{hint}"
                raise ConfigError(f"{self.name}: EnvSpec.{name}", space, valid)
        if self.max_episode_steps is not None:
            check_int(f"{self.name}: max_episode_steps", self.max_episode_steps)


@dataclasses.dataclass(frozen=True)
class Lasting:
    """A part of an environment's state that outlives episodes: `value` [B, ...], such as statistics or a level reached.

    `Env.step` keeps it where it begins new episodes; everything else of a state is what `reset` gives.
    """

    value: PyTree


jax.tree_util.register_dataclass(Lasting, ["value"], [])


def lasting(state: PyTree) -> list[Lasting]:
    """The parts of a state that outlive episodes."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Lasting))
    return [x for x in leaves if isinstance(x, Lasting)]


def keep_lasting(state: PyTree, fresh: PyTree) -> PyTree:
    """A fresh state with the `Lasting` parts of the one before it."""
    if not lasting(state):
        return fresh
    pick = lambda new, old: old if isinstance(new, Lasting) else new
    return jax.tree.map(pick, fresh, state, is_leaf=lambda x: isinstance(x, Lasting))


class Outcome(NamedTuple):
    """What one transition brought, before any reset.

    `next_obs` is the true successor, also at an end.
    """

    next_obs: PyTree  # [B, ...]
    reward: jax.Array  # float32 [B]
    terminated: jax.Array  # bool [B]: the episode ended by the task's own rules; its value is zero
    truncated: jax.Array  # bool [B]: it was cut (time limit); its value goes on. Where both are set, it terminated.
    info: dict[str, jax.Array] | tuple[()] = ()  # float32 [B] by name: what else is to be in the log (`reports`)

    __repr__ = summary


class Timestep(NamedTuple):
    """One row of experience; `next_obs` is the successor BEFORE any reset."""

    obs: PyTree
    action: PyTree
    next_obs: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    extras: PyTree = ()  # what `Algorithm.act` returned beside the action
    info: dict[str, jax.Array] | tuple[()] = ()  # that of the `Outcome`; learners and memories never see it
    reset_only: PyTree = ()  # bool [B]: the row is a reset, not a step (see `HostStep.real`); () where all are steps

    @property
    def done(self) -> jax.Array:
        return self.terminated | self.truncated

    __repr__ = summary


class Trajectory(NamedTuple):
    """What `collect` returns: T steps of B environments, and the two ends.

    With `EnvSpec.stack` > 1 `steps.obs` and `steps.next_obs` are single frames; `first_obs` and `last_obs` are stacked.
    """

    steps: Timestep  # [T, B, ...]
    first_carry: PyTree  # the policy's recurrent state before the first step [B, ...]; () for a feed-forward policy
    first_obs: PyTree  # [B, ...] what the agent saw at the first step
    last_obs: PyTree  # [B, ...] what it will see next (after a reset, where the last step ended an episode)
    fault: PyTree = ()  # int8 [T, B], see `collect.fault`, where it was asked for; else ()

    __repr__ = summary


class Window(NamedTuple):
    """A replay memory's answer: n-step windows that never cross an episode's end or the write head.

    The return of row b is  sum_i gamma^i reward[i, b] use[i, b]  +  gamma^steps[b] boot[b] V(boot_obs[b]).
    A truncated row is the last one in `use`, and boot_obs is the observation in which its episode was cut.
    """

    obs: PyTree  # [b, ...]
    action: PyTree  # [b, ...]
    reward: jax.Array  # float32 [n, b]
    use: jax.Array  # bool [n, b]
    steps: jax.Array  # int32 [b]
    boot_obs: PyTree  # [b, ...]
    boot: jax.Array  # float32 [b]: 0 after a termination, else 1
    weight: jax.Array  # float32 [b]: importance weight; 0 where there is nothing to learn (see `memory.ring`)
    extras: PyTree = ()  # [b, ...] what was stored beside the first row, see `memory.ring.Row`
    boot_extras: PyTree = ()  # [b, ...] beside the row of boot_obs; beside the last row where the episode was cut

    __repr__ = summary


@dataclasses.dataclass(frozen=True, repr=False)
class Sequence:
    """A replay memory's answer for a recurrent learner: M = sequence length + n_step rows in a row, whatever ends in them.

    An episode's end does not cut it: unroll from `carry` over all M rows, with a fresh carry before the rows of
    `reset`. Learn from the rows of `use`. The return of one of them runs over at most n_step rows on: up to and with
    a termination (no bootstrap) or a row of `cut` (bootstrap from its cut_obs, with the carry after it), up to but
    without another truncated row (bootstrap from its own observation).
    """

    steps: PyTree  # rows [M, b, ...] with obs as the agent saw them, terminated and truncated
    carry: PyTree  # [b, ...] with which steps[0] was acted
    use: jax.Array  # bool [M, b]: not for burn-in, for the last n_step rows (they are for targets), or truncated and not cut
    weight: jax.Array  # float32 [b]: importance weight; 0 for a sequence without any row to use
    cut: jax.Array  # bool [M, b]: truncated, and the observation in which the episode was cut is there
    cut_obs: PyTree  # [M, b, ...]: that observation where `cut`; () where none is kept
    burn_in: int  # static: the first rows, which only bring the carry up to date

    __repr__ = summary

    @property
    def reset(self) -> jax.Array:
        """bool [M, b]: an episode starts at the row. Never at the first, whose carry is given."""
        done = self.steps.terminated | self.steps.truncated
        return jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])


jax.tree_util.register_dataclass(Sequence, ["steps", "carry", "use", "weight", "cut", "cut_obs"], ["burn_in"])


class Clock(NamedTuple):
    """Where the run stands. Never batched over the population, so `cond` on it stays a real branch."""

    iteration: jax.Array  # int32: t, from 0, warm-up included
    update: jax.Array  # int32: u = t * updates + i
    progress: jax.Array  # float32 in [0, 1]: the fraction of the horizon that is done; clamps past it
    first: jax.Array | int = 0  # int32: the update that learned first; those before it are warm-up's

    def anneal(self, start: Any, end: Any, fraction: Any = 1.0) -> jax.Array:
        """Linear from `start` to `end` over the first `fraction` of the horizon, then constant."""
        return start + (end - start) * jnp.clip(self.progress / fraction, 0.0, 1.0)

    def steps(self, period: int = 1) -> jax.Array:
        """Steps before this one of an optimizer that takes one at every `period`-th update."""
        return (self.update + period - 1) // period - (self.first + period - 1) // period

    def step_size(self, algo: Any, period: int = 1) -> Any:
        """The learning rate of `algo` by now: its schedule at `steps(period)`, or its number, annealed where it says so."""
        rate = algo.learning_rate
        if callable(rate):
            return rate(self.steps(period))
        return rate * (1.0 - self.progress) if algo.anneal_learning_rate else rate


class Mean(NamedTuple):
    """A metric as a sum and a count, so that any number of iterations adds up to one mean; 0/0 means 'none'."""

    total: jax.Array
    count: jax.Array

    @classmethod
    def of(cls, value: jax.Array, count: float = 1.0) -> Mean:
        return cls(jnp.asarray(value, jnp.float32), jnp.asarray(count, jnp.float32))

    __repr__ = summary


class _Episodes(NamedTuple):
    ret: jax.Array
    length: jax.Array
    lost: jax.Array

    __repr__ = summary


class Episodes(_Episodes):
    """Running return and length of the episode that every environment is in, [B].

    ret: float32, the nearest to the sum of its rewards; lost: float32, what is left of that sum (`jaxrl_fast.ops.sums`).
    """

    __slots__ = ()

    def __new__(cls, ret: Any, length: Any, *lost: Any) -> Episodes:
        return super().__new__(cls, ret, length, *lost or (jnp.zeros_like(ret),))


class RunState(NamedTuple):
    """A whole run between two iterations; what a checkpoint holds."""

    agent: PyTree
    env: PyTree
    obs: PyTree
    carry: PyTree
    memory: PyTree
    episodes: Episodes
    key: jax.Array  # the root key: only ever folded with t, never split

    __repr__ = summary
