"""Check batches at episodes' ends, from rows that carry their own number.

Rewards identify the rows of a window or sequence, values its frames. Parts that `fetch` computes
(scaled rewards, normalised observations), or that are too narrow for a number, are not judged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_fast.memory import Row
from jaxrl_fast.testing.numbered import ENDS, EXACT, OFFSET, check_frames, frames
from jaxrl_fast.types import Sequence, Window


class _Rows(NamedTuple):
    """The written rows, by row number."""

    terminated: np.ndarray
    truncated: np.ndarray
    begun: np.ndarray  # first row of its episode
    num_envs: int
    obs: Any  # leaves [blocks, T, B, ...]
    kept: bool  # whether a truncated row's successor may be there


def judge(data: Any, batch: Any, plain: Any, moved: Any, ready: int) -> None:
    """Check batches [blocks, fetches, ...] at the ends in `data` [blocks, T, B, ...].

    plain, moved: batches of two lives that differ by OFFSET; they show which values are unchanged.
    """
    rows, reward = getattr(data, "row", data), _reward(batch)
    # successors of truncated rows
    kept = isinstance(rows, Row) and bool(jax.tree.leaves(rows.next_obs))
    # every row with its successor
    alone = isinstance(batch, Window) and hasattr(rows, "next_obs") and not isinstance(rows, Row)
    if not all(hasattr(rows, name)
               for name in ("obs", "reward", *(ENDS[:1] if alone else ENDS))) or reward is None:
        return
    flags = [getattr(rows, name, np.zeros(rows.reward.shape, bool)) for name in ENDS]
    if any(x.dtype != bool for x in flags) or not _stored(_reward(plain), _reward(moved)):
        return
    num_envs = rows.reward.shape[2]
    terminated, truncated = (np.asarray(x).reshape(-1, num_envs) for x in flags)
    ended = np.concatenate([np.zeros((1, num_envs), bool), (terminated | truncated)[:-1]])
    time = np.arange(len(ended))[:, None]
    begun = np.maximum.accumulate(np.where(ended, time, 0), axis=0) * num_envs + np.arange(num_envs)
    real = (batch.weight > 0) & (np.arange(batch.weight.shape[0]) >= ready - 1)[:, None, None]
    written = _Rows(terminated.ravel(), (truncated & (not alone)).ravel(),
                    begun.ravel(), num_envs, rows.obs, kept)
    (_judge_windows if isinstance(batch, Window)
     else _judge_sequences)(batch, plain, moved, real, written)


def _reward(batch: Any) -> Any:
    """Return the rewards of a window or sequence; None for other types, which are not checked."""
    if isinstance(batch, Window):
        return batch.reward
    return getattr(batch.steps, "reward", None) if isinstance(batch, Sequence) else None


def _stored(plain: np.ndarray, moved: np.ndarray) -> bool:
    if str(plain.dtype) not in EXACT:
        return False
    return bool((moved.astype(np.float64) - plain.astype(np.float64) == OFFSET).any())


def _judge_windows(batch: Window, plain: Window, moved: Window,
                   real: np.ndarray, written: _Rows) -> None:
    first, length = (batch.reward[:, :, 0].astype(np.int64) - 1)[real], batch.use.shape[2]
    rows = first[:, None] + np.arange(length) * written.num_envs  # [windows, length]
    terminated, truncated = (np.pad(x, (0, length * written.num_envs))[rows]
                             for x in (written.terminated, written.truncated))
    end = terminated | truncated
    mine = (np.cumsum(end, axis=1) - end == 0) & (~truncated | written.kept)
    use = np.moveaxis(batch.use, 2, -1)[real]

    def shown(i: int) -> str:
        ends = {"terminated": rows[i][terminated[i]].tolist(),
                "truncated": rows[i][truncated[i]].tolist()}
        return f"the window of rows {rows[i].tolist()}, {ends}"

    unused = ~mine[:, 0]
    assert not unused.any(), (
        f"weight: that of {shown(int(np.argmax(unused)))} is not 0, though its first row is "
        "truncated: its successor is not in the store, so there is nothing to learn"
    )
    whole = np.minimum.accumulate(use, axis=1) == use  # no gaps
    wrong = (use & ~mine).any(axis=1) | ~use[:, 0] | ~whole.all(axis=1)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise AssertionError(
            f"episode: of {shown(i)}, {rows[i][use[i]].tolist()} are in `use`, not "
            f"{rows[i][mine[i]].tolist()} or the first of these. Rows are used up to and with a "
            "termination, or a truncated row whose successor is kept, or up to but without "
        "another truncated row"
        )
    boot, want = batch.boot[real], ~(use & terminated).any(axis=1)
    wrong = boot != want
    assert not wrong.any(), (
        f"boot: {boot[np.argmax(wrong)]} for {shown(int(np.argmax(wrong)))}; 0 after a termination "
        "that it uses, else 1"
    )
    steps = batch.steps[real]
    wrong = want & (steps != use.sum(axis=1))
    assert not wrong.any(), (
        f"steps: {steps[np.argmax(wrong)]} for {shown(int(np.argmax(wrong)))}; as many as are in "
        "`use`, before boot_obs"
    )
    _judge_frames("obs", batch.obs, plain.obs, moved.obs, real, first,
                  written.begun[first], written)
    after, booted = (first + steps * written.num_envs)[want], real & (batch.boot > 0)
    # from the row before, of the same episode: `after` may not be written
    begun = written.begun[after - written.num_envs]
    _judge_frames("boot_obs", batch.boot_obs, plain.boot_obs, moved.boot_obs,
                  booted, after, begun, written)


def _judge_sequences(batch: Sequence, plain: Sequence, moved: Sequence,
                     real: np.ndarray, written: _Rows) -> None:
    real = np.broadcast_to(real[:, :, None], batch.use.shape)
    rows = (batch.steps.reward.astype(np.int64) - 1)[real]
    place = np.broadcast_to(np.arange(batch.use.shape[2])[:, None], batch.use.shape)[real]
    for name in ("terminated", "truncated"):
        wrong = getattr(batch.steps, name)[real] != getattr(written, name)[rows]
        assert not wrong.any(), (
            f"episode: row {rows[np.argmax(wrong)]} comes out with another `{name}` than was "
            "written"
        )
    cut = batch.cut[real]
    wrong = cut & ~(written.truncated[rows] & written.kept)
    assert not wrong.any(), (
        f"cut: row {rows[np.argmax(wrong)]} is in `cut`, though no successor of a truncation was "
        "kept for it"
    )
    wrong = batch.use[real] & (written.truncated[rows] & ~cut | (place < batch.burn_in))
    assert not wrong.any(), (
        f"episode: row {rows[np.argmax(wrong)]} is in `use`, though it is truncated (its successor "
        "is not in the store) or of the burn-in"
    )
    _judge_frames("steps.obs", batch.steps.obs, plain.steps.obs,
                  moved.steps.obs, real, rows, written.begun[rows], written)
    _judge_frames(
        "cut_obs", batch.cut_obs, plain.cut_obs, moved.cut_obs, real & batch.cut,
        rows[cut] + written.num_envs, written.begun[rows[cut]], written,
    )  # fmt: skip


def _judge_frames(
    name: str, obs: Any, plain: Any, moved: Any, real: np.ndarray,
    newest: np.ndarray, begun: np.ndarray, written: _Rows
) -> None:
    """Assert that stacks do not cross an end.

    newest, begun [N]: rows of the newest frames where `real`, and of their episodes' first.
    """
    if jax.tree.structure(obs) != jax.tree.structure(written.obs):
        return
    leaves = [jax.tree.leaves(x) for x in (plain, moved, written.obs)]
    for (path, leaf), *lives, row in zip(jax.tree_util.tree_leaves_with_path(obs),
                                         *leaves, strict=True):
        if leaf.ndim > real.ndim and _stored(*lives):
            seen = frames(leaf[real], (len(newest),), row.shape[-1])
            check_frames(name + jax.tree_util.keystr(path), seen, newest, begun, written.num_envs)
