"""The arguments of `Algorithm.learn`, and the scan over an iteration's updates."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.memory import Memory
from jaxrl_fast.ops import lowering
from jaxrl_fast.ops.scopes import LOSS, SAMPLE, STORE, TARGETS, scope
from jaxrl_fast.types import Clock, Episodes, Mean, PyTree, Report, Trajectory, given

Metrics = dict[str, Mean]


class Played(NamedTuple):
    """A rollout, from any source."""

    actor: PyTree  # environments after the rollout
    trajectory: Trajectory | None  # [T, B], without reports; None without environments
    report: Report  # [T, B], of the environments
    episodes: Episodes  # [B], in progress at the rollout's start; () if actors count them

    @property
    def score(self) -> jax.Array:
        """Return the rewards that episodes' returns count, [T, B]."""
        return given(self.report.score, self.trajectory.steps.reward)

    @property
    def over(self) -> jax.Array:
        """Return whether an episode of the log ends, bool [T, B]."""
        return given(self.report.over, self.trajectory.steps.done)


@dataclasses.dataclass(frozen=True)
class Iteration:
    """One iteration, as `Algorithm.learn` sees it; the noise of `collect` is fixed."""

    t: jax.Array  # iteration number, int32
    learns: bool  # static; False in warm-up (random actions, no updates)
    clock: Callable[..., Clock]  # i -> Clock of update i
    memory: Memory
    plan: PyTree  # update plan, [updates]
    keys: jax.Array  # one key an update, [updates]
    # (agent, start) -> Played; start: by default the current environments
    collect: Callable[..., Played]
    begin: Callable[[jax.Array], Any]  # key -> start, with new episodes in every environment


@functools.partial(jax.jit, inline=True)  # traced once for shapes and use
def prepare(algo: Any, agent: PyTree, trajectory: Trajectory) -> PyTree:
    """Return `algo.prepare`: the rows that the memory stores."""
    with scope(TARGETS):
        return algo.prepare(agent, trajectory)


# A GPU's program takes up to so many updates one a turn: compile time counts for more than the
# launches of a turn. Two need no loop.
FEW_UPDATES = 16


def update_all(algo: Any, agent: PyTree, mem: PyTree,
               it: Iteration) -> tuple[PyTree, PyTree, Metrics]:
    """Scan an iteration's updates: fetch, update, feedback. Returns (agent, memory, metrics)."""

    def one(carry, x):
        agent, mem = carry
        plan, key, i = x
        with scope(SAMPLE):
            batch, handle = it.memory.fetch(mem, plan)
        with scope(LOSS):
            agent, metrics, priority = algo.update(agent, batch, key, it.clock(i))
        with scope(STORE):
            mem = it.memory.feedback(mem, handle, priority)
        return (agent, mem), metrics

    count = len(it.keys)
    xs = it.plan, it.keys, jnp.arange(count, dtype=jnp.int32)
    if count == 1:
        (agent, mem), metrics = one((agent, mem), tree.take(xs, 0))
    else:  # a replay may be divided over devices, an agent is whole
        most = 4 if count > FEW_UPDATES else 2 if count == 2 else 1
        (agent, mem), metrics = scan_sum(one, (agent, mem), xs, apart=(False, True), most=most)
    return agent, mem, metrics


@functools.partial(jax.tree_util.register_dataclass, data_fields=["sums"],
                   meta_fields=["structure"])
@dataclasses.dataclass(frozen=True)
class LogRows:
    """Metrics of log rows as one array: each array that a program makes is a kernel to compile."""

    sums: Any  # float32 [..., n] or [..., rows, n]
    structure: Any  # treedef of {name: Mean}, n leaves

    def by_name(self) -> Metrics:
        """Return {name: Mean [...]} or {name: Mean [..., rows]}."""
        return jax.tree.unflatten(self.structure,
                                  [self.sums[..., i] for i in range(self.structure.num_leaves)])


def scan_sum(f: Callable, carry: Any, xs: Any, apart: Any = False,
             most: int = 1) -> tuple[Any, Metrics]:
    """Scan f(carry, x) -> (carry, metrics) and sum the metrics, see `scan_vector`."""
    carry, total = scan_vector(f, carry, xs, apart, most)
    return carry, jax.tree.unflatten(total.structure, list(total.sums))


def scan_vector(f: Callable, carry: Any, xs: Any, apart: Any = False,
                most: int = 1) -> tuple[Any, LogRows]:
    """Scan f(carry, x) -> (carry, metrics) and sum the metrics -> (carry, LogRows [n]).

    Metrics leave the loop as one vector: scalars would be an array each to write every step.
    apart, most: see `lowering.scan_sum`.
    """
    structure = None

    def body(carry, x):
        nonlocal structure
        carry, metrics = f(carry, x)
        leaves, structure = jax.tree.flatten(metrics)
        return carry, jnp.stack(leaves)

    carry, total = lowering.scan_sum(body, carry, xs, apart, most)
    return carry, LogRows(total, structure)
