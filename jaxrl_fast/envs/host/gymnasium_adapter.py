"""Gymnasium's registry: "gym:ID" ("gym:LunarLander-v3", "gym:my_package:MyEnv-v0").

vectorization: "sync", one after another in one thread; "async", a process each; "native", the
    environment's own vector version (its `vector_entry_point`).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from typing import Any

from jaxrl_fast import fields, imports
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.host.api import HostEnv, guarded
from jaxrl_fast.envs.host.gymnasium_spaces import spec_of
from jaxrl_fast.envs.host.gymnasium_vector import GymnasiumVector
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError, UserError
from jaxrl_fast.fields import setting
from jaxrl_fast.types import EnvSpec

PREFIX = "gym:"
INSTALL = "pip install 'jaxrl_fast[gymnasium]'"


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules that making it imports: MODULE of "gym:MODULE:ID"."""
    module = name.removeprefix(PREFIX).rpartition(":")[0]
    return (module,) if module else ()


def _spec_of(name: str) -> Any:
    """Return Gymnasium's spec. Raises ConfigError for an unknown id, with the nearest one."""
    import gymnasium

    module, _, id = name.removeprefix(PREFIX).rpartition(":")
    if module:
        try:
            new = not imports.is_known(module)  # otherwise a run's file may have named it
            imports.import_user_module(module, "environment", trust=new)  # which registers it
        except UserError as error:
            raise ConfigError(
                "environment", name,
                "one of a module that can be imported"
                f"{suggest(PREFIX + id, sure=True)} ({error.__cause__ or error!r})"
            ) from error
    try:
        return gymnasium.spec(id)
    except Exception as error:  # a version that was never registered
        raise ConfigError("environment", name,
                          f"an id that Gymnasium knows{suggest(name)} ({error})") from None


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """Return our settings, the constructor's, and those of the native vector alone."""
    ours = {"vectorization": "sync", "max_episode_steps": _spec_of(name).max_episode_steps}
    return ours | _own(name, True) | _own(name, False)


@functools.cache
def _own(name: str, native: bool) -> dict[str, Any]:
    """Return one environment's settings with defaults, or those of its native vector."""
    create = _creator(name, native)
    own = fields.defaults_of(create) | dict(_spec_of(name).kwargs)
    simple = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items() if is_simple(v)
              and k not in _TAKEN}
    return _own(name, False) | simple if native and fields.takes_any(create) else simple


# `make`'s and the run's meaning of these names has precedence.
_TAKEN = {"name", "spec", "render_mode", "max_episode_steps", "num_envs", "batch_size",
          "vectorization", *wrappers.COMMON}


def _creator(name: str, native: bool) -> Any:
    """Return the class or function that makes it; None without one or if it fails to import."""
    from gymnasium.envs.registration import load_env_creator

    spec = _spec_of(name)
    entry_point = spec.vector_entry_point if native else spec.entry_point
    if entry_point is None or callable(entry_point):
        return entry_point
    try:
        return load_env_creator(entry_point)
    except Exception:  # its package is missing: making it says so
        return None


def is_simple(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str)) or (
        isinstance(value, (tuple, list)) and all(map(is_simple, value))
    )


def make(name: str, vectorization: str = "sync", max_episode_steps: int | None = None,
         **own: Any) -> GymnasiumEnv:
    spec, native = _spec_of(name), vectorization == "native"
    if native and spec.vector_entry_point is None:
        raise ConfigError("env.vectorization", vectorization,
                          f"'sync' or 'async': {name} has no vector version of its own")
    usual = _own(name, native)
    for key, value in own.items():
        if key not in usual:
            raise ConfigError(f"env.{key}", value,
                              f"left out with vectorization {vectorization!r}, which has "
                              f"{', '.join(usual)}")
    changed = {k: v for k, v in own.items() if v != usual[k]}
    limit = max_episode_steps if max_episode_steps != spec.max_episode_steps else None
    own_limit = native and limit is not None
    if own_limit and not fields.takes(_creator(name, native), "max_episode_steps"):
        raise ConfigError("env.max_episode_steps", limit,
                          f"{spec.max_episode_steps}: {name}'s own vector has no such limit")
    return GymnasiumEnv(
        id=name.removeprefix(PREFIX), vectorization=vectorization, max_episode_steps=limit,
        own=tuple(sorted(changed.items()))
    )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class GymnasiumEnv(HostEnv):
    """Gymnasium's `id`; max_episode_steps None: as registered; own: constructor arguments."""

    id: str
    vectorization: str = setting("sync", choices=("sync", "async", "native"))
    """how a vector steps: in turns, in processes, or by the environment's own vector"""
    max_episode_steps: int | None = setting(None, low=1)
    """steps after which an episode is truncated; None: as registered"""
    own: tuple[tuple[str, Any], ...] = ()

    @property
    def imports(self) -> tuple[str, ...]:
        """Return the modules that Gymnasium imports to make it."""
        return modules_of(self.id)

    @property
    def evaluated(self):
        return 16 if self.vectorization != "async" else os.cpu_count() or 1

    def _arguments(self) -> dict[str, Any]:
        limit = (
            {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        )
        return dict(self.own) | limit

    @guarded
    def _spec(self):
        from gymnasium.error import DependencyNotInstalled

        try:
            return self._found()
        except DependencyNotInstalled as error:  # says what to install, but not our extra
            ours = any(name in str(error).lower() for name in ("box2d", "pygame"))
            install = INSTALL if ours else str(error)
            raise ConfigError("environment", PREFIX + self.id,
                              f"one whose package is installed: {install}") from error

    def _found(self) -> EnvSpec:
        if self.vectorization == "native":  # need not be copies of the single environment
            env = self._make(1, {})
            limit = self.max_episode_steps or _spec_of(self.id).max_episode_steps
            spaces = env.single_observation_space, env.single_action_space
        else:
            env, limit = self._single()
            spaces = env.observation_space, env.action_space
        self.__dict__["_modes"] = tuple(env.metadata.get("render_modes") or ())
        try:
            return spec_of(self.id, *spaces, limit)
        finally:
            env.close()

    def _single(self) -> tuple[Any, int | None]:
        """Return one environment and its time limit."""
        import gymnasium

        env = gymnasium.make(self.id, **self._arguments())
        return env, env.spec.max_episode_steps

    def _is_drawn(self) -> bool:
        """Return whether the environment takes `render_mode` "rgb_array", and so draws pictures."""
        # `spec` finds the modes
        create, _ = _creator(self.id, self.vectorization == "native"), self.spec
        modes = self.__dict__.get("_modes", ())
        if modes:
            return "rgb_array" in modes and fields.takes(create, "render_mode")
        return "render_mode" in fields.parameters(create)

    def _make(self, num_envs: int, more: dict[str, Any], filmed: bool = False) -> Any:
        """Return Gymnasium's vector; a filmed one keeps an episode's last state for a step."""
        import gymnasium
        from gymnasium.vector import AutoresetMode

        arguments = self._arguments() | more
        if self.vectorization == "native":
            return gymnasium.make_vec(self.id, num_envs, "vector_entry_point", **arguments)
        from jaxrl_fast.envs.host import gymnasium_worker as side

        mode = AutoresetMode.NEXT_STEP if filmed else AutoresetMode.SAME_STEP
        if self.vectorization == "sync":
            return self._vector(num_envs, arguments, {"autoreset_mode": mode})
        with side.block_signals():  # a process forked off JAX's threads may never wake up
            kwargs = {"autoreset_mode": mode, "context": "spawn", "worker": side.worker}
            return self._vector(num_envs, arguments, kwargs)

    def _vector(self, num_envs: int, arguments: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        """Return a "sync" or "async" vector; kwargs: of its class."""
        import gymnasium

        from jaxrl_fast.envs.host.gymnasium_worker import Checked

        if "render_mode" in arguments:  # the checker has messages about rendering
            arguments = arguments | {"disable_env_checker": True}
        own = {"vector_kwargs": kwargs, "wrappers": [Checked]}
        return gymnasium.make_vec(self.id, num_envs, self.vectorization, **own, **arguments)

    def failed(self, error):
        # ends of a pipe; an environment may lose other connections
        lost = EOFError, BrokenPipeError, ConnectionResetError
        if self.vectorization != "async" or not isinstance(error, lost):
            return ""
        return ('the process of one of its environments died (a script needs `if __name__ == '
                f'"__main__":`): {error!r}')

    @guarded
    def _open(self, num_envs, seed, training, render):
        # pygame looks for loudspeakers and reports missing ones
        for driver in ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):
            os.environ.setdefault(driver, "dummy")
        drawn = render and self._is_drawn()
        with warnings.catch_warnings():
            if drawn:
                warnings.simplefilter("ignore")  # about unlisted render modes
            # one that takes no render_mode may have one already
            vector = self._make(num_envs, {"render_mode": "rgb_array"} if drawn else {}, render)
        return GymnasiumVector(vector, seed, self.id)


SOURCE = Source(
    make=make, settings=defaults, about=lambda name: fields.about(GymnasiumEnv), modules=modules_of,
    prefix=PREFIX, package="gymnasium", install=INSTALL, on_host=True,
    family="gym:LunarLander-v3 and every other id that Gymnasium knows",
)  # fmt: skip
