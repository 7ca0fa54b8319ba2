"""The optimizer step of the gradient-based algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import optimizer_of
from jaxrl_fast.types import Clock


def chosen_optimizer(algo: Any, layers: optim.View | None = None) -> optim.Optimizer:
    """Return the setting `optimizer`, clipped to `max_grad_norm`, else `default_optimizer`.

    layers: the view of the parameters with stacked networks apart, for optimizers that use shapes.
    """
    if algo.optimizer is None:
        return optim.check_optimizer("default_optimizer", algo.default_optimizer)
    return optimizer_of(algo.optimizer, getattr(algo, "max_grad_norm", None), layers)


def rmsprop_or_adam(algo: Any) -> optim.Optimizer:
    """Return the optimizer of an algorithm with the switch `rmsprop`."""
    if algo.rmsprop:
        return optim.rmsprop(algo.max_grad_norm, algo.optimizer_epsilon, algo.rms_decay)
    return optim.adam(algo.max_grad_norm, algo.optimizer_epsilon)


def init_optimizer(algo: Any, params: Any, layers: optim.View | None = None) -> Any:
    """Return the optimizer's state before its first step."""
    rate = algo.learning_rate
    return chosen_optimizer(algo, layers).init(params, rate(0) if callable(rate) else rate)


def gradient_step(
    algo: Any, clock: Clock, params: Any, grads: Any, opt_state: Any,
    layers: optim.View | None = None, period: int = 1
) -> tuple[Any, Any]:
    """Take one step down `grads` -> (params, opt_state); period: updates for each step of it."""
    return optim.apply(chosen_optimizer(algo, layers), clock.step_size(algo, period),
                       params, grads, opt_state)


def agent_step(
    algo: Any, clock: Clock, agent: Any, loss: Callable[[Any], tuple[jax.Array, Any]],
    layers: optim.View | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Take one step on loss(params) -> (value, aux); return (agent, (value, aux))."""
    out, grads = jax.value_and_grad(loss, has_aux=True)(agent.params)
    params, opt_state = gradient_step(algo, clock, agent.params, grads, agent.opt_state, layers)
    return agent._replace(params=params, opt_state=opt_state), out
