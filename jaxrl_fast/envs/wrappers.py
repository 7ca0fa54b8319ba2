"""Wrappers act on transitions, before the auto-reset, and see true successors and both ends.

`wrap` stacks them from the game outwards: sticky actions, action repeat, time limit, reward scale,
reward clip, frame stack. Stickiness is decided for every repetition, as in the Arcade Learning
Environment; `time_limit` counts the agent's decisions; the clip comes last.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.envs.api import LAST, Drawing, Env, checked_transition
from jaxrl_fast.envs.resets import Resets
from jaxrl_fast.errors import ConfigError, check_not_zero
from jaxrl_fast.fields import check_settings, setting
from jaxrl_fast.spaces import Box, zeros
from jaxrl_fast.types import EnvSpec, keep_lasting, lasting


@dataclasses.dataclass(frozen=True)
class Common:
    """The settings that `make` takes for every environment."""

    action_repeat: int = setting(1)
    """steps for which every action is played"""
    sticky_actions: float = setting(0.0, low=0, high=1, open_high=True)
    """probability of repeating the last action instead"""
    stack: int = setting(1)
    """frames in an observation"""
    reward_scale: float = setting(1.0)
    """factor of rewards"""
    reward_clip: float | None = setting(None, low=0, open_low=True)
    """rewards are clipped to this size"""
    time_limit: int | None = setting(None, low=1)
    """actions after which an episode is truncated"""

    def __post_init__(self):
        check_settings(self, "env.")
        check_not_zero("env.reward_scale", self.reward_scale)


COMMON: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Common)}


@functools.singledispatch  # `envs.host` registers its own
def wrap(env: Env, **settings: Any) -> Env:
    """Return `env` in the wrappers of the settings of `Common` that differ from defaults."""
    common = Common(**settings)
    if not _is_default(common.sticky_actions, 0.0):
        env = StickyActions(env, common.sticky_actions)
    if common.action_repeat != 1:
        env = ActionRepeat(env, common.action_repeat)
    if common.time_limit is not None:
        own = env.spec.max_episode_steps
        if own is not None and common.time_limit > own:
            raise ConfigError("env.time_limit", common.time_limit,
                              f"at most {own}, after which {env.spec.name} itself ends an episode; "
                              "a setting of its own may change that")
        env = TimeLimit(env, common.time_limit)
    if not _is_default(common.reward_scale, 1.0):
        env = RewardScale(env, common.reward_scale)
    if common.reward_clip is not None:
        env = RewardClip(env, common.reward_clip)
    return env if common.stack == 1 else FrameStack(env, common.stack)


def _is_default(value: Any, default: float) -> bool:
    return isinstance(value, (int, float)) and value == default


@tree.settings
class Wrapper(Env):
    """Forwards everything to `self.env`; a wrapper overrides its changes."""

    env: Env = dataclasses.field(metadata={"static": False})

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def on_device(self, parts=1):
        inner = self.env.on_device(parts)
        return self if inner is self.env else dataclasses.replace(self, env=inner)

    def for_evaluation(self):
        inner = self.env.for_evaluation()
        return self if inner is self.env else dataclasses.replace(self, env=inner)

    @property
    def resets(self) -> Resets:
        return self.env.resets

    def draw_reset(self, key, shape, t=LAST):
        return self.env.draw_reset(key, shape, t)

    def reset(self, noise):
        return self.env.reset(noise)

    def restart(self, noise, state):
        if not lasting(state):
            return self.reset(noise)
        inner = Restarting(self.env, self.unwrap_state(state))
        fresh, obs = dataclasses.replace(self, env=inner).reset(noise)
        return keep_lasting(state, fresh), obs

    def draw_step(self, key, num_steps, num_envs, t):
        return self.env.draw_step(key, num_steps, num_envs, t)

    def transition(self, noise, state, action):
        return checked_transition(self.env, noise, state, action)

    def unwrap_state(self, state: Any) -> Any:
        """Return the wrapped environment's part of this wrapper's state."""
        return state

    def render(self, state):
        return self.env.render(self.unwrap_state(state))

    @property
    def drawing(self):
        inner = self.env.drawing
        if inner is None:
            return None if type(self).render is Wrapper.render else Drawing(self.render)
        inside = lambda states: [self.unwrap_state(state) for state in states]
        page = inner.page and (lambda states, seconds: inner.page(inside(states), seconds))
        return inner._replace(frame=self.render, page=page)


@tree.settings
class Restarting(Wrapper):
    """`env` in a wrapper that restarts: its reset follows episodes that ended in `before` [B]."""

    before: Any = ()

    def reset(self, noise):
        fresh, obs = self.env.restart(noise, self.before)
        a, b = jax.tree.structure(fresh), jax.tree.structure(self.before)
        if a != b:
            valid = f"{a}, the part of its state that is the wrapped environment's"
            raise ConfigError(f"{self.spec.name}: unwrap_state of a wrapper", str(b), valid)
        return fresh, obs


@tree.settings
class ActionRepeat(Wrapper):
    """Plays every action `repeat` times, or until the episode ends; rewards add up."""

    repeat: int = 1

    @property
    def spec(self) -> EnvSpec:
        spec = self.env.spec
        limit = spec.max_episode_steps
        return dataclasses.replace(spec, max_episode_steps=None if limit is None
                                   else math.ceil(limit / self.repeat))

    @property
    def drawing(self):
        inner = super().drawing
        if inner is None or not inner.step_seconds:
            return inner
        return inner._replace(step_seconds=inner.step_seconds * self.repeat)

    def draw_step(self, key, num_steps, num_envs, t):
        noise = self.env.draw_step(key, num_steps * self.repeat, num_envs, t)
        return jax.tree.map(lambda x: x.reshape(num_steps, self.repeat, *x.shape[1:]), noise)

    def transition(self, noise, state, action):
        def again(carry, noise):
            state, outcome = carry
            over = outcome.terminated | outcome.truncated
            next_state, new = checked_transition(self.env, noise, state, action)
            score = jax.tree.map(jnp.add, outcome.score, new.score)
            new = new._replace(reward=outcome.reward + new.reward, score=score)
            return tree.where(over, (state, outcome), tree.strong((next_state, new))), None

        # the carry of a scan must keep its types
        carry = tree.strong(checked_transition(self.env, tree.take(noise, 0), state, action))
        rest = tree.take(noise, slice(1, None))
        return jax.lax.scan(again, carry, rest, length=self.repeat - 1)[0]


@tree.settings
class StickyActions(Wrapper):
    """With `probability` plays the environment's last action instead of the agent's.

    Machado et al. (2018), section 5. An episode's first action is always the agent's. State: (inner
    state, last action played [B, ...], bool [B] whether there is one).
    """

    probability: float = 0.25

    def reset(self, noise):
        state, obs = self.env.reset(noise)
        batch = jax.tree.leaves(obs)[0].shape[:1]
        return (state, zeros(self.spec.action, batch), jnp.zeros(batch, bool)), obs

    def draw_step(self, key, num_steps, num_envs, t):
        own, inner = jax.random.split(key)
        uniform = jax.random.uniform(own, (num_steps, num_envs), jnp.float32)
        return uniform, self.env.draw_step(inner, num_steps, num_envs, t)

    def transition(self, noise, state, action):
        uniform, noise = noise
        state, last, started = state
        action = jax.tree.map(lambda a, like: a.astype(like.dtype), action, last)
        action = tree.where(started & (uniform < self.probability), last, action)
        state, outcome = checked_transition(self.env, noise, state, action)
        return (state, action, jnp.ones_like(started)), outcome

    def unwrap_state(self, state):
        return state[0]


@tree.settings
class RewardScale(Wrapper):
    """Multiplies the reward by `scale`, a leaf."""

    scale: float = 1.0

    def transition(self, noise, state, action):
        state, outcome = checked_transition(self.env, noise, state, action)
        return state, outcome._replace(reward=outcome.reward * self.scale)


@tree.settings
class RewardClip(Wrapper):
    """Clips the reward to [-bound, bound], a leaf."""

    bound: float = 1.0

    def transition(self, noise, state, action):
        state, outcome = checked_transition(self.env, noise, state, action)
        return state, outcome._replace(reward=jnp.clip(outcome.reward, -self.bound, self.bound))


@tree.settings
class TimeLimit(Wrapper):
    """Truncates episodes after `max_steps` steps; state: (inner state, int32 [B] steps)."""

    max_steps: int = 1000

    @property
    def spec(self) -> EnvSpec:
        inner = self.env.spec.max_episode_steps
        limit = self.max_steps if inner is None else min(inner, self.max_steps)
        return dataclasses.replace(self.env.spec, max_episode_steps=limit)

    def reset(self, noise):
        state, obs = self.env.reset(noise)
        return (state, jnp.zeros(jax.tree.leaves(obs)[0].shape[:1], jnp.int32)), obs

    def transition(self, noise, state, action):
        state, time = state
        state, outcome = checked_transition(self.env, noise, state, action)
        time = time + 1
        cut = time >= self.max_steps
        over = jax.tree.map(lambda over: over | cut, outcome.over)
        return (state, time), outcome._replace(truncated=outcome.truncated | cut, over=over)

    def unwrap_state(self, state):
        return state[0]


@tree.settings
class FrameStack(Wrapper):
    """Marks in the spec that the agent sees the last `stack` observations; `collect` stacks."""

    stack: int = 1

    @property
    def spec(self) -> EnvSpec:
        spec = self.env.spec
        if not isinstance(spec.observation, Box) or not spec.observation.shape:
            raise ConfigError("env.stack", self.stack,
                              f"1 for {spec.name}, whose observation is not one array")
        return dataclasses.replace(spec, stack=spec.stack * self.stack)
