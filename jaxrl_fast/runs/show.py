"""`jf.show`: an environment stepped by hand, in pictures."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.own_spaces import own_of
from jaxrl_fast.errors import check_seed
from jaxrl_fast.runs.pictures import Video, film


@tree.settings
class Script(Algorithm):
    """Plays given actions in order: the agent is the actions [T, ...], the carry the next one."""

    name: ClassVar[str] = "script"

    def init_carry(self, num_envs):
        return jnp.zeros(num_envs, jnp.int32)

    def draw(self, key, num_steps, num_envs):
        return jnp.zeros((num_steps, num_envs))

    def act(self, agent, carry, obs, noise, clock, mode):
        return carry + 1, jnp.take(agent, carry, axis=0, mode="clip"), ()


def show(env: Environment, actions: Any, seed: int = 0) -> Video:
    """Step an environment by `actions`, one after another, and return the pictures.

    The first picture is the start, then one follows each action until the episode ends.

    Args:
        env: of `jf.make`; one of the host is drawn with render_mode "rgb_array".
        actions: [T, ...], each in the environment's action space.
        seed: of the start and the transitions.

    Returns:
        A `Video` of at most T + 1 pictures, which a notebook shows and `save` writes.

    Raises:
        ConfigError: actions outside of the space, or an environment without pictures.
    """
    check_seed("seed", seed)
    backend_of(env)  # refuses other objects
    own = env.spec.own_action or own_of(env.spec.action)
    played = jnp.asarray(own.read(actions, name="actions")[0])
    frames = film(env, Script(spec=env.spec), played, jax.random.key(seed), len(played) + 1)
    found = Video.of(frames, env.spec.name)
    return found._replace(frames=found.frames[: len(played) + 1])
