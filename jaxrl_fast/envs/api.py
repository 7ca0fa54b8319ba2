"""The environment: batched from the start, a frozen pytree of pure functions, auto-reset once for all of them.

An environment implements four functions about transitions and resets, without any auto-reset:

    draw_reset(key, shape, t)          -> noise [*shape, ...]      randomness of resets, drawn in one go
    reset(noise [B])                   -> (state [B], obs [B])
    draw_step(key, T, B, t)            -> noise [T, B, ...]        randomness of transitions; () when there is none
    transition(noise, state, action)   -> (state [B], Outcome)

names in `resets` how a rollout begins new episodes (`envs.resets`: `EveryStep()`, unless resets are dear), and inherits
the three that `collect` calls:

    init(key, num_envs, t)             -> (state, obs)
    draw(key, T, B, t)                 -> Noise                    everything random of T steps, drawn before the scan
    step(noise, state, action)         -> (state, obs, Outcome)    transition, then a fresh reset where it ended

`t` is the iteration, for curricula. Outside of training (evaluations, pictures, `to_gymnasium`) it is `LAST`, beyond every
curriculum's end: clamp what grows with it. `draw_reset` may leave it out, as `draw_reset(key, shape)`.

A state begins anew with every episode, but for the parts of it in `types.Lasting`; `restart` is `reset` after them.

`Outcome.next_obs` is the successor before the reset; `obs` is what the agent sees next. Float fields of an environment
are leaves (traced, sweepable), everything else is static: decorate with `@settings`. To write one environment at a
time instead, without a batch axis, subclass `jaxrl_fast.envs.single.SingleEnv`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs import checks
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.resets import EveryStep, Noise, Resets, begun
from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.types import Outcome, PyTree, keep_lasting

LAST = np.int32(2**31 - 1)  # the iteration outside of training: past the end of every curriculum
_GONE = "draw_start", "draw_resets", "draw_again"  # methods of older versions
_INSTEAD = "`draw_reset(key, shape, t)` draws all resets, and `resets` names a strategy: `jf.envs.Pool(size)`, ..."


class Drawing(NamedTuple):
    """How episodes of an environment are shown."""

    frame: Callable[[Any], Any]  # `Env.render`
    step_seconds: float | None = None  # of a step in the environment's world; None where that means nothing
    page: Callable[[list[Any], float | None], str] | None = None  # (states, seconds between them) -> HTML that shows them moving


class Env(Environment):
    """Base class of environments on the device: batched, pure, reset inside `step`.

    See the text of the module.
    """

    runs_on = "device"
    resets: ClassVar[Resets] = EveryStep()  # or a field, or a property

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        for name in filter(functools.partial(hasattr, cls), _GONE):
            raise expected(f"{cls.__name__}.{name}", f"left out: {_INSTEAD}", "a method")
        reset = cls.__dict__.get("reset")
        if getattr(reset, "__name__", None) == "reset":
            cls.reset = checks.refuse_key(reset)
        draws = checks.with_iteration(cls.draw_reset)
        if draws is not cls.draw_reset:
            cls.draw_reset = draws

    def on_device(self, parts: int = 1) -> Env:
        """The environment that programs are compiled with. parts: the devices that its environments are divided over."""
        return self

    def draw_reset(self, key: jax.Array, shape: tuple[int, ...], t: jax.Array = LAST) -> PyTree:
        """Draw the randomness of resets in iteration t, leading axes `shape`. One key each, unless overridden.

        shape: (n,) for episodes that begin together, outside of a rollout; (T, B) for the steps of one.
        """
        return random.split(key, shape)

    def reset(self, noise: PyTree) -> tuple[PyTree, PyTree]:
        """noise [B] -> (state [B], obs [B])."""
        raise NotImplementedError

    def draw_step(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        """Randomness of `num_steps` transitions, leading axes [T, B]; `t` is the iteration (for curricula)."""
        return ()

    def transition(self, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        """One step of every environment, no reset. action [B, ...] -> (state [B], Outcome [B])."""
        raise NotImplementedError

    def init(self, key: jax.Array, num_envs: int, t: jax.Array | None = None) -> tuple[PyTree, PyTree]:
        """Begin episodes in `num_envs` environments; t: the iteration of training, None elsewhere."""
        return begun(self, self.draw_reset(key, (num_envs,), LAST if t is None else t), num_envs)

    def restart(self, noise: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """`reset` after the episodes that ended in `state` [B], of which the `types.Lasting` parts go on.

        Override it where a new episode depends on those: an observation that they normalise, a level that was reached.
        """
        fresh, obs = self.reset(noise)
        return keep_lasting(state, fresh), obs

    def draw(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> Noise:
        """Draw everything random of `num_steps` steps in iteration t; once an iteration, before the scan."""
        return draw_noise(self, self.resets, key, num_steps, num_envs, t)

    def step(self, noise: Noise, state: PyTree, action: PyTree) -> tuple[PyTree, PyTree, Outcome]:
        """`transition`, then a fresh reset of the environments whose episode ended. ConfigError as `played`.

        noise: of one step, as `noise.at(i)` of what `draw` returned.
        """
        if not isinstance(noise, Noise):
            found = "a key" if checks.is_key(noise) else type(noise).__name__
            valid = "one row of `env.draw(key, num_steps, num_envs, t)`, as in step(noise, state, action)"
            raise ConfigError(f"{self.spec.name}: step(noise)", found, valid)
        state, outcome = played(self, noise.step, state, action)
        done = outcome.terminated | outcome.truncated
        after = noise.resets.apply(self, noise.reset, done, (state, outcome.next_obs))
        return (*tree.strong(after), outcome)

    def render(self, state: Any) -> Any:
        """One state (no batch axis), on the host -> an RGB image, uint8 [H, W, 3] NumPy; None if it can't be drawn."""
        return None

    @property
    def drawing(self) -> Drawing | None:
        """How episodes are shown: by `render` alone, unless a subclass knows more; None where they are not."""
        return None if type(self).render is Env.render else Drawing(self.render)


def draw_noise(env: Env, resets: Resets, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> Noise:
    """Draw everything random of `num_steps` steps of `env`, whose episodes `resets` begins.

    Raises:
        ConfigError: `resets` is not one of the strategies.
    """
    if not isinstance(resets, Resets):
        raise expected(f"{env.spec.name}: resets", "EveryStep(), OnEnd(), Pool(size) or Frozen(starts)", repr(resets))
    if type(env).draw_step is Env.draw_step:  # transitions draw nothing: one key is enough
        step, reset_key = (), key
    else:
        step_key, reset_key = random.split(key)
        step = env.draw_step(step_key, num_steps, num_envs, t)
    return Noise(step, *resets.draw(env, reset_key, num_steps, num_envs, t))


def steps_by_base(env: Env) -> bool:
    """Whether its steps are those of `Env`: a transition, then what `resets` does."""
    return type(env).draw is Env.draw and type(env).step is Env.step


def played(env: Env, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
    """`env.transition` as `checks.outcome_of` takes it: the one place where an action goes in and an outcome enters.

    A policy's Gaussian knows no bounds: `transition` gets the action in its Box, as `Agent.act` returns it.

    A ConfigError names what of the action, the state or the outcome is not as `env.spec` says. Nothing else would: a
    reward [B, 1] is broadcast against [B] somewhere, and learned from.
    """
    action, num_envs = checks.action(env.spec, action)
    with checks.noted(env.spec, "transition"):
        found = env.transition(noise, state, action)
    return checks.outcome_of(env.spec, found, state, num_envs)
