"""A user's Gymnasium environment: an instance, its class, or a function that makes one.

A run makes as many as it needs: by calls of the class or function, or as copies of the instance.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

from jaxrl_fast import fields
from jaxrl_fast.envs.host.gymnasium_adapter import GymnasiumEnv, is_simple
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting

OURS: dict[str, Any] = {"vectorization": "sync", "max_episode_steps": None}


def is_gymnasium(value: Any) -> bool:
    """Return whether `value` is a Gymnasium environment or a class of them; imports nothing."""
    gymnasium = sys.modules.get("gymnasium")
    kind = value if isinstance(value, type) else type(value)
    return gymnasium is not None and issubclass(kind, gymnasium.Env)


def is_vector(value: Any) -> bool:
    """Return whether `value` is a Gymnasium vector."""
    gymnasium = sys.modules.get("gymnasium")
    return gymnasium is not None and isinstance(value, gymnasium.vector.VectorEnv)


def label(env: Any) -> str:
    """Return the name of an environment or class: its registration, else its class."""
    if isinstance(env, type):
        return env.__name__
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


class Copies:
    """Calls return copies of an instance."""

    def __init__(self, env: Any, name: str):
        self.env = env
        try:
            copy.deepcopy(env).close()
        except Exception as error:
            kind = type(env.unwrapped).__name__
            raise ConfigError("environment", name,
                              f"a function that makes one, such as `lambda: {kind}(...)`: it "
                              f"cannot be copied ({error!r})") from error

    def __call__(self) -> Any:
        return copy.deepcopy(self.env)


def defaults(create: Callable[..., Any]) -> dict[str, Any]:
    """Return our settings, then the callable's parameters with simple defaults."""
    own, taken = fields.defaults_of(create), (*OURS, "render_mode")
    return OURS | {k: own[k] for k in fields.offered(own) if is_simple(own[k]) and k not in taken}


def adapt(create: Callable[..., Any], name: str, **settings: Any) -> OwnGymnasiumEnv:
    """Return the environment of `create`, called `name`, with settings of `OURS` and its own."""
    ours = {k: settings.pop(k) for k in OURS if k in settings}
    return OwnGymnasiumEnv(id=name, own=tuple(sorted(settings.items())), create=create, **ours)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class OwnGymnasiumEnv(GymnasiumEnv):
    """`create` makes one environment; a vector calls it once for each."""

    create: Callable[..., Any]
    vectorization: str = setting("sync", choices=("sync", "async"))
    """how a vector steps: in turns, or in processes"""

    @property
    def imports(self):
        return ()

    def _arguments(self) -> dict[str, Any]:
        return dict(self.own)

    def _single(self):
        from jaxrl_fast.envs.host.gymnasium_worker import make_env

        env = make_env(self.create, self._arguments(), self.max_episode_steps)
        return env, time_limit(env)

    def _is_drawn(self) -> bool:
        modes = self.__dict__.get("_modes", ())
        return fields.takes(self.create, "render_mode") and ("rgb_array" in modes or not modes)

    def _vector(self, num_envs, arguments, kwargs):
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        from jaxrl_fast.envs.host.gymnasium_worker import make_env

        kind = AsyncVectorEnv if self.vectorization == "async" else SyncVectorEnv
        make = functools.partial(make_env, self.create, arguments, self.max_episode_steps,
                                 checks=True)
        return kind([make] * num_envs, **kwargs)


def time_limit(env: Any) -> int | None:
    """Return the steps after which its TimeLimit or registration ends an episode, or None."""
    limits = []
    with contextlib.suppress(AttributeError):  # the innermost has no `env`
        layer = env
        while True:
            limits.append(getattr(layer, "_max_episode_steps", None))
            layer = layer.env
    return min((x for x in limits if x is not None), default=None)
