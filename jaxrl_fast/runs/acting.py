"""One compiled step of an agent, and the memory that it carries between steps."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.envs.own_spaces import OwnDict
from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.ops import stacking
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Clock


class Carry(NamedTuple):
    """An agent's memory of the episodes that it plays, [B]."""

    policy: Any  # the algorithm's
    frames: Any = ()  # last frames, for environments with frame stacks
    begun: Any = ()  # bool [B]: whether there are such frames

    __repr__ = summary


def batch_size(obs: Any) -> int:
    return jax.tree.leaves(obs)[0].shape[0]


def check_alone(obs: Any, own: Any) -> None:
    """Raise ConfigError for the tuple of `reset` or `step` in the place of an observation.

    own: the form of observations, which may be a tuple of some entries too.
    """
    if not isinstance(obs, tuple) or not obs:
        return
    if getattr(own, "is_tuple", False):
        wrong = isinstance(obs[-1], dict) and not isinstance(own.items[-1][1], OwnDict)
    else:
        shape = lambda x: () if isinstance(x, (int, float)) else getattr(x, "shape", type(x))
        wrong = any(isinstance(x, dict) for x in obs) or len(set(map(shape, obs))) > 1
    if wrong:
        raise expected("observation", "the observation alone: `reset` and `step` return it first, "
                       "as in `obs, info = env.reset()` (`state, obs` of a jf.Env)",
                       f"a tuple of {len(obs)} values")


def check_carry(carry: Any, seen: Any) -> None:
    if not isinstance(carry, Carry) or carry.begun.shape != (batch_size(seen),):
        raise ConfigError("carry", type(carry).__name__, f"Agent.init_carry({batch_size(seen)})")


@functools.partial(jax.jit, static_argnames="num_envs")
def begin(algo: Algorithm, num_envs: int) -> Carry:
    spec = algo.spec
    frames = stacking.example(spec, (num_envs,)) if spec.stack > 1 else ()
    return Carry(algo.evaluation_carry(num_envs), frames, jnp.zeros(num_envs, bool))


@functools.partial(jax.jit, static_argnames=("stacked", "mode"))
def step(algo: Algorithm, state: Any, carry: Carry, seen: Any,
         key: jax.Array, stacked: bool, mode: str):
    k = algo.spec.stack
    if k > 1 and not stacked:
        seen = tree.where(carry.begun, stacking.push(carry.frames, seen, k),
                          stacking.start(seen, k))
    noise = tree.take(algo.draw(key, 1, batch_size(seen)), 0)
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(1.0))
    policy, action, _ = algo.act(algo.acting(state), carry.policy, seen, noise, clock, mode)
    return Carry(policy, seen if k > 1 else (), jnp.ones_like(carry.begun)), action
