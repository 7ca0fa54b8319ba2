"""The only rollout scan (T steps, B environments, one policy), and statistics of episodes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.envs import resets
from jaxrl_fast.envs.api import LAST, Env, draw_noise, steps_by_base, write_step
from jaxrl_fast.errors import expected
from jaxrl_fast.ops import distributions, equal_steps, lowering, stacking, sums
from jaxrl_fast.ops.scopes import ENVIRONMENT, POLICY, STORE, scope
from jaxrl_fast.spaces import Box, Space
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Clock, Episodes, Mean, Report, Timestep, Trajectory, lasting


class Actor(NamedTuple):
    """State between rollouts, [B]: environments, observations and recurrent state."""

    env: Any
    obs: Any
    carry: Any

    __repr__ = summary


class Noise(NamedTuple):
    """All randomness of a rollout, drawn before its scan."""

    env: resets.Noise
    act: Any  # [T, B]


def init(
    env: Env, algo: Algorithm, key: jax.Array, num_envs: int, t: jax.Array | None = None,
    before: Any = ()
) -> Actor:  # fmt: skip
    """Begin episodes everywhere; `Lasting` parts of `before` continue. t: None in evaluations."""
    if lasting(before):
        state, obs = resets.reset_after(env, before, key, num_envs, t)
    else:
        state, obs = env.init(key, num_envs) if t is None else env.init(key, num_envs, t)
    carry = algo.evaluation_carry(num_envs) if t is None else algo.init_carry(num_envs)
    return Actor(state, stacking.start(obs, env.spec.stack), carry)


def draw_frozen(env: Env, algo: Algorithm, keys: jax.Array, num_steps: int, start: Actor) -> Noise:
    """Draw like `draw`, for evaluation: finished environments restart from `start`."""
    num_envs = jax.tree.leaves(start.obs)[0].shape[0]
    if not steps_by_base(env):  # it alone may know its resets
        return draw(env, algo, keys, num_steps, num_envs, jnp.int32(LAST))
    frozen = resets.Frozen((start.env, stacking.newest(start.obs, env.spec.stack)))
    drawn = draw_noise(env, frozen, keys[0], num_steps, num_envs, jnp.int32(LAST))
    return Noise(drawn, algo.draw(keys[1], num_steps, num_envs))


def draw(
    env: Env, algo: Algorithm, keys: Sequence[jax.Array] | jax.Array,
    num_steps: int, num_envs: int, t: jax.Array
) -> Noise:  # fmt: skip
    """Draw the noise of a rollout in iteration t. keys: the environments' and the policy's."""
    drawn = env.draw(keys[0], num_steps, num_envs, t)
    if not isinstance(drawn, resets.Noise):
        raise expected(f"{env.spec.name}: draw", "the Noise of `Env.draw`",
                       f"a {type(drawn).__name__}")
    return Noise(drawn, algo.draw(keys[1], num_steps, num_envs))


def collect(
    env: Env, algo: Algorithm, agent: Any, actor: Actor, noise: Noise, clock: Clock, mode: str,
    unroll: int | None = None, watch: bool = False, most: int | None = None, divided: bool = False,
) -> tuple[Actor, Trajectory]:  # fmt: skip
    """Step the environments once for every row of `noise` -> (Actor, Trajectory [T, B]).

    unroll: of the scan; None: by the platform, at `most` (None: by the size of the state). watch:
        record faults step by step. divided: over devices, by environment. All static.
    """
    # the cache of traces knows no defaults
    return _collect(env, algo, agent, actor, noise, clock, mode, unroll, watch, most, divided)


MOST_PACKED = 16  # arrays of an environment's state, above which its floats stay apart
# Steps in a turn of a GPU's loop. Each array of the carry is a launch a turn: three or fewer cost
# less than steps take to compile. Rollouts of one turn and whole rollouts keep STEPS.
STEPS, FEW_STEPS, FEW_ARRAYS = 8, 4, 3


# one trace, also for callers that ask for shapes
@functools.partial(jax.jit, static_argnums=(6, 7, 8, 9, 10))
def _collect(env, algo, agent, actor, noise, clock, mode, unroll, watch, most, divided):
    with scope(POLICY):
        agent = algo.acting(agent)
    stack, rows = env.spec.stack, (noise.env.rows, noise.act)
    several = jax.tree.leaves(actor.obs)[0].shape[0] > 1
    alone = jax.tree.leaves(rows)[0].shape[0] == 1
    stepped = write_step if alone and several else type(env).step

    def step(actor: Actor, x: Any):
        drawn, act = x
        with scope(POLICY):
            carry, action, extras = algo.act(agent, actor.carry, actor.obs, act, clock, mode)
        with scope(ENVIRONMENT):
            state, frame, outcome = stepped(env, noise.env.with_rows(drawn), actor.env, action)
        done = outcome.terminated | outcome.truncated
        obs = stacking.advance(actor.obs, frame, done, stack)
        row = Timestep(
            stacking.newest(actor.obs, stack), action, outcome.next_obs, outcome.reward,
            outcome.terminated, outcome.truncated, extras,
            Report(outcome.info, outcome.score, outcome.over),
        )  # fmt: skip
        seen = fault(env.spec.action, actor.obs, action) if watch else ()
        return Actor(state, obs, carry), (row, seen)

    step = jax.checkpoint(step) if algo.rematerialize else step
    with scope(STORE):  # operations outside the other parts write the rows
        if alone:  # a loop of one step is only overhead
            end, row = step(actor, tree.take(rows, 0))
            steps, faults = jax.tree.map(lambda x: x[None], row)
        elif unroll is None:
            # inner loops of physics copy slices; elsewhere only observations enter products
            apart = Actor(len(jax.tree.leaves(actor.env)) > MOST_PACKED, True, True)
            long = jax.tree.leaves(rows)[0].shape[0] > STEPS
            few = len(jax.tree.leaves(actor)) <= FEW_ARRAYS and long and not algo.whole_rollouts
            most = most or (FEW_STEPS if few else STEPS)
            scan = equal_steps.scan if few and not divided else lowering.scan
            end, (steps, faults) = scan(step, actor, rows, most=most, apart=apart)
        else:
            end, (steps, faults) = jax.lax.scan(step, actor, rows, unroll=unroll or 1)
    return end, Trajectory(steps, actor.carry, actor.obs, end.obs, faults)


OBSERVATION, ACTION = 1, 2  # kinds of fault


def fault(space: Space, obs: Any, action: jax.Array) -> jax.Array:
    """Return OBSERVATION or ACTION for the first non-finite part of a step, else 0; int8 [B]."""
    seen = functools.reduce(jnp.logical_and, map(_each, _sound_leaves(obs)), True)
    fault = jnp.where(_each(_sound_actions(space, action)), 0, ACTION)
    return jnp.where(seen, fault, OBSERVATION).astype(jnp.int8)


def _each(fine: jax.Array) -> jax.Array:
    """Return whether a row [B, ...] is true everywhere, [B]."""
    by_terms = lambda flat: functools.reduce(jnp.logical_and, distributions.columns(flat),
                                             jnp.array(True))
    return distributions.few(by_terms, lambda flat: jnp.all(flat, axis=1),
                             fine.reshape(fine.shape[0], -1))


def _sound_leaves(obs: Any) -> list[jax.Array]:
    return [jnp.isfinite(x) for x in jax.tree.leaves(obs) if jnp.issubdtype(x.dtype, jnp.floating)]


def _sound_actions(space: Space, action: jax.Array) -> jax.Array:
    if jnp.issubdtype(action.dtype, jnp.floating):
        return jnp.isfinite(action)
    return jnp.ones(action.shape[:1], bool) if isinstance(space, Box) else action >= 0


def faults(space: Space, trajectory: Trajectory) -> Mean:
    """Return whether a rollout had faults, 0 or 1: observations as total, actions as count."""
    found, steps = trajectory.fault, trajectory.steps
    if isinstance(found, tuple):
        each = map(jnp.all, _sound_leaves(steps.obs))
        sound = functools.reduce(jnp.logical_and, each, jnp.array(True))
        bad = [~sound, ~jnp.all(_sound_actions(space, steps.action))]
    else:
        bad = [jnp.any(found == kind) for kind in (OBSERVATION, ACTION)]
    return Mean(*(x.astype(jnp.float32) for x in bad))


def without_report(trajectory: Trajectory) -> tuple[Trajectory, Report]:
    """Return the trajectory without its report, and the report [T, B]."""
    steps = trajectory.steps
    return trajectory._replace(steps=steps._replace(report=Report())), steps.report


def episode_statistics(episodes: Episodes, reward: jax.Array,
                       done: jax.Array) -> tuple[Episodes, dict[str, Mean]]:
    """Return returns and lengths of episodes ended in a block [T, B], from rewards and ends.

    All but the rewards after the last end belong to finished returns, so no scan is needed.
    """
    time = jnp.arange(reward.shape[0], dtype=jnp.int32)[:, None]
    last_end = jnp.max(jnp.where(done, time + 1, 0), axis=0)  # steps through the last end; 0: none
    before = time < last_end
    finished = last_end > 0
    parts = jnp.stack([jnp.where(before, reward, 0.0), jnp.where(before, 0.0, reward)], axis=1)
    sum_before, sum_after = sums.pairwise(parts)
    count = jnp.sum(done).astype(jnp.float32)
    total = sums.by_eights(jnp.where(finished, episodes.ret + (episodes.lost + sum_before), 0.0))
    steps = sums.by_eights(jnp.where(finished, episodes.length + last_end, 0).astype(jnp.float32))
    longer, lost = sums.add(episodes.ret, episodes.lost, sum_after)
    after = Episodes(
        jnp.where(finished, sum_after, longer),
        jnp.where(finished, 0, episodes.length) + reward.shape[0] - last_end,
        jnp.where(finished, 0.0, lost),
    )
    return after, {"episode_return": Mean(total, count), "episode_length": Mean(steps, count)}
