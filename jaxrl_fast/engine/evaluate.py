"""Evaluation: every environment plays one episode, so short episodes count no more often."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import rollout
from jaxrl_fast.envs.api import Env
from jaxrl_fast.ops import lowering, sums
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Clock, given

BLOCK = 25  # steps between two checks whether all episodes have ended
PARTS = 5  # of a block, each with a check, on a GPU
STEP_LIMIT = 27_000  # for environments without a limit


class Evaluation(NamedTuple):
    """Results by episode, [episodes]. `finished` is False if the step limit cut the episode.

    ret: NaN after a reward, observation or action that is not finite.
    """

    ret: jax.Array
    length: jax.Array
    finished: jax.Array

    def __repr__(self) -> str:
        if isinstance(self.ret, jax.core.Tracer) or np.ndim(self.ret) != 1:
            return summary(self)
        ret, length, finished = map(np.asarray, self)
        cut = int(np.sum(~finished))
        return (f"Evaluation({len(ret)} episodes: return {ret.mean():.4g} ({ret.min():.4g} to "
                f"{ret.max():.4g}), length "
                f"{length.mean():.4g}{f', {cut} cut at the step limit' if cut else ''})")


def evaluate(
    env: Env, algo: Algorithm, agent: Any, key: jax.Array, episodes: int = 128,
    mode: str = "greedy", max_steps: int | None = None,
) -> Evaluation:  # fmt: skip
    """Play `episodes` episodes with frozen parameters and statistics; pure."""
    return judge(env, algo, agent, key, episodes, mode, max_steps)[0]


def _part(noise: rollout.Noise, i: jax.Array) -> rollout.Noise:
    """Return the i-th of a block's `PARTS`."""
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, i * (BLOCK // PARTS), BLOCK // PARTS)
    rows, act = jax.tree.map(cut, (noise.env.rows, noise.act))
    return rollout.Noise(noise.env.with_rows(rows), act)


def judge(env, algo, agent, key, episodes=128, mode="greedy", max_steps=None):
    """Evaluate -> (Evaluation, worst `rollout.fault` in each episode, int8 [episodes])."""
    env = env.for_evaluation()
    algo = algo if algo.spec is not None else algo.bind(env.spec)
    limit = max_steps or env.spec.max_episode_steps or STEP_LIMIT
    random.check_key("key", key)
    start_key, play_key = random.split(key)
    start = rollout.init(env, algo, start_key, episodes)
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))
    nothing = Evaluation(jnp.zeros(episodes, jnp.float32), jnp.zeros(episodes, jnp.int32),
                         jnp.zeros(episodes, bool))

    def play(carry, noise):
        t, actor, score, lost, fault = carry
        actor, trajectory = rollout.collect(env, algo, agent, actor,
                                            noise, clock, mode, watch=True, most=BLOCK)
        steps = len(trajectory.steps.reward)
        within = t + jnp.arange(steps) < limit  # which may be no multiple of BLOCK
        done = trajectory.steps.done & within[:, None]
        ended_before = jnp.cumsum(done, axis=0) - done > 0
        counts = within[:, None] & ~(ended_before | score.finished)
        reward = given(trajectory.steps.report.score, trajectory.steps.reward)
        ret, lost = sums.add(score.ret, lost, jnp.sum(jnp.where(counts, reward, 0.0), axis=0))
        length = score.length + jnp.sum(counts, axis=0, dtype=jnp.int32)
        score = Evaluation(ret, length, score.finished | jnp.any(done, axis=0))
        fault = jnp.maximum(fault, jnp.max(jnp.where(counts, trajectory.fault, 0), axis=0))
        return t + steps, actor, score, lost, fault

    def goes_on(carry):
        t, _, score, *_ = carry
        return (t < limit) & ~jnp.all(score.finished)

    draw = lambda i: rollout.draw_frozen(env, algo, random.keys_at(play_key, i, 2), BLOCK, start)
    begin = (
        jnp.int32(0), start, nothing, jnp.zeros(episodes, jnp.float32),
        jnp.zeros(episodes, jnp.int8)
    )
    *_, score, _, fault = lowering.while_at_most(
        goes_on, play, begin, -(-limit // BLOCK), draw, PARTS, _part
    )
    return score._replace(ret=jnp.where(fault > 0, jnp.nan, score.ret)), fault
