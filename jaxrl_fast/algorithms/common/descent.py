"""The optimizer of the gradient-based algorithms, and its step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_of, optimizer_setting
from jaxrl_fast.types import Clock


@tree.settings
class Descent(Algorithm):
    """An algorithm that steps down gradients; subclasses have the field `learning_rate`."""

    optimizer: str | Callable[..., Any] | None = setting(None, convert=optimizer_setting)
    """optax optimizer, by name or as a function of the rate; none: the algorithm's own"""

    def bind(self, spec):
        check_descends(self.optimizer, self.learning_rate)
        return super().bind(spec)

    @property
    def default_optimizer(self) -> optim.Optimizer:
        """Return the algorithm's own optimizer, clipping included."""
        raise NotImplementedError


def chosen_optimizer(algo: Any, layers: optim.View | None = None) -> optim.Optimizer:
    """Return the setting `optimizer`, clipped to `max_grad_norm`, else `default_optimizer`.

    layers: the view of the parameters with stacked networks apart, for optimizers that use shapes.
    """
    if algo.optimizer is None:
        return optim.check_optimizer("default_optimizer", algo.default_optimizer)
    return optimizer_of(algo.optimizer, getattr(algo, "max_grad_norm", None), layers)


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
