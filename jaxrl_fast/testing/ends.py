"""Where episodes end in rows that carry their own number, and what of a batch must follow from it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl_fast.testing.numbered import EXACT, frames
from jaxrl_fast.types import Sequence, Window


def judge(data: Any, batch: Any, ready: int) -> None:
    """Check what batches [blocks, fetches, ...] make of the ends in `data` [blocks, T, B, ...], from block `ready` on.

    Windows and sequences alone: of other answers nobody knows what they say of an end.
    """
    rows = getattr(data, "row", data)
    if not isinstance(batch, (Window, Sequence)) or not hasattr(rows, "truncated"):
        return
    num_envs = rows.reward.shape[2]
    terminated, truncated = (np.asarray(x).reshape(-1, num_envs) for x in (rows.terminated, rows.truncated))
    ended = np.concatenate([np.zeros((1, num_envs), bool), (terminated | truncated)[:-1]])
    time = np.arange(len(ended))[:, None]
    begun = np.maximum.accumulate(np.where(ended, time, 0), axis=0) * num_envs + np.arange(num_envs)
    real = (batch.weight > 0) & (np.arange(batch.weight.shape[0]) >= ready - 1)[:, None, None]
    flags = terminated.ravel(), truncated.ravel()
    judged = _judge_windows if isinstance(batch, Window) else _judge_sequences
    judged(batch, real, rows.obs, flags, begun.ravel(), num_envs)


def _numbers(reward: np.ndarray) -> np.ndarray:
    return reward.astype(np.int64) - 1


def _judge_windows(batch: Window, real: np.ndarray, like: Any, flags: Any, begun: np.ndarray, num_envs: int) -> None:
    first, length = _numbers(batch.reward[:, :, 0])[real], batch.use.shape[2]
    rows = first[:, None] + np.arange(length) * num_envs  # [windows, length]
    terminated, truncated = (np.pad(x, (0, length * num_envs))[rows] for x in flags)
    end = terminated | truncated
    mine = (np.cumsum(end, axis=1) - end == 0) & ~truncated
    use = np.moveaxis(batch.use, 2, -1)[real]
    ends = lambda i: {"terminated": rows[i][terminated[i]].tolist(), "truncated": rows[i][truncated[i]].tolist()}
    wrong = (use != mine).any(axis=1)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise AssertionError(
            f"episode: of the window of rows {rows[i].tolist()}, {ends(i)}, {rows[i][use[i]].tolist()} are in `use`, not "
            f"{rows[i][mine[i]].tolist()}. Its rows are used up to and with a termination, or up to but without a truncated row"
        )
    unused = ~mine[:, 0]
    assert not unused.any(), (
        f"weight: that of the window that starts at row {first[np.argmax(unused)]} is not 0, though the row is truncated: its "
        "successor is not in the store, so there is nothing to learn"
    )
    boot, want = batch.boot[real], ~(mine & terminated).any(axis=1)
    if (boot != want).any():
        i = int(np.argmax(boot != want))
        raise AssertionError(
            f"boot: {boot[i]} for the window of rows {rows[i].tolist()}, {ends(i)}; 0 after a termination that it uses, else 1"
        )
    steps = batch.steps[real]
    wrong = want & (steps != mine.sum(axis=1))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise AssertionError(f"steps: {steps[i]} for the window of rows {rows[i].tolist()}, {ends(i)}; those before boot_obs")
    _judge_frames("obs", batch.obs, like, real, first, begun, num_envs)
    _judge_frames("boot_obs", batch.boot_obs, like, real & (batch.boot > 0), (first + steps * num_envs)[want], begun, num_envs)


def _judge_sequences(batch: Sequence, real: np.ndarray, like: Any, flags: Any, begun: np.ndarray, num_envs: int) -> None:
    real = np.broadcast_to(real[:, :, None], batch.use.shape)
    rows = _numbers(batch.steps.reward)[real]
    place = np.broadcast_to(np.arange(batch.use.shape[2])[:, None], batch.use.shape)[real]
    for name, flag in zip(("terminated", "truncated"), flags, strict=True):
        seen = getattr(batch.steps, name)[real]
        wrong = seen != flag[rows]
        assert not wrong.any(), f"episode: row {rows[np.argmax(wrong)]} comes out with another `{name}` than was written"
    wrong = batch.use[real] & (flags[1][rows] | (place < batch.burn_in))
    assert not wrong.any(), (
        f"episode: row {rows[np.argmax(wrong)]} is in `use`, though it is truncated (its successor is not in the store) or of "
        "the burn-in"
    )
    _judge_frames("steps.obs", batch.steps.obs, like, real, rows, begun, num_envs)


def _judge_frames(name: str, obs: Any, like: Any, real: np.ndarray, rows: np.ndarray, begun: np.ndarray, num_envs: int) -> None:
    """Stacks do not reach back over an end. rows [N]: numbers of the newest frames where `real`; like: the rows' own obs."""
    for (path, leaf), row in zip(jax.tree_util.tree_leaves_with_path(obs), jax.tree.leaves(like), strict=True):
        if str(leaf.dtype) not in EXACT or leaf.ndim == real.ndim:
            continue
        seen = frames(leaf[real], (len(rows),), row.shape[-1])
        want = np.maximum(rows[:, None] - np.arange(seen.shape[1])[::-1] * num_envs, begun[rows][:, None])
        wrong = (seen != want).any(axis=1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise AssertionError(
                f"stack: {name}{jax.tree_util.keystr(path)} is made of rows {seen[i].tolist()}, where the episode of row "
                f"{rows[i]} begins at row {begun[rows[i]]}; expected {want[i].tolist()}. A stack repeats an episode's first frame"
            )
