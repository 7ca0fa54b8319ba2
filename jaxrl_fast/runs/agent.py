"""A trained agent: acts in the environment's own spaces, plays episodes, leaves Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.actors import play
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import MODES, RunConfig
from jaxrl_fast.engine.evaluate import Evaluation
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.own_spaces import own_of
from jaxrl_fast.errors import (
    ConfigError,
    NonFiniteError,
    check_choice,
    check_int,
    check_seed,
    expected,
)
from jaxrl_fast.runs import pictures
from jaxrl_fast.runs.acting import Carry, batch_size, begin, check_alone, check_carry, step
from jaxrl_fast.runs.export.formats import export
from jaxrl_fast.runs.player import Player
from jaxrl_fast.types import EnvSpec


class HasEnv:
    """An object with an environment, which a pickle keeps as name and settings if it can."""

    _env: Environment | None

    @property
    def env(self) -> Environment:
        if self._env is None:
            self._env = registry.make(self._origin[0], **self._origin[1])
        return self._env

    @env.setter
    def env(self, env: Environment) -> None:
        self._env, self._origin = env, registry.describe(env)
        self.environment = registry.name_of(env)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | ({"_env": None} if self._origin else {})


class Agent(HasEnv):
    """A trained agent: it acts in the spaces of its environment, plays, and is saved.

    Its functions compile once. Pickling turns an environment of `jf.make` into name and settings.

    algo: bound to the environment. env: the training environment; `environment` is its name.
    state: the algorithm's agent, of one member. iteration: log rows of its training.
    score: mean return of the evaluation that chose it, or of the last one; None without one.
    """

    def __init__(
        self, algo: Algorithm, env: Environment, config: RunConfig, state: Any,
        iteration: int = 0, score: float | None = None
    ):
        self.algo, self.config = tree.as_float32(algo), config
        self.state, self.iteration = state, iteration
        self.env, self.score = env, score
        self._carry: Carry | None = None
        self._drawn = 0  # actions that `predict` has drawn

    @property
    def spec(self) -> EnvSpec:
        return self.algo.spec

    def __repr__(self) -> str:
        size = sum(x.size for x in jax.tree.leaves(getattr(self.state, "params", self.state)))
        score = "not evaluated" if self.score is None else f"mean return {self.score:,.4g}"
        seen, done = self.spec.own_observation, self.spec.own_action
        return (
            f"<Agent: {self.algo.name} on {self.environment}, {score}, {size:,} parameters, log "
            f"row {self.iteration}>\n"
            f"  act({_short(seen or self.spec.observation)}) -> {_short(done or self.spec.action)}"
        )

    def act(self, obs: Any, mode: str = "greedy", key: jax.Array | None = None) -> Any:
        """Return the action for an observation or batch [B, ...], in the environment's form.

        NumPy in, NumPy out; traced in, traced out. With frame stacks, a single frame joins those of
        earlier calls, and a stack [..., k C] stays. mode: "greedy", or "sample", with a `key`.
        Raises ConfigError for an observation of another shape.
        """
        seen, single, stacked = self._read(obs, mode, key)
        traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((seen, key)))
        if traced and self.spec.stack > 1 and not stacked:
            wanted = f"a stack of {self.spec.stack} frames where it is traced"
            raise expected("observation", wanted,
                           "a single frame; Agent.step remembers frames there")
        batch = batch_size(seen)
        if not isinstance(batch, int):  # an exported function's symbol: no noise of such a shape
            if mode == "sample":
                raise ConfigError("mode", mode,
                                  "'greedy' for a batch of any size, or export one size")
            return jax.vmap(lambda one: self.act(one, mode))(obs)
        carry = self._carry
        if traced or carry is None or carry.begun.shape[0] != batch:
            carry = self.init_carry(batch)
        carry, action = self._step(carry, seen, stacked, mode, key)
        if not traced:
            action = jax.tree.map(np.asarray, action)
            self._check_finite(seen, action)
            self._carry = carry
        return self._write(action, single)

    def _check_finite(self, seen: Any, action: np.ndarray) -> None:
        """Raise an error for NaN outputs, whatever argmax would make of them."""
        if play.playable(self.spec.action, action)[1] is not None:
            for x in jax.tree.leaves(seen):
                if jnp.issubdtype(x.dtype, jnp.floating) and not np.isfinite(x).all():
                    raise expected("observation", "finite",
                                   f"{np.asarray(x)[~np.isfinite(x)][0]} in it")
            raise NonFiniteError("the policy's outputs are not finite: its parameters are too "
                                 "large for this observation")

    def step(
        self, carry: Carry, obs: Any, mode: str = "greedy", key: jax.Array | None = None
    ) -> tuple[Carry, Any]:
        """Act as a pure function: (carry, observation) -> (carry, action), from `init_carry`."""
        seen, single, stacked = self._read(obs, mode, key)
        check_carry(carry, seen)
        carry, action = self._step(carry, seen, stacked, mode, key)
        return carry, self._write(action, single)

    def predict(
        self, obs: Any, state: Carry | None = None, episode_start: Any = None,
        deterministic: bool = False, key: jax.Array | None = None,
    ) -> tuple[Any, Carry]:  # fmt: skip
        """Return (action, state), with the arguments of Stable-Baselines3's `predict`.

        Args:
            obs: as for `act`.
            state: what the last call returned; None: new episodes.
            episode_start: bool [B], where an episode begins.
            deterministic: the greedy action; False: one that is drawn.
            key: of the draw; None: another one each call, from the run's seed on.

        Returns:
            The action, NumPy, with the batch axis of `obs`; the carry of the next call.

        Raises:
            ConfigError: observations or a state that do not fit.
            NonFiniteError: an action that is not finite.
        """
        mode = "greedy" if deterministic else "sample"
        if key is None and not deterministic:
            self._drawn += 1
            key = jax.random.fold_in(jax.random.key(self.config.seed), self._drawn)
        seen, single, stacked = self._read(obs, mode, key)
        state = self.init_carry(batch_size(seen)) if state is None else state
        check_carry(state, seen)
        if episode_start is not None:
            state = self.restart(state, np.atleast_1d(episode_start))
        state, action = self._step(state, seen, stacked, mode, key)
        action = jax.tree.map(np.asarray, action)
        self._check_finite(seen, action)
        return self._write(action, single), state

    def player(self, deterministic: bool = True, seed: int = 0) -> Player:
        """Return a function obs -> action with frames and recurrent state of its own."""
        check_seed("seed", seed)
        return Player(self, deterministic, seed)

    def init_carry(self, num_envs: int = 1) -> Carry:
        """Return the carry of `num_envs` new episodes; 1 for a single observation."""
        check_int("num_envs", num_envs)
        return begin(self.algo, num_envs)

    def reset(self, ended: Any = None) -> None:
        """Forget frames and recurrent state. ended: bool [B], where an episode ended; None: all."""
        kept = ended is not None and self._carry is not None
        self._carry = self.restart(self._carry, ended) if kept else None

    def restart(self, carry: Carry, ended: Any) -> Carry:
        """Return `carry` with new episodes where `ended` (bool [B]); pure."""
        ended = ended if isinstance(ended, jax.Array) else np.asarray(ended)
        if ended.shape != carry.begun.shape or ended.dtype != bool:
            raise expected("ended", f"bool of shape {carry.begun.shape}",
                           f"{ended.dtype} of shape {ended.shape}")
        return tree.where(ended, self.init_carry(ended.shape[0]), carry)

    def _read(self, obs: Any, mode: str, key: Any) -> tuple[Any, bool, bool]:
        check_choice("mode", mode, MODES)
        if mode == "sample":
            random.check_key("key", key, "a jax.random.key where mode is 'sample'")
        own = self.spec.own_observation or own_of(self.spec.observation)
        check_alone(obs, own)
        return own.read(obs, self.spec.stack)

    def _write(self, action: Any, single: bool) -> Any:
        own = self.spec.own_action or own_of(self.spec.action)
        action = own.decode(action)
        if not single:
            return action
        return action[0] if isinstance(action, jax.Array) else np.asarray(action[0])

    def _step(self, carry: Carry, seen: Any, stacked: bool, mode: str,
              key: Any) -> tuple[Carry, Any]:
        key = jax.random.key(0) if key is None else random.typed_key(key)
        return step(self.algo, self.state, carry, seen, key, stacked=stacked, mode=mode)

    def evaluate(
        self, episodes: int = 128, seed: int = 0, mode: str | None = None,
        env: Environment | None = None
    ) -> Evaluation:
        """Play `episodes` episodes.

        env: another environment with the same spaces; None: the training environment.
        """
        env = self._playable(env)
        check_int("episodes", episodes, 1, 1_000_000)
        check_seed("seed", seed)
        check_choice("mode", mode or "greedy", MODES)
        mode, key = mode or self.config.eval_mode, jax.random.key(seed)
        return backend_of(env).evaluate(env, self.algo, self.state, key,
                                        episodes, mode, self.config)

    def export(self, path: str | Path, format: str = "stablehlo") -> Path:
        """Write the greedy policy for other programs, and return the path.

        It has its normalisation, frame stack and memory, and takes a batch of any size
        (docs/agents.md).

        Args:
            path: a new file; for safetensors a new folder.
            format: "stablehlo", "onnx" (extra [onnx]) or "safetensors" (extra [safetensors]), which
                `jf.load` takes back.

        Raises:
            ConfigError: for a path that exists, or a policy that the format cannot hold.
        """
        return export(self, path, format)

    def video(self, env: Environment | None = None, seed: int = 0,
              max_steps: int = 500) -> pictures.Video:
        """Play one greedy episode, and return its pictures, which a notebook shows.

        env: another environment with the same spaces; None: the training environment.
        """
        check_seed("seed", seed)
        env = self._playable(env)
        key = jax.random.key(seed)
        film = pictures.film(env, self.algo, self.state, key, max_steps, self.config.host_timeout)
        return pictures.Video.of(film, env.spec.name)

    def _playable(self, env: Environment | None) -> Environment:
        """Return `env`, by default the agent's; raises ConfigError for other spaces."""
        env = self.env if env is None else env
        backend_of(env)  # refuses other objects
        for name in ("observation", "action", "stack"):
            own, other = getattr(self.spec, name), getattr(env.spec, name)
            if own != other:
                raise expected(f"{name} of the environment", f"the agent's {own}", str(other))
        return env


def _short(own: Any) -> str:
    """Return a space or its form as short text: `float32 (4,)`, `dict of 3`."""
    own = own if hasattr(own, "read") else own_of(own)
    if not hasattr(own, "shape"):
        return f"{'tuple' if own.is_tuple else 'dict'} of {len(own.items)}"
    kind = type(own.space).__name__
    return f"{kind} {own.dtype} {own.shape}" if own.shape else f"{kind} {own.dtype}"
