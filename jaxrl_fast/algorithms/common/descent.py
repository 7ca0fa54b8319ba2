"""What the algorithms share that follow a gradient: which optimizer takes the step, and how far.

It is the setting `optimizer`, and without one the algorithm's `default_optimizer`, after clipping to a `max_grad_norm`.
"""

from __future__ import annotations

from typing import Any

from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import optimizer_of
from jaxrl_fast.types import Clock


def chosen_optimizer(algo: Any, layers: optim.View | None = None) -> optim.Optimizer:
    """Return the optimizer of `algo`.

    layers: how an optimizer that asks for a layer's shape sees the parameters, stacked networks apart; None: as they are.
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
    """Take one step down `grads` and return (params, opt_state). period: of the updates in which this optimizer steps."""
    return optim.apply(chosen_optimizer(algo, layers), clock.step_size(algo, period), params, grads, opt_state)
