"""Rows that carry their own number, and checks of the numbers in a batch."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast.envs.checks import describe
from jaxrl_fast.types import Window

OFFSET = 1 << 20  # between two lives: beyond the numbers of both, exact in float32
EXACT = ("int32", "uint32", "float32")  # dtypes that hold a number; others hold its low bits
ENDS = ("terminated", "truncated")  # flags 1 and 2; others share the numbers from 3 to MOST
MOST = 8


class Seen(NamedTuple):
    """Row numbers and the blocks after which they came out, from 0; flat, one entry a number."""

    first: tuple[np.ndarray, np.ndarray]  # of each batch element's first row
    everything: tuple[np.ndarray, np.ndarray]


class _Leaf(NamedTuple):
    name: str
    axes: int  # of the batch: [b] or [n, b]
    own: bool  # with its row's own name, for every row
    after: tuple[bool, bool]  # a window's successor (`boot_obs`), a row's (`next_obs`)
    number: np.ndarray  # [blocks, fetches, (n,) b] of the newest frame
    counted: np.ndarray  # bool, alike


def blocks(rows: Any, count: int, offset: int, ends: jax.Array) -> Any:
    """Return rows [count, T, B, ...]; row (t, i, e) holds (t T + i) B + e + 1 (0: unwritten).

    `next_...` holds its successor's number. A flag is set where `ends` int [count, T, B] names it:
    an episode does not end twice.
    """
    num_steps, num_envs = jax.tree.leaves(rows)[0].shape[:2]
    shape = count, num_steps, num_envs
    number = 1 + offset + np.arange(math.prod(shape)).reshape(shape)
    others = itertools.cycle(range(3, MOST + 1))

    def fill(path, x):
        every = num_steps // x.shape[0]  # a leaf may hold every k-th row (`SequenceMemory`)
        names = _names(path)
        if x.dtype == bool:
            flag = ENDS.index(names[-1]) + 1 if names and names[-1] in ENDS else next(others)
            value = np.asarray(ends)[:, ::every] == flag
        else:
            value = (number + num_envs * _after(names)[1])[:, ::every]
            value = value if str(x.dtype) in EXACT else value % 100
        value = value.reshape(value.shape + (1,) * (len(x.shape) - 2))
        return np.broadcast_to(value, (count, *x.shape)).astype(x.dtype)

    return jax.tree.map_with_path(fill, rows)


def _names(path: Any) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,)).strip(".[]'\"") for key in path)


def _after(names: tuple[str, ...]) -> tuple[bool, bool]:
    return tuple(any(name.startswith(prefix) for name in names) for prefix in ("boot_", "next_"))


def _match(path: Any, rows: list) -> tuple[Any, bool] | None:
    """Return the rows' leaf of a batch's leaf, by the longest common end of their paths."""
    names, best = _names(path), None
    bare = tuple(name.removeprefix("boot_").removeprefix("next_") for name in names)
    for row_path, row in rows:
        common, row_names = 0, _names(row_path)
        most = min(len(bare), len(row_names))
        while common < most and bare[-1 - common] == row_names[-1 - common]:
            common += 1
        if (common or not row_names) and (best is None or common > best[0]):
            best = common, row
    return best and (best[1], bare == names)


def judge(rows: Any, plain: Any, moved: Any, ready: int) -> Seen:
    """Check every number in batches [blocks, fetches, ...] of two lives that differ by OFFSET."""
    row_leaves = jax.tree_util.tree_leaves_with_path(rows)
    num_steps, num_envs = row_leaves[0][1].shape[:2]
    weight, found = getattr(plain, "weight", None), []
    real = None if weight is None else weight > 0  # an answer may hold unused elements
    assert real is None or real[ready - 1 :].any(axis=(1, 2)).all(), (
        f"ready: after {ready} blocks or later every weight of a block's batches is 0. Pass "
        "`ready` if it takes longer"
    )
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(plain),
                            jax.tree.leaves(moved), strict=True):
        name = jax.tree_util.keystr(path).lstrip(".") or "the batch"
        match = _match(path, row_leaves)
        if match is None or _names(path)[0] == "cut_obs":  # of truncated rows alone, see `ends`
            continue
        row, own = match
        assert a.dtype == row.dtype, (
            f"dtype: `fetch` gives {name} as {a.dtype}, its rows are {describe(row)}"
        )
        axes = a.ndim - len(row.shape)
        came = b.astype(np.float64) - a.astype(np.float64) == OFFSET
        if str(a.dtype) not in EXACT or axes not in (1, 2) or not came.any():
            continue  # narrow, or computed from rows
        lead = a.shape[: 2 + axes]
        counted = (np.ones(lead, bool) if real is None else real if axes == 1
                   else np.broadcast_to(real[:, :, None], lead))
        complete = np.arange(lead[0]) >= ready - 1
        counted = counted & complete.reshape((-1,) + (1,) * (len(lead) - 1))
        lost = counted & ~came.reshape((*lead, -1)).all(axis=-1)
        if lost.any():
            raise AssertionError(
                f"unwritten: {name} holds {int(lost.sum())} values that no `add` wrote (first "
                f"after block {int(np.argwhere(lost)[0][0])}). Draw only from the `w` blocks that "
                "were written"
            )
        if row.shape[2:] and a.shape[-1] != row.shape[-1]:
            stacks = frames(a, lead, row.shape[-1])[counted]
            check_frames(name, stacks, stacks[:, -1], stacks[:, -1] % num_envs, num_envs)
        newest = a.reshape((*lead, -1))[..., -1].astype(np.int64) - 1
        found.append(_Leaf(name, axes, own and row.shape[0] == num_steps,
                           _after(_names(path)), newest, counted))
    if not any(leaf.own for leaf in found):
        leaves = jax.tree_util.tree_leaves_with_path(plain)
        shapes = [f"{jax.tree_util.keystr(p)} {x.dtype}{list(x.shape[2:])}" for p, x in leaves]
        text = "numbers: no int32 or float32 leaf of a batch is called like one of the rows'"
        raise AssertionError(f"{text}. The batch is {', '.join(shapes)}")
    # keeps successors of truncated rows alone
    ring = hasattr(getattr(rows, "row", rows), "truncated")
    stored = not ring and any(_after(_names(path))[1] for path, _ in row_leaves)
    return _check_rows(found, plain, num_envs, stored)


def frames(value: np.ndarray, lead: tuple[int, ...], channels: int) -> np.ndarray:
    """Return the row numbers [*lead, stack] of stacked frames [*lead, ..., stack * channels]."""
    stacked = value.reshape((*lead, -1, value.shape[-1] // channels, channels))
    return stacked[..., -1, :, -1].astype(np.int64) - 1


def check_frames(name: str, seen: np.ndarray, newest: np.ndarray,
                 begun: np.ndarray, num_envs: int) -> None:
    """Assert that stacks [N, stack] end at row `newest` [N] and repeat the first, `begun` [N]."""
    want = np.maximum(newest[:, None] - np.arange(seen.shape[1])[::-1] * num_envs, begun[:, None])
    wrong = (seen != want).any(axis=1)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise AssertionError(
            f"stack: {name} is made of rows {seen[i].tolist()} of {num_envs} environments, where "
            f"the episode of row {newest[i]} begins at row {begun[i]}; expected "
            f"{want[i].tolist()}. A stack is one environment's, each row the one after the other, "
            "oldest first; it repeats an episode's first frame and does not cross the write head"
        )


def _check_rows(found: list[_Leaf], batch: Any, num_envs: int, stored: bool) -> Seen:
    """Check that rows are whole and follow each other in time; stored: with their successors."""
    for leaf in found:
        if leaf.axes == 1:
            continue
        step = np.diff(leaf.number, axis=2)
        wrong = leaf.counted[:, :, 1:] & (step != num_envs)
        if wrong.any():
            t, f, i, b = np.argwhere(wrong)[0]
            pair = leaf.number[t, f, i : i + 2, b].tolist()
            raise AssertionError(
                f"write head: in {leaf.name} after block {t}, row {pair[0]} is followed by row "
                f"{pair[1]}, which is not the next one of its environment ({pair[0] + num_envs}). "
                "A window never crosses the write head"
            )
    start = lambda leaf: ((leaf.number, leaf.counted) if leaf.axes == 1
                          else (leaf.number[:, :, 0], leaf.counted[:, :, 0]))
    steps = batch.steps if isinstance(batch, Window) else 1
    reference = next(leaf for leaf in found if leaf.own)
    first, counted = start(reference)
    for leaf in found:
        number, _ = start(leaf)
        if number.shape != first.shape:
            continue
        want = first + num_envs * (leaf.after[0] * steps + leaf.after[1])
        wrong = counted & (number != want)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise AssertionError(
                f"row: {leaf.name} is row {number[at]}'s where {reference.name} is row "
                f"{first[at]}'s (after block {at[0]}); expected row {want[at]}. What belongs "
                "together is taken from one place"
            )
    where = lambda number, counted: (np.argwhere(counted)[:, 0], number[counted])
    # a stored successor need not be a row
    rows = [leaf for leaf in found if not (stored and any(leaf.after))]
    pairs = [where(leaf.number, leaf.counted) for leaf in rows]
    everything = tuple(np.concatenate(x) for x in zip(*pairs, strict=True))
    return Seen(where(first, counted), everything)


def check_coverage(seen: Seen, ready: int, num_steps: int, num_envs: int, memory: Any) -> None:
    """Assert that every environment and time up to the newest block starts a batch element."""
    for block in np.unique(seen.first[0]):
        of = lambda pair, block=block: np.unique(pair[1][pair[0] == block])
        first, rows = of(seen.first), of(seen.everything)
        times = np.unique(first // num_envs)
        gaps = np.diff(times)
        missing = [(int(t), e) for t in times for e in range(num_envs)
                   if t * num_envs + e not in first]
        after = f"after block {block}, which ended with row (time {(block + 1) * num_steps - 1})"
        assert not missing, (
            f"coverage: {after}, no batch starts at (time, environment) {missing[:5]}, others at "
            "that time do"
        )
        assert not len(gaps) or (gaps == gaps.min()).all(), (
            f"coverage: {after}, batches start at the times {times.tolist()} only; those in "
            "between never come out"
        )
        newest, oldest = int(rows.max()) // num_envs, int(rows.min()) // num_envs
        assert newest >= block * num_steps, (
            f"coverage: {after}, the newest row that comes out is of time {newest}"
        )
        if hasattr(memory, "num_blocks"):
            held = max(0, block + 1 - memory.num_blocks) * num_steps
            limit = held + (getattr(memory, "dead_blocks", 0) + 1) * num_steps
            assert oldest <= limit, (
                f"coverage: {after}, nothing before time {oldest} comes out; it holds {held} and "
                "later"
            )
