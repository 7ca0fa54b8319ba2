"""Compare finished runs by their final evaluations, environment by environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.terminal import align_columns
from jaxrl_fast.ops.aggregate import bootstrap, few, iqm, probability_of_improvement
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.rundir import RunDir


@dataclasses.dataclass(frozen=True, repr=False)
class Entry:
    """A run's final scores, one a member; NaN if all were lost."""

    label: str
    path: Path
    environment: str
    env_steps: int
    scores: np.ndarray

    def __repr__(self) -> str:
        return (f"Entry({self.label}: IQM {self.iqm:,.4g} of {self.scores.size} seeds, "
                f"{self.env_steps:,} steps, {self.path})")

    @property
    def iqm(self) -> float:
        return iqm(self.scores)


def compare_runs(paths: Sequence[str | Path]) -> list[Entry]:
    """Return entries of finished runs by environment, in the order given, the best first."""
    found = [_entry(Path(p)) for p in dict.fromkeys(map(str, paths))]
    labels = [e.label for e in found]
    found = [dataclasses.replace(e, label=f"{e.label} ({e.path})") if labels.count(e.label) > 1
             else e for e in found]
    order = list(dict.fromkeys(e.environment for e in found))
    for i, entry in enumerate(found):  # a lost seed counts as the worst on its environment
        others = np.concatenate([e.scores for e in found if e.environment == entry.environment])
        worst = others[np.isfinite(others)].min(initial=np.inf)
        if np.isfinite(entry.scores).any():
            scores = np.where(np.isfinite(entry.scores), entry.scores, worst)
            found[i] = dataclasses.replace(entry, scores=scores)
    return sorted(found, key=lambda e: (order.index(e.environment),
                                        -np.nan_to_num(e.iqm, nan=-np.inf)))


def _entry(path: Path) -> Entry:
    if not path.is_dir():
        raise ConfigError("run", str(path), "an existing run directory")
    content = configs.read_config(path)
    if not (path / "result.json").is_file():
        raise ConfigError("run", str(path), "a run that has ended (a result.json)")
    result = RunDir(path).result()
    if content["run"].get("population"):
        raise ConfigError("run", str(path), "a run whose members differ only in their seeds; this "
                                            "is a part of a sweep")
    scores = np.array([math.nan if x is None else x for x in result["eval_return"]], float)
    label = f"{result['algorithm']} {result['environment']}"
    return Entry(label, path, result["environment"], result["env_steps"], scores)


def comparison_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a row a run: IQM, 95% bootstrap interval, P(a seed beats the next run's) or None."""
    rows = []
    for entry, after in zip(entries, [*entries[1:], None], strict=True):
        low, high = bootstrap(entry.scores)
        better = (math.nan,) * 3
        rivals = after is not None and after.environment == entry.environment
        if rivals and math.isfinite(entry.iqm) and math.isfinite(after.iqm):
            better = probability_of_improvement(entry.scores, after.scores)
        names = ("iqm", "low", "high", "better", "better_low", "better_high")
        numbers = {n: float(x) if math.isfinite(x) else None
                   for n, x in zip(names, (entry.iqm, low, high, *better), strict=True)}
        rows.append({"environment": entry.environment, "run": entry.label,
                     **numbers, "seeds": entry.scores.size,
                     "env_steps": entry.env_steps, "path": str(entry.path)})  # fmt: skip
    return rows


def format_comparison(rows: Sequence[dict[str, Any]]) -> str:
    """Return `comparison_rows` as a text table for each environment."""
    text = []
    span = lambda low, high: "-" if low is None else f"{low:.2f} to {high:.2f}"
    for environment in dict.fromkeys(row["environment"] for row in rows):
        own = [row for row in rows if row["environment"] == environment]
        lines = [["", "IQM", "95% interval", "seeds", "steps", "P(better than next)"]]
        for row in own:
            better = "-" if row["better"] is None else f"{row['better']:.2f}"
            if row["better_low"] is not None:
                better += f" ({span(row['better_low'], row['better_high'])})"
            iqm = "nan" if row["iqm"] is None else f"{row['iqm']:.2f}"
            lines.append([row["run"], iqm, span(row["low"], row["high"]),
                          str(row["seeds"]), f"{row['env_steps']:,}", better])
        text += [environment, *(f"  {line}" for line in align_columns(lines, left=1))]
        text += [f"  {line}"
                 for line in few(min((row["seeds"] for row in own if row["seeds"] > 1), default=1))]
        if len({row["env_steps"] for row in own}) > 1:
            text.append("  the runs differ in their environment steps")
    return "\n".join(text)
