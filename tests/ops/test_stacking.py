"""Frame stacks against a plain Python deque."""

from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.ops import stacking
from jaxrl_fast.spaces import Box, Dict, Discrete
from jaxrl_fast.types import EnvSpec, Timestep, Trajectory

T, B = 9, 5


def play(k: int, share: float, seed: int):
    """A trajectory of single frames [T, B, 1], and what a deque per environment saw: obs,
    successors, last."""
    rng = np.random.default_rng(seed)
    done = rng.random((T, B)) < share
    frame, after = rng.normal(size=(2, T + 1, B, 1)).astype(np.float32)
    obs, successor = np.zeros((2, T, B, k), np.float32)
    next_obs = np.zeros((T, B, 1), np.float32)
    last = np.zeros((B, k), np.float32)
    for b in range(B):
        stack = deque([frame[0, b, 0]] * k, maxlen=k)
        for t in range(T):
            obs[t, b] = list(stack)
            # the true successor is a frame of its own where the episode ended, else the next row's
            # frame
            true = after[t, b, 0] if done[t, b] else frame[t + 1, b, 0]
            next_obs[t, b] = true
            successor[t, b] = [*list(stack)[1:], true]
            if done[t, b]:
                stack = deque([frame[t + 1, b, 0]] * k, maxlen=k)
            else:
                stack.append(true)
        last[b] = list(stack)
    return frame, next_obs, done, obs, successor, last


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_acting_and_learning_see_the_frames_of_a_deque(k):
    def run(frame, next_obs, done):
        first = stacking.start(frame[0], k)

        def step(stacked, x):
            fresh, ended = x
            return stacking.advance(stacked, fresh, ended, k), (stacked,
                                                                stacking.newest(stacked, k))

        last, (seen, newest) = jax.lax.scan(step, first, (frame[1:], done))
        flags = jnp.zeros_like(done)
        even = jnp.arange(B) % 2 == 0
        steps = Timestep(newest, flags, next_obs, flags, done & even, done & ~even)
        trajectory = Trajectory(steps, (), first, last)
        successors = jax.lax.map(lambda t: stacking.successors(trajectory, k, t),
                                 jnp.arange(T)[::-1])
        return (
            seen, newest, last, stacking.observations(trajectory, k), successors,
            stacking.successors(trajectory, k)
        )

    run = jax.jit(run)
    for seed, share in enumerate((0.0, 0.2, 0.6, 1.0)):
        frame, next_obs, done, obs, successor, last_obs = play(k, share, seed)
        seen, newest, last, again, successors, at_once = run(frame, next_obs, done)
        np.testing.assert_array_equal(seen, obs)
        np.testing.assert_array_equal(newest, frame[:-1])
        np.testing.assert_array_equal(last, last_obs)
        np.testing.assert_array_equal(again, obs)
        np.testing.assert_array_equal(successors, successor[::-1])
        np.testing.assert_array_equal(at_once, successor)


def test_images_and_dicts_stack_along_the_last_axis():
    frame = {"image": jnp.ones((2, 4, 4, 3), jnp.uint8), "speed": jnp.zeros((2, 1))}
    stacked = stacking.start(frame, 2)
    assert stacked["image"].shape == (2, 4, 4, 6) and stacked["image"].dtype == jnp.uint8
    pushed = stacking.push(stacked, jax.tree.map(lambda x: x + 1, frame), 2)
    np.testing.assert_array_equal(pushed["image"][0, 0, 0], [1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(pushed["speed"], [[0, 1], [0, 1]])
    np.testing.assert_array_equal(stacking.newest(pushed, 2)["speed"], [[1], [1]])
    space = Dict.of(image=Box(0, 255, (4, 4, 3), jnp.uint8), speed=Box(-1, 1, (1,)))
    example = stacking.example(EnvSpec("x", space, Discrete(2), stack=2), (2,))
    assert jax.tree.map(jnp.shape, example) == jax.tree.map(jnp.shape, stacked)


def test_a_stack_of_one_is_the_identity():
    frame = jnp.arange(3.0)
    assert stacking.start(frame, 1) is frame and stacking.newest(frame, 1) is frame
    assert (
        stacking.push(None, frame, 1) is frame and stacking.advance(None, frame, None, 1) is frame)
