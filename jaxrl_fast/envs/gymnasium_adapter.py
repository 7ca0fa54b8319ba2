"""Every environment that Gymnasium knows, "gym:ID" ("gym:LunarLander-v3", "gym:my_package:MyEnv-v0").

vectorization   "sync": one after the other in one thread; "async": a process each; "native": the environment's own
                vector version (its `vector_entry_point`).

Whatever the vector's auto-reset mode, a `Vector` here returns the true successor. Only a native vector that can reset in
the next step alone leaves a trace: a row for the reset, which is marked (`HostStep.real`) and counts as truncated, so that
replay never learns from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

import numpy as np

from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.gymnasium_spaces import decoder, encoder, space_of, stack
from jaxrl_fast.envs.host import HostEnv, HostStep, Vector, at, guarded, put
from jaxrl_fast.errors import ConfigError, check_choice, check_int, nearest
from jaxrl_fast.types import EnvSpec

PREFIX = "gym:"
NAMES = ()  # not without importing it
FAMILY = "gym:LunarLander-v3 and every other id that Gymnasium knows"
INSTALL = "pip install 'jaxrl_fast[gymnasium]'"


def installed() -> bool:
    """Whether Gymnasium can be imported; does not import it."""
    return "gymnasium" in sys.modules or importlib.util.find_spec("gymnasium") is not None


def _spec_of(name: str) -> Any:
    """Gymnasium's own spec; a ConfigError that names the nearest where there is none."""
    import gymnasium

    try:
        return gymnasium.spec(name.removeprefix(PREFIX))
    except Exception as error:  # a module that cannot be imported, a version that was never registered
        ids = [PREFIX + known for known in gymnasium.registry]
        raise ConfigError("environment", name, f"an id that Gymnasium knows{nearest(name, ids)} ({error})") from None


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """Ours, then the parameters of the environment's constructor."""
    spec = _spec_of(name)
    try:
        from gymnasium.envs.registration import load_env_creator

        create = spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)
        parameters = inspect.signature(create).parameters.values()
    except Exception:  # its package is missing: making it says so
        parameters = ()
    own = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty} | dict(spec.kwargs)
    taken = {"render_mode", *wrappers.COMMON}  # what `make` means by these names goes before what the environment does
    simple = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items() if _is_simple(v) and k not in taken}
    return {"vectorization": "sync", "max_episode_steps": spec.max_episode_steps} | simple


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str)) or (
        isinstance(value, (tuple, list)) and all(map(_is_simple, value))
    )


def make(name: str, vectorization: str = "sync", max_episode_steps: int | None = None, **own: Any) -> GymnasiumEnv:
    check_choice("env.vectorization", vectorization, ("sync", "async", "native"))
    if max_episode_steps is not None:
        check_int("env.max_episode_steps", max_episode_steps)
    usual = defaults(name)
    changed = {k: v for k, v in own.items() if v != usual.get(k)}
    if vectorization == "native" and _spec_of(name).vector_entry_point is None:
        raise ConfigError("env.vectorization", vectorization, f"'sync' or 'async': {name} has no vector version of its own")
    limit = max_episode_steps if max_episode_steps != usual["max_episode_steps"] else None
    return GymnasiumEnv(
        id=name.removeprefix(PREFIX), vectorization=vectorization, max_episode_steps=limit, own=tuple(sorted(changed.items()))
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumEnv(HostEnv):
    """`id` as Gymnasium makes it; `max_episode_steps` None: as it is registered; `own`: arguments of its constructor."""

    id: str
    vectorization: str = "sync"
    max_episode_steps: int | None = None
    own: tuple[tuple[str, Any], ...] = ()

    @property
    def evaluated(self):
        return 16 if self.vectorization != "async" else os.cpu_count() or 1

    def _arguments(self) -> dict[str, Any]:
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        return dict(self.own) | limit

    @guarded
    def _spec(self):
        import gymnasium

        env = gymnasium.make(self.id, **self._arguments())
        try:
            limit = env.spec.max_episode_steps
            return EnvSpec(self.id, space_of(env.observation_space), space_of(env.action_space), limit)
        finally:
            env.close()

    @guarded
    def _open(self, num_envs, seed, training, render):
        import gymnasium
        from gymnasium.vector import AutoresetMode

        arguments = self._arguments() | ({"render_mode": "rgb_array"} if render else {})
        for driver in ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):  # pygame looks for loudspeakers, and says when there are none
            os.environ.setdefault(driver, "dummy")
        if self.vectorization == "native":
            vector = gymnasium.make_vec(self.id, num_envs, "vector_entry_point", **arguments)
        else:
            more = {"autoreset_mode": AutoresetMode.SAME_STEP}
            if self.vectorization == "async":  # a process that was forked off JAX's threads may never wake up
                more |= {"context": "spawn"}
            with _uninterrupted():
                vector = gymnasium.make_vec(self.id, num_envs, self.vectorization, vector_kwargs=more, **arguments)
        return GymnasiumVector(vector, seed)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started meanwhile do not see a Ctrl-C, which a terminal sends to all: the run finishes its chunk."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would unblock the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class GymnasiumVector(Vector):
    """A `gymnasium.vector.VectorEnv` of any auto-reset mode."""

    def __init__(self, vector: Any, seed: int):
        self.vector, self.seed, self.num_envs = vector, seed, vector.num_envs
        self.mode = getattr(vector.metadata.get("autoreset_mode"), "name", "NEXT_STEP")
        self.encode = encoder(vector.single_observation_space)
        self.decode = decoder(vector.single_action_space)
        self.resetting = np.zeros(self.num_envs, bool)  # by the next step, whatever it is given
        self.obs: Any = None
        self.pending: Any = None

    @guarded
    def reset(self):
        self.obs = self.encode(self.vector.reset(seed=self.seed)[0])
        self.seed = None  # from here on the environments' own random numbers go on
        self.resetting[:] = False
        return self.obs

    @guarded
    def send(self, action):
        action = self.decode(action)
        if hasattr(self.vector, "step_async"):  # processes
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
        reward, terminated, truncated = np.float32(reward), terminated.astype(bool), truncated & ~terminated
        ended, successors = terminated | truncated, obs
        if self.mode == "SAME_STEP" and ended.any():
            successors = put(obs, ended, self.encode(stack([info["final_obs"][i] for i in np.flatnonzero(ended)])))
        elif self.mode == "DISABLED" and ended.any():
            successors, obs = obs, self.encode(self.vector.reset(options={"reset_mask": ended})[0])
        real, over = None, ended
        if self.mode == "NEXT_STEP":
            if self.resetting.any():
                real = ~self.resetting
                successors = put(successors, self.resetting, at(before, self.resetting))
                reward, truncated = np.where(real, reward, np.float32(0)), truncated | self.resetting
            self.resetting = ended
        self.obs = obs
        return HostStep(obs, successors, reward, terminated, truncated, reward, over, real)

    def close(self):
        if hasattr(self.vector, "step_async"):  # one that hangs, or was killed, would be waited for
            self.vector.close(terminate=True)
        else:
            self.vector.close()

    def render(self):
        found = self.vector.render()
        return None if found is None else np.asarray(found[0] if isinstance(found, (tuple, list)) else found)
