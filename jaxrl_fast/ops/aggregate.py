"""Scores of several runs: mean, interquartile mean, bootstrap intervals, comparisons.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv
2108.13264). Scores are [runs] of one task or [runs, tasks] on one scale. A score that is not finite
(a lost run) counts as the worst score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError, check_float, check_int, import_optional

Statistic = Callable[[np.ndarray], np.ndarray]  # [..., runs, tasks] -> [...]
SURE = 6  # values from which an interval within their range holds the mean in 95% of cases


def spread(count: int) -> str:
    """Return the kind of `interval` for this many values: range, or interval of the mean."""
    return "95% interval" if count >= SURE else "range"


def few(count: int) -> list[str]:
    """Return a note for tables of bootstrap intervals of few values, as a list of lines."""
    note = f"an interval of fewer than {SURE} seeds holds less than 95%"
    return [note] if 1 < count < SURE else []


def interval(values: Any) -> tuple[float, float, float]:
    """Return (mean, low, high) of the finite values in `values` [K].

    Below `SURE` values low and high are the extremes (docs/decisions/intervals-of-few-seeds.md),
    from there on Student's t-interval, cut at the range. One value gives NaN for low and high, no
    value for all three.
    """
    mean, low, high = intervals(np.asarray(values, np.float64).reshape(1, -1))
    return float(mean[0]), float(low[0]), float(high[0])


def span(values: Any) -> str:
    """Return `interval` as text after a mean, `, range 480.00 to 500.00`; empty for one value."""
    _, low, high = interval(values)
    kind = spread(np.isfinite(values).sum())
    return f", {kind} {low:.2f} to {high:.2f}" if np.isfinite(low) else ""


def intervals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, low and high of every row of [R, K], as `interval` does."""
    has = np.isfinite(values)
    count = has.sum(axis=1)
    known, at_least = count > 0, np.maximum(count, 1)
    mean = np.where(known, np.where(has, values, 0.0).sum(axis=1) / at_least, np.nan)
    least = np.min(values, axis=1, where=has, initial=np.inf)
    most = np.max(values, axis=1, where=has, initial=-np.inf)
    squares = np.where(has, values - mean[:, None], 0.0) ** 2
    freedom = np.maximum(count - 1, 1)
    half = np.where(count > 1, np.inf, np.nan)
    if (sure := count >= SURE).any():
        from scipy.special import stdtrit  # comes with jax; its import takes 0.3 s

        error = np.sqrt(squares.sum(axis=1) / freedom / at_least)
        half = np.where(sure, stdtrit(freedom, 0.975) * error, half)
    return mean, np.maximum(mean - half, least), np.minimum(mean + half, most)


def frame(rows: Sequence[dict[str, Any]]) -> Any:
    """Return a pandas DataFrame of rows. Raises MissingExtraError without pandas."""
    return import_optional("pandas", "a frame of results", "pandas", "DataFrame").DataFrame(rows)


def _scores(scores: Any, argument: str = "scores") -> np.ndarray:
    """Return float64 [runs, tasks]; a score that is not finite becomes its task's lowest."""
    found = np.asarray(scores, np.float64)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or not found.size:
        raise ConfigError(argument, np.shape(scores),
                          "scores [runs] or [runs, tasks], at least one")
    finite = np.isfinite(found)
    if not finite.all():
        lowest = np.where(finite, found, np.inf).min(axis=0)
        found = np.where(finite, found, np.where(np.isfinite(lowest), lowest, np.nan))
    return found


def _iqm(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of [..., runs * tasks] scores, edges counted in part."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    n = flat.shape[-1]
    # the part of sorted score i, which covers [i, i + 1), in [n/4, 3n/4)
    weight = np.clip(np.minimum(np.arange(1, n + 1), 0.75 * n) - np.maximum(np.arange(n), 0.25 * n),
                     0, None)
    return flat @ (weight / weight.sum())


def iqm(scores: Any) -> float:
    """Return the interquartile mean of scores [runs] or [runs, tasks]: of their middle half.

    If a quarter of their number is not whole, the scores at the edges count in part (rliable drops
    whole scores).
    """
    return float(_iqm(_scores(scores)))


def bootstrap(
    scores: Any, statistic: Statistic = _iqm, confidence: float = 0.95,
    resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return (low, high), the percentile interval of a statistic by the stratified bootstrap.

    statistic: [..., runs, tasks] -> [...], by default the interquartile mean. Runs are drawn anew
    in every task. One run gives NaN.
    """
    check_float("confidence", confidence, 0, 1, open_low=True)
    check_int("resamples", resamples)
    found = _scores(scores)
    runs, tasks = found.shape
    if runs < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(seed).integers(runs, size=(resamples, runs, tasks))
    values = statistic(found[drawn, np.arange(tasks)])
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the tasks' mean of P(a > b) + P(a = b) / 2 for [..., runs, tasks]: Mann-Whitney."""
    a, b = a[..., :, None, :], b[..., None, :, :]
    return ((a > b) + 0.5 * (a == b)).mean(axis=(-3, -2, -1))


def win_rate(a: Any, b: Any) -> float:
    """Return the probability that a run of `a` scores higher than a run of `b`, ties half."""
    return float(_wins(_scores(a, "a"), _scores(b, "b")))


def probability_of_improvement(
    a: Any, b: Any, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Return (P, low, high): the probability that a run of `a` beats a run of `b`, ties half.

    Both are scores [runs] or [runs, tasks] of the same tasks; the interval is bootstrapped over the
    runs of both.
    """
    a, b = _scores(a, "a"), _scores(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ConfigError("b", b.shape, f"scores of the {a.shape[1]} tasks that a has")
    value, rng, tasks = float(_wins(a, b)), np.random.default_rng(seed), np.arange(a.shape[1])
    if min(len(a), len(b)) < 2:
        return value, float("nan"), float("nan")
    again = [x[rng.integers(len(x), size=(resamples, *x.shape)), tasks] for x in (a, b)]
    low, high = np.quantile(_wins(*again), [(1 - confidence) / 2, (1 + confidence) / 2])
    return value, float(low), float(high)
