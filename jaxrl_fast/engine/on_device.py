"""The backend of environments on the device: compiled programs train, evaluate and film."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import rollout
from jaxrl_fast.engine.backend import Film
from jaxrl_fast.engine.config import Host, RunConfig
from jaxrl_fast.engine.evaluate import evaluate
from jaxrl_fast.engine.programs import Programs
from jaxrl_fast.envs.api import Env, played, steps_by_base
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import stacking
from jaxrl_fast.types import Clock


class OnDevice:
    """See `engine.backend.Backend`."""

    one_program = True

    def check(self, env, algo, config: RunConfig) -> None:
        for field in dataclasses.fields(Host):
            value = getattr(config, field.name)
            if value != field.default and (field.name, value) != ("ahead", 0):  # 0 is true here
                raise ConfigError(field.name, value, f"{field.default!r}: {env.spec.name} is on the device, not on the host")

    def placed(self, env: Env, algo, config: RunConfig) -> Env:
        return env.on_device(config.env_devices)

    def actor_bytes(self, run, config, rollout, agent) -> int:
        return 0

    def programs(self, prepared, context) -> Programs:
        return Programs(prepared, context)

    def evaluate(self, env, algo, agent, key, episodes, mode, config):
        play = jax.jit(evaluate, static_argnames=("episodes", "mode"))
        found = play(tree.as_float32(env), algo, agent, key, episodes=episodes, mode=mode)
        return jax.tree.map(np.asarray, found)

    def film(self, env: Env, algo, agent, key, max_steps, patience) -> Film:
        env = env.for_evaluation()
        drawing, states, frames = env.drawing, [], []
        if drawing is None:
            return Film(None)
        for state in _episode(env, algo, agent, key, max_steps):
            states.append(state)
            frames.append(drawing.frame(state))
            if frames[0] is None and drawing.page is None:
                return Film(None)
        pictures = None if frames[0] is None else [np.asarray(frame) for frame in frames]
        page = drawing.page and drawing.page(states, drawing.step_seconds)
        return Film(pictures, page, drawing.step_seconds)


def _episode(env: Env, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int) -> Iterator[Any]:
    """Yield the environment's states on the host: every state acted in, and the last."""
    agent, key = jax.device_put((agent, key), jax.local_devices()[0])  # a member may be on any device
    # Python floats would be weakly typed inputs and so another program.
    traced_env, traced_algo = tree.as_float32((env, algo))
    start_key, play_key = jax.random.split(key)
    actor = jax.jit(rollout.init, static_argnums=3)(traced_env, traced_algo, start_key, 1)
    for t in range(max_steps):
        yield jax.tree.map(_first_on_host, actor.env)
        actor, done = _step(traced_env, traced_algo, agent, actor, play_key, np.int32(t))
        if done:
            if steps_by_base(env):
                yield jax.tree.map(_first_on_host, actor.env)
            return


@jax.jit
def _step(env: Env, algo: Algorithm, agent: Any, actor: rollout.Actor, key: jax.Array, t: jax.Array):
    """Step one environment -> (actor, whether the episode ended), if possible without a reset."""
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))
    noise = rollout.draw_frozen(env, algo, random.keys_at(key, t, 2), 1, actor)
    if not steps_by_base(env):
        actor, trajectory = rollout.collect(env, algo, agent, actor, noise, clock, "greedy")
        return actor, trajectory.steps.done[0, 0]
    step, act = tree.take((noise.env.step, noise.act), 0)
    carry, action, _ = algo.act(algo.acting(agent), actor.carry, actor.obs, act, clock, "greedy")
    state, outcome = played(env, step, actor.env, action)
    done = outcome.terminated | outcome.truncated
    state, obs = tree.strong((state, stacking.advance(actor.obs, outcome.next_obs, done, env.spec.stack)))
    return rollout.Actor(state, obs, carry), done[0]


def _first_on_host(leaf: jax.Array) -> Any:
    """Return the only environment of [1, ...]; random keys have no NumPy form and stay keys."""
    return leaf[0] if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)[0]
