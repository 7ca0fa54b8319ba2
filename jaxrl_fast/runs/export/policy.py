"""The greedy policy as one pure function of arrays, of a batch of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from jaxrl_fast import tree
from jaxrl_fast.envs.own_spaces import OwnDict, own_of

if TYPE_CHECKING:
    from jaxrl_fast.runs.agent import Agent


class Policy(NamedTuple):
    """A policy with its normalisation, frame stack and memory.

    step: (observation, *memory) -> (action, *memory), each [B, ...]. Observation and action have
        the environment's form. Zeros as memory begin an episode.
    observation: ShapeDtypeStructs of one observation: one, or a dict of them.
    memory: ShapeDtypeStructs of the memory of one episode; () for a policy without.
    names: of the memory's arrays.
    """

    step: Callable[..., tuple[Any, ...]]
    observation: Any
    memory: tuple[Any, ...]
    names: tuple[str, ...]

    @property
    def observation_names(self) -> list[str]:
        """Return `observation`, or `observation.KEY` for each array of a dict, in JAX's order."""
        paths, _ = jax.tree.flatten_with_path(self.observation)
        return ["observation" + "".join(f".{part.key}" for part in path) for path, _ in paths]


def policy_of(agent: Agent) -> Policy:
    """Return the policy of an agent, with the memory that its actions depend on and no more."""
    fresh = agent.init_carry(1)
    paths, structure = jax.tree.flatten_with_path(fresh)
    observation = _example(agent.spec.own_observation or own_of(agent.spec.observation))

    def one(obs: Any, kept: dict[int, Any]) -> tuple[Any, list[Any]]:
        """Act for one environment, [...]; kept: {place: leaf of the carry}."""
        leaves = [kept[i][None] if i in kept else leaf for i, (_, leaf) in enumerate(paths)]
        carry = jax.tree.unflatten(structure, leaves)
        carry = carry._replace(policy=tree.where(carry.begun, carry.policy, fresh.policy))
        carry, action = agent.step(carry, jax.tree.map(lambda x: x[None], obs))
        return action[0], [leaf[0] for leaf in jax.tree.leaves(carry)]

    memory = {i: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
              for i, (_, leaf) in enumerate(paths)}
    needed = _needed(jax.make_jaxpr(one)(observation, memory).jaxpr, len(memory))

    def step(obs: Any, *kept: Any) -> tuple[Any, ...]:
        action, leaves = jax.vmap(one)(obs, dict(zip(needed, kept, strict=True)))
        return (action, *(leaves[i] for i in needed))

    names = tuple(jax.tree_util.keystr(paths[i][0]).strip(".").replace("'", "") for i in needed)
    return Policy(step, observation, tuple(memory[i] for i in needed), names)


def _example(own: Any) -> Any:
    """Return ShapeDtypeStructs of one observation in the environment's form, tuples as dicts."""
    if isinstance(own, OwnDict):
        return {str(key): _example(child) for key, child in own.items}
    return jax.ShapeDtypeStruct(own.shape, jax.dtypes.canonicalize_dtype(own.dtype))


def _needed(jaxpr: Any, count: int) -> list[int]:
    """Return the last `count` inputs and outputs on which the outputs before them depend."""
    kept: set[int] = set()
    while True:
        wanted = [True] * (len(jaxpr.outvars) - count) + [i in kept for i in range(count)]
        _, used = partial_eval.dce_jaxpr(jaxpr, wanted)
        found = {i for i, is_used in enumerate(used[len(used) - count :]) if is_used}
        if found <= kept:
            return sorted(kept)
        kept |= found


def batch_of(spec: Any, size: Any) -> Any:
    """Return ShapeDtypeStructs with a leading axis of `size`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape), x.dtype), spec)


def zeros(spec: Any, size: int) -> Any:
    """Return a batch of zeros: a memory of new episodes."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), batch_of(spec, size))
