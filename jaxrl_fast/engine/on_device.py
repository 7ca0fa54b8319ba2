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
from jaxrl_fast.envs.api import Env, checked_transition, steps_by_base
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import stacking
from jaxrl_fast.types import Clock

BLOCK = 50  # steps of a filmed episode in one call: on a GPU each waits for the training program
_TAKE = jax.jit(tree.take)


class OnDevice:
    """See `engine.backend.Backend`."""

    one_program = stills = True

    def check(self, env, algo, config: RunConfig) -> None:
        for field in dataclasses.fields(Host):
            value = getattr(config, field.name)
            if value != field.default and (field.name, value) != ("ahead", 0):  # 0 is true here
                raise ConfigError(field.name, value, f"{field.default!r}: {env.spec.name} is on "
                                                     "the device, not on the host")
        if config.video_every is not None and env.drawing is None:
            raise ConfigError("video_every", config.video_every,
                              f"None: {env.spec.name} has no pictures")

    def placed(self, env: Env, algo, config: RunConfig) -> Env:
        return env.on_device(config.env_devices)

    def actor_bytes(self, run, config, rollout, agent) -> int:
        return 0

    def programs(self, prepared, context) -> Programs:
        return Programs(prepared, context)

    def evaluate(self, env, algo, agent, key, episodes, mode, config):
        play = jax.jit(evaluate, static_argnames=("episodes", "mode"))
        found = play(tree.as_float32(env.on_device()), algo, agent, key,
                     episodes=episodes, mode=mode)
        return jax.tree.map(np.asarray, found)

    def film(self, env: Env, algo, agent, key, max_steps, patience, most=None) -> Film:
        env = env.on_device().for_evaluation()
        drawing = env.drawing
        if drawing is None:
            return Film(None)
        states = _episode(env, algo, agent, key, max_steps)
        first = next(states)
        picture = drawing.frame(first)
        if picture is None and drawing.page is None:
            return Film(None)
        states = [first, *states]
        stride = -(-len(states) // most) if most else 1
        rest = [] if picture is None else map(drawing.frame, states[stride::stride])
        pictures = None if picture is None else [np.asarray(frame) for frame in (picture, *rest)]
        page = drawing.page and drawing.page(states, drawing.step_seconds)
        return Film(pictures, page, drawing.step_seconds and stride * drawing.step_seconds)

    def still(self, env: Env, states, index):
        drawing = env.on_device().drawing
        if drawing is None:
            return None
        state = _TAKE(states, index)
        return lambda: drawing.frame(random.on_host(state))


def _episode(env: Env, algo: Algorithm, agent: Any, key: jax.Array,
             max_steps: int) -> Iterator[Any]:
    """Yield the environment's states on the host: every state acted in, and the last."""
    # a member may be on any device
    agent, key = jax.device_put((agent, key), jax.local_devices()[0])
    # Python floats would be weakly typed inputs and so another program.
    traced_env, traced_algo = tree.as_float32((env, algo))
    start_key, play_key = jax.random.split(key)
    actor = jax.jit(rollout.init, static_argnums=3)(traced_env, traced_algo, start_key, 1)
    for t in range(0, max_steps, BLOCK):
        actor, found = _block(traced_env, traced_algo, agent, actor, play_key, np.int32(t))
        states, done = random.on_host(found)
        ends = np.flatnonzero(done[: max_steps - t])
        for i in range(ends[0] + 1 if ends.size else min(BLOCK, max_steps - t)):
            yield tree.take(states, (i, 0))
        if ends.size:
            if steps_by_base(env):
                inside = ends[0] + 1 < BLOCK
                yield (
                    tree.take(states, (ends[0] + 1, 0)) if inside
                    else tree.take(random.on_host(actor.env), 0)
                )
            return


@jax.jit
def _block(env: Env, algo: Algorithm, agent: Any, actor: rollout.Actor,
           key: jax.Array, t: jax.Array):
    """Play `BLOCK` steps of one environment from step t -> (actor, (states before each, done))."""

    def step(actor: rollout.Actor, t: jax.Array):
        later, done = _step(env, algo, agent, actor, key, t)
        return later, (actor.env, done)

    return jax.lax.scan(step, actor, t + jnp.arange(BLOCK))


def _step(env: Env, algo: Algorithm, agent: Any, actor: rollout.Actor,
          key: jax.Array, t: jax.Array):
    """Step one environment -> (actor, whether the episode ended), if possible without a reset."""
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))
    noise = rollout.draw_frozen(env, algo, random.keys_at(key, t, 2), 1, actor)
    if not steps_by_base(env):
        actor, trajectory = rollout.collect(env, algo, agent, actor, noise, clock, "greedy")
        return actor, trajectory.steps.done[0, 0]
    step, act = tree.take((noise.env.step, noise.act), 0)
    carry, action, _ = algo.act(algo.acting(agent), actor.carry, actor.obs, act, clock, "greedy")
    state, outcome = checked_transition(env, step, actor.env, action)
    done = outcome.terminated | outcome.truncated
    obs = stacking.advance(actor.obs, outcome.next_obs, done, env.spec.stack)
    state, obs = tree.strong((state, obs))
    return rollout.Actor(state, obs, carry), done[0]
