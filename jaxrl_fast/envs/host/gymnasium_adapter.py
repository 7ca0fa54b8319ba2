"""Gymnasium's registry: "gym:ID" ("gym:LunarLander-v3", "gym:my_package:MyEnv-v0").

vectorization: "sync" (one after the other in one thread), "async" (a process each) or "native" (the
environment's own `vector_entry_point`).

A `Vector` returns the true successor in each auto-reset mode. A native vector that resets in the
step after an end makes a row of that reset, truncated and without reward; `HostStep.real` is False
and `Timestep.reset_only` True for it, so replay does not learn from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import warnings
from typing import Any

import jax
import numpy as np

from jaxrl_fast import imports, signatures
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.host.api import HostEnv, HostStep, Vector, at, guarded, put
from jaxrl_fast.envs.host.gymnasium_spaces import decoder, picture_encoder, spec_of, stack
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError, UserError, check_choice, check_int
from jaxrl_fast.exact import ends, exact
from jaxrl_fast.logs.reports import flat
from jaxrl_fast.types import EnvSpec

PREFIX = "gym:"
NOT_NUMBERS = {name for key in ("final_obs", "final_info") for name in (key, f"_{key}")}  # of an info: left by an end
INSTALL = "pip install 'jaxrl_fast[gymnasium]'"


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules that making it imports: MODULE of "gym:MODULE:ID"."""
    module = name.removeprefix(PREFIX).rpartition(":")[0]
    return (module,) if module else ()


def _spec_of(name: str) -> Any:
    """Return Gymnasium's spec; raises ConfigError, with the nearest id, without one."""
    import gymnasium

    module, _, id = name.removeprefix(PREFIX).rpartition(":")
    if module:
        try:
            new = not imports.is_known(module)  # else a run's file may have named it
            imports.import_user_module(module, "environment", trust=new)  # which registers it
        except UserError as error:
            raise ConfigError(
                "environment", name, f"one of a module that can be imported: {error.__cause__ or error!r}"
            ) from error
    try:
        return gymnasium.spec(id)
    except Exception as error:  # a version that was never registered
        raise ConfigError("environment", name, f"an id that Gymnasium knows{suggest(name)} ({error})") from None


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """Return our settings, the constructor's, and those of the native vector alone."""
    ours = {"vectorization": "sync", "max_episode_steps": _spec_of(name).max_episode_steps}
    return ours | _own(name, True) | _own(name, False)


@functools.cache
def _own(name: str, native: bool) -> dict[str, Any]:
    """Return one environment's settings with defaults, or those of its native vector."""
    spec = _spec_of(name)
    create = _creator(spec.vector_entry_point if native else spec.entry_point)
    own = signatures.defaults_of(create) | dict(spec.kwargs)
    simple = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items() if is_simple(v) and k not in _TAKEN}
    return _own(name, False) | simple if native and signatures.takes_any(create) else simple


# `make`'s and the run's meaning of these names has precedence.
_TAKEN = {"render_mode", "max_episode_steps", "num_envs", "batch_size", "vectorization", *wrappers.COMMON}


def _creator(entry_point: Any) -> Any:
    """Return the class or function of an entry point; None without one or if it fails to import."""
    from gymnasium.envs.registration import load_env_creator

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


def make(name: str, vectorization: str = "sync", max_episode_steps: int | None = None, **own: Any) -> GymnasiumEnv:
    check_choice("env.vectorization", vectorization, ("sync", "async", "native"))
    spec, native = _spec_of(name), vectorization == "native"
    if native and spec.vector_entry_point is None:
        raise ConfigError("env.vectorization", vectorization, f"'sync' or 'async': {name} has no vector version of its own")
    if max_episode_steps is not None:
        check_int("env.max_episode_steps", max_episode_steps)
    usual = _own(name, native)
    for key, value in own.items():
        if key not in usual:
            raise ConfigError(f"env.{key}", value, f"left out with vectorization {vectorization!r}, which has {', '.join(usual)}")
    changed = {k: v for k, v in own.items() if v != usual[k]}
    limit = max_episode_steps if max_episode_steps != spec.max_episode_steps else None
    if native and limit is not None and not signatures.takes(_creator(spec.vector_entry_point), "max_episode_steps"):
        raise ConfigError("env.max_episode_steps", limit, f"{spec.max_episode_steps}: {name}'s own vector has no such limit")
    return GymnasiumEnv(
        id=name.removeprefix(PREFIX), vectorization=vectorization, max_episode_steps=limit, own=tuple(sorted(changed.items()))
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumEnv(HostEnv):
    """Gymnasium's `id`; max_episode_steps None: as registered; own: constructor arguments."""

    id: str
    vectorization: str = "sync"
    max_episode_steps: int | None = None
    own: tuple[tuple[str, Any], ...] = ()

    @property
    def imports(self) -> tuple[str, ...]:
        """Return the modules that Gymnasium imports to make it."""
        return modules_of(self.id)

    @property
    def evaluated(self):
        return 16 if self.vectorization != "async" else os.cpu_count() or 1

    def _arguments(self) -> dict[str, Any]:
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        return dict(self.own) | limit

    @guarded
    def _spec(self):
        from gymnasium.error import DependencyNotInstalled

        try:
            return self._found()
        except DependencyNotInstalled as error:  # says what to install, but not our extra
            ours = any(name in str(error).lower() for name in ("box2d", "pygame"))
            install = INSTALL if ours else str(error)
            raise ConfigError("environment", PREFIX + self.id, f"one whose package is installed: {install}") from error

    def _found(self) -> EnvSpec:
        import gymnasium

        if self.vectorization == "native":  # need not be copies of the single environment
            env, limit = self._make(1, {}), self.max_episode_steps or _spec_of(self.id).max_episode_steps
            spaces = env.single_observation_space, env.single_action_space
        else:
            env = gymnasium.make(self.id, **self._arguments())
            spaces, limit = (env.observation_space, env.action_space), env.spec.max_episode_steps
        self.__dict__["_modes"] = tuple(env.metadata.get("render_modes") or ())
        try:
            return spec_of(self.id, *spaces, limit)
        finally:
            env.close()

    def _is_drawn(self) -> bool:
        """Return whether it draws pictures: it takes `render_mode` with "rgb_array"."""
        native, spec = self.vectorization == "native", _spec_of(self.id)
        entry_point, _ = spec.vector_entry_point if native else spec.entry_point, self.spec
        modes = self.__dict__.get("_modes", ())
        if modes:
            return "rgb_array" in modes and signatures.takes(_creator(entry_point), "render_mode")
        return "render_mode" in signatures.parameters(_creator(entry_point))

    def _make(self, num_envs: int, more: dict[str, Any]) -> Any:
        """Return Gymnasium's vector; a drawn one keeps an episode's last state for a step."""
        import gymnasium
        from gymnasium.vector import AutoresetMode

        arguments = self._arguments() | more
        if self.vectorization == "native":
            return gymnasium.make_vec(self.id, num_envs, "vector_entry_point", **arguments)
        from jaxrl_fast.envs.host import gymnasium_worker as side

        mode = AutoresetMode.SAME_STEP
        if "render_mode" in more:  # without Gymnasium's checker and its messages about rendering
            mode, arguments = AutoresetMode.NEXT_STEP, arguments | {"disable_env_checker": True}
        apart, kwargs = self.vectorization == "async", {"autoreset_mode": mode}
        if apart:  # a process forked off JAX's threads may never wake up
            kwargs |= {"context": "spawn", "worker": side.worker}
        with side.uninterrupted() if apart else contextlib.nullcontext():
            return gymnasium.make_vec(
                self.id, num_envs, self.vectorization, vector_kwargs=kwargs, wrappers=[side.Checked], **arguments
            )

    def failed(self, error):
        lost = EOFError, BrokenPipeError, ConnectionResetError  # of a pipe; an environment may lose other connections
        if self.vectorization != "async" or not isinstance(error, lost):
            return ""
        return f'the process of one of its environments died (a script needs `if __name__ == "__main__":`): {error!r}'

    @guarded
    def _open(self, num_envs, seed, training, render):
        for driver in ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):  # pygame looks for loudspeakers and reports missing ones
            os.environ.setdefault(driver, "dummy")
        drawn = render and self._is_drawn()
        with warnings.catch_warnings():
            if drawn:
                warnings.simplefilter("ignore")  # about unlisted render modes
            vector = self._make(num_envs, {"render_mode": "rgb_array"} if drawn else {})
        return GymnasiumVector(vector, seed, self.id)


class GymnasiumVector(Vector):
    """A `gymnasium.vector.VectorEnv` in any auto-reset mode."""

    def __init__(self, vector: Any, seed: int, name: str = Vector.name):
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        from jaxrl_fast.envs.host.gymnasium_worker import quiet

        self.vector = quiet(vector) if isinstance(vector, AsyncVectorEnv) else vector
        self.seed, self.num_envs, self.name = seed, vector.num_envs, name
        self.mode = getattr(vector.metadata.get("autoreset_mode"), "name", "NEXT_STEP")
        self.encode = picture_encoder(vector.single_observation_space)
        if not isinstance(vector, (AsyncVectorEnv, SyncVectorEnv)):  # a native one may write there again
            encode = self.encode
            self.encode = lambda obs: jax.tree.map(np.array, encode(obs))
        self.decode = decoder(vector.single_action_space)
        self.resetting = np.zeros(self.num_envs, bool)  # by the next step, whatever its action
        self.over = np.zeros(self.num_envs, bool)  # in the last step
        self.obs: Any = None
        self.pending: Any = None
        self.steps_apart = isinstance(vector, AsyncVectorEnv)  # processes

    @guarded
    def reset(self):
        self.obs = self.encode(self.vector.reset(seed=self.seed)[0])
        self.seed = None  # the environments' own random numbers continue
        self.resetting[:] = self.over[:] = False
        return self.obs

    @guarded
    def send(self, action):
        action = self.decode(action)
        if self.steps_apart:
            self.vector.step_async(action)
        else:
            self.pending = action

    @guarded
    def receive(self):
        if self.pending is None:
            found = self.vector.step_wait()
        else:
            found, self.pending = self.vector.step(self.pending), None
        obs, reward, terminated, truncated, info = found
        before, obs = self.obs, self.encode(obs)
        reward, (terminated, truncated) = np.array(exact(reward, np.float32, "rewards")), ends(terminated, truncated)
        ended, successors = terminated | truncated, obs
        if self.mode == "SAME_STEP" and ended.any():
            successors = put(obs, ended, self.encode(stack([info["final_obs"][i] for i in np.flatnonzero(ended)])))
        elif self.mode == "DISABLED" and ended.any():
            successors, obs = obs, self.encode(self.vector.reset(options={"reset_mask": ended})[0])
        real, over = None, ended
        if self.mode == "NEXT_STEP":
            real = ~self.resetting
            if self.resetting.any():
                successors = put(successors, self.resetting, at(before, self.resetting))
                reward, truncated = np.where(real, reward, np.float32(0)), truncated | self.resetting
            self.resetting = ended
        self.obs, self.over = obs, over
        info = self._numbers(info, ended, real) if info else {}
        return HostStep(obs, successors, reward, terminated, truncated, reward, over, real, info=info)

    def _numbers(self, info: dict[str, Any], ended: np.ndarray, real: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the steps' reports, without those of resets."""
        final = info.get("final_info") if self.mode == "SAME_STEP" and ended.any() else None
        found = flat({k: v for k, v in info.items() if k not in NOT_NUMBERS}, self.num_envs)
        if final is not None:
            last = flat(final, self.num_envs)
            nothing = np.full(self.num_envs, np.nan)
            found = {k: np.where(ended, last.get(k, nothing), found.get(k, nothing)) for k in {**found, **last}}
        return found if real is None else {k: np.where(real, x, np.nan) for k, x in found.items()}

    def failed(self, error):
        if not self.steps_apart or not isinstance(error, (EOFError, OSError)):
            return ""
        from jaxrl_fast.envs.host.gymnasium_worker import died

        return died(self.vector)

    def kill(self):
        if self.steps_apart:
            from jaxrl_fast.envs.host.gymnasium_worker import kill

            kill(self.vector.processes)

    def close(self):
        if not self.steps_apart:
            return self.vector.close()
        self.kill()  # Gymnasium would first wait for dead processes
        for pipe in self.vector.parent_pipes:
            if pipe is not None:
                pipe.close()
        self.vector.closed = True

    @guarded
    def render(self):
        begun_again = self.mode != "NEXT_STEP" and self.over[0]
        if getattr(self.vector, "render_mode", None) is None or begun_again:
            return None
        try:
            found = self.vector.render()
        except NotImplementedError:
            return None
        return None if found is None else np.asarray(found[0] if isinstance(found, (tuple, list)) else found)


SOURCE = Source(
    make=make, settings=defaults, modules=modules_of, prefix=PREFIX, package="gymnasium", install=INSTALL, on_host=True,
    family="gym:LunarLander-v3 and every other id that Gymnasium knows",
)  # fmt: skip
