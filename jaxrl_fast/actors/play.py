"""Playing in environments on the host: rollouts built on the device, evaluations, pictures.

The scan of `collect` becomes single steps, with the same `Trajectory`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.actors.watch import Watch, run_watched
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.evaluate import STEP_LIMIT
from jaxrl_fast.engine.rollout import Actor
from jaxrl_fast.envs.host import checks
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.host.vector import HostStep, Vector, Wrapped
from jaxrl_fast.ops import stacking
from jaxrl_fast.ops.scopes import POLICY, STORE, scope
from jaxrl_fast.spaces import Box, Space
from jaxrl_fast.types import Clock, Timestep, Trajectory


class Seen(NamedTuple):
    """The results of a step, for the device. `final`: true successors, None if equal to `obs`."""

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
        """Return a step's columns of the trajectory."""
        return {"next_obs": self.obs if self.final is None else self.final, "reward": self.reward,
                "terminated": self.terminated, "truncated": self.truncated}  # fmt: skip


def start_clock() -> Clock:
    return Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))


def _blank(algo: Algorithm, frame: Any, action: Any, extras: Any) -> Timestep:
    batch = jax.tree.leaves(frame)[0].shape[:1]
    no = jnp.zeros(batch, bool)
    row = Timestep(frame, action, frame, jnp.zeros(batch, jnp.float32),
                   no, no, extras, reset_only=no)
    return jax.tree.map(lambda x: jnp.zeros((algo.num_steps, *x.shape), x.dtype), row)


def _write(rows: Any, row: Any, i: jax.Array) -> Any:
    put = lambda rows, row: jax.lax.dynamic_update_index_in_dim(rows, row.astype(rows.dtype), i, 0)
    with scope(STORE):
        return jax.tree.map(put, rows, row)


def _look(algo: Algorithm, actor: Actor, steps: Timestep, seen: Seen,
          i: jax.Array) -> tuple[Actor, Timestep]:
    done = seen.terminated | seen.truncated
    columns = seen.columns() | ({} if seen.real is None else {"reset_only": ~seen.real})
    steps = steps._replace(
        **{name: _write(getattr(steps, name), x, i) for name, x in columns.items()}
    )
    return see(algo, actor, seen.obs, done), steps


@functools.partial(jax.jit, static_argnames="mode", donate_argnames="steps")
def step(
    algo: Algorithm, agent: Any, actor: Actor, steps: Timestep | None, seen: Seen | None,
    noise: Any, clock: Clock, i: Any, mode: str,
) -> tuple[Actor, Timestep, Any]:  # fmt: skip
    """Write row i - 1's results (none at first), act in row i -> (actor, rows [T, B], action)."""
    if seen is not None:
        actor, steps = _look(algo, actor, steps, seen, i - 1)
    with scope(POLICY):
        carry, action, extras = algo.act(agent, actor.carry, actor.obs,
                                         tree.take(noise, i), clock, mode)
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
def end(algo: Algorithm, start: Actor, actor: Actor, steps: Timestep,
        seen: Seen, i: Any) -> tuple[Actor, Trajectory]:
    """Write the last row's results and return (actor, the whole rollout)."""
    actor, steps = _look(algo, actor, steps, seen, i)
    return actor, Trajectory(steps, start.carry, start.obs, actor.obs)


@functools.partial(jax.jit, static_argnames=("first", "of"))
def begin(algo: Algorithm, obs: Any, first: int = 0, of: int | None = None) -> Actor:
    """Begin episodes with first frames `obs` [B, ...], environments from `first` among `of`."""
    batch = jax.tree.leaves(obs)[0].shape[0]
    carry = (algo.evaluation_carry(batch) if of is None
             else tree.take(algo.init_carry(of), slice(first, first + batch)))
    return Actor((), stacking.start(obs, algo.spec.stack), carry)


def acting(algo: Algorithm, agent: Any) -> Any:
    """Return the agent for `act`: itself, without a copy, if nothing is to prepare."""
    same = type(algo).acting is Algorithm.acting
    return agent if same else jax.jit(type(algo).acting)(algo, agent)


def see(algo: Algorithm, actor: Actor, obs: Any, done: jax.Array) -> Actor:
    """Add frames `obs` to the view, where `done` as a new episode's."""
    return actor._replace(obs=stacking.advance(actor.obs, obs, done, algo.spec.stack))


@functools.partial(jax.jit, static_argnames="mode")
def _act(algo: Algorithm, agent: Any, actor: Actor, seen: tuple[Any, Any] | None,
         key: jax.Array, i: Any, mode: str):
    if seen is not None:
        actor = see(algo, actor, *seen)
    batch = jax.tree.leaves(actor.obs)[0].shape[0]
    noise = tree.take(algo.draw(random.fold_in(key, i), 1, batch), 0)
    carry, action, _ = algo.act(agent, actor.carry, actor.obs, noise, start_clock(), mode)
    return actor._replace(carry=carry), action


def playable(space: Space, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (action, bool [B] or None): valid actions, and where they replace NaN outputs."""
    if isinstance(space, Box) and action.dtype.kind != "f":
        return action, None
    sound = np.isfinite(action) if isinstance(space, Box) else action >= 0
    if sound.all():
        return action, None
    return np.where(sound, action, 0).astype(action.dtype), ~sound.reshape(len(action), -1).all(1)


def play(algo: Algorithm, agent: Any, vector: Vector, key: jax.Array,
         mode: str, watch: Watch) -> Iterator[HostStep]:
    """Step `vector` under a fixed policy, endlessly; a step with a non-finite action scores NaN."""
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
    env: HostEnv, algo: Algorithm, agent: Any, key: jax.Array, episodes: int,
    mode: str, max_steps: int | None = None,
    watch: Watch | None = None, stopping: Callable[[], bool] = lambda: False,
    told: Callable[[int, int], None] = lambda played, episodes: None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return (return, length, finished) [episodes] of whole games, by the game's own reward.

    Every environment plays a fixed number of games, so short games count no more often.
    """
    watch, num_envs = watch or Watch(env.spec.name), min(episodes, env.evaluated)
    quota = np.full(num_envs, episodes // num_envs) + (np.arange(num_envs) < episodes % num_envs)
    limit = max_steps or env.spec.max_episode_steps or STEP_LIMIT
    games: list[tuple[float, int, bool]] = []

    def play_all() -> None:
        score, length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
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

    run_watched(watch, play_all, stopping)
    ret, lengths, finished = zip(*games, strict=True)
    return np.array(ret, np.float32), np.array(lengths, np.int32), np.array(finished)


def frames(
    env: HostEnv, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int,
    patience: float = 120.0
) -> list[np.ndarray] | None:
    """Return a game's frames, uint8 [H, W, 3] each, `max_steps` at most, or None."""
    watch = Watch(env.spec.name, patience)

    def play_one() -> list[np.ndarray] | None:
        vector = Filmed(watch.open(env, 1, seed_of(key), training=False, render=True))
        for step in play(algo, agent, vector, key, "greedy", watch):
            if vector.pictures[0] is None or step.over[0] or len(vector.pictures) >= max_steps:
                break
        return [picture for picture in vector.pictures if picture is not None] or None

    return run_watched(watch, play_one)


class Filmed(Wrapped):
    """`vector` with a picture of its first environment after each reset and step, or None."""

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


def seed_of(key: jax.Array, i: int = 0) -> int:
    """Return a seed for environments on the host, int31."""
    return int(random.bits(random.fold_in(key, i), ()) >> 1)
