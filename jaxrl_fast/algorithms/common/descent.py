"""The optimizer step of the gradient-based algorithms.

The optimizer is the setting `optimizer`, else the algorithm's `default_optimizer`, after clipping
to `max_grad_norm`.
"""

from __future__ import annotations

from typing import Any

from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import optimizer_of
from jaxrl_fast.types import Clock


def chosen_optimizer(algo: Any, layers: optim.View | None = None) -> optim.Optimizer:
    """Return the optimizer of `algo`.

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
    algo: Any, clock: Clock, params: Any, grads: Any, opt_state: Any, layers: optim.View | None = None, period: int = 1
) -> tuple[Any, Any]:
    """Take one step down `grads` -> (params, opt_state); period: updates for each step of it."""
    return optim.apply(chosen_optimizer(algo, layers), clock.step_size(algo, period), params, grads, opt_state)
