"""Environments of brax and Playground: `reset(key)` and `step(State, action)` -> State.

Only their physics are used; `done` is a termination and `episode_length` a truncation. A reset
costs a tenth to a fifth of a step, and few steps end an episode: `env.resets` is a `Pool`
(`envs.resets`), unless the setting `resets` is "every_step".
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.envs.api import LAST, Env
from jaxrl_fast.envs.physics.randomize import Randomizer, parse
from jaxrl_fast.envs.physics.rewritten import rewritten
from jaxrl_fast.envs.resets import STEPS_A_RESET, EveryStep, Pool
from jaxrl_fast.errors import ConfigError, check_choice, check_float, check_int, is_number
from jaxrl_fast.ops import lowering
from jaxrl_fast.spaces import Box, Dict, Space
from jaxrl_fast.tree import summary
from jaxrl_fast.types import EnvSpec, Outcome


class Setting(NamedTuple):
    default: Any
    help: str
    choices: tuple[str, ...] = ()


# The common settings.
ABOUT: dict[str, Setting] = {
    "episode_length": Setting(1000, "steps of the physics after which an episode is truncated"),
    "resets": Setting(
        "pool", "new episodes start from an iteration's pool, or each afresh",
        ("pool", "every_step")
    ),
    "reset_pool": Setting(
        0, f"resets in the pool; 0: one for every {STEPS_A_RESET} steps of an environment, at "
           "least one each"
    ),
    "randomize": Setting("", "factors that every episode draws for leaves of the model: "
                             "leaf=low:high, ..."),
    "randomize_warmup": Setting(0, "iterations over which those ranges grow from 1 to their width"),
}


class PhysicsState(NamedTuple):
    """[B]"""

    physics: Any  # brax's pipeline state, or MJX's data
    info: dict[str, Any]  # the environment's own
    time: jax.Array  # int32: steps since the reset
    varied: list[jax.Array]  # leaves of the model drawn at every reset, or none

    __repr__ = summary


class Fresh(NamedTuple):
    """Noise of a reset."""

    key: jax.Array  # [B]
    t: jax.Array | tuple[()]  # int32 [B]: the iteration, if leaves of the model are drawn


class Start(Fresh):
    """Noise of resets that begin together, once: compiled small rather than fast."""


class PhysicsEnv(Env):
    """One environment, vmapped; static by identity (`make` caches it), a pytree without leaves."""

    physics_field = ""  # of the environment's State
    model_attribute = ""  # the environment's physical model
    # bytes of states and actions that fit a core's cache, and environments in any case
    block_bytes, block_envs = 200_000, 64

    def __init_subclass__(cls):
        super().__init_subclass__()
        jax.tree_util.register_static(cls)

    def __init__(
        self, name: str, env: Any, action: Box, episode_length: int, resets: str, reset_pool: int,
        randomize: Any, randomize_warmup: int = 0,
    ):  # fmt: skip
        """Wrap `env` with the settings of `ABOUT`."""
        check_int("env.episode_length", episode_length)
        check_choice("env.resets", resets, ABOUT["resets"].choices)
        check_int("env.reset_pool", reset_pool, low=0)
        if reset_pool and resets == "every_step":
            raise ConfigError("env.reset_pool", reset_pool,
                              "0 with env.resets = 'every_step', which has no pool")
        self.env = env
        self.resets = EveryStep() if resets == "every_step" else Pool(int(reset_pool))
        # devices that divide the environments; itself for other numbers of them
        self._parts, self._divided = 1, {}
        # The parts of a State, by tracing alone: an eager reset takes seconds.
        self.template = jax.eval_shape(env.reset, jax.eval_shape(jax.random.PRNGKey, 0))
        self._spec = EnvSpec(name, _space(self.template.obs), action, int(episode_length))
        model = getattr(env, self.model_attribute)
        function = parse(randomize, randomize_warmup, model)
        self.randomizer = Randomizer(model, function, self._trial, self.inert) if function else None

    @property
    def spec(self):
        return self._spec

    @property
    def drawing(self):
        plain = super().drawing
        if plain is None:
            return None
        seconds = float(self.env.dt) if hasattr(self.env, "dt") else None
        return plain._replace(step_seconds=seconds)

    def on_device(self, parts=1):
        if parts == self._parts:
            return self
        if parts not in self._divided:  # once: programs are cached by environment
            self._divided[parts] = copy.copy(self)
            self._divided[parts]._parts = parts
        return self._divided[parts]

    def draw_reset(self, key, shape, t=LAST):
        noise = Start if len(shape) == 1 else Fresh
        return noise(random.split(key, shape), jnp.full(shape, t, jnp.int32) if self.randomizer
                     else ())

    def reset(self, noise):
        reset = self._reset_few if isinstance(noise, Start) else self._reset_all
        return reset(noise.key, noise.t)

    def _reset_all(self, keys: jax.Array, t: jax.Array) -> tuple[PhysicsState, Any]:
        return jax.vmap(lambda key, t: _reset_one(self, key, t))(keys, t)

    def _reset_few(self, keys: jax.Array, t: jax.Array) -> tuple[PhysicsState, Any]:
        """Reset a few environments, on a CPU in turn: slower, but compiled in 2/3 of the time."""
        in_turn = lambda *noise: jax.lax.map(lambda x: _reset_one(self, *x), noise)
        return lowering.on_cpu(in_turn, self._reset_all, keys, t)

    def _with(self, varied: list[jax.Array]) -> Any:
        """Return the environment with these leaves in its physical model."""
        return self._on(self.randomizer.put(varied)) if self.randomizer else self.env

    def _on(self, model: Any) -> Any:
        """Return the environment with another physical model."""
        env = copy.copy(self.env)
        setattr(env, self.model_attribute, model)
        return env

    def _step_one(self, env: Any, physics: Any, info: Any, action: jax.Array) -> Any:
        """Step -> (physics, info, obs, reward, done) in the types of `reset`."""
        # Their environments never read a State's observation, reward, done and metrics.
        nothing = {self.physics_field: physics, "info": dict(info)}
        for name in ("obs", "reward", "done", "metrics"):
            nothing[name] = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype),
                                         getattr(self.template, name))
        new = env.step(self.template.replace(**nothing), action)

        def typed(name: str) -> Any:
            like, value = getattr(self.template, name), getattr(new, name)
            value = {k: value[k] for k in like} if name == "info" else value
            return jax.tree.map(lambda x, like: jnp.asarray(x).astype(like.dtype), value, like)

        return tuple(typed(name) for name in (self.physics_field, "info", "obs", "reward", "done"))

    def _step_all(self, *args: Any) -> Any:
        """Step all environments, on a CPU in blocks that fit a core's cache (up to 2x faster).

        On a GPU with fewer launches, see `rewritten`.
        """
        leaves, structure = jax.tree.flatten(args)
        num_envs, ends = leaves[0].shape[0], None
        # an evaluation's episodes may not divide
        parts = self._parts if num_envs % self._parts == 0 else 1
        block = parts * self._block(num_envs // parts, sum(x.nbytes for x in leaves) // num_envs)

        def at_once(*leaves):
            nonlocal ends
            step = jax.vmap(lambda *args: _step_one(self, *args))
            out, ends = jax.tree.flatten(step(*jax.tree.unflatten(structure, leaves)))
            return out

        def in_blocks(*leaves):
            # Blocks take equal shares of every device's environments, so none of them moves.
            split = lambda x: jnp.moveaxis(x.reshape(block, num_envs // block, *x.shape[1:]), 1, 0)
            join = lambda x: jnp.moveaxis(x, 0, 1).reshape(num_envs, *x.shape[2:])
            return [join(x) for x in jax.lax.map(lambda part: at_once(*part),
                                                 [split(x) for x in leaves])]

        special = {} if block == num_envs else {"cpu": in_blocks}
        if lowering.reaches_a_gpu():
            special |= dict.fromkeys(lowering.GPUS, functools.partial(rewritten, at_once))
        with jax.named_scope("physics"):  # read by scripts/aot_report.py
            out = lowering.by_platform(special, at_once, *leaves)
        return jax.tree.unflatten(ends, out)

    def _block(self, num_envs: int, size: int) -> int:
        """Return the environments of `size` bytes that a core steps together."""
        most = max(self.block_envs, self.block_bytes // size)
        block = max(b for b in range(1, min(num_envs, most) + 1) if num_envs % b == 0)
        # smaller ones are not worth their loop
        return block if 4 * block >= self.block_envs else num_envs

    def _trial(self, model: Any, key: jax.Array) -> Any:
        """Return observations, rewards and ends of some steps with another model, for a check."""
        env = self._on(model)
        new = env.reset(key)
        start = tree.strong(jax.tree.map(jnp.asarray, (getattr(new, self.physics_field), new.info)))

        def step(carry, _):
            still = jnp.zeros(self.spec.action.shape)
            *carry, obs, reward, done = self._step_one(env, *carry, still)
            return tuple(carry), (obs, reward, done)

        return new.obs, jax.lax.scan(step, start, length=2)[1]  # two stand for any number

    def inert(self, model: Any) -> dict[str, str]:
        """Return {read leaf without effect in this model: the valid alternative}."""
        return {}

    def transition(self, noise, state, action):
        low, high = self.spec.action.bounds()
        action = jnp.clip(action, low, high)
        physics, info, obs, reward, done = self._step_all(
            state.varied, state.physics, state.info, action
        )
        time = state.time + 1
        terminated = done.astype(bool)
        truncated = time >= self.spec.max_episode_steps
        outcome = Outcome(obs, reward.astype(jnp.float32), terminated, truncated)
        return PhysicsState(physics, info, time, state.varied), outcome


@functools.partial(jax.jit, static_argnums=0, inline=True)  # traced once for all uses
def _reset_one(env: PhysicsEnv, key: jax.Array, t: jax.Array) -> tuple[PhysicsState, Any]:
    varied = env.randomizer.draw(random.fold_in(key, 1), t) if env.randomizer else []
    words, shape = jax.random.key_data(key), jax.eval_shape(jax.random.PRNGKey, 0).shape
    raw = words if words.shape == shape else random.bits(key, shape)  # JAX's default has words
    new = env._with(varied).reset(raw)
    state = PhysicsState(getattr(new, env.physics_field), new.info, jnp.int32(0), varied)
    return tree.strong(jax.tree.map(jnp.asarray, (state, new.obs)))


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _step_one(env: PhysicsEnv, varied: list[jax.Array], physics: Any,
              info: Any, action: jax.Array) -> Any:
    return env._step_one(env._with(varied), physics, info, action)


def check_number(argument: str, value: Any, low: float = -math.inf, open_low: bool = False) -> None:
    """Check a constructor's number; neither traced nor an array, because it is static."""
    check_float(argument, value, low, open_low=open_low)
    if not is_number(value):
        raise ConfigError(argument, value,
                          "a number of Python's or NumPy's: it is part of the program")


def _space(obs: Any) -> Space:
    if isinstance(obs, dict):
        return Dict(tuple(sorted((name, _space(child)) for name, child in obs.items())))
    return Box(-math.inf, math.inf, obs.shape, obs.dtype)
