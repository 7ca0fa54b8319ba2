"""Asynchronous groups of environments: EnvPool with `batch_size` below `num_envs`.

The policy acts for the first `at_once` environments that have stepped; fast ones lead by some rows.
Rows stand in a ring on the device [L, B]; a rollout is cut out once every environment has T rows.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.groups import Group, SyncGroup, go_on
from jaxrl_fast.actors.handover import Rollout
from jaxrl_fast.actors.play import Seen
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.grid import AHEAD, ring_rows
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.rollout import Actor
from jaxrl_fast.engine.streams import iteration_keys
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.logs.walltime import WallTime
from jaxrl_fast.ops import stacking
from jaxrl_fast.types import Clock, Timestep, Trajectory


class Ring(NamedTuple):
    actor: Actor  # [B] what the agent sees now
    ends: Actor  # [L / T, B] what it saw after the last row of each rollout in the ring
    steps: Timestep  # [L, B, ...]


class Some(NamedTuple):
    """Some environments, [b], padded with the number B for none."""

    ids: np.ndarray
    row: np.ndarray  # place in the ring


def _put(rows: Any, at: tuple, values: Any) -> Any:
    return jax.tree.map(lambda rows, x: rows.at[at].set(x.astype(rows.dtype), mode="drop"),
                        rows, values)


def _at(batch: Any, ids: Any) -> Any:
    return jax.tree.map(lambda x: x.at[ids].get(mode="clip"), batch)


def _look(algo: Algorithm, ring: Ring, seen: Seen, of: Some) -> Ring:
    steps, at = ring.steps, (of.row, of.ids)
    steps = steps._replace(**{name: _put(getattr(steps, name), at, x)
                              for name, x in seen.columns().items()})
    now = play.see(algo, _at(ring.actor, of.ids), seen.obs, seen.terminated | seen.truncated)
    rollout = of.row // algo.num_steps
    ending = jnp.where((of.row + 1) % algo.num_steps == 0, of.ids, steps.reward.shape[1])
    return Ring(_put(ring.actor, (of.ids,), now), _put(ring.ends, (rollout, ending), now), steps)


@functools.partial(jax.jit, static_argnames="mode", donate_argnames="ring")
def step(
    algo: Algorithm, agent: Any, ring: Ring, seen: Seen | None, came: Some, to: Some,
    key: jax.Array, i: Any, clock: Clock, mode: str,
) -> tuple[Ring, Any]:  # fmt: skip
    """Write results `seen` (or None) of rows `came`, act in rows `to` -> (ring, action [b])."""
    if seen is not None:
        ring = _look(algo, ring, seen, came)
    now, at = _at(ring.actor, to.ids), (to.row, to.ids)
    noise = tree.take(algo.draw(random.fold_in(key, i), 1, to.ids.shape[0]), 0)
    carry, action, extras = algo.act(agent, now.carry, now.obs, noise, clock, mode)
    steps = ring.steps._replace(
        obs=_put(ring.steps.obs, at, stacking.newest(now.obs, algo.spec.stack)),
        action=_put(ring.steps.action, at, action),
        extras=_put(ring.steps.extras, at, extras),
    )
    actor = ring.actor._replace(carry=_put(ring.actor.carry, (to.ids,), carry))
    return ring._replace(actor=actor, steps=steps), action


@functools.partial(jax.jit, donate_argnames="ring")
def end(algo: Algorithm, start: Actor, ring: Ring, seen: Seen,
        came: Some, base: Any) -> tuple[Ring, Actor, Trajectory]:
    """Write the last results and cut out the rollout -> (ring, next start, rollout)."""
    ring = _look(algo, ring, seen, came)
    steps = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, base, algo.num_steps),
                         ring.steps)
    after = tree.take(ring.ends, base // algo.num_steps)
    return ring, after, Trajectory(steps, start.carry, start.obs, after.obs)


@functools.partial(jax.jit, static_argnames="length")
def begin(algo: Algorithm, agent: Any, actor: Actor, length: int) -> Ring:
    batch = jax.tree.leaves(actor.obs)[0].shape[0]

    def row(agent, actor):
        noise = tree.take(algo.draw(jax.random.key(0), 1, batch), 0)
        _, action, extras = algo.act(agent, actor.carry, actor.obs, noise,
                                     play.start_clock(), "sample")
        frame = stacking.newest(actor.obs, algo.spec.stack)
        return Timestep(frame, action, frame, jnp.zeros(batch), jnp.zeros(batch, bool),
                        jnp.zeros(batch, bool), extras)

    steps = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype),
                         jax.eval_shape(row, agent, actor))
    # the ring is donated, and the first rollout still starts from these
    copy = lambda x: jnp.array(x, copy=True)
    ends = jax.tree.map(lambda x: jnp.zeros((length // algo.num_steps, *x.shape), x.dtype), actor)
    return Ring(jax.tree.map(copy, actor), ends, steps)


class AsyncGroup(Group):
    """A vector with `at_once`. `done` [B]: rows of this and the next rollout by environment."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.rows = ring_rows(self.run.algo.num_steps)
        self.done, self.base, self.start = np.zeros(self.num_envs, int), 0, self.actor
        self.ring: Ring | None = None
        self.waiting = np.arange(self.num_envs)  # neither acted for nor stepping

    def _next(self, ids: np.ndarray) -> Some:
        fill = (0, self.vector.at_once - len(ids))
        row = np.pad((self.base + self.done[ids]) % self.rows, fill)
        return Some(np.int32(np.pad(ids, fill, constant_values=self.num_envs)), np.int32(row))

    def _choose(self) -> np.ndarray:
        """Return the environments to act for, removed from `waiting`; the slowest always steps.

        They are within the limit, or more if fewer than `at_once` would step.
        """
        order = self.waiting[np.argsort(self.done[self.waiting], kind="stable")]
        near = int((self.done[order] < self.done.min() + AHEAD).sum())
        needed = self.vector.at_once - (self.num_envs - len(order))
        count = min(max(near, needed), self.vector.at_once)
        self.waiting = order[count:]
        return order[:count]

    def play(self, root: jax.Array, agent: Any, t: int, mode: str,
             clock: WallTime, groups: Any = ()) -> Rollout:
        algo, returns, lengths = self.run.algo, [], []
        key, iteration_clock = _prelude(self.run, root, np.int32(t), self.index)
        if self.ring is None:
            self.ring = begin(algo, agent, self.actor, self.rows)
        begun = self.done.sum() + self.num_envs - len(self.waiting)
        lag = begun / (self.num_envs * algo.num_steps)
        turns = 0

        def act(ids: np.ndarray, came: Some | None) -> None:
            """Act for `ids`. came: the rows of `seen`, written first; None if already written."""
            nonlocal turns
            go_on(self.watch, clock)
            assert (self.done[ids] < self.rows).all(), "a ring that is too short"
            seen, rows = (None, self._next(ids)) if came is None else (self.seen, came)
            now = iteration_clock, mode
            self.ring, action = step(algo, agent, self.ring, seen, rows,
                                     self._next(ids), key, np.int32(turns), *now)
            action = play.playable(algo.spec.action, np.asarray(action)[: len(ids)])[0]
            turns = turns + 1
            if len(ids):
                with self.watch.asked():
                    self.vector.send(action, ids)

        while True:
            while len(ids := self._choose()):  # also those that waited for the slowest
                act(ids, None)
            clock.switch("environments")
            with self.watch.asked():
                ids = self.receive(returns, lengths)
            clock.switch("inference")
            came = self._next(ids)
            self.done[ids] += 1
            self.waiting = np.append(self.waiting, ids)
            if len(ids) < self.vector.at_once:
                self.seen = jax.tree.map(
                    lambda x: np.resize(x, (self.vector.at_once, *x.shape[1:])), self.seen
                )
            with clock.during("transfer"):
                self.transfer()
            if self.done.min() >= algo.num_steps:
                break
            act(self._choose(), came)
        self.ring, after, trajectory = end(algo, self.start, self.ring,
                                           self.seen, came, np.int32(self.base))
        self.start, self.done = after, self.done - algo.num_steps
        self.base = (self.base + algo.num_steps) % self.rows
        return Rollout((trajectory,), returns, lengths, lag=lag, reports=self.tally.take())


@functools.partial(jax.jit, static_argnames="group")
def _prelude(run: Run, root: jax.Array, t: jax.Array, group: int) -> tuple[jax.Array, Clock]:
    return random.fold_in(iteration_keys(root, t).policy, group), iteration.clock_at(run, t)


def open_group(env: HostEnv, run: Run, watch: Watch, num_envs: int,
               seed: int, index: int, first: int) -> Group:
    return (SyncGroup if env.at_once(num_envs) is None
            else AsyncGroup)(env, run, watch, num_envs, seed, index, first)
