"""Export environments to Gymnasium: `jf.to_gymnasium(env, num_envs)`.

`stepper` steps; the classes here give seeds, options and infos Gymnasium's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.export.stepper import MODES, Stepper
from jaxrl_fast.errors import ConfigError, MissingExtraError, check_choice, check_int, check_seed
from jaxrl_fast.spaces import Dict

try:
    import gymnasium
    from gymnasium.error import ClosedEnvironmentError, ResetNeeded
    from gymnasium.vector import AutoresetMode, VectorEnv  # 1.0 has no modes
    from gymnasium.vector.utils import batch_space

    from jaxrl_fast.envs.export.spaces import reader, to_space, writer
except ImportError as error:
    raise MissingExtraError("to_gymnasium", "gymnasium") from error

MASK = "action_mask"  # entry of an observation with the legal actions


def to_gymnasium(
    env: Env, num_envs: int | None = None, *, autoreset_mode: str | AutoresetMode = "same_step",
    render_mode: str | None = None, copy: bool = True,
) -> gymnasium.Env | VectorEnv:  # fmt: skip
    """Return `env` as a `gymnasium.Env`, or as a `VectorEnv` of `num_envs`.

    Args:
        autoreset_mode: when episodes begin (Gymnasium's `AutoresetMode`). "same_step": in the
            step that ends one, which returns the next first observation, and the last one in
            `infos["final_obs"]`. "next_step": in the step after, which ignores the action and gives
            reward 0. "disabled": by `reset(options={"reset_mask": mask})`.
        render_mode: "rgb_array", if it can be drawn: uint8 [H, W, 3], a tuple for vectors.
        copy: False gives read-only views if the device's memory is the host's; they never change.

    Raises ConfigError for a wrong argument, and for an action of a wrong shape or type, or outside
    its space.
    """
    if not isinstance(env, Environment):
        raise ConfigError("env", env,
                          "an environment of this library, such as jf.make('CartPole-v1')")
    if env.not_exported:
        raise ConfigError("env", env.spec.name, env.not_exported)
    mode = autoreset_mode
    if isinstance(mode, AutoresetMode):
        mode = mode.name.lower()
    check_choice("autoreset_mode", mode, MODES)
    if render_mode not in (None, "rgb_array") or (render_mode and not env.drawing):
        valid = "None or 'rgb_array'"
        if not env.drawing:
            valid = f"None for {env.spec.name}, which cannot be drawn"
        raise ConfigError("render_mode", render_mode, valid)
    if num_envs is None:
        if mode != MODES[0]:
            raise ConfigError("autoreset_mode", mode,
                              f"{MODES[0]!r} for a single environment: give num_envs")
        return _Single(env, render_mode)
    check_int("num_envs", num_envs)
    return _Vector(env, int(num_envs), mode, render_mode, copy)


def _spec(env: Env) -> gymnasium.envs.registration.EnvSpec:
    """Return Gymnasium's spec, of functions: Gymnasium copies specs deeply."""
    return gymnasium.envs.registration.EnvSpec(
        "jaxrl_fast/" + re.sub(r"[^\w:.-]", "-", env.spec.name),
        entry_point=lambda **kwargs: to_gymnasium(env, **kwargs),
        vector_entry_point=lambda max_episode_steps=None, **kwargs: to_gymnasium(env, **kwargs),
        max_episode_steps=env.spec.max_episode_steps,
    )


class _Common:
    """The common part of one environment and a vector."""

    def _prepare(self, env: Env, num_envs: int | None, mode: str,
                 render_mode: str | None, copy: bool) -> None:
        self._env, self._stepper = env, Stepper(env, num_envs or 1, mode)
        self.spec, self.render_mode = _spec(env), render_mode
        self.metadata = {"render_modes": ["rgb_array"] if env.drawing else [], "render_fps": 30}
        self._read = reader(env.spec.action, num_envs, "action" if num_envs is None else "actions")
        self._write = writer(env.spec.observation, num_envs is None, copy)
        self._masked = isinstance(env.spec.observation, Dict) and MASK in env.spec.observation

    def _ready(self) -> Stepper:
        """Return the stepper; raises ResetNeeded before the first reset."""
        if self._open().carry is None:
            raise ResetNeeded("call reset() first")
        return self._stepper

    def _open(self) -> Stepper:
        if self._stepper is None:
            raise ClosedEnvironmentError("this environment was closed; make another one")
        return self._stepper

    def _seed(self, seed: Any, options: Any, known: tuple[str, ...]) -> int | None:
        self._open()
        for name in options or ():
            if name not in known:
                raise ConfigError(f"options[{name!r}]", options[name],
                                  f"left out: {', '.join(known) or 'none'} is known")
        if seed is not None:
            check_seed("seed", seed, 64)
        return None if seed is None else int(seed)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw every environment's current state, uint8 [H, W, 3] each."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() draws nothing without render_mode='rgb_array'")
            return None
        pictures = tuple(self._env.render(state) for state in self._ready().states())
        if any(picture is None for picture in pictures):
            raise ConfigError("render_mode", self.render_mode,
                              f"None for {self._env.spec.name}, which is not drawn here")
        return tuple(np.asarray(picture) for picture in pictures)


class _Single(_Common, gymnasium.Env):
    """One environment; `info["action_mask"]` (int8) if it has legal actions."""

    def __init__(self, env: Env, render_mode: str | None):
        self._prepare(env, None, "disabled", render_mode, True)
        self.observation_space = to_space(env.spec.observation, env.spec.stack)
        self.action_space = to_space(env.spec.action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Begin a new episode -> (observation, info); without a seed the stream continues."""
        seed = self._seed(seed, options, ())
        super().reset(seed=seed)
        obs = self._write(self._stepper.reset(self.np_random, seed is not None))
        return obs, self._info(obs)

    def step(self, action: Any):
        """Step -> (observation, reward, terminated, truncated, info)."""
        stepper = self._ready()
        if stepper.over.any():
            raise ResetNeeded("the episode has ended: call reset()")
        shown, reward, ends = stepper.step(self._read(action))
        obs, ((terminated,), (truncated,)) = self._write(shown.obs), ends.tolist()
        return obs, reward.item(), terminated, truncated, self._info(obs)

    def _info(self, obs: Any) -> dict[str, Any]:
        return {MASK: obs[MASK].astype(np.int8)} if self._masked else {}

    def render(self) -> np.ndarray | None:
        """Draw the current state, uint8 [H, W, 3]; after an episode's end its last one."""
        pictures = super().render()
        return pictures and pictures[0]

    def close(self) -> None:
        self._stepper = None


class _Vector(_Common, VectorEnv):
    """Many environments; every info entry [B] has a mask `_entry`, as in Gymnasium."""

    def __init__(self, env: Env, num_envs: int, mode: str, render_mode: str | None, copy: bool):
        self._prepare(env, num_envs, mode, render_mode, copy)
        self.num_envs, self._copy = num_envs, copy
        self.metadata["autoreset_mode"] = AutoresetMode[mode.upper()]
        self.single_observation_space = to_space(env.spec.observation, env.spec.stack)
        self.single_action_space = to_space(env.spec.action)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._final = writer(env.spec.observation, False, False)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Begin new episodes -> (observations, infos), or of `options={"reset_mask": bool [B]}`.

        One seed for all; without one the random stream continues.
        """
        seed = self._seed(seed, options, ("reset_mask",))
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
                raise ConfigError("options['reset_mask']", mask,
                                  f"a bool array of shape ({self.num_envs},), somewhere True")
            self._ready()
        super().reset(seed=seed)
        obs = self._write(self._stepper.reset(self.np_random, seed is not None, mask))
        return obs, self._infos(obs, mask)

    def step(self, actions: Any):
        """Step -> (observations [B, ...], rewards [B], terminated [B], truncated [B], infos)."""
        stepper = self._ready()
        if stepper.mode == "disabled" and stepper.over.any():
            ended = np.flatnonzero(stepper.over)
            raise ResetNeeded(f"{ended.size} episodes have ended (environment {ended[0]}): reset "
                              "them by a reset_mask")
        shown, reward, (terminated, truncated) = stepper.step(self._read(actions))
        obs = self._write(shown.obs)
        infos = self._infos(obs)
        if stepper.mode == "same_step" and stepper.over.any():
            self._add_final(infos, self._final(shown.final), stepper.over)
        return obs, reward.copy() if self._copy else reward, terminated, truncated, infos

    def _infos(self, obs: Any, mask: np.ndarray | None = None) -> dict[str, Any]:
        if not self._masked:
            return {}
        mask = np.ones(self.num_envs, bool) if mask is None else mask
        return {MASK: (obs[MASK].astype(bool) & mask[:, None]).astype(np.int8), f"_{MASK}": mask}

    def _add_final(self, infos: dict[str, Any], final: Any, over: np.ndarray) -> None:
        """Add the last observations of ended episodes, an object array with None for others."""
        (places,) = over.nonzero()
        last = np.empty(self.num_envs, object)  # filled with None
        last[places] = np.fromiter(_rows(final, places), object, places.size)
        info = self._infos(final, over)
        infos |= {"final_obs": last, "_final_obs": over, "final_info": info, "_final_info": over}

    def close_extras(self, **kwargs: Any) -> None:
        self._stepper = None


def _rows(obs: Any, places: np.ndarray) -> Iterable[Any]:
    """Yield copies of some environments' observations."""
    if isinstance(obs, dict):
        columns = [_rows(child, places) for child in obs.values()]
        return (dict(zip(obs, row, strict=True)) for row in zip(*columns, strict=True))
    return obs[places]
