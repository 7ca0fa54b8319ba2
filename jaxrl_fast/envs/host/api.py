"""Host environments: Gymnasium, EnvPool, the Arcade Learning Environment.

A `HostEnv` describes the environment (`spec`) and opens vectors of it (`envs.host.vector`):

    spec                                    -> EnvSpec
    open(num_envs, seed, training)          -> Vector
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.background import in_time
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.exact import Misfit
from jaxrl_fast.envs.host.vector import Rewards, Vector
from jaxrl_fast.errors import ConfigError, RunError, UserError, brief, expected
from jaxrl_fast.spaces import Dict, zeros
from jaxrl_fast.types import EnvSpec, Outcome


class HostError(RunError):
    """A host environment raised, hung, or returned an invalid value."""


class HostMisfit(HostError, ConfigError):
    """A host environment returned a value outside its space; also a ConfigError."""

    def __init__(self, message: str):
        Exception.__init__(self, message)


class NotOnDevice(ConfigError, AttributeError):
    """A host environment was asked for a function of device environments."""


def named(env: Any) -> str:
    """Return the name of an environment or vector for messages: its `id`, else its `name`."""
    return getattr(env, "id", None) or env.name


def guarded(f: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of another library: its exceptions become HostErrors."""

    @functools.wraps(f)
    def call(self, *args):
        try:
            return f(self, *args)
        except Misfit as error:
            raise HostMisfit(f"{named(self)}: {error}") from error
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            what = self.failed(error) or brief(error)
            raise HostError(f"{named(self)} failed in {f.__name__.strip('_')}: {what}") from error

    return call


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class HostEnv(Environment):
    """Base class of host environments: a frozen dataclass of hashable settings.

    Subclasses implement `_spec` and `_open`. stack, reward_scale, reward_clip: as for every
    environment (`envs.wrappers`); the logged return and evaluations count the game's own reward.
    """

    runs_on = "host"
    opening = 300.0  # seconds for one environment to open and describe itself
    not_exported = ("an environment on the device: this one steps on the host; gymnasium.make_vec "
                    "or its own package makes it")  # fmt: skip

    stack: int = 1
    reward_scale: float = 1.0
    reward_clip: float | None = None

    __repr__ = tree.describe_changes  # the spec opens an environment

    @property
    def evaluated(self) -> int:
        """Return how many environments an evaluation steps together, at most."""
        return 16

    def at_once(self, num_envs: int) -> int | None:
        """Return how many environments act at once if they come first; None: all."""
        return None

    def _spec(self) -> EnvSpec:
        """Compute the spec of single frames, once."""
        raise NotImplementedError

    def _open(self, num_envs: int, seed: int, training: bool, render: bool) -> Vector:
        raise NotImplementedError

    def _check_defined(self) -> None:
        """Raise ConfigError for a class that describes no environment, as the base itself."""
        if type(self)._spec is HostEnv._spec:
            valid = "defined by the class: an environment on the host has _spec, _open"
            raise expected(f"{type(self).__name__}._spec", valid, "the base's, which does nothing")

    def failed(self, error: BaseException) -> str:
        """Explain an error of one of its functions, if known."""
        return ""

    @property
    def spec(self) -> EnvSpec:
        found = self.__dict__.get("_found")
        if found is None:
            self._check_defined()
            try:
                found = dataclasses.replace(in_time(self._spec, self.opening), stack=self.stack)
            except TimeoutError:
                raise HostError(f"{named(self)} has not opened in {self.opening:g} s") from None
            self.__dict__["_found"] = found
        return found

    def open(self, num_envs: int, seed: int, training: bool = True, render: bool = False) -> Vector:
        """Open a vector; training: apply clipped rewards and lives as episodes."""
        vector = self._open(num_envs, seed, training, render)
        if training and (self.reward_scale != 1.0 or self.reward_clip is not None):
            return Rewards(vector, self.reward_scale, self.reward_clip)
        return vector

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for `init`, `step` and the like, with the reason."""
        if not hasattr(Env, name) or hasattr(type(self), name):
            return self.__getattribute__(name)  # raises the usual error, or that of a property
        raise NotOnDevice(
            "environment", self.spec.name,
            "one on the device: this one steps on the host, which no program, `vmap` or "
            "`make_train` can hold; `jf.train` and `jaxrl-fast train` take it",
        )  # fmt: skip


@wrappers.wrap.register
def _wrap(env: HostEnv, **settings: Any) -> HostEnv:
    """Return `env` with the common settings (`wrappers.Common`) that host environments can have."""
    common = {name: getattr(env, name, usual) for name, usual in wrappers.COMMON.items()} | settings
    for name in ("action_repeat", "sticky_actions", "time_limit"):
        if common[name] != wrappers.COMMON[name]:
            raise ConfigError(f"env.{name}", common[name],
                              f"{wrappers.COMMON[name]} on the host: use the environment's own "
                              "settings (`jaxrl-fast train ... --help`)")
    checked = wrappers.Common(**common)
    env = dataclasses.replace(env, **{name: getattr(checked, name)
                                      for name in ("stack", "reward_scale", "reward_clip")})
    if env.stack > 1 and isinstance(env.spec.observation, Dict):
        raise ConfigError("env.stack", env.stack, "1 for observations that are dicts")
    return env


@tree.settings
class StandIn(Env):
    """An environment of the same spec with zero observations, for shapes."""

    runs_on = "host"

    like: EnvSpec = dataclasses.field(metadata={"static": True})
    in_any_order: bool = dataclasses.field(default=False, metadata={"static": True})  # (`at_once`)

    @property
    def spec(self) -> EnvSpec:
        return self.like

    def draw_reset(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jnp.zeros(shape, bool)

    def reset(self, noise: jax.Array):
        return (), zeros(self.like.observation, noise.shape)

    def transition(self, noise: Any, state: Any, action: Any):
        batch = jax.tree.leaves(action)[0].shape[:1]
        none = jnp.zeros(batch, bool)
        return (), Outcome(zeros(self.like.observation, batch), jnp.zeros(batch, jnp.float32),
                           none, none)
