"""Whether rewards have a gradient in the actions, found by tracing, without compiling."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxrl_fast import spaces
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.tracing import depends_on_inputs
from jaxrl_fast.errors import ConfigError

# mjx alone of brax's backends has no gradient: its solver is a while loop.
_BACKENDS = "--env.backend spring (or positional, generalized) has one"
_TRY = "try an algorithm that needs no gradient of the environment (ppo, ars, es)"


def check_differentiable(env: Env) -> None:
    """Raise ConfigError unless a reward depends differentiably on an action."""
    try:
        hash(env)
        valid = _missing_cached(env)
    except TypeError:  # a setting is an array or traced
        valid = _missing(env)
    if valid:
        raise ConfigError("environment", env.spec.name, f"{valid}; {_TRY}")


def _missing(env: Env) -> str | None:
    """Return the missing property of `env`, or None; a scan of two steps stands for any number."""

    def start() -> tuple:
        key = jax.random.key(0)
        state, noise = env.init(key, 1)[0], env.draw_step(key, 2, 1, jnp.int32(0))
        return state, noise, spaces.zeros(env.spec.action, (2, 1))

    def pull_back(cotangent: jax.Array, state, noise, actions: jax.Array) -> jax.Array:
        def step(state, x):
            state, outcome = env.transition(x[0], state, x[1])
            return state, outcome.reward

        rewards = lambda actions: jnp.sum(jax.lax.scan(step, state, (noise, actions))[1])
        return jax.vjp(rewards, actions)[1](cotangent)[0]

    try:
        jaxpr = jax.make_jaxpr(pull_back)(jnp.float32(1.0), *jax.eval_shape(start)).jaxpr
    except (ValueError, NotImplementedError) as error:
        # a while loop, a callback, an operation without derivative
        reason = str(error).strip().split("\n")[0].split(". ")[0]
        other = f"; {_BACKENDS}" if env.spec.name.startswith("brax/") else ""
        return f"one with a gradient; this cannot be differentiated ({reason}){other}"
    # the result depends on the cotangent unless the gradient is always zero
    (reached,) = depends_on_inputs(jaxpr, first=1)
    return None if reached else "one whose reward depends smoothly on the action"


# called by the command line, `plan` and `train`
_missing_cached = functools.lru_cache(maxsize=16)(_missing)
