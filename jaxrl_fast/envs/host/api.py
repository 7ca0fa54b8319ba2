"""Host environments: Gymnasium, EnvPool, the Arcade Learning Environment.

A `HostEnv` describes an environment and opens vectors of it; a `Vector` steps some of them
together:

    spec                                    -> EnvSpec
    open(num_envs, seed, training)          -> Vector

    Vector.reset()                          -> obs [B]        fresh episodes in all of them
    Vector.send(action [B])                                   begin a step
    Vector.receive()                        -> HostStep       its outcome, and fresh episodes
    Vector.close()                                            or kill(), if they hang

Under every auto-reset mode `receive` returns what `Env.step` returns: the true successor
(`next_obs`), both kinds of end apart, and the agent's next observation (`obs`), all in NumPy.

Programs are compiled with a `StandIn` of the same spec with zero observations.
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
from jaxrl_fast.envs.host.aside import in_time
from jaxrl_fast.errors import ConfigError, RunError, UserError, brief
from jaxrl_fast.exact import Misfit
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


class HostStep(NamedTuple):
    """The outcome of a step of B environments; `next_obs` is `obs` if no episode ended."""

    obs: Any  # [B, ...] the agent's next observation, after a reset at an end
    next_obs: Any  # [B, ...] the true successors
    reward: np.ndarray  # float32 [B], the learner's reward
    terminated: np.ndarray  # bool [B]; also a lost life that ends the learner's episode
    truncated: np.ndarray  # bool [B]
    score: np.ndarray  # float32 [B], the game's own reward
    over: np.ndarray  # bool [B]: the game itself has ended
    real: np.ndarray | None = None  # bool [B]: False for a row that is only a reset; None: all True
    ids: np.ndarray | None = None  # int [B]: environments of a vector with `at_once`; None: all, in order
    info: Mapping[str, np.ndarray] = {}  # numbers for the log [B], NaN if not reported (`reports`)


def named(env: Any) -> str:
    """Return the name of an environment or vector for messages: its `id`, else its `name`."""
    return getattr(env, "id", None) or env.name


def guarded(f: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of another library: whatever it raises becomes a HostError."""

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


OPENING = 300.0  # seconds for one environment to open and describe itself


def at(tree: Any, mask: np.ndarray) -> Any:
    """Return the entries of a batch (NumPy arrays [B, ...]) where `mask` [B] is True."""
    return jax.tree.map(lambda x: x[mask], tree)


def put(tree: Any, mask: np.ndarray, values: Any) -> Any:
    """Return a copy of the batch with `values` where `mask` is True."""

    def one(x, values):
        x = np.array(x)
        x[mask] = values
        return x

    return jax.tree.map(one, tree, values)


class Vector:
    """`num_envs` host environments, stepped together; the module's docstring is the protocol."""

    num_envs: int
    name: str = "the environment"
    at_once: int | None = None  # environments of a step at most, if they come first
    steps_apart: bool = True  # whether the step continues between `send` and `receive`, beside the thread

    def reset(self) -> Any:
        raise NotImplementedError

    def send(self, action: np.ndarray, ids: np.ndarray | None = None) -> None:
        """Begin a step; ids: the environments, for a vector with `at_once`."""
        raise NotImplementedError

    def receive(self) -> HostStep:
        raise NotImplementedError

    def failed(self, error: BaseException) -> str:
        """Explain an error of one of its functions, if known: dead processes, for example."""
        return ""

    def kill(self) -> None:
        """End the processes of a hanging step, from any thread; the waiting one gets an error."""

    def close(self) -> None:
        pass

    def render(self) -> np.ndarray | None:
        """Draw the first environment after its last step, before any reset, uint8 [H, W, 3].

        None if it cannot be drawn, or has begun the next episode already.
        """
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostEnv(Environment):
    """Base class of host environments: a frozen dataclass of hashable settings.

    Subclasses implement `_spec` and `_open`; the module's docstring is the protocol.

    stack, reward_scale, reward_clip: as for every environment (`envs.wrappers`), applied on the
    host; the logged return and evaluations count the game's own reward.
    """

    runs_on = "host"

    stack: int = 1
    reward_scale: float = 1.0
    reward_clip: float | None = None

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

    def failed(self, error: BaseException) -> str:
        """Explain an error of one of its functions, if known."""
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
            "one on the device: this one steps on the host, which no program, `vmap` or `make_train` can hold; "
            "`jf.train` and `jaxrl-fast train` take it",
        )  # fmt: skip


@wrappers.wrap.register
def _wrap(env: HostEnv, **settings: Any) -> HostEnv:
    """Return `env` with the common settings (`wrappers.Common`) that host environments can have."""
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
    """Forwards everything to `vector`."""

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
    """A lost life ends an episode for the learner (vector's `lives` [B]); the game continues."""

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
    """Scales, then clips the vector's rewards to [-clip, clip]; its scores stay."""

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
    """Enlarge the first environment's newest frame [H, W, 1 or 3]; None for other observations."""
    if not isinstance(obs, np.ndarray) or obs.ndim != 4 or obs.dtype != np.uint8 or obs.shape[-1] not in (1, 3):
        return None
    return np.broadcast_to(obs[0].repeat(scale, 0).repeat(scale, 1), (*np.multiply(obs.shape[1:3], scale), 3)).copy()


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
        return (), Outcome(zeros(self.like.observation, batch), jnp.zeros(batch, jnp.float32), none, none)
