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
from jaxrl_fast.envs.host.gymnasium_spaces import spec_of
from jaxrl_fast.errors import ConfigError, check_choice, check_int, nearest
from jaxrl_fast.types import EnvSpec

OURS: dict[str, Any] = {"vectorization": "sync", "max_episode_steps": None}


def is_gymnasium(value: Any) -> bool:
    """Return whether it is a Gymnasium environment or a class of them; imports nothing."""
    gymnasium = sys.modules.get("gymnasium")
    kind = value if isinstance(value, type) else type(value)
    return gymnasium is not None and issubclass(kind, gymnasium.Env)


def is_vector(value: Any) -> bool:
    """Return whether it is a Gymnasium vector."""
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
            valid = f"a function that makes one, such as `lambda: {kind}(...)`: it cannot be copied ({error!r})"
            raise ConfigError("environment", name, valid) from error

    def __call__(self) -> Any:
        return copy.deepcopy(self.env)


def defaults(create: Callable[..., Any]) -> dict[str, Any]:
    """Return our settings, then the callable's parameters with simple defaults."""
    own = fields.defaults_of(create)
    return OURS | {k: v for k, v in own.items() if is_simple(v) and k not in (*OURS, "render_mode")}


def adapt(create: Callable[..., Any], name: str, vectorization: str = "sync", max_episode_steps: int | None = None, **own: Any):
    """Return the environment of `create(**own)`, called `name`, in a time limit if given."""
    check_choice("env.vectorization", vectorization, ("sync", "async"))
    if max_episode_steps is not None:
        check_int("env.max_episode_steps", max_episode_steps)
    known = defaults(create)
    for key, value in own.items():
        if key not in known:
            raise ConfigError(f"env.{key}", value, f"a setting of {name} ({', '.join(known)}){nearest(key, known)}")
    return OwnGymnasiumEnv(
        id=name, vectorization=vectorization, max_episode_steps=max_episode_steps, own=tuple(sorted(own.items())), create=create
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnGymnasiumEnv(GymnasiumEnv):
    """`create` makes one environment; a vector calls it once for each."""

    create: Callable[..., Any]

    @property
    def imports(self):
        return ()

    def _arguments(self) -> dict[str, Any]:
        return dict(self.own)

    def _found(self) -> EnvSpec:
        from jaxrl_fast.envs.host.gymnasium_worker import made

        env = made(self.create, self._arguments(), self.max_episode_steps)
        self.__dict__["_modes"] = tuple(env.metadata.get("render_modes") or ())
        try:
            return spec_of(self.id, env.observation_space, env.action_space, time_limit(env))
        finally:
            env.close()

    def _is_drawn(self) -> bool:
        modes = self.__dict__.get("_modes", ())
        return fields.takes(self.create, "render_mode") and ("rgb_array" in modes or not modes)

    def _make(self, num_envs: int, more: dict[str, Any]) -> Any:
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

        from jaxrl_fast.envs.host import gymnasium_worker as side

        mode = AutoresetMode.NEXT_STEP if "render_mode" in more else AutoresetMode.SAME_STEP  # a picture of an end needs it
        make = [functools.partial(side.checked, self.create, self._arguments() | more, self.max_episode_steps)] * num_envs
        if self.vectorization == "sync":
            return SyncVectorEnv(make, autoreset_mode=mode)
        with side.uninterrupted():
            return AsyncVectorEnv(make, autoreset_mode=mode, context="spawn", worker=side.worker)


def time_limit(env: Any) -> int | None:
    """Return the steps after which its TimeLimit or registration ends an episode, or None."""
    limits = []
    with contextlib.suppress(AttributeError):  # the innermost has no `env`
        layer = env
        while True:
            limits.append(getattr(layer, "_max_episode_steps", None))
            layer = layer.env
    return min((x for x in limits if x is not None), default=None)
