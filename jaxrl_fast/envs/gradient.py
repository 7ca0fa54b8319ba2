"""Whether a gradient flows from actions through an environment to its rewards; found from shapes, nothing is compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast import spaces
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.types import stepwise

_TRY = "try an algorithm that needs no gradient of the environment (ppo, es, ars)"


def check_differentiable(env: Env) -> None:
    """Raises ConfigError where no reward depends differentiably on any action, or the gradient cannot be traced.

    A scan of two steps stands for any number of them: what depends on what in its body is followed to a fixed point.
    A gradient that is there can still be of no use (zero almost everywhere, or huge).
    """
    key, action = jax.random.key(0), spaces.zeros(env.spec.action, (2, 1))

    def rewards(actions: jax.Array) -> jax.Array:
        state, _ = env.init(key, 1)
        stepped, join = stepwise(env.draw(key, 2, 1, jnp.int32(0)))

        def step(state, x):
            noise, action = x
            state, _, outcome = env.step(join(noise), state, action)
            return state, outcome.reward

        return jnp.sum(jax.lax.scan(step, state, (stepped, actions))[1])

    def pull_back(actions: jax.Array, cotangent: jax.Array) -> jax.Array:
        return jax.vjp(rewards, actions)[1](cotangent)[0]

    try:
        jaxpr = jax.make_jaxpr(pull_back)(action, jnp.float32(1.0)).jaxpr
    except (ValueError, NotImplementedError) as error:  # a while loop, a callback, an operation without a derivative
        reason = str(error).strip().splitlines()[0][:200]
        raise ConfigError(
            "environment", env.spec.name, f"one with a gradient; this cannot be differentiated ({reason}); {_TRY}"
        ) from error
    # the result depends on the cotangent, except where the gradient is zero whatever the numbers are
    reached = {id(jaxpr.invars[-1])}
    for equation in jaxpr.eqns:
        if any(id(v) in reached for v in equation.invars):
            reached.update(map(id, equation.outvars))
    if id(jaxpr.outvars[0]) not in reached:
        raise ConfigError("environment", env.spec.name, f"one whose reward depends smoothly on the action; {_TRY}")
