"""A memory with experience in it.

    hold(memory, rows)   -> Filled   a memory with exactly these rows, for offline learning
    fill(memory, rows)   -> Filled   this very memory, for a run that starts from it
    rows_of(filled)      -> rows     [T, B], oldest first, for another layout by `hold` or `fill`
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import type_name
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.experience.dataset import cut_off, extend, side_by_side
from jaxrl_fast.memory.ring import Ring, Row, UniformMemory, as_dataset, successors_of
from jaxrl_fast.memory.sequence import SequenceMemory
from jaxrl_fast.memory.transitions import Transition, TransitionMemory


@functools.partial(jax.tree_util.register_dataclass, data_fields=["store"],
                   meta_fields=["memory", "w"])
@dataclasses.dataclass(frozen=True, repr=False)
class Filled:
    """A memory, its store, and the number of blocks written. A pytree with the store's leaves."""

    memory: Memory
    store: Any
    w: int

    def __repr__(self) -> str:
        written = min(self.w, self.memory.num_blocks) * self.memory.num_steps * self.memory.num_envs
        size = tree.bytes_text(tree.nbytes(self.store))
        what = describe_rows(row_shapes(as_dataset(self.rows)))
        return f"<Filled: {written:,} rows of {what}, {size}, in {self.memory!r}>"

    @property
    def rows(self) -> Any:
        """Return the store's rows without priorities, [length, B, ...] in the ring's order."""
        return getattr(self.store, "rows", self.store)


def layout(memory: Memory) -> dict[str, Any]:
    """Return what two memories must share for one to read the other's store: class and sizes."""
    # By annotation: exponents may also be ints.
    others = ("batch_size", "truncation_interval")  # the second matters only with kept successors
    sizes = [f.name for f in dataclasses.fields(memory) if type_name(f) == "int"
             and f.name not in others]
    return {"class": type(memory).__name__} | {name: int(getattr(memory, name)) for name in sizes}


def check_windows(argument: str, filled: Filled) -> None:
    """Raise ConfigError unless a window is written."""
    memory = filled.memory
    least = 1 if isinstance(filled.rows, Transition) else memory.n_step + memory.stack
    if filled.w * memory.num_steps < least:
        valid = f"at least {least} rows of each environment, for n_step and stack"
        raise ConfigError(argument, f"{filled.w} blocks of {memory.num_steps} rows", valid)


def check_batch(argument: str, batch_size: int, filled: Filled) -> None:
    """Raise ConfigError for a batch larger than the windows that can be drawn."""
    memory, rows = filled.memory, filled.rows
    size = min(filled.w, memory.num_blocks) * memory.num_steps
    count = (size * memory.num_envs if isinstance(rows, Transition)
             else int(jnp.sum(~rows.truncated[:size])))
    kept = successors_of(rows)
    count += 0 if kept is None else int(jnp.sum(kept.owner > 0))
    if batch_size > count:
        raise ConfigError(argument, batch_size,
                          f"at most {count}: the data has no more steps to learn from")


def row_shapes(rows: Any) -> Any:
    """Return shape and dtype of one row of one environment, from leaves [T, B, ...]."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), rows)


def check_rows(argument: str, found: Any, wanted: Any) -> None:
    """Raise ConfigError unless rows (leaves [T, B, ...]) have the wanted fields and shapes."""
    found, wanted = row_shapes(found), row_shapes(wanted)
    if jax.tree.flatten(found) != jax.tree.flatten(wanted):
        raise ConfigError(argument, describe_rows(found), f"rows of {describe_rows(wanted)}")


def describe_rows(shapes: Any) -> str:
    names = [(jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(shapes)]
    return ", ".join(f"{name.lstrip('.')} {x.dtype}{list(x.shape)}" for name, x in names)


def refuse_sequences(argument: str, memory: Memory) -> None:
    """Raise ConfigError for a memory of sequences: rows from elsewhere have no carries."""
    if isinstance(memory, SequenceMemory):
        valid = "a memory of windows: sequences cannot be made of rows, which have no carries"
        raise ConfigError(argument, type(memory).__name__, valid)


def _check_layout(memory: Ring, rows: Any) -> None:
    """Raise ConfigError for rows without the successors or carries that `memory` needs."""
    refuse_sequences("memory", memory)
    kinds = (Transition,) if isinstance(memory, TransitionMemory) else (Row, Transition)
    if not isinstance(rows, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigError("rows", type(rows).__name__, f"{names} for a {type(memory).__name__}")


def hold(memory: Ring, rows: Row | Transition) -> Filled:
    """Return a memory like `memory` that holds exactly `rows`; every window can be drawn.

    `Transition`s go into a `TransitionMemory` if `memory` is uniform. Otherwise each becomes an
    episode of one step (its row, and its successor as a truncated row), which a prioritized memory
    never starts from. Raises ConfigError for `Row`s if `memory` stores successors.
    """
    _check_layout(memory, rows)
    if isinstance(rows, Transition):
        if memory.n_step != 1:
            raise ConfigError("n_step", memory.n_step,
                              "1 for shuffled transitions: they have no order")
        if not keeps_transitions(memory):
            memory, rows = dataclasses.replace(memory, stack=1), as_rows(rows)
    return fill(room_for(memory, rows), rows)


def keeps_transitions(memory: Ring) -> bool:
    """Return whether `hold` keeps transitions as they are."""
    return type(memory) in (UniformMemory, TransitionMemory)


def room_for(memory: Ring, rows: Row | Transition) -> Ring:
    """Return the memory into which `hold` puts rows of these shapes [T, B, ...]."""
    time, envs = rows.reward.shape
    if isinstance(rows, Transition):
        return TransitionMemory(time * envs, time, envs, memory.batch_size)
    margin = memory.n_step + memory.stack - 1
    # a margin at least, so that one block beside the head is enough; few: `fill` loops over them
    block = max(margin, -(-(time + margin) // 64))
    blocks = -(-(time + margin) // block) + 1
    return dataclasses.replace(memory, capacity=blocks * block * envs,
                               num_steps=block, num_envs=envs)


def fill(memory: Ring, rows: Row | Transition) -> Filled:
    """Return `memory` with `rows` [T, B, ...] written from its first block on.

    Truncated rows before and after give every row its stack and window. The last of `rows` is
    truncated too, unless it is terminated. Raises ConfigError if the rows do not fit.
    """
    _check_layout(memory, rows)
    time, envs = rows.reward.shape
    if envs != memory.num_envs:
        raise ConfigError("rows", f"[{time}, {envs}]",
                          f"rows of {memory.num_envs} environments, as the memory has")
    if isinstance(rows, Row):
        before, after = memory.stack - 1, memory.n_step
        after += -(before + time + after) % memory.num_steps
        rows = extend(cut_off(jax.tree.map(np.asarray, rows)), after, before)
    elif not isinstance(memory, TransitionMemory) or time % memory.num_steps:
        raise ConfigError("memory", memory,
                          f"a TransitionMemory whose num_steps divides {time} for shuffled "
                          "transitions (see `hold`)")
    blocks = rows.reward.shape[0] // memory.num_steps
    if blocks > memory.num_blocks:
        need = blocks * memory.num_steps * envs
        raise ConfigError("capacity", memory.capacity,
                          f"at least {need} for these {time * envs} rows")
    return Filled(memory, _write(memory, jax.tree.map(jnp.asarray, rows)), blocks)


@functools.partial(jax.jit, static_argnums=0)
def _write(memory: Ring, rows: Any) -> Any:
    blocks = jax.tree.map(lambda x: x.reshape((-1, memory.num_steps, *x.shape[1:])), rows)
    count = blocks.reward.shape[0]
    start = tree.strong(memory.init(tree.take(blocks, 0)))
    add = lambda i, mem: memory.add(mem, tree.take(blocks, i), i)
    return jax.lax.fori_loop(0, count, add, start)


def as_rows(transitions: Transition) -> Row:
    """Return transitions [T, B] as episodes of one step [2 T, B]: row, then truncated successor."""

    def weave(first, second):
        pair = np.stack([np.asarray(first), np.asarray(second)], axis=1)
        return pair.reshape((-1, *pair.shape[2:]))

    alone = lambda x: weave(x, np.zeros_like(x))
    t = transitions
    reward, terminated = np.asarray(t.reward), np.asarray(t.terminated)
    return Row(
        jax.tree.map(weave, t.obs, t.next_obs), jax.tree.map(alone, t.action),
        alone(reward), alone(terminated),
        weave(np.zeros_like(terminated), np.ones_like(terminated)),
    )  # fmt: skip


def rows_of(filled: Filled) -> Any:
    """Return the written rows, oldest first: NumPy leaves [T, B, ...].

    A kept successor of a truncated row becomes a row of its own: truncated, with zero action and
    reward; the row before it is then an ordinary one. The first `stack - 1` rows of a ring that has
    wrapped around have lost the frames before them, and count as an episode's start.
    """
    memory = filled.memory
    if not isinstance(filled.rows, Row | Transition):
        raise ConfigError("filled", type(filled.rows).__name__,
                          "a memory of rows (Row or Transition)")
    size = min(filled.w, memory.num_blocks) * memory.num_steps
    head = (filled.w % memory.num_blocks) * memory.num_steps if filled.w >= memory.num_blocks else 0
    rows = jax.tree.map(lambda x: np.roll(np.asarray(x), -head, axis=0)[:size],
                        as_dataset(filled.rows))
    kept = successors_of(filled.rows)
    if kept is None:
        return rows
    slot, env = np.nonzero(np.asarray(kept.owner))
    time = (np.asarray(kept.owner)[slot, env] - 1 - head) % memory.length
    cuts = jax.tree.map(lambda x: np.asarray(x)[slot, env], kept.obs)
    return _with_cuts(rows, cuts, time, env)


def _with_cuts(rows: Row, cuts: Any, time: np.ndarray, env: np.ndarray) -> Row:
    """Insert observations `cuts` [N, ...] behind truncated rows (time, env); pad with zeros."""
    columns = []
    for b in range(rows.reward.shape[1]):
        mine = np.flatnonzero((env == b) & rows.truncated[time, env])
        mine = mine[np.argsort(time[mine])]
        column = jax.tree.map(lambda x, b=b: x[:, b], rows)
        column.truncated[time[mine]] = False
        longer = jax.tree.map(lambda x, mine=mine: np.insert(x, time[mine] + 1, 0, axis=0), column)
        place = time[mine] + 1 + np.arange(len(mine))
        longer.truncated[place] = True
        for leaf, found in zip(jax.tree.leaves(longer.obs), jax.tree.leaves(cuts), strict=True):
            leaf[place] = found[mine]
        columns.append(cut_off(longer))  # rows added behind a shorter column are no successors
    return side_by_side(columns)
