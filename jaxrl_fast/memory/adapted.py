"""Experience from a folder for a run: whatever layout it was written in, in the one that this run's memory takes."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.files import open_memory
from jaxrl_fast.memory.filled import Filled, as_rows, check_windows, fill, hold, layout, rows_of
from jaxrl_fast.memory.mixed import StartFrom, mix, offline
from jaxrl_fast.memory.prioritized import PrioritizedMemory
from jaxrl_fast.memory.ring import Ring, Row
from jaxrl_fast.memory.transitions import Transition, TransitionMemory
from jaxrl_fast.memory.uniform import UniformMemory


def with_experience(memory: Ring, data: Filled, fraction: float) -> Memory:
    """`memory`, whose batches are by `fraction` (static) drawn from `data`; at 0 it starts with `data` instead."""
    if fraction == 0:
        return StartFrom(memory, data)
    return offline(memory, data) if fraction == 1 else mix(memory, data, fraction)


def load_experience(path: str | Path, memory: Ring, fraction: float) -> Filled:
    """What `save_memory` wrote, laid out anew where `with_experience` could not take it as it is.

    The members of a population get the same object. Priorities stay those of the file where the layout does.
    """
    path = Path(path).absolute()
    file = path / "layout.json"
    written = file.stat().st_mtime_ns if file.is_file() else 0
    usual = {"batch_size": 1}
    if isinstance(memory, PrioritizedMemory):  # what the members of a population may differ in
        usual |= {name: getattr(PrioritizedMemory, name) for name in ("alpha", "beta", "epsilon", "first")}
    return _load(path, written, dataclasses.replace(memory, **usual), fraction)


@functools.lru_cache(maxsize=1)
def _load(path: Path, written: int, memory: Ring, fraction: float) -> Filled:
    data = open_memory(path)
    check_windows("experience", data)
    if fraction == 0:
        return data if layout(data.memory) == layout(memory) else fill(memory, _newest(memory, rows_of(data)))
    whole = isinstance(data.memory, TransitionMemory)  # stacks, and successors
    kind = UniformMemory if whole else type(data.memory)
    shape = lambda memory: (memory.n_step, 1 if whole else memory.stack)
    alike = kind is type(memory) and shape(data.memory) == shape(memory)
    return data if alike else hold(memory, rows_of(data))


def forget_experience() -> None:
    """Nobody but who has it needs what was loaded last: it may be large."""
    _load.cache_clear()


def _as_rows(memory: Ring, rows: Row | Transition) -> Row:
    if isinstance(rows, Row):
        return rows
    if memory.stack > 1:
        valid = "episodes in order: this run stacks frames, which it stores one by one"
        raise ConfigError("experience", "shuffled transitions", valid)
    if memory.n_step > 1:
        raise ConfigError("n_step", memory.n_step, "1 for shuffled transitions: what comes next is not known")
    return as_rows(rows)


def _newest(memory: Ring, rows: Row | Transition) -> Row:
    """Rows [T, B] in the columns of `memory`, the oldest left out where they do not all fit."""
    rows = _as_rows(memory, rows)
    steps = int((~rows.truncated).sum())
    rows = in_columns(rows, memory.num_envs)
    left = int((~rows.truncated).sum())
    if not left:
        what = f"fewer: nothing is left of {steps:,} steps of experience that are divided among so many"
        raise ConfigError("num_envs", memory.num_envs, what)
    if left < 0.9 * steps:
        text = f"experience: {left:,} of {steps:,} steps are left, divided among {memory.num_envs} environments"
        warnings.warn(text, stacklevel=2)
    most = memory.length - memory.n_step - memory.stack - memory.num_steps  # `fill` adds rows at both ends
    time = len(rows.reward)
    if most < 1:
        valid = f"more: {memory.length} rows of each environment hold a block, n_step and stack and no experience"
        raise ConfigError("buffer_size", memory.capacity, valid)
    if time > most:
        kept, of = most * memory.num_envs, time * memory.num_envs
        warnings.warn(f"experience: the newest {kept:,} of {of:,} rows fit the replay (buffer_size)", stacklevel=2)
    return jax.tree.map(lambda x: x[-most:], rows)


def in_columns(rows: Row, num_envs: int) -> Row:
    """NumPy rows [T, B] as [T', num_envs]: the columns one behind the other, cut into as many equal parts.

    Where it is cut the last row counts as truncated, unless it is terminated: one transition is lost, and a stack begins anew.
    """
    if rows.reward.shape[1] == num_envs:
        return rows
    line = jax.tree.map(lambda x: x.swapaxes(0, 1), _cut(rows))
    line = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), line)
    count = len(line.reward)
    size = -(-count // num_envs)

    def divide(x: Any) -> Any:
        padded = np.concatenate([x, np.zeros((size * num_envs - count, *x.shape[1:]), x.dtype)])
        return padded.reshape(num_envs, size, *x.shape[1:]).swapaxes(0, 1)

    real = divide(np.ones(count, bool))
    found = jax.tree.map(divide, line)
    return _cut(found._replace(truncated=found.truncated | ~real))


def _cut(rows: Row) -> Row:
    """With nothing that follows the last row of a column."""
    truncated = np.array(rows.truncated)
    truncated[-1] |= ~rows.terminated[-1]
    return rows._replace(truncated=truncated)
