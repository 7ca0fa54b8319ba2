"""The pytrees that all parts share. Time comes first, then environments: [T, B, ...]."""

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
    """The description of an environment: spaces, limits, name. Static and hashable.

    Attributes:
        observation, action: spaces. A `Dict` observation with the entry `action_mask` (bool, a flag
            an action, True where legal) restricts a Discrete action.
        max_episode_steps: time limit after which an episode is truncated; None: no limit.
        stack: the agent sees the last `stack` frames, joined along the last axis, oldest first;
            `observation` describes one frame.
        own_observation, own_action: the environment's own form, if different (`envs.own_spaces`).
    """

    name: str
    observation: Space
    action: Space
    max_episode_steps: int | None = None
    stack: int = 1
    own_observation: Own | OwnDict | None = dataclasses.field(default=None, repr=False)
    own_action: Own | OwnDict | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError("EnvSpec.name", self.name, "a name, such as 'CartPole-v1'")
        for name, space in (("observation", self.observation), ("action", self.action)):
            if not isinstance(space, Space):
                foreign = type(space).__module__.partition(".")[0]
                hint = ""
                if hasattr(space, "contains"):
                    hint = f". Spaces of {foreign} are for environments of {foreign}"
                valid = f"jf.Discrete, jf.MultiDiscrete, jf.Box or jf.Dict{hint}"
                raise ConfigError(f"{self.name}: EnvSpec.{name}", space, valid)
        if self.max_episode_steps is not None:
            check_int(f"{self.name}: max_episode_steps", self.max_episode_steps)


@dataclasses.dataclass(frozen=True)
class Lasting:
    """A part of an environment's state that outlives episodes, such as a level reached."""

    value: PyTree  # [B, ...]; `Env.step` keeps it in new episodes


jax.tree_util.register_dataclass(Lasting, ["value"], [])


def lasting(state: PyTree) -> list[Lasting]:
    """Return the parts of a state that outlive episodes."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Lasting))
    return [x for x in leaves if isinstance(x, Lasting)]


def keep_lasting(state: PyTree, fresh: PyTree) -> PyTree:
    """Return the fresh state with the `Lasting` parts of `state`."""
    if not lasting(state):
        return fresh
    pick = lambda new, old: old if isinstance(new, Lasting) else new
    return jax.tree.map(pick, fresh, state, is_leaf=lambda x: isinstance(x, Lasting))


class Outcome(NamedTuple):
    """The result of a transition, before any reset: `next_obs` is the true successor."""

    next_obs: PyTree  # [B, ...]
    reward: jax.Array  # float32 [B]
    terminated: jax.Array  # bool [B]: ended by the task's rules; the value beyond is zero
    # bool [B]: cut off (time limit); the value continues. If both are set, it terminated
    truncated: jax.Array
    info: dict[str, jax.Array] | tuple[()] = ()  # float32 [B] by name, for the log (`reports`)
    # The task's own reward and end, for the log, if the learner's differ: clipped, at a lost life.
    score: jax.Array | tuple[()] = ()  # float32 [B]; (): `reward`
    over: jax.Array | tuple[()] = ()  # bool [B], only where an episode ends; (): every end

    __repr__ = summary


def given(value: Any, default: Any) -> Any:
    """Return `value`, or `default` for (), which stands for no value."""
    return default if isinstance(value, tuple) and not value else value


class Report(NamedTuple):
    """The fields of an `Outcome` that are for the log alone."""

    info: dict[str, jax.Array] | tuple[()] = ()
    score: jax.Array | tuple[()] = ()
    over: jax.Array | tuple[()] = ()

    __repr__ = summary


class Timestep(NamedTuple):
    """One row of experience; `next_obs` is the successor BEFORE any reset."""

    obs: PyTree
    action: PyTree
    next_obs: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    extras: PyTree = ()  # extras of `Algorithm.act`
    report: Report = Report()  # learners and memories never see it
    reset_only: PyTree = ()  # bool [B]: the row is a reset (see `HostStep.real`); () if none is

    @property
    def done(self) -> jax.Array:
        return self.terminated | self.truncated

    __repr__ = summary


class Trajectory(NamedTuple):
    """The result of `collect`: T steps of B environments, and both ends."""

    steps: Timestep  # [T, B, ...]
    # the policy's recurrent state before the first step [B, ...]; () if feed-forward
    first_carry: PyTree
    first_obs: PyTree  # [B, ...] the agent's first observation
    last_obs: PyTree  # [B, ...] its next one (after a reset, if the last step ended an episode)
    fault: PyTree = ()  # int8 [T, B], see `engine.rollout.fault`, or ()

    __repr__ = summary


class Window(NamedTuple):
    """A replay memory's batch: n-step windows within an episode, before the write head.

    The return of row b is  sum_i gamma^i reward[i, b] use[i, b]  +  gamma^steps[b] boot[b]
    V(boot_obs[b]). A truncated row is the last one in `use`, and boot_obs is its true successor.
    """

    obs: PyTree  # [b, ...]
    action: PyTree  # [b, ...]
    reward: jax.Array  # float32 [n, b]
    use: jax.Array  # bool [n, b]
    steps: jax.Array  # int32 [b]
    boot_obs: PyTree  # [b, ...]
    boot: jax.Array  # float32 [b]: 0 after a termination, else 1
    # float32 [b]: importance weight; 0 if there is nothing to learn (see `memory.ring`)
    weight: jax.Array
    extras: PyTree = ()  # [b, ...] stored beside the first row, see `memory.ring.Row`
    boot_extras: PyTree = ()  # [b, ...] beside the row of boot_obs, or beside a truncated last row

    __repr__ = summary


@dataclasses.dataclass(frozen=True, repr=False)
class Sequence:
    """A recurrent learner's batch: M = sequence length + n_step consecutive rows.

    Unroll from `carry` over all M rows, with a fresh carry before the rows of `reset`. Learn from
    the rows of `use`. A row's return runs over at most n_step rows: up to and including a
    termination (no bootstrap) or a row of `cut` (bootstrap from its cut_obs, with the carry after
    it), and before another truncated row (bootstrap from its own observation).
    """

    steps: PyTree  # rows [M, b, ...], obs as the agent saw them
    carry: PyTree  # [b, ...] before steps[0]
    # bool [M, b]: False for burn-in, the last n_step rows, truncated rows not in `cut`
    use: jax.Array
    weight: jax.Array  # float32 [b]: importance weight; 0 without a row to use
    cut: jax.Array  # bool [M, b]: truncated, with its successor in cut_obs
    cut_obs: PyTree  # [M, b, ...]: successors where `cut`; () if none are kept
    burn_in: int  # static: first rows, which only update the carry

    __repr__ = summary

    @property
    def reset(self) -> jax.Array:
        """Return bool [M, b]: an episode starts at the row (False for the first row)."""
        done = self.steps.terminated | self.steps.truncated
        return jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])


jax.tree_util.register_dataclass(Sequence, ["steps", "carry", "use", "weight", "cut", "cut_obs"],
                                 ["burn_in"])


class Clock(NamedTuple):
    """The time of a run. Never batched over the population, so `cond` on it is a real branch."""

    iteration: jax.Array  # int32: t, from 0, warm-up included
    update: jax.Array  # int32: u = t * updates + i
    progress: jax.Array  # float32 in [0, 1]: fraction of the horizon; clamped beyond it
    first: jax.Array | int = 0  # int32: the first update that learned, after warm-up's

    def anneal(self, start: Any, end: Any, fraction: Any = 1.0) -> jax.Array:
        """Interpolate from `start` to `end` over `fraction` of the horizon, then stay constant."""
        return start + (end - start) * jnp.clip(self.progress / fraction, 0.0, 1.0)

    def steps(self, period: int = 1) -> jax.Array:
        """Return the earlier steps of an optimizer that steps every `period`-th update."""
        return (self.update + period - 1) // period - (self.first + period - 1) // period

    def step_size(self, algo: Any, period: int = 1) -> Any:
        """Return the current learning rate: a schedule's, or an annealed number."""
        rate = algo.learning_rate
        if callable(rate):
            return rate(self.steps(period))
        return rate * (1.0 - self.progress) if algo.anneal_learning_rate else rate


class Mean(NamedTuple):
    """A metric as a sum and a count, which add up to one mean; 0/0 means "none"."""

    total: jax.Array
    count: jax.Array

    @classmethod
    def of(cls, value: jax.Array, count: float = 1.0) -> Mean:
        return cls(jnp.asarray(value, jnp.float32), jnp.asarray(count, jnp.float32))

    __repr__ = summary


class _Episodes(NamedTuple):
    ret: jax.Array  # float32, nearest to the sum of its rewards
    length: jax.Array  # int32
    lost: jax.Array  # float32, the rounding error of `ret` (`ops.sums`)


class Episodes(_Episodes):
    """Running return and length of every environment's episode, [B]; without `lost`, exact."""

    __slots__ = ()

    def __new__(cls, ret: Any, length: Any, lost: Any = ...) -> Episodes:
        return super().__new__(cls, ret, length, jnp.zeros_like(ret) if lost is ... else lost)

    __repr__ = summary


class RunState(NamedTuple):
    """A whole run between two iterations; the content of a checkpoint."""

    agent: PyTree
    env: PyTree
    obs: PyTree
    carry: PyTree
    memory: PyTree
    episodes: Episodes
    key: jax.Array  # the root key: folded with t, never split

    __repr__ = summary
