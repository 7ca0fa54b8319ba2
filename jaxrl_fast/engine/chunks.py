"""A chunk of log rows: its program, and its result on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.learning import LogRows
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.grid import ROWS
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.types import Mean, RunState


def chunk(run: Run, state: RunState, t0: jax.Array, rows: jax.Array,
          row: int) -> tuple[RunState, LogRows, jax.Array]:
    """Run `rows` (at most ROWS) log rows of `row` iterations -> (state, metrics [ROWS], finite)."""
    first = lambda state: iteration.log_row(run, state, t0, row, True)[1]
    structure = jax.eval_shape(first, state).structure

    def body(i, carry):
        state, buffer = carry
        state, found = iteration.log_row(run, state, t0 + i * row, row, True)
        return state, jax.lax.dynamic_update_index_in_dim(buffer, found.sums, i, 0)

    buffer = jnp.zeros((ROWS, structure.num_leaves), jnp.float32)
    state, buffer = jax.lax.fori_loop(0, rows, body, (state, buffer))
    return state, LogRows(buffer, structure), finite(run, state.agent, state.memory)


def finite(run: Run, agent: Any, mem: Any) -> jax.Array:
    """Return whether everything that must stay finite is, scalar bool."""
    whole = run.groups == 1  # on one device, not a mesh along the environments
    return tree.all_finite(agent, join=whole) & tree.all_finite(run.memory().watch(mem), join=whole)


def warmup(run: Run, state: RunState) -> tuple[RunState, LogRows]:
    """Run the warm-up as a chunk of one row -> (state, metrics [1])."""
    state, metrics = iteration.warmup(run, state)
    leaves, structure = jax.tree.flatten(metrics)
    return state, LogRows(jnp.stack(leaves)[None], structure)


class Chunk(NamedTuple):
    """The result of `Programs.chunk`, still in progress until `ready`."""

    state: RunState
    metrics: dict[str, Mean] | LogRows  # sums and counts [lanes, rows], of this call only
    finite: Any  # bool [lanes]: the agent is finite; None after a warm-up
    iterations: int  # finished iterations of the run
    # reason of an early end: the signal, or the environments' error
    stopped: int | Exception | None = None
    untimed: int = 0  # iterations of this call while host environments started

    @property
    def ready(self) -> bool:
        """Return whether its numbers are here, so the next chunk may wait for them."""
        return all(isinstance(x, np.ndarray) for x in jax.tree.leaves((self.metrics, self.finite)))

    def fetch(self) -> tuple[dict[str, Mean], Any]:
        """Wait for the numbers and return ({name: Mean [lanes, rows]}, finite) in NumPy."""
        metrics, finite = jax.device_get((self.metrics, self.finite))
        return metrics.by_name() if isinstance(metrics, LogRows) else metrics, finite
