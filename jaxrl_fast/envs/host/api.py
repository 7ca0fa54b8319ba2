"""Environments that do not live on the device: Gymnasium, EnvPool, the Arcade Learning Environment.

A `HostEnv` says what such an environment is and opens vectors of it; a `Vector` is some of them, stepped together:

    spec                                    -> EnvSpec
    open(num_envs, seed, training)          -> Vector

    Vector.reset()                          -> obs [B]        fresh episodes in all of them
    Vector.send(action [B])                                   begin a step
    Vector.receive()                        -> HostStep       its outcome, and fresh episodes where one ended
    Vector.close()                                            kill() where they hang

Whatever a package calls its auto-reset, `receive` returns what `Env.step` of a device environment does: the true
successor (`next_obs`), both kinds of end apart, and what the agent sees next (`obs`). Everything is NumPy.

None of this can be traced. Programs are compiled with a `StandIn` of the same spec whose observations are zeros: they
need only its shapes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.exact import Misfit
from jaxrl_fast.envs.host.aside import in_time
from jaxrl_fast.errors import ConfigError, RunError, UserError, brief
from jaxrl_fast.spaces import Dict, zeros
from jaxrl_fast.types import EnvSpec, Outcome


class HostError(RunError):
    """An environment on the host raised, hung, or returned what it may not."""


class HostMisfit(HostError, ConfigError):
    """It returned something that its space does not hold: a ConfigError, as of an environment on the device."""

    def __init__(self, message: str):
        Exception.__init__(self, message)


class NotOnDevice(ConfigError, AttributeError):
    """An environment on the host was asked for a function of those on the device."""


class HostStep(NamedTuple):
    """What one step of B environments brought. `next_obs` is `obs` itself where no episode ended."""

    obs: Any  # [B, ...] what the agent sees next, after a reset where the episode ended
    next_obs: Any  # [B, ...] the true successors
    reward: np.ndarray  # float32 [B], what is learned from
    terminated: np.ndarray  # bool [B]; a lost life too, where that ends an episode for the learner
    truncated: np.ndarray  # bool [B]
    score: np.ndarray  # float32 [B], the reward as the game counts it
    over: np.ndarray  # bool [B]: the game itself has ended
    real: np.ndarray | None = None  # bool [B]: False where the row is only a reset that could not be skipped; None: all are
    ids: np.ndarray | None = None  # int [B]: which environments of a vector that has `at_once`; None: all, in their order
    info: Mapping[str, np.ndarray] = {}  # numbers for the log [B], NaN where one is not reported (`reports`)


def named(env: Any) -> str:
    """The name of an environment or a vector in messages: its `id`, else its `name`."""
    return getattr(env, "id", None) or env.name


def guarded(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of an environment that is not ours: whatever it raises, an exit too, becomes a HostError that says so."""

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


OPENING = 300.0  # seconds in which one environment must have opened and said what it is


def at(tree: Any, mask: np.ndarray) -> Any:
    """The entries of a batch (NumPy arrays [B, ...]) where `mask` [B] is True."""
    return jax.tree.map(lambda x: x[mask], tree)


def put(tree: Any, mask: np.ndarray, values: Any) -> Any:
    """A copy of the batch with `values` where `mask` is True."""

    def one(x, values):
        x = np.array(x)
        x[mask] = values
        return x

    return jax.tree.map(one, tree, values)


class Vector:
    """`num_envs` environments on the host; see the module's text."""

    num_envs: int
    name: str = "the environment"
    at_once: int | None = None  # how many environments a step is of, at most, where it is of those that come first
    steps_apart: bool = True  # whether the step goes on between `send` and `receive`, beside the thread that waits

    def reset(self) -> Any:
        raise NotImplementedError

    def send(self, action: np.ndarray, ids: np.ndarray | None = None) -> None:
        """ids: of which environments, of a vector that has `at_once`."""
        raise NotImplementedError

    def receive(self) -> HostStep:
        raise NotImplementedError

    def failed(self, error: BaseException) -> str:
        """What an error of one of its functions means, where that is known here: processes that are no more."""
        return ""

    def kill(self) -> None:
        """End the processes that a step may hang in, at once: the thread that waits for it gets an error. From any thread."""

    def close(self) -> None:
        pass

    def render(self) -> np.ndarray | None:
        """The first environment as uint8 [H, W, 3] as its last step left it, before any reset.

        None where it cannot be drawn, or has begun the next episode already.
        """
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostEnv(Environment):
    """Base class of environments on the host: a frozen dataclass of hashable settings.

    Subclasses implement `_spec` and `_open`; see the text of the module.

    stack, reward_scale, reward_clip: as for every environment (`envs.wrappers`), applied on the host; the logged
    return and evaluations count the game's own reward.
    """

    runs_on = "host"

    stack: int = 1
    reward_scale: float = 1.0
    reward_clip: float | None = None

    @property
    def evaluated(self) -> int:
        """How many environments an evaluation steps together, at most."""
        return 16

    def at_once(self, num_envs: int) -> int | None:
        """How many of them training acts for at once, where those are the ones that come first; None: for all."""
        return None

    def _spec(self) -> EnvSpec:
        """Spec of single frames, computed once."""
        raise NotImplementedError

    def _open(self, num_envs: int, seed: int, training: bool, render: bool) -> Vector:
        raise NotImplementedError

    def failed(self, error: BaseException) -> str:
        """What an error of one of its functions means, where that is known here."""
        return ""

    @property
    def spec(self) -> EnvSpec:
        found = self.__dict__.get("_found")
        if found is None:
            try:
                found = dataclasses.replace(in_time(self._spec, OPENING), stack=self.stack)
            except TimeoutError:
                raise HostError(f"{named(self)} has not opened in {OPENING:g} s") from None
            self.__dict__["_found"] = found
        return found

    def open(self, num_envs: int, seed: int, training: bool = True, render: bool = False) -> Vector:
        """training: whether what is only there to learn (clipped rewards, lives as episodes) applies."""
        vector = self._open(num_envs, seed, training, render)
        if training and (self.reward_scale != 1.0 or self.reward_clip is not None):
            return Rewards(vector, self.reward_scale, self.reward_clip)
        return vector

    def __getattr__(self, name: str) -> Any:
        """The error for a name that is not there: it says why `init`, `step` and the like are not."""
        if not hasattr(Env, name) or hasattr(type(self), name):
            return self.__getattribute__(name)  # raises the usual error, or that of a property
        raise NotOnDevice(
            "environment", self.spec.name,
            "one on the device: this one steps on the host, which no program, `vmap` or `make_train` can hold; "
            "`jf.train` and `jaxrl-fast train` take it",
        )  # fmt: skip


@wrappers.wrap.register
def _wrap(env: HostEnv, **settings: Any) -> HostEnv:
    """`env` with those of the settings that every environment takes (`wrappers.Common`) which a host environment can."""
    common = {name: getattr(env, name, usual) for name, usual in wrappers.COMMON.items()} | settings
    for name in ("action_repeat", "sticky_actions", "time_limit"):
        if common[name] != wrappers.COMMON[name]:
            valid = f"{wrappers.COMMON[name]} on the host: use the environment's own settings (`jaxrl-fast train ... --help`)"
            raise ConfigError(f"env.{name}", common[name], valid)
    checked = wrappers.Common(**common)
    env = dataclasses.replace(env, **{name: getattr(checked, name) for name in ("stack", "reward_scale", "reward_clip")})
    if env.stack > 1 and isinstance(env.spec.observation, Dict):
        raise ConfigError("env.stack", env.stack, "1 for observations that are dicts")
    return env


class Wrapped(Vector):
    """Everything as in `vector`."""

    def __init__(self, vector: Vector):
        self.vector, self.num_envs = vector, vector.num_envs
        self.steps_apart, self.at_once = vector.steps_apart, vector.at_once

    def reset(self):
        return self.vector.reset()

    def send(self, action, *ids):
        self.vector.send(action, *ids)

    def receive(self):
        return self.vector.receive()

    def kill(self):
        self.vector.kill()

    def close(self):
        self.vector.close()

    def render(self):
        return self.vector.render()


class Lives(Wrapped):
    """A lost life ends an episode for the learner; the game goes on. `vector` has `lives` [B], those of its last step."""

    def reset(self):
        obs = self.vector.reset()
        self.before = self.vector.lives
        return obs

    def receive(self):
        step = self.vector.receive()
        lives = self.vector.lives
        if lives is None:
            return step
        which = slice(None) if step.ids is None else step.ids
        lost = (lives < self.before[which]) & ~step.over
        self.before = put(self.before, which, lives)
        return step._replace(terminated=step.terminated | lost)


class Rewards(Wrapped):
    """`vector` with its rewards scaled, then clipped to [-clip, clip]; its scores stay."""

    def __init__(self, vector: Vector, scale: float, clip: float | None):
        super().__init__(vector)
        self.scale, self.clip = scale, clip

    def receive(self):
        step = self.vector.receive()
        reward = step.reward * np.float32(self.scale)
        if self.clip is not None:
            reward = np.clip(reward, -self.clip, self.clip)
        return step._replace(reward=reward.astype(np.float32))


def picture(obs: np.ndarray, scale: int = 3) -> np.ndarray | None:
    """The newest frame [H, W, 1 or 3] of the first environment as it is seen by the agent, enlarged; None for no picture."""
    if not isinstance(obs, np.ndarray) or obs.ndim != 4 or obs.dtype != np.uint8 or obs.shape[-1] not in (1, 3):
        return None
    return np.broadcast_to(obs[0].repeat(scale, 0).repeat(scale, 1), (*np.multiply(obs.shape[1:3], scale), 3)).copy()


@tree.settings
class StandIn(Env):
    """An environment of the same spec whose observations are zeros: for what only asks for shapes."""

    runs_on = "host"

    like: EnvSpec = dataclasses.field(metadata={"static": True})
    in_any_order: bool = dataclasses.field(default=False, metadata={"static": True})  # acted for as they come (`at_once`)

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
        return (), Outcome(zeros(self.like.observation, batch), jnp.zeros(batch, jnp.float32), none, none)
