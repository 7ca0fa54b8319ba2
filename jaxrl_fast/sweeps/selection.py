"""Selection among members while they train: PBT and successive halving.

Between two chunks, at rows that the settings fix, the host calls `select(run, rows)`, which returns
columns of the log. Agents and settings move; replay, environments and keys stay.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import check_settings, setting
from jaxrl_fast.logs.rows import Measured
from jaxrl_fast.sweeps.samplers import sampler_of


def fitness_since_last(selection: Any, run: Any, rows: Sequence[Measured]) -> np.ndarray:
    """Return members' `fitness` over the rows since the last selection; rows: the newest.

    NaN for lost or dropped members, and for all if no episode has ended. A member without an ended
    episode counts by its last value, else by the median. Raises ConfigError for an unknown metric.
    """
    history, lanes = [*run.history, *rows], np.arange(run.config.members)
    metric = metric_of(selection, run.config)
    later = metric == "eval_return" and run.grid.eval_rows  # its first evaluation may come later
    if not later and not any(metric in r.metrics for r in history):
        known = sorted({name for r in history for name in r.metrics})
        raise ConfigError("selection.metric", metric,
                          f"a metric of the log so far ({', '.join(known)})")
    since = max((r for r in selection.boundaries(run.grid) if r < run.rows), default=0)
    start = run.grid.env_steps(since)
    scores = fitness([r for r in history if r.env_steps > start], metric, run.config.members)
    same = np.full(len(lanes), True)  # whether the agent is the same as then
    for row in reversed(history):
        same &= np.asarray(row.metrics.get("parent", lanes)) == lanes
        values = np.asarray(row.metrics.get(metric, np.full(len(lanes), np.nan)), np.float32)
        scores = np.where(np.isfinite(scores) | ~same | ~np.isfinite(values), scores, values)
    gone = ~np.isin(lanes, run.lanes.members)
    gone[list(run.lost)] = True  # they had values before
    known = scores[np.isfinite(scores) & ~gone]
    # slightly below, so that members with known values come first
    middle = np.nextafter(np.float32(np.median(known)), -np.inf) if known.size else np.nan
    return np.where(gone, np.nan, np.where(np.isfinite(scores), scores, middle)).astype(np.float32)


def metric_of(selection: Any, config: Any) -> str:
    """Return the metric of comparison: offline, evaluations replace `episode_return`."""
    if config.offline and selection.metric == "episode_return":
        return "eval_return"
    return selection.metric


def check_metric(selection: Any, config: Any) -> None:
    if config.offline and metric_of(selection, config) == "eval_return" and config.eval_every == 0:
        raise ConfigError("eval_every", 0,
                          "above 0: offline, members are compared by their evaluations")


def fitness(history: Sequence[Any], metric: str, members: int) -> np.ndarray:
    """Return the mean of a metric over rows, [members]; NaN for a member without values."""
    rows = [np.asarray(row.metrics[metric], np.float32) for row in history if metric in row.metrics]
    if not rows:
        return np.full(members, np.nan, np.float32)
    values = np.stack(rows)
    has = np.isfinite(values)
    total = np.where(has, values, 0).sum(0, dtype=np.float32)
    return np.where(has.any(0), total / np.maximum(has.sum(0), 1), np.nan).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class PBT:
    """Population based training (Jaderberg et al. 2017) by truncation selection.

    arXiv 1711.09846. Every `every` environment steps the worst `fraction` of the members take over
    the agents (parameters, optimizer, statistics) and settings of members drawn from the best
    `fraction`. Each copied setting is redrawn from its prior with probability `resample`, else
    multiplied or divided by `factor` (within the prior's range).

    priors: {"algo.learning_rate": "loguniform:1e-5,1e-2"}, traced settings; members begin with
    draws.
    """

    kind: ClassVar[str] = "pbt"

    priors: Mapping[str, str]
    every: int | None = setting(None, low=1, high=2**53, none="a twentieth of the run")
    """environment steps between selections"""
    fraction: float = setting(0.2, low=0, high=0.5, open_low=True)
    """share of the members that is replaced, by as large a share"""
    factor: float = setting(1.25, low=1, open_low=True)
    """factor by which a copied setting grows or shrinks"""
    resample: float = setting(0.25, low=0, high=1)
    """probability that a copied setting is redrawn from its prior"""
    metric: str = setting("episode_return")
    """members are compared by this metric's mean since the last selection"""

    def __post_init__(self):
        if not isinstance(self.priors, Mapping) or not self.priors:
            raise ConfigError("priors", self.priors,
                              'a mapping such as {"algo.learning_rate": "loguniform:1e-5,1e-2"}')
        for name, text in self.priors.items():
            if not sampler_of(name, text).continuous:
                raise ConfigError(name, text, "uniform:LOW,HIGH or loguniform:LOW,HIGH: PBT "
                                              "multiplies settings")
            if not name.startswith("algo."):
                raise ConfigError("priors", name,
                                  "a setting of the algorithm: environments do not move")
        check_settings(self)

    @property
    def traced(self) -> tuple[str, ...]:
        """Return the settings that differ among members."""
        return tuple(self.priors)

    def check(self, config: Any) -> None:
        if config.members < 2:
            raise ConfigError("members", config.members, "at least 2 for PBT, which compares them")
        check_metric(self, config)

    def boundaries(self, grid: Grid) -> set[int]:
        """Return the rows to select after, fixed by the horizon; never the last one."""
        per = grid.row * grid.steps
        gap = max(1, grid.planned_rows // 20) if self.every is None else -(-self.every // per)
        return set(range(gap, grid.planned_rows, gap))

    def draw(self, seed: int, members: int) -> dict[str, list[float]]:
        """Return the members' first settings."""
        rng = np.random.default_rng([seed, 0x9B7])
        return {name: sampler_of(name, text).draw(rng, members)
                for name, text in self.priors.items()}

    def select(self, run: Any, rows: Sequence[Measured]) -> dict[str, np.ndarray]:
        """Move agents and settings; return the column `parent` of the last row."""
        scores = fitness_since_last(self, run, rows)
        if not np.isfinite(scores).any():
            return {}
        parent, settings = self.plan(scores, run.lanes.settings,
                                     np.random.default_rng([run.config.seed, run.rows, 0x9B7]))
        run.lanes.exploit(parent, settings)
        return {"parent": parent}

    def plan(
        self, scores: np.ndarray, settings: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return (parent, settings), [members] each; a member that stays is its own parent."""
        n = len(scores)
        order = np.argsort(np.nan_to_num(scores, nan=-np.inf), kind="stable")
        k = min(max(1, int(n * self.fraction)), n // 2)
        best = [i for i in order[n - k :] if np.isfinite(scores[i])]
        parent = np.arange(n)
        if best:
            parent[order[:k]] = np.asarray(best)[rng.integers(len(best), size=k)]
        copied, changed = parent != np.arange(n), {}
        for name, text in self.priors.items():
            sampler, old = sampler_of(name, text), settings[name][parent].astype(np.float64)
            steps = np.where(rng.random(n) < 0.5, self.factor, 1 / self.factor)
            anew, fresh = rng.random(n) < self.resample, np.asarray(sampler.draw(rng, n))
            new = np.where(anew, fresh, np.clip(old * steps, sampler.low, sampler.high))
            changed[name] = np.where(copied, new, old).astype(np.float32)
        return parent, changed


@dataclasses.dataclass(frozen=True)
class Halving:
    """Successive halving (Jamieson and Talwalkar 2016): the population shrinks.

    arXiv 1502.07943. At total / eta^rungs, ..., total / eta environment steps only the best 1 / eta
    of the configurations stay, by their seeds' mean of `metric` over the rows since the last rung.
    The others have no values from there on, and cost nothing. Every rung compiles the program for
    its members.
    """

    kind: ClassVar[str] = "halving"
    traced: ClassVar[tuple[str, ...]] = ()

    rungs: int = setting(3, high=30)
    """rungs of successive halving"""
    eta: float = setting(2.0, low=1, open_low=True)
    """each rung keeps the best 1 / eta of the configurations"""
    metric: str = setting("episode_return")
    """members are compared by this metric's mean since the last selection"""

    def __post_init__(self):
        check_settings(self)

    def check(self, config: Any) -> None:
        if config.configurations < 2:
            raise ConfigError("configurations", config.configurations,
                              "at least 2 for successive halving")
        check_metric(self, config)
        last = config.configurations
        for _ in range(self.rungs):
            last = max(1, int(last / self.eta))
        if distributed.several() and last * config.seeds < 2:
            raise ConfigError("rungs", self.rungs, "fewer with several processes: two members must "
                                                   "be left; or take more seeds")

    def boundaries(self, grid: Grid) -> set[int]:
        found = {math.ceil(grid.planned_rows / self.eta ** (self.rungs - i))
                 for i in range(self.rungs)}
        return {r for r in found if 0 < r < grid.planned_rows}

    def select(self, run: Any, rows: Sequence[Measured]) -> dict[str, np.ndarray]:
        """Drop the worst; return the column `kept` of the last row."""
        scores = fitness_since_last(self, run, rows)
        with_seeds = scores.reshape(-1, run.config.seeds)
        has = np.isfinite(with_seeds)
        worst = scores[np.isfinite(scores)].min(initial=np.inf)  # the score of a lost seed
        mean = np.where(has.any(1), np.where(has, with_seeds, worst).mean(1), -np.inf)
        there = sorted({int(i) // run.config.seeds for i in run.lanes.members})
        # nothing is known of any: all stay
        most = max(1, int(len(there) / self.eta)) if has.any() else len(there)
        keep = sorted(sorted(there, key=lambda c: (-mean[c], c))[:most])
        kept = [int(i) for i in run.lanes.members if int(i) // run.config.seeds in keep
                and int(i) not in run.lost]
        if kept and len(kept) < len(run.lanes) and not (len(kept) == 1 and distributed.several()):
            run.lanes.shrink(kept)
        return {"kept": np.isin(np.arange(run.config.members), kept).astype(np.int64)}
