"""Finished runs compared by their final evaluations, environment by environment."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxrl_fast import config as configs
from jaxrl_fast.aggregate import bootstrap, iqm, probability_of_improvement
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.terminal import aligned


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run: its members' final scores, NaN for those that were lost."""

    label: str
    path: Path
    environment: str
    env_steps: int
    scores: np.ndarray

    @property
    def iqm(self) -> float:
        return iqm(self.scores) if np.isfinite(self.scores).any() else math.nan


def compare_runs(paths: Sequence[str | Path]) -> list[Entry]:
    """Entries of finished runs: by environment in the order given, in it the best first."""
    found = [_entry(Path(p)) for p in dict.fromkeys(map(str, paths))]
    labels = [e.label for e in found]
    found = [dataclasses.replace(e, label=f"{e.label} ({e.path})") if labels.count(e.label) > 1 else e for e in found]
    order = list(dict.fromkeys(e.environment for e in found))
    return sorted(found, key=lambda e: (order.index(e.environment), -np.nan_to_num(e.iqm, nan=-np.inf)))


def _entry(path: Path) -> Entry:
    if not path.is_dir():
        raise ConfigError("run", str(path), "an existing run directory")
    content = configs.read_config(path)
    if not (path / "result.json").is_file():
        raise ConfigError("run", str(path), "a run that has ended (a result.json)")
    result = json.loads((path / "result.json").read_text())
    if content["run"].get("population"):
        raise ConfigError("run", str(path), "a run whose members differ only in their seeds; this is a part of a sweep")
    scores = np.array([math.nan if x is None else x for x in result["eval_return"]], float)
    label = f"{result['algorithm']} {result['environment']}"
    return Entry(label, path, result["environment"], result["env_steps"], scores)


def format_comparison(entries: Sequence[Entry]) -> str:
    """A table an environment."""
    text = []
    for environment in dict.fromkeys(e.environment for e in entries):
        own = [e for e in entries if e.environment == environment]
        lines = [["", "IQM", "95% interval", "seeds", "steps", "P(better than next)"]]
        for entry, after in zip(own, [*own[1:], None], strict=True):
            low, high = bootstrap(entry.scores)
            interval = f"{low:.2f} to {high:.2f}" if math.isfinite(low) else "-"
            better = "-"
            if after is not None and math.isfinite(entry.iqm) and math.isfinite(after.iqm):
                p, low, high = probability_of_improvement(entry.scores, after.scores)
                better = f"{p:.2f}" + (f" ({low:.2f} to {high:.2f})" if math.isfinite(low) else "")
            lines.append([entry.label, f"{entry.iqm:.2f}", interval, str(entry.scores.size), f"{entry.env_steps:,}", better])
        text += [environment, *(f"  {line}" for line in aligned(lines, left=1))]
        if len({e.env_steps for e in own}) > 1:
            text.append("  the runs differ in their environment steps")
    return "\n".join(text)
