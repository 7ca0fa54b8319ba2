"""The native environments equal gymnax's, step by step, over 10^5 random steps each."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import checked_transition
from jaxrl_fast.envs.native.mountain_car import MountainCar, MountainCarContinuous

NUM_ENVS, NUM_STEPS = 100, 1000

# name -> how the native state's physics [..., n] spell gymnax's state, in the order of its fields
FIELDS = {
    "CartPole-v1": ("x", "x_dot", "theta", "theta_dot"),
    "Acrobot-v1": ("joint_angle1", "joint_angle2", "velocity_1", "velocity_2"),
    "MountainCar-v0": ("position", "velocity"),
    "MountainCarContinuous-v0": ("position", "velocity"),
    "Pendulum-v1": ("theta", "theta_dot"),
}


def to_gymnax(name, theirs, state):
    """The native state as gymnax's."""
    physics, time = state
    like, _ = jax.eval_shape(lambda key: theirs.init(key, NUM_ENVS), jax.random.key(0))
    filled = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    return filled.replace(time=time, **{f: physics[..., i] for i, f in enumerate(FIELDS[name])})


def test_actions_outside_of_the_box_of_gymnax():
    """gymnax's Reacher would be pushed fifty times as hard: `played` takes the nearest action
    within."""
    for name in ("Reacher-misc", "gymnax:MountainCarContinuous-v0"):
        env = registry.make(name)
        state, _ = jax.jit(env.init, static_argnums=1)(jax.random.key(0), 3)
        most = jnp.broadcast_to(env.spec.action.bounds()[1], (3, *env.spec.action.shape))
        noise = jax.random.split(jax.random.key(1), 3)
        play = jax.jit(functools.partial(checked_transition, env, noise, state))
        jax.tree.map(np.testing.assert_array_equal, play(most), play(50 * most))


def test_a_car_takes_its_settings_by_position():
    car, throttle = MountainCar(-1.2, 0.6, 0.07, 0.5, 0.0, 0.002), MountainCarContinuous(-0.5)
    assert car == registry.make("MountainCar-v0", force=0.002)
    assert throttle == registry.make("MountainCarContinuous-v0", min_action=-0.5)


@pytest.mark.parametrize("name", FIELDS)
def test_native_equals_gymnax_step_by_step(name):
    ours, theirs = registry.make(name), registry.make(f"gymnax:{name}")
    assert type(ours).__module__ != type(theirs).__module__

    def one(state, key):
        act_key, key = jax.random.split(key)
        action = ours.spec.action.sample(act_key, (NUM_ENVS,))
        noise = jax.tree.map(lambda x: x[0], ours.draw(key, 1, NUM_ENVS, 0))
        step_noise = jax.random.split(key, NUM_ENVS)
        # Both take the native state of this step, so that rounding cannot add up.
        their_state, expected = theirs.transition(step_noise, to_gymnax(name, theirs, state),
                                                  action)
        next_state, _, outcome = ours.step(noise, state, action)
        raw_state, _ = ours.transition(noise[0], state, action)
        worst = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), outcome[:2], expected[:2])
        ends = jax.tree.map(lambda a, b: jnp.sum(a != b), outcome[2:4], expected[2:4])
        physics = jnp.stack([getattr(their_state, f) for f in FIELDS[name]], axis=-1)
        close = jnp.isclose(raw_state[0], physics, rtol=1e-5, atol=1e-6).all()
        close &= (raw_state[1] == their_state.time).all()
        return next_state, (worst, ends, close, outcome.terminated.sum(), outcome.truncated.sum())

    state, _ = ours.init(jax.random.key(1), NUM_ENVS)
    # Spread the clocks, so that time limits of 200 to 999 steps are met on many steps.
    state = (state[0], jnp.arange(NUM_ENVS, dtype=jnp.int32) * 2)
    run = jax.jit(lambda state, keys: jax.lax.scan(one, state, keys))
    _, (worst, ends, close, terminated, truncated) = run(
        state, jax.random.split(jax.random.key(2), NUM_STEPS))
    obs_error, reward_error = (float(np.max(x)) for x in worst)
    assert obs_error < 2e-5 and reward_error < 2e-5, (obs_error, reward_error)
    assert [int(x.sum()) for x in ends] == [0, 0]
    assert bool(np.all(close))
    # The comparison means something only if it saw ends: CartPole falls, the others run into the
    # limit.
    assert int(terminated.sum()) + int(truncated.sum()) > 50


@pytest.mark.parametrize("name", FIELDS)
def test_same_spaces_and_limits_as_gymnax(name):
    ours, theirs = registry.make(name).spec, registry.make(f"gymnax:{name}").spec
    assert ours.max_episode_steps == theirs.max_episode_steps and ours.name == theirs.name
    np.testing.assert_allclose(np.array(ours.observation.bounds()),
                               np.array(theirs.observation.bounds()), rtol=1e-6)
    assert type(ours.action) is type(theirs.action)
    if hasattr(ours.action, "n"):
        assert ours.action.n == theirs.action.n
    else:
        np.testing.assert_allclose(np.array(ours.action.bounds()), np.array(theirs.action.bounds()),
                                   rtol=1e-6)


@pytest.mark.parametrize("name", FIELDS)
def test_physics_are_leaves_and_sizes_of_spaces_are_static(name):
    env = registry.make(name)
    leaves = jax.tree.leaves(env)
    assert leaves and all(isinstance(x, float) for x in leaves)
    assert jax.tree.map(lambda x: x, env).spec == env.spec
    # A spec can be read while the leaves are traced.
    assert (
        jax.jit(lambda e: jnp.zeros(e.spec.observation.shape))(env).shape
        == env.spec.observation.shape
    )


@pytest.mark.parametrize("name", FIELDS)
def test_render_draws_a_picture_of_several_colours(name):
    env = registry.make(name)
    state, _ = env.init(jax.random.key(0), 2)
    picture = env.render(jax.tree.map(lambda x: np.asarray(x)[0], state))
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[-1] == 3
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
    moved = (
        jax.tree.map(lambda x: np.asarray(x)[0]
                     + np.asarray(0.3 if x.dtype == jnp.float32 else 0, x.dtype), state)
    )
    assert not np.array_equal(picture, env.render(moved))


@pytest.mark.matrix("tests/engine/test_populations.py::test_a_sweep_is_a_vmap_and_one_compile")
def test_sweep_over_physics_changes_the_motion():
    env = registry.make("CartPole-v1")
    swept = jax.tree.map(lambda x: jnp.float32(x), env)
    envs = dataclasses.replace(swept, gravity=jnp.array([1.0, 9.8, 30.0]))
    axes = jax.tree.map(lambda x: None, swept)
    axes = dataclasses.replace(axes, gravity=0)

    def final(env):
        state, _ = env.init(jax.random.key(0), 4)
        for _ in range(5):
            state, outcome = env.transition((), state, jnp.ones(4, jnp.int32))
        return outcome.next_obs

    obs = jax.vmap(final, in_axes=(axes,))(envs)
    assert obs.shape == (3, 4, 4) and float(jnp.abs(obs[0] - obs[2]).max()) > 1e-3
    np.testing.assert_allclose(obs[1], final(env), rtol=1e-5)
