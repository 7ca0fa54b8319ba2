"""What the algorithms share that follow a gradient: which optimizer takes the step, and how far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import optim
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_of, optimizer_setting
from jaxrl_fast.types import Clock


@tree.settings
class Descent(Algorithm):
    """Steps by the setting `optimizer`, and without one by `default_optimizer`, after clipping to a `max_grad_norm`."""

    optimizer: str | Callable[..., Any] | None = setting(
        None, "of optax, by name or as a function of the learning rate; none: the algorithm's own",
        convert=optimizer_setting, kw_only=True,
    )  # fmt: skip

    @property
    def default_optimizer(self) -> optim.Optimizer:
        """The algorithm's own, clipping included."""
        raise NotImplementedError

    def bind(self, spec):
        check_descends("optimizer", self.optimizer)
        return super().bind(spec)

    def layers(self, part: str = "") -> optim.View:
        """How an optimizer that asks for a layer's shape sees the parameters, or their `part`: stacked networks apart."""
        return optim.View(lambda params: params, lambda seen, like: seen)

    def _optimizer(self, part: str) -> optim.Optimizer:
        if self.optimizer is None:
            return optim.check_optimizer("default_optimizer", self.default_optimizer)
        return optimizer_of(self.optimizer, getattr(self, "max_grad_norm", None), self.layers(part))

    def init_optimizer(self, params: Any, part: str = "") -> Any:
        """The optimizer's state before its first step."""
        rate = self.learning_rate
        return self._optimizer(part).init(params, rate(0) if callable(rate) else rate)

    def gradient_step(
        self, clock: Clock, params: Any, grads: Any, opt_state: Any, part: str = "", period: int = 1
    ) -> tuple[Any, Any]:
        """One step down `grads` -> (params, opt_state). period: of the updates in which this optimizer steps."""
        return optim.apply(self._optimizer(part), clock.step_size(self, period), params, grads, opt_state)
