"""An environment as brax's are, in a few lines: what the adapter does with it can be known, and
compiles at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_fast.envs.physics import api as physics
from jaxrl_fast.spaces import Box


@struct.dataclass
class Part:
    mass: jax.Array


@struct.dataclass
class Model:
    wind: jax.Array
    part: Part
    unread: jax.Array
    still: jax.Array
    count: jax.Array


@struct.dataclass
class State:
    place: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict
    info: dict


@jax.jit
def push(model: Model, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The whole model goes in, as it does in MJX; what comes out beside the move is carried in the
    state, and that is all."""
    return 0.1 * action / model.part.mass.sum() * 6.0 + model.wind + model.still.sum(), model.unread


class Ball:
    """Starts in [-0.7, 0.7], is pushed by action * 0.1 / mass and by the wind; done beyond 1.

    Weak types, as in brax, and an array without elements, as in MJX.
    """

    def __init__(self):
        self.model = Model(jnp.float32(0.01), Part(jnp.array([2.0, 4.0])), jnp.float32(1.0),
                           jnp.zeros(2), jnp.int32(3))

    def reset(self, rng):
        assert rng.dtype == jnp.uint32 and rng.shape == (2,)  # an old-style key
        x = jax.random.uniform(rng, (1,), minval=-0.7, maxval=0.7)
        zero = jnp.zeros(())
        place = {"x": x, "nothing": jnp.zeros((0, 3)), "carried": self.model.unread}
        return State(place, x, zero, zero, {"speed": zero}, {"rng": rng, "steps": jnp.int32(0)})

    def step(self, state, action):
        move, carried = push(self.model, action)
        x = state.place["x"] + move
        state.metrics.update(speed=move[0])
        state.info["steps"] = state.info["steps"] + 1.0  # a float where reset gave an int
        done = jnp.where(jnp.abs(x[0]) > 1.0, 1.0, 0.0)
        return state.replace(place=state.place | {"x": x, "carried": carried}, obs=x, reward=1.0,
                             done=done)


class ToyEnv(physics.PhysicsEnv):
    physics_field = "place"
    model_attribute = "model"


def toy(randomized: Any = "", randomize_warmup: int = 0, kind: type[ToyEnv] = ToyEnv,
        ball: type[Ball] = Ball, **settings: Any) -> ToyEnv:
    settings = {"episode_length": 20, "resets": "pool", "reset_pool": 0} | settings
    settings |= {"randomize": randomized, "randomize_warmup": randomize_warmup}
    return kind("toy/ball", ball(), action=Box(-1.0, 1.0, (1,)), **settings)
