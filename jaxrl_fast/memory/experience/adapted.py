"""Load a folder of experience into the layout of a run's memory."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.experience import filled
from jaxrl_fast.memory.experience.dataset import cut_off
from jaxrl_fast.memory.experience.files import open_memory
from jaxrl_fast.memory.experience.filled import Filled, layout
from jaxrl_fast.memory.experience.mixed import StartFrom, mix, offline
from jaxrl_fast.memory.prioritized import PrioritizedMemory
from jaxrl_fast.memory.ring import Ring, Row, UniformMemory, as_dataset, successors_of
from jaxrl_fast.memory.transitions import Transition, TransitionMemory


def with_experience(memory: Ring, data: Filled, fraction: float) -> Memory:
    """Return `memory` with `fraction` (static) of a batch from `data`; 0: started with `data`."""
    if fraction == 0:
        return StartFrom(memory, data)
    return offline(memory, data) if fraction == 1 else mix(memory, data, fraction)


def load_experience(path: str | Path, memory: Ring, fraction: float) -> Filled:
    """Read a folder of `save_memory`, laid out anew if `with_experience` needs that.

    All members of a population can take it. Equal layouts keep their priorities.
    """
    memory, data = _usual(memory), open_memory(path)
    filled.check_windows("experience", data)
    if _as_it_is(memory, data, fraction):
        return data
    rows = filled.rows_of(data)
    del data  # the device has room for the result
    return filled.hold(memory, rows) if fraction else filled.fill(memory, _newest(memory, rows))


def _usual(memory: Ring) -> Ring:
    """Return `memory` without the settings in which members may differ."""
    usual = {"batch_size": 1}
    if isinstance(memory, PrioritizedMemory):
        usual |= {name: getattr(PrioritizedMemory, name)
                  for name in ("alpha", "beta", "epsilon", "first")}
    return dataclasses.replace(memory, **usual)


def outline_experience(path: str | Path, memory: Ring, fraction: float) -> Filled:
    """Return the shapes of `load_experience` from layout.json; a new layout counts as full."""
    memory, data = _usual(memory), open_memory(path, outline=True)
    filled.check_windows("experience", data)
    if _as_it_is(memory, data, fraction):
        return data
    rows, time = as_dataset(data.rows), min(data.w, data.memory.num_blocks) * data.memory.num_steps
    if successors_of(data.rows) is not None:  # each becomes a row
        time += data.memory.slots.count
    if isinstance(rows, Transition):
        _check_shuffled(memory, fraction)
        memory = dataclasses.replace(memory, stack=1)
        if fraction == 0 or not filled.keeps_transitions(memory):  # see `as_rows`
            rows, time = Row(rows.obs, rows.action, rows.reward, rows.terminated,
                             rows.terminated), 2 * time
    sized = lambda t, b: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((t, b, *x.shape[2:]), x.dtype), rows
    )
    found = memory if fraction == 0 else filled.room_for(memory, sized(time, data.memory.num_envs))
    return Filled(found, jax.eval_shape(found.init, sized(found.num_steps, found.num_envs)),
                  found.num_blocks)


def _as_it_is(memory: Ring, data: Filled, fraction: float) -> bool:
    """Return whether `with_experience` takes `data` in its own layout."""
    if fraction == 0:
        same = data.memory.truncation_interval == memory.truncation_interval
        same = same or successors_of(data.rows) is None
        return same and layout(data.memory) == layout(memory)
    whole = isinstance(data.memory, TransitionMemory)  # stacks, and successors
    kind = UniformMemory if whole else type(data.memory)
    shape = lambda memory: (memory.n_step, 1 if whole else memory.stack)
    return kind is type(memory) and shape(data.memory) == shape(memory)


def _check_shuffled(memory: Ring, fraction: float) -> None:
    """Raise ConfigError if shuffled transitions do not fit this memory."""
    if fraction == 0 and memory.stack > 1:
        valid = "episodes in order: this run stacks frames, which it stores one by one"
        raise ConfigError("experience", "shuffled transitions", valid)
    if memory.n_step > 1:
        raise ConfigError("n_step", memory.n_step, "1 for shuffled transitions: they have no order")


def _newest(memory: Ring, rows: Row | Transition) -> Row:
    """Return rows [T, B] in the columns of `memory`, without the oldest if they do not fit."""
    if isinstance(rows, Transition):
        _check_shuffled(memory, 0)
        rows = filled.as_rows(rows)
    steps = int((~rows.truncated).sum())
    rows = in_columns(rows, memory.num_envs)
    left = int((~rows.truncated).sum())
    if not left:
        raise ConfigError("num_envs", memory.num_envs,
                          f"fewer: nothing is left of {steps:,} steps of experience that are "
                          "divided among so many")
    if left < 0.9 * steps:
        text = (
            f"experience: {left:,} of {steps:,} steps are left, divided among {memory.num_envs} "
            "environments"
        )
        warnings.warn(text, stacklevel=2)
    # `fill` adds rows at both ends
    most = memory.length - memory.n_step - memory.stack - memory.num_steps
    time = len(rows.reward)
    if most < 1:
        raise ConfigError("buffer_size", memory.capacity,
                          f"more: {memory.length} rows of each environment hold a block, n_step "
                          "and stack and no experience")
    if time > most:
        kept, of = most * memory.num_envs, time * memory.num_envs
        text = f"experience: the newest {kept:,} of {of:,} rows fit the replay (buffer_size)"
        warnings.warn(text, stacklevel=2)
    return jax.tree.map(lambda x: x[-most:], rows)


def in_columns(rows: Row, num_envs: int) -> Row:
    """Cut NumPy rows [T, B] into [T', num_envs], the columns one behind the other.

    At a cut the last row counts as truncated, unless it is terminated: one transition is lost, and
    a stack starts anew.
    """
    if rows.reward.shape[1] == num_envs:
        return rows
    line = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), cut_off(rows))
    count = len(line.reward)
    size = -(-count // num_envs)

    def divide(x: Any) -> Any:
        padded = np.concatenate([x, np.zeros((size * num_envs - count, *x.shape[1:]), x.dtype)])
        return padded.reshape(num_envs, size, *x.shape[1:]).swapaxes(0, 1)

    real = divide(np.ones(count, bool))
    found = jax.tree.map(divide, line)
    return cut_off(found._replace(truncated=found.truncated | ~real))
