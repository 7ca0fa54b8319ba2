"""What `Algorithm.learn` works with in one iteration, and the scan over an iteration's updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.memory import Memory
from jaxrl_fast.ops import sums
from jaxrl_fast.types import Clock, Episodes, Mean, PyTree, Trajectory

Metrics = dict[str, Mean]


class Played(NamedTuple):
    """A rollout, from wherever it came.

    actor: where the environments stand after it. trajectory: [T, B], without `info`; None where nothing is played.
    info: what the environments reported, {name: [T, B]}. episodes: those in progress when it began, [B].
    """

    actor: PyTree
    trajectory: Trajectory | None
    info: dict[str, jax.Array]
    episodes: Episodes


@dataclasses.dataclass(frozen=True)
class Iteration:
    """One iteration, as `Algorithm.learn` sees it.

    t: its number, int32. learns: static; False in warm-up, in which actions are random and nothing is updated.
    clock: i -> Clock of its i-th update. memory: what rows are added to. plan, keys: of the updates, [updates].
    collect: (agent, start) -> Played, a rollout of `agent` from `start`, a result of `begin`; without one, from where the
    environments stand. It is differentiable, its noise is drawn already, and it can be called for any number of agents.
    begin: key -> start: new episodes in every environment.
    """

    t: jax.Array
    learns: bool
    clock: Callable[..., Clock]
    memory: Memory
    plan: PyTree
    keys: jax.Array
    collect: Callable[..., Played]
    begin: Callable[[jax.Array], Any]


def take_in(algo: Any, agent: PyTree, mem: PyTree, played: Played, it: Iteration) -> tuple[PyTree, PyTree, PyTree]:
    """Add a rollout to the memory: observe -> prepare -> add. Returns (agent, memory, rows)."""
    agent = algo.observe(agent, played.trajectory)
    rows = algo.prepare(agent, played.trajectory)
    return agent, it.memory.add(mem, rows, it.t), rows


def update_all(algo: Any, agent: PyTree, mem: PyTree, it: Iteration) -> tuple[PyTree, PyTree, Metrics]:
    """Make an iteration's updates: scan over fetch -> update -> feedback. Returns (agent, memory, summed metrics)."""

    def one(carry, x):
        agent, mem = carry
        plan, key, i = x
        batch, handle = it.memory.fetch(mem, plan)
        agent, metrics, priority = algo.update(agent, batch, key, it.clock(i))
        return (agent, it.memory.feedback(mem, handle, priority)), metrics

    count = len(it.keys)
    xs = it.plan, it.keys, jnp.arange(count, dtype=jnp.int32)
    (agent, mem), metrics = one((agent, mem), tree.take(xs, 0)) if count == 1 else scan_sum(one, (agent, mem), xs)
    return agent, mem, metrics


def scan_sum(f: Callable, carry: Any, xs: Any) -> tuple[Any, Metrics]:
    """`lax.scan` of f(carry, x) -> (carry, metrics) that adds the metrics up.

    They leave the loop as one vector: a dozen scalars would be a dozen arrays to write in every step.
    """
    structure = None

    def body(carry, x):
        nonlocal structure
        carry, metrics = f(carry, x)
        leaves, structure = jax.tree.flatten(metrics)
        return carry, jnp.stack(leaves)

    carry, rows = jax.lax.scan(body, carry, xs)
    return carry, jax.tree.unflatten(structure, list(sums.pairwise(rows)))
