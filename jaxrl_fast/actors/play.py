"""Playing in environments on the host: rollouts that are put together on the device, evaluations, pictures.

What `collect` does in one scan happens here step by step: the device acts, the host steps. Every observation goes to the
device once, where the policy looks at it and the row of the trajectory is written; `Trajectory` comes out as `collect`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.actors.watch import Watch, watched
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.rollout import Actor
from jaxrl_fast.envs.host import checks
from jaxrl_fast.envs.host.api import HostEnv, HostStep, Vector, Wrapped
from jaxrl_fast.ops import stacking
from jaxrl_fast.spaces import Box, Space
from jaxrl_fast.types import Clock, Timestep, Trajectory

STEP_LIMIT = 27_000  # steps of an episode, where an environment has no limit of its own


class Seen(NamedTuple):
    """What a step brought, for the device. `final`: the true successors, None where they are what is seen next."""

    obs: Any
    final: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    real: np.ndarray | None = None  # see `HostStep`

    @classmethod
    def of(cls, step: HostStep) -> Seen:
        final = None if step.next_obs is step.obs else step.next_obs
        return cls(step.obs, final, step.reward, step.terminated, step.truncated, step.real)

    def columns(self) -> dict[str, Any]:
        """Columns of the trajectory that a step brings."""
        return {"next_obs": self.obs if self.final is None else self.final, "reward": self.reward,
                "terminated": self.terminated, "truncated": self.truncated}  # fmt: skip


def start_clock() -> Clock:
    return Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))


def _blank(algo: Algorithm, frame: Any, action: Any, extras: Any) -> Timestep:
    """A rollout with nothing in it: zeros [T, B, ...]."""
    batch = jax.tree.leaves(frame)[0].shape[:1]
    no = jnp.zeros(batch, bool)
    row = Timestep(frame, action, frame, jnp.zeros(batch), no, no, extras, reset_only=no)
    return jax.tree.map(lambda x: jnp.zeros((algo.num_steps, *x.shape), x.dtype), row)


def _write(rows: Any, row: Any, i: jax.Array) -> Any:
    put = lambda rows, row: jax.lax.dynamic_update_index_in_dim(rows, row.astype(rows.dtype), i, 0)
    return jax.tree.map(put, rows, row)


def _look(algo: Algorithm, actor: Actor, steps: Timestep, seen: Seen, i: jax.Array) -> tuple[Actor, Timestep]:
    """Write what row i brought, and look at what there is now."""
    done = seen.terminated | seen.truncated
    columns = seen.columns() | ({} if seen.real is None else {"reset_only": ~seen.real})
    steps = steps._replace(**{name: _write(getattr(steps, name), x, i) for name, x in columns.items()})
    return see(algo, actor, seen.obs, done), steps


@functools.partial(jax.jit, static_argnames="mode", donate_argnames="steps")
def step(
    algo: Algorithm, agent: Any, actor: Actor, steps: Timestep | None, seen: Seen | None, noise: Any, clock: Clock, i: Any,
    mode: str,
) -> tuple[Actor, Timestep, Any]:  # fmt: skip
    """Look at what row i - 1 brought and act in row i -> (actor, rows [T, B], action [B]).

    At the first row there are neither rows nor anything seen: None.
    """
    if seen is not None:
        actor, steps = _look(algo, actor, steps, seen, i - 1)
    carry, action, extras = algo.act(agent, actor.carry, actor.obs, tree.take(noise, i), clock, mode)
    frame = stacking.newest(actor.obs, algo.spec.stack)
    if steps is None:
        steps = _blank(algo, frame, action, extras)
    steps = steps._replace(
        obs=_write(steps.obs, frame, i),
        action=_write(steps.action, action, i),
        extras=_write(steps.extras, extras, i),
    )
    return actor._replace(carry=carry), steps, action


@functools.partial(jax.jit, donate_argnames="steps")
def end(algo: Algorithm, start: Actor, actor: Actor, steps: Timestep, seen: Seen, i: Any) -> tuple[Actor, Trajectory]:
    """Look at what the last row brought: the rollout is whole."""
    actor, steps = _look(algo, actor, steps, seen, i)
    return actor, Trajectory(steps, start.carry, start.obs, actor.obs)


@functools.partial(jax.jit, static_argnames=("first", "of"))
def begin(algo: Algorithm, obs: Any, first: int = 0, of: int | None = None) -> Actor:
    """Fresh episodes everywhere; `obs` [B, ...] are their first frames. They are those from `first` on among `of`,
    None in evaluations.
    """
    batch = jax.tree.leaves(obs)[0].shape[0]
    carry = algo.evaluation_carry(batch) if of is None else tree.take(algo.init_carry(of), slice(first, first + batch))
    return Actor((), stacking.start(obs, algo.spec.stack), carry)


@jax.jit
def _acting(algo: Algorithm, agent: Any) -> Any:
    return algo.acting(agent)


def acting(algo: Algorithm, agent: Any) -> Any:
    """What `act` gets; the agent itself, without a copy, where there is nothing to prepare."""
    return agent if type(algo).acting is Algorithm.acting else _acting(algo, agent)


def see(algo: Algorithm, actor: Actor, obs: Any, done: jax.Array) -> Actor:
    """The frames `obs` come into view, where `done` those of a new episode."""
    return actor._replace(obs=stacking.advance(actor.obs, obs, done, algo.spec.stack))


@functools.partial(jax.jit, static_argnames="mode")
def _act(algo: Algorithm, agent: Any, actor: Actor, seen: tuple[Any, Any] | None, key: jax.Array, i: Any, mode: str):
    """Look at (obs, done), None at the start, and act."""
    if seen is not None:
        actor = see(algo, actor, *seen)
    batch = jax.tree.leaves(actor.obs)[0].shape[0]
    noise = tree.take(algo.draw(random.fold_in(key, i), 1, batch), 0)
    carry, action, _ = algo.act(agent, actor.carry, actor.obs, noise, start_clock(), mode)
    return actor._replace(carry=carry), action


def playable(space: Space, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(action, bool [B] or None): with some action in place of those of a policy whose outputs are NaN, and whose they were."""
    if isinstance(space, Box) and action.dtype.kind != "f":
        return action, None
    sound = np.isfinite(action) if isinstance(space, Box) else action >= 0
    if sound.all():
        return action, None
    return np.where(sound, action, 0).astype(action.dtype), ~sound.reshape(len(action), -1).all(1)


def play(algo: Algorithm, agent: Any, vector: Vector, key: jax.Array, mode: str, watch: Watch) -> Iterator[HostStep]:
    """Step `vector` under a fixed policy for ever; the score of a step whose action was not finite is NaN."""
    agent = acting(algo, agent)
    with watch.asked():
        obs = vector.reset()
    checks.check(algo.spec, vector.num_envs, obs)
    actor, seen, i = begin(algo, obs), None, 0
    while not watch.stopped:
        actor, action = _act(algo, agent, actor, seen, key, np.int32(i), mode)
        action, bad = playable(algo.spec.action, np.asarray(action))
        with watch.asked():
            vector.send(action)
            found = vector.receive()
        checks.check_step(algo.spec, vector.num_envs, found)
        yield found if bad is None else found._replace(score=np.where(bad, np.nan, found.score))
        seen, i = (found.obs, found.terminated | found.truncated), i + 1


def evaluate(
    env: HostEnv, algo: Algorithm, agent: Any, key: jax.Array, episodes: int, mode: str, max_steps: int | None = None,
    patience: float = 120.0, stopping: Callable[[], bool] = lambda: False,
    told: Callable[[int, int], None] = lambda played, episodes: None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(return, length, finished) [episodes] of whole games, by the game's own reward.

    Every environment plays a number of games that is fixed beforehand, so short games are not counted more often.
    Where a game does not end within the limit, its next part counts as another one.
    """
    watch = Watch(env.spec.name, patience)
    return watched(watch, lambda: _evaluate(env, algo, agent, key, episodes, mode, max_steps, watch, told), stopping)


def _evaluate(env, algo, agent, key, episodes, mode, max_steps, watch, told):
    num_envs = min(episodes, env.evaluated)
    quota = np.full(num_envs, episodes // num_envs) + (np.arange(num_envs) < episodes % num_envs)
    limit = max_steps or env.spec.max_episode_steps or STEP_LIMIT
    score, length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
    games: list[tuple[float, int, bool]] = []
    vector = watch.open(env, num_envs, seed_of(key), training=False)
    told(0, episodes)
    for step in play(algo, agent, vector, key, mode, watch):
        real = np.ones(num_envs, bool) if step.real is None else step.real
        score, length = score + step.score * real, length + real
        ended = step.over | (length >= limit)
        for i in np.flatnonzero(ended & (quota > 0)):
            games.append((float(score[i]), int(length[i]), bool(step.over[i])))
            quota[i] -= 1
            told(len(games), episodes)
        score[ended], length[ended] = 0.0, 0
        if not quota.any():
            break
    ret, lengths, finished = zip(*games, strict=True)
    return np.array(ret, np.float32), np.array(lengths, np.int32), np.array(finished)


def frames(
    env: HostEnv, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int, patience: float = 120.0
) -> list[np.ndarray] | None:
    """One game as pictures, uint8 [H, W, 3] each, its last state among them; None where it cannot be drawn.

    A game that has not ended is cut after `max_steps` pictures.
    """
    watch = Watch(env.spec.name, patience)
    return watched(watch, lambda: _frames(env, algo, agent, key, max_steps, watch))


class Filmed(Wrapped):
    """`vector`, and a picture of its first environment after each reset and step; None for those without one."""

    def __init__(self, vector: Vector):
        super().__init__(vector)
        self.pictures: list[np.ndarray | None] = []

    def reset(self):
        obs = super().reset()
        self.pictures.append(self.render())
        return obs

    def receive(self):
        step = super().receive()
        self.pictures.append(self.render())
        return step


def _frames(env, algo, agent, key, max_steps, watch):
    vector = Filmed(watch.open(env, 1, seed_of(key), training=False, render=True))
    for step in play(algo, agent, vector, key, "greedy", watch):
        if vector.pictures[0] is None or step.over[0] or len(vector.pictures) >= max_steps:
            break
    return [picture for picture in vector.pictures if picture is not None] or None


def seed_of(key: jax.Array, i: int = 0) -> int:
    """A seed for environments on the host, int31."""
    return int(random.bits(random.fold_in(key, i), ()) >> 1)
