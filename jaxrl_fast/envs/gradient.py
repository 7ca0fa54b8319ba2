"""Whether a gradient flows from actions through an environment to its rewards; found by tracing, nothing is compiled."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxrl_fast import spaces
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.tracing import depends_on_inputs
from jaxrl_fast.errors import ConfigError

# Among brax's backends mjx alone has no gradient: its solver is a while loop.
_BACKENDS = "--env.backend spring (or positional, generalized) has one"
_TRY = "try an algorithm that needs no gradient of the environment (ppo, ars, es)"


def check_differentiable(env: Env) -> None:
    """Raises ConfigError where no reward depends differentiably on any action, or the gradient cannot be traced."""
    try:
        hash(env)
    except TypeError:  # a setting is an array or traced
        valid = _missing(env)
    else:
        valid = _missing_cached(env)
    if valid:
        raise ConfigError("environment", env.spec.name, f"{valid}; {_TRY}")


def _missing(env: Env) -> str | None:
    """What `env` would have to be; None where it is.

    A scan of two steps stands for any number of them: what depends on what in its body is followed to a fixed point.
    Resets are left out, for they depend on no action. A gradient that is there can still be of no use (zero almost
    everywhere, or huge).
    """

    def start() -> tuple:
        key = jax.random.key(0)
        return env.init(key, 1)[0], env.draw_step(key, 2, 1, jnp.int32(0)), spaces.zeros(env.spec.action, (2, 1))

    def pull_back(cotangent: jax.Array, state, noise, actions: jax.Array) -> jax.Array:
        def step(state, x):
            state, outcome = env.transition(x[0], state, x[1])
            return state, outcome.reward

        rewards = lambda actions: jnp.sum(jax.lax.scan(step, state, (noise, actions))[1])
        return jax.vjp(rewards, actions)[1](cotangent)[0]

    try:
        jaxpr = jax.make_jaxpr(pull_back)(jnp.float32(1.0), *jax.eval_shape(start)).jaxpr
    except (ValueError, NotImplementedError) as error:  # a while loop, a callback, an operation without a derivative
        reason = str(error).strip().split("\n")[0].split(". ")[0]
        other = f"; {_BACKENDS}" if env.spec.name.startswith("brax/") else ""
        return f"one with a gradient; this cannot be differentiated ({reason}){other}"
    # the result depends on the cotangent, except where the gradient is zero whatever the numbers are
    (reached,) = depends_on_inputs(jaxpr, first=1)
    return None if reached else "one whose reward depends smoothly on the action"


_missing_cached = functools.lru_cache(maxsize=16)(_missing)  # asked by the command line, by `plan` and by `train`
