"""Backends: the two places where environments step, named by `Environment.runs_on`.

`engine.on_device` steps them inside the compiled program, `actors.on_host` outside of it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError

if TYPE_CHECKING:
    from jaxrl_fast.algorithms.base import Algorithm
    from jaxrl_fast.engine.config import RunConfig
    from jaxrl_fast.engine.evaluate import Evaluation
    from jaxrl_fast.engine.iteration import Run
    from jaxrl_fast.engine.prepared import Prepared
    from jaxrl_fast.engine.programs import Context, Programs
    from jaxrl_fast.envs.api import Env

_BACKENDS = {"device": "jaxrl_fast.engine.on_device:OnDevice",
             "host": "jaxrl_fast.actors.on_host:OnHost"}


class Film(NamedTuple):
    """One episode to look at."""

    frames: list[np.ndarray] | None  # uint8 [H, W, 3] each; None: no pictures
    page: str | None = None  # HTML that plays the episode
    step_seconds: float | None = None  # environment seconds between two frames


class Backend(Protocol):
    """How a run treats environments in one place.

    one_program: whether all members train in one program; otherwise one after another.
    stills: whether environments can be drawn as they train, by `still`.
    """

    one_program: bool
    stills: bool

    def check(self, env: Environment, algo: Algorithm, config: RunConfig) -> None:
        """Raise ConfigError for settings that do not suit `env`; `algo` is bound to its spec."""

    def placed(self, env: Environment, algo: Algorithm, config: RunConfig) -> Env:
        """Return the environment to trace programs with."""

    def actor_bytes(self, run: Run, config: RunConfig, rollout: int, agent: int) -> int:
        """Return the bytes of actors beside the learner; rollout, agent: bytes of one of each."""

    def programs(self, prepared: Prepared, context: Context) -> Programs:
        """Return the programs of a run, not compiled."""

    def evaluate(
        self, env: Environment, algo: Algorithm, agent: Any, key: jax.Array,
        episodes: int, mode: str, config: RunConfig
    ) -> Evaluation:
        """Play whole episodes of one member's agent. Returns NumPy arrays [episodes]."""

    def film(
        self, env: Environment, algo: Algorithm, agent: Any, key: jax.Array, max_steps: int,
        patience: float, most: int | None = None,
    ) -> Film:  # fmt: skip
        """Play and draw one greedy episode.

        patience: seconds to wait for a host environment. most: pictures, evenly spread over the
        episode; None: one of every state.
        """

    def still(self, env: Environment, states: Any,
              index: tuple[int, ...]) -> Callable[[], np.ndarray | None] | None:
        """Return a function that draws `states[index]`, one environment's; None: not drawable.

        The states may be donated after this call; any thread may call the function. Only of a
        backend with `stills`.
        """


@functools.cache
def _backend(name: str) -> Backend:
    module, _, attribute = _BACKENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)()


def backend_of(env: Environment) -> Backend:
    """Return the backend of `env`, imported on first use. Raises ConfigError for other values."""
    if not isinstance(env, Environment) or env.runs_on not in _BACKENDS:
        raise ConfigError("env", env, f'an environment, such as jf.make("CartPole-v1"){_hint(env)}')
    return _backend(env.runs_on)


def _hint(value: Any) -> str:
    """Return how to make an environment of a value, or where it belongs."""
    from jaxrl_fast.algorithms.base import Algorithm  # here and below: an error alone needs them
    from jaxrl_fast.envs import own

    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, Algorithm):
        return ": an algorithm comes first"
    if own.is_foreign(value) or issubclass(kind, Environment):
        return f": jf.make takes this {'class' if kind is value else 'object'}"
    return ""
