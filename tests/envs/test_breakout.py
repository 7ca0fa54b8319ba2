"""The native Breakout equals gymnax's, step by step, over 10^5 steps of play that keeps the ball
alive."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast.envs import registry

NUM_ENVS, NUM_STEPS = 100, 1000


def to_gymnax(theirs, state):
    like, _ = jax.eval_shape(lambda key: theirs.init(key, NUM_ENVS), jax.random.key(0))
    bricks = jnp.zeros((NUM_ENVS, 10, 10)).at[:, 1:4].set(state.bricks)
    filled = like.replace(
        ball_y=state.ball_y, ball_x=state.ball_x, ball_dir=state.direction, pos=state.paddle,
        brick_map=bricks,
        strike=state.strike, last_y=state.last_y, last_x=state.last_x, time=state.time,
        terminal=jnp.zeros(NUM_ENVS, bool),
    )  # fmt: skip
    return jax.tree.map(lambda x, y: x.astype(y.dtype), filled, like)


@pytest.mark.parametrize("minimal", family([True, False], [True]))
def test_native_breakout_equals_gymnax_step_by_step(minimal):
    settings = {"use_minimal_action_set": minimal, "max_steps_in_episode": 300}
    ours = registry.make("Breakout-MinAtar", **settings)
    theirs = registry.make("gymnax:Breakout-MinAtar", **settings)
    assert ours.spec == theirs.spec
    left, right = (1, 2) if minimal else (1, 3)

    def one(state, key):
        act_key, key = jax.random.split(key)
        # Most actions follow the ball, so that walls are cleared, bricks respawn and limits are
        # met.
        follow = jnp.where(state.ball_x < state.paddle, left,
                           jnp.where(state.ball_x > state.paddle, right, 0))
        random = ours.spec.action.sample(act_key, (NUM_ENVS,))
        lazy = jax.random.bernoulli(key, jnp.linspace(0.0, 0.8, NUM_ENVS) ** 3)
        action = jnp.where(lazy, random, follow)
        noise = jax.tree.map(lambda x: x[0], ours.draw(key, 1, NUM_ENVS, 0))
        their_state, expected = theirs.transition(jax.random.split(key, NUM_ENVS),
                                                  to_gymnax(theirs, state), action)
        raw, _ = ours.transition((), state, action)
        next_state, _, outcome = ours.step(noise, state, action)
        same = [jnp.array_equal(a, b) for a, b in zip(outcome[:4], expected[:4], strict=True)]
        again = to_gymnax(theirs, raw).replace(terminal=their_state.terminal)
        same += [jnp.array_equal(a, b)
                 for a, b in zip(*map(jax.tree.leaves, (again, their_state)), strict=True)]
        cleared = (~raw.bricks).sum((1, 2)).max()
        seen = (outcome.reward.sum(), outcome.terminated.sum(), outcome.truncated.sum(), cleared)
        return next_state, (jnp.stack(same), seen)

    state, _obs = ours.init(jax.random.key(0), NUM_ENVS)
    _, (same, seen) = jax.jit(lambda s, k: jax.lax.scan(one, s, k))(
        state, jax.random.split(jax.random.key(1), NUM_STEPS)
    )
    assert bool(np.all(same)), np.argwhere(~np.asarray(same))[:5]
    rewards, terminated, truncated, cleared = (np.asarray(x) for x in seen)
    assert rewards.sum() > 1000 and terminated.sum() > 100 and truncated.sum() > 10
    assert cleared.max() >= 25, cleared.max()


@pytest.mark.matrix("test_native_breakout_equals_gymnax_step_by_step")
def test_first_observations_equal_gymnax():
    ours, theirs = registry.make("Breakout-MinAtar"), registry.make("gymnax:Breakout-MinAtar")
    sets = [{np.asarray(o).tobytes() for o in e.init(jax.random.key(0), 32)[1]}
            for e in (ours, theirs)]
    assert sets[0] == sets[1] and len(sets[0]) == 2


def test_render_draws_two_hundred_pixels_a_side():
    env = registry.make("Breakout-MinAtar")
    state, _ = env.init(jax.random.key(0), 2)
    assert env.render(jax.tree.map(lambda x: np.asarray(x)[0], state)).shape == (200, 200, 3)
