"""The program of `check_env`: random play, with every property counted step by step."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import random, tree
from jaxrl_fast.envs.api import LAST, Env
from jaxrl_fast.spaces import Dict, Discrete, MultiDiscrete, Space
from jaxrl_fast.types import given, lasting

NUM_RESETS = 256  # sampled resets that define first states


def random_action(space: Space, obs: Any, key: jax.Array, num_envs: int) -> Any:
    """Return uniform actions [B, ...], legal if the observation has an `action_mask`."""
    if isinstance(obs, dict) and "action_mask" in obs:
        draws = jax.random.uniform(key, obs["action_mask"].shape)
        return jnp.argmax(jnp.where(obs["action_mask"], draws, -1.0), axis=-1).astype(jnp.int32)
    return space.sample(key, (num_envs,))


def _rows(x: jax.Array) -> jax.Array:
    """Return [B, ...] as [B, n]; keys become their data."""
    return random.as_data(x).reshape(x.shape[0], -1)


def _every(flags: Iterable[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.logical_and, flags, jnp.bool_(True))


def same(a: Any, b: Any) -> jax.Array:
    """Return bool [B]: equal in every leaf."""
    pairs = zip(*map(jax.tree.leaves, (a, b)), strict=True)
    return _every(jnp.all(_rows(x) == _rows(y), axis=-1) for x, y in pairs)


def in_space(space: Space, value: Any) -> jax.Array:
    """Return bool [B]: within the bounds of the space, up to rounding."""
    if isinstance(space, Dict):
        return _every(in_space(child, value[name]) for name, child in space.items)
    if isinstance(space, Discrete):
        return (value >= 0) & (value < space.n)
    if isinstance(space, MultiDiscrete):
        return jnp.all((value >= 0) & (value < jnp.asarray(space.nvec)), axis=-1)
    low, high = (jnp.asarray(b).reshape(-1) for b in space.bounds())
    x = _rows(value).astype(jnp.float32)
    slack = 1e-4 * (1.0 + jnp.where(jnp.isfinite(high - low), high - low, 0.0))
    return jnp.all((x >= low - slack) & (x <= high + slack), axis=-1)


def _finite(value: Any) -> jax.Array:
    leaves = [x for x in jax.tree.leaves(value) if jnp.issubdtype(x.dtype, jnp.floating)]
    return _every(jnp.all(jnp.isfinite(_rows(x)), axis=-1) for x in leaves)


def _hull(obs: Any, margin: float) -> Any:
    """Return each leaf's smallest box around all rows, widened by `margin` of its width."""

    def one(x):
        x = _rows(x).astype(jnp.float32)
        low, high = x.min(axis=0), x.max(axis=0)
        slack = margin * (high - low) + 1e-6
        return low - slack, high + slack

    return [one(x) for x in jax.tree.leaves(obs)]


def _inside(hull: Any, obs: Any) -> jax.Array:
    rows = [_rows(x).astype(jnp.float32) for x in jax.tree.leaves(obs)]
    pairs = zip(rows, hull, strict=True)
    return _every(jnp.all((x >= low) & (x <= high), axis=-1) for x, (low, high) in pairs)


def play(env: Env, key: jax.Array, num_envs: int, num_steps: int) -> dict[str, Any]:
    """Play -> {"resets": (state, obs) [NUM_RESETS], "first", "last": [B], "steps": counts [T]}."""
    init_key, draw_key, act_key, reset_key = jax.random.split(key, 4)
    spec = env.spec
    limit = spec.max_episode_steps or 2**30
    resets = env.reset(env.draw_reset(reset_key, (NUM_RESETS,), jnp.int32(LAST)))
    narrow, wide = _hull(resets[1], 0.01), _hull(resets[1], 0.5)
    state, obs = env.init(init_key, num_envs)
    begun = state
    noise = env.draw(draw_key, num_steps, num_envs, jnp.int32(LAST))

    def one(carry, x):
        state, obs, start, length = carry
        rows, key = x
        action = random_action(spec.action, obs, key, num_envs)
        next_state, next_obs, out = env.step(noise.with_rows(rows), state, action)
        done, length = out.terminated | out.truncated, length + 1
        legal = (obs["action_mask"].any(axis=-1) if isinstance(obs, dict) and "action_mask" in obs
                 else jnp.bool_(True))
        left = ~_inside(narrow, out.next_obs)  # the successor lies where no episode starts
        had = done & ~same(lasting(state), lasting(begun))
        flags = {
            "out of bounds": ~in_space(spec.observation, obs)
            | ~in_space(spec.observation, out.next_obs),
            "not finite": ~(_finite(obs) & _finite(out.next_obs) & jnp.isfinite(out.reward)
                            & _finite(next_state)),
            "both ends": out.terminated & out.truncated,
            "over within an episode": given(out.over, done) & ~done,
            "past the limit": ~done & (length >= limit),
            "continues elsewhere": ~done & ~same(out.next_obs, next_obs),
            "no legal action": ~legal,
            # The rest is judged as a whole: chance can make one of them true.
            "terminated": out.terminated,
            "truncated": out.truncated,
            "terminated at the limit": out.terminated & (length >= limit),
            "successor is the next start": done & same(out.next_obs, next_obs),
            "moved": ~done & ~same(obs, out.next_obs),
            "left the starts": ~done & left,
            "ended off the starts": done & left,
            "starts off the starts": done & ~_inside(wide, next_obs),
            "had what lasts": had,
            "forgot what lasts": had & same(lasting(next_state), lasting(begun)),
            "starts as before": done & same((next_state, next_obs), start),
        }
        counts = {name: jnp.sum(jnp.broadcast_to(flag, (num_envs,)))
                  for name, flag in flags.items()}
        counts["longest"] = jnp.max(jnp.where(done, length, 0))
        new_start = tree.where(done, (next_state, next_obs), start)
        return (next_state, next_obs, new_start, jnp.where(done, 0, length)), counts

    carry = (state, obs, (state, obs), jnp.zeros(num_envs, jnp.int32))
    (last_state, last_obs, _, _), steps = jax.lax.scan(
        one, carry, (noise.rows, jax.random.split(act_key, num_steps))
    )
    return {"resets": resets, "first": (state, obs), "last": (last_state, last_obs), "steps": steps}
