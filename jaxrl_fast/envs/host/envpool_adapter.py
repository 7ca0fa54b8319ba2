"""EnvPool's environments, "envpool:Pong-v5": a C++ thread pool that releases the GIL.

The settings are EnvPool's, except those that this package handles: `stack`, `reward_clip`,
`episodic_life`. EnvPool resets in the next step; here ended environments are reset at once, and
only they. `batch_size` below the number of environments is its asynchronous mode.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import warnings
from typing import Any

import jax
import numpy as np

from jaxrl_fast import runtime
from jaxrl_fast.envs.exact import ends, exact
from jaxrl_fast.envs.host.api import HostEnv, guarded
from jaxrl_fast.envs.host.gymnasium_spaces import PICTURE, own_form, spec_of
from jaxrl_fast.envs.host.vector import HostStep, Lives, Vector, put
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError, first_line
from jaxrl_fast.fields import about, check_like, setting
from jaxrl_fast.logs.reports import flat
from jaxrl_fast.tree import take

PREFIX = "envpool:"
INSTALL = "pip install 'jaxrl_fast[envpool]'"
# Step outputs about EnvPool, not the task.
_NOT_NUMBERS = {"env_id", "players", "elapsed_step", "terminated",
                "truncated", "trunc", "reward", "done", "TimeLimit.truncated"}
# No settings here: the run has sizes and seeds, this package stacks and clips.
_OURS = {
    "num_envs", "batch_size", "seed", "env_seed", "base_path", "gym_reset_return_info",
    "max_num_players", "stack_num",
    "task", "episodic_life", "reward_clip", "num_threads", "frame_stack",
}  # fmt: skip


@functools.cache
def _envpool() -> types.ModuleType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return __import__("envpool")
    except Exception as error:  # built for another NumPy or libc
        raise ConfigError("environment", PREFIX, "one of an EnvPool that can be imported: "
                                                 f"{INSTALL} ({error!r})") from error


@functools.cache
def _config(id: str) -> dict[str, Any]:
    """Return EnvPool's settings of `id` with their defaults."""
    known = _envpool().list_all_envs()
    if id not in known:
        raise ConfigError("environment", PREFIX + id,
                          f"one that EnvPool has{suggest(PREFIX + id, map(PREFIX.__add__, known))}")
    return _envpool().make_spec(id).config._asdict()


def _is_atari(id: str) -> bool:
    return "repeat_action_probability" in _config(id)


def _smallest(id: str) -> int:
    """Return the pixels from which pictures count as [C, H, W]."""
    return 1 if _is_atari(id) else PICTURE


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """Return the number of threads (0: a core each), ours for Atari, then EnvPool's settings."""
    id = name.removeprefix(PREFIX)
    simple = {k: v for k, v in _config(id).items() if isinstance(v, (bool, int, float, str))}
    own = {k: v for k, v in simple.items() if k not in _OURS}
    ours = {"episodic_life": False, "stack": 4, "reward_clip": 1.0} if _is_atari(id) else {}
    return {"num_threads": 0, "batch_size": 0} | ours | own


def make(name: str, num_threads: int = 0, batch_size: int = 0,
         episodic_life: bool = False, **own: Any) -> EnvPoolEnv:
    usual = defaults(name)
    for key, value in own.items():  # EnvPool's own error is a page of C++
        check_like(f"env.{key}", value, usual[key])
        if isinstance(usual[key], str) and not isinstance(value, str):
            raise ConfigError(f"env.{key}", value, f"a text such as {usual[key]!r}")
    changed = {k: v for k, v in own.items() if v != usual[k]}
    return EnvPoolEnv(
        id=name.removeprefix(PREFIX), num_threads=num_threads, batch_size=batch_size,
        episodic_life=episodic_life, own=tuple(sorted(changed.items())),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class EnvPoolEnv(HostEnv):
    """EnvPool's `id`; `own`: its settings that differ from their defaults."""

    id: str
    num_threads: int = setting(0, low=0)
    """threads of the emulators; 0: as many as cores or environments"""
    batch_size: int = setting(0, low=0)
    """environments that act at once, the first to come; 0: all"""
    episodic_life: bool = False
    """a lost life ends the learner's episode, not the game"""
    own: tuple[tuple[str, Any], ...] = ()

    def at_once(self, num_envs: int) -> int | None:
        return None if self.batch_size in (0, num_envs) else self.batch_size

    def _arguments(self) -> dict[str, Any]:
        single = {"stack_num": 1} if "stack_num" in _config(self.id) else {}
        return dict(self.own) | single

    @guarded
    def _spec(self):
        try:
            spec = _envpool().make_spec(self.id, **self._arguments())
            observation, action = spec.gymnasium_observation_space, spec.gymnasium_action_space
        except Exception as error:
            valid = f"settings that EnvPool takes for {self.id}: {first_line(error)}"
            raise ConfigError("env", dict(self.own), valid) from error
        limit = dict(self.own).get("max_episode_steps", _config(self.id).get("max_episode_steps"))
        return spec_of(self.id, observation, action, limit, _smallest(self.id))

    @guarded
    def _open(self, num_envs, seed, training, render):
        at_once = self.at_once(num_envs) if training else None
        # EnvPool's own 0: no more than batch_size
        threads = min(self.num_threads or runtime.cpu_count(), num_envs)
        pool = _envpool().make_gymnasium(
            self.id, num_envs=num_envs, batch_size=at_once or num_envs, num_threads=threads,
            seed=seed % 2**31, **self._arguments(),
        )  # fmt: skip
        vector = (EnvPoolAsync(pool, num_envs, self.id, at_once) if at_once
                  else EnvPoolVector(pool, num_envs, self.id))
        return Lives(vector) if training and self.episodic_life else vector


class EnvPoolVector(Vector):
    """A synchronous pool; `lives` [B] of the last step, or None."""

    def __init__(self, pool: Any, num_envs: int, name: str):
        self.pool, self.num_envs, self.name, self.lives = pool, num_envs, name, None
        self.encode = own_form(pool.observation_space, _smallest(name)).encode
        self.decode = own_form(pool.action_space).decode
        self.every = np.arange(num_envs, dtype=np.int32)

    @guarded
    def reset(self):
        self.shown, info = self._sorted(*self.pool.reset())
        self.lives = info.get("lives")
        return self.shown

    def _sorted(self, obs: Any, *rest: Any) -> tuple:
        """Sort by environment, not by completion."""
        *arrays, info = rest
        ids = info["env_id"]
        arrays = [self.encode(obs), *arrays]
        numbers = flat({k: v for k, v in info.items() if k not in _NOT_NUMBERS}, len(ids))
        lives = {"lives": info["lives"]} if "lives" in info else {}
        info = {"ids": ids, "numbers": numbers} | lives
        if (np.diff(ids) > 0).all():  # mostly: saves a copy of every picture
            return (*arrays, info)
        order = np.argsort(ids)
        return (*take(arrays, order), take(info, order))

    @guarded
    def send(self, action):
        self.pool.send(self.decode(action), self.every)

    def _stepped(self) -> tuple:
        """Return a step's (obs, reward float32, terminated, truncated, info)."""
        obs, reward, terminated, truncated, info = self._sorted(*self.pool.recv())
        return obs, exact(reward, np.float32, "rewards"), *ends(terminated, truncated), info

    @guarded
    def receive(self):
        obs, reward, terminated, truncated, info = self._stepped()
        ended, successors = terminated | truncated, obs
        self.lives, numbers = info.get("lives"), info["numbers"]
        if ended.any():
            fresh, info = self._sorted(*self.pool.reset(self.every[ended]))
            obs = put(obs, ended, fresh)
            if self.lives is not None:
                self.lives = put(self.lives, ended, info["lives"])
        self.shown = successors
        return HostStep(obs, successors, reward, terminated, truncated, reward, ended, info=numbers)

    def close(self):
        self.pool.close()


class EnvPoolAsync(EnvPoolVector):
    """An asynchronous pool: a step has the first `at_once` environments, and their lives.

    Ended environments are reset, and their step comes with the new episode's first observation.
    """

    def __init__(self, pool: Any, num_envs: int, name: str, at_once: int):
        super().__init__(pool, num_envs, name)
        self.at_once, self.over = at_once, np.zeros(num_envs, bool)
        # last steps of episodes, of all environments [B, ...], until new ones begin
        self.last: Any = None

    @guarded
    def reset(self):
        self.pool.async_reset()
        parts = [self._sorted(*self.pool.recv()) for _ in range(self.num_envs // self.at_once)]
        obs, _, _, _, info = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        order = np.argsort(info["ids"])
        self.lives = info["lives"][order] if "lives" in info else None
        return take(obs, order)

    @guarded
    def send(self, action, ids):
        self.pool.send(self.decode(action), np.int32(ids))

    @guarded
    def receive(self):
        ready = np.zeros(0, bool)
        while not ready.any():
            *step, info = self._stepped()
            step.append(info["numbers"])
            ready = self._ready(info["ids"], step)
        ids, fresh = info["ids"][ready], self.over[info["ids"][ready]]
        obs, *rest = step if ready.all() else take(step, ready)
        successors = obs
        if fresh.any():
            successors, *rest = put([obs, *rest], fresh, take(self.last, ids[fresh]))
            self.over[ids] = False
        self.lives = info["lives"][ready] if "lives" in info else None
        self.shown = successors
        reward, terminated, truncated, numbers = rest
        return HostStep(obs, successors, reward, terminated, truncated,
                        reward, fresh, ids=ids, info=numbers)

    def _ready(self, ids: np.ndarray, step: list[Any]) -> np.ndarray:
        """Return where the step needs no reset; reset the others."""
        if self.last is None:
            self.last = jax.tree.map(
                lambda x: np.zeros((self.num_envs, *x.shape[1:]), x.dtype), step
            )
        _, _, terminated, truncated, _ = step
        ended = (terminated | truncated) & ~self.over[ids]
        if ended.any():
            who = ids[ended]
            jax.tree.map(lambda last, x: last.__setitem__(who, x[ended]), self.last, step)
            self.over[who] = True
            self.pool._reset(np.int32(who))  # as its `reset`, without waiting
        return ~ended


SOURCE = Source(
    make=make, settings=defaults, about=lambda name: about(EnvPoolEnv), prefix=PREFIX,
    family="envpool:Pong-v5 and every other id that EnvPool has",
    package="envpool", install=INSTALL, on_host=True,
)  # fmt: skip
