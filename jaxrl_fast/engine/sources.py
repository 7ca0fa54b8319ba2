"""Sources of rollouts: environments in the program, actors on the host, or none (a dataset)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.common.learning import Metrics, Played
from jaxrl_fast.engine import rollout
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.rows import FAULTS
from jaxrl_fast.types import Clock, Mean, Report, RunState, Trajectory

if TYPE_CHECKING:
    from jaxrl_fast.engine.iteration import Run

NO_EPISODES = ("episode_return", "episode_length")  # metrics without counts if nothing is played


class Source:
    """How an iteration gets its rollout. A pytree, and a part of `Run`."""

    def updates(self, algo: Algorithm) -> int:
        """Return the updates of an iteration."""
        return algo.updates

    def warmup(self, algo: Algorithm) -> int:
        """Return the iterations without updates at the start of a run."""
        return algo.warmup_iterations

    def draw(self, run: Run, keys: tuple[jax.Array, jax.Array], t: jax.Array) -> Any:
        """Draw the randomness of a rollout, if any. keys: the environments' and the policy's."""
        return ()

    def collect(
        self, run: Run, state: RunState, agent: Any, noise: Any, clock: Clock,
        mode: str, start: Any = None
    ) -> Played:
        """Return the rollout of `agent` from `start` (see `begin`), or from `state` by default."""

    def begin(self, run: Run, state: RunState, key: jax.Array, t: jax.Array) -> Any:
        """Return a start with new episodes in every environment."""

    def after(self, run: Run, state: RunState, played: Played) -> tuple[RunState, Metrics]:
        """Return `state` with its environments after the rollout, and the rollout's metrics."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class FromEnvironments(Source):
    """Rollouts of environments in the program."""

    def draw(self, run, keys, t):
        return rollout.draw(run.env, run.algo, keys, run.algo.num_steps, run.algo.num_envs, t)

    def collect(self, run, state, agent, noise, clock, mode, start=None):
        actor = rollout.Actor(state.env, state.obs, state.carry) if start is None else start
        how = mode, run.unroll, run.algo.whole_rollouts, None, run.groups > 1
        actor, trajectory = rollout.collect(run.env, run.algo, agent, actor, noise, clock, *how)
        trajectory, report = rollout.without_report(trajectory)
        before = state.episodes if start is None else jax.tree.map(jnp.zeros_like, state.episodes)
        return Played(actor, trajectory, report, before)

    def begin(self, run, state, key, t):
        return rollout.init(run.env, run.algo, key, run.algo.num_envs, t, state.env)

    def after(self, run, state, played):
        actor = played.actor
        episodes, metrics = rollout.episode_statistics(played.episodes, played.score, played.over)
        state = state._replace(env=actor.env, obs=actor.obs, carry=actor.carry, episodes=episodes)
        return state, metrics | {FAULTS: rollout.faults(run.env.spec.action, played.trajectory)}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FromActors(Source):
    """A rollout by actors on the host; they keep the environments and count episodes."""

    trajectory: Trajectory

    def collect(self, run, state, agent, noise, clock, mode, start=None):
        if agent is not state.agent:
            raise _refusal(run, "learns from rollouts of agents that it makes itself")
        return Played((), self.trajectory, Report(), ())

    def begin(self, run, state, key, t):
        raise _refusal(run, "begins new episodes in every iteration")

    def after(self, run, state, played):
        return state, {FAULTS: rollout.faults(run.env.spec.action, played.trajectory)}


def _refusal(run: Run, does: str) -> ConfigError:
    return ConfigError("environment", run.env.spec.name,
                       f"one on the device: {run.algo.name} {does}")


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class FromDataset(Source):
    """A dataset in place of rollouts. per_iteration: updates; None: the algorithm's."""

    per_iteration: int | None = None

    def updates(self, algo):
        return algo.updates if self.per_iteration is None else self.per_iteration

    def warmup(self, algo):
        return 0

    def collect(self, run, state, agent, noise, clock, mode, start=None):
        return Played((), None, Report(), ())

    def begin(self, run, state, key, t):
        raise ConfigError("algo", run.algo.name,
                          "an algorithm that learns from replay, such as dqn")

    def after(self, run, state, played):
        return state, dict.fromkeys(NO_EPISODES, Mean(jnp.float32(0), jnp.float32(0)))
