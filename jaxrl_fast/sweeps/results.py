"""The results of a sweep: arrays with named axes, a ranked table, the best configuration."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.engine.config import MOST_MEMBERS
from jaxrl_fast.engine.members import configure
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops.aggregate import (
    bootstrap,
    frame,
    interval,
    iqm,
    probability_of_improvement,
    win_rate,
)
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.config_values import reading
from jaxrl_fast.runs.logged import read_log
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.sweeps import shown
from jaxrl_fast.sweeps.configurations import Settings
from jaxrl_fast.sweeps.parts import Sweep, decode_base, part_folder, read_json


@dataclasses.dataclass(repr=False)
class SweepResult:
    """Scores of every configuration and seed; curves add the axis env_steps."""

    path: Path
    content: dict[str, Any]  # sweep.json
    configurations: list[Settings]
    seeds: list[int]
    final: np.ndarray  # float64 [configuration, seed]: last evaluation; NaN if lost or dropped
    lost: dict[tuple[int, int], str]  # (configuration, seed's index) -> reason
    # [configuration][seed]: log rows, each metric a list of one
    rows: list[list[list[dict[str, Any]]]]

    @property
    def names(self) -> list[str]:
        return list(self.configurations[0])

    @property
    def scores(self) -> np.ndarray:
        """Return `final` with lost seeds as the worst score; NaN if a configuration has none."""
        has = np.isfinite(self.final)
        worst = self.final[has].min() if has.any() else np.nan
        return np.where(has, self.final, np.where(has.any(axis=1, keepdims=True), worst, np.nan))

    def curve(self, metric: str = "episode_return") -> tuple[np.ndarray, np.ndarray]:
        """Return (env_steps [row], values [configuration, seed, row]), NaN for missing values."""
        has = lambda row: row.get(metric, [None])[0] is not None
        steps = sorted({row["env_steps"] for seeds in self.rows for rows in seeds
                        for row in rows if has(row)})
        place = {s: i for i, s in enumerate(steps)}
        values = np.full((*self.final.shape, len(steps)), np.nan)
        for c, seeds in enumerate(self.rows):
            for s, rows in enumerate(seeds):
                for row in rows:
                    if has(row):
                        values[c, s, place[row["env_steps"]]] = row[metric][0]
        return np.array(steps), values

    def array(self, metric: str | None = None) -> tuple[np.ndarray, dict[str, list[Any]]]:
        """Return (values, axes): `final`, or a metric's log rows, with named coordinates.

        A whole grid has an axis for each setting, such as {"algo.num_envs": [8, 64], "seed": [0]};
        otherwise there is one, "configuration". A metric's last axis is "env_steps".
        `xarray.DataArray(values, list(axes.items()))` takes both.
        """
        values, axes = self.final, {"seed": list(self.seeds)}
        if metric is not None:
            steps, values = self.curve(metric)
            axes["env_steps"] = steps.tolist()
        settings = {name: distinct([c[name] for c in self.configurations]) for name in self.names}
        order = {name: {repr(v): i for i, v in enumerate(values)}
                 for name, values in settings.items()}
        place = [tuple(order[n][repr(c[n])] for n in self.names) for c in self.configurations]
        shape = tuple(map(len, settings.values()))
        if len(set(place)) != len(place) or math.prod(shape) != len(place):
            return values, {"configuration": list(range(len(place)))} | axes
        grid = np.empty(shape + values.shape[1:])
        for at, own in zip(place, values, strict=True):
            grid[at] = own
        return grid, settings | axes

    def ranking(self) -> list[int]:
        """Return configurations, best first, by IQM over seeds; unscored last, by steps."""
        middle = np.nan_to_num([iqm(x) for x in self.scores], nan=-np.inf)
        place = lambda c: (-middle[c], *(-x for x in self._last(c)), c)
        return sorted(range(len(middle)), key=place)

    def _last(self, configuration: int) -> tuple[float, float]:
        """Return (env_steps, return) of the last row in which a member ended an episode."""
        found = {}
        for rows in self.rows[configuration]:
            for row in rows:
                if row.get("episode_return", [None])[0] is not None:
                    found.setdefault(row["env_steps"], []).append(row["episode_return"][0])
        return (max(found), float(np.mean(found[max(found)]))) if found else (-1.0, 0.0)

    def lineage(self) -> list[dict[str, Any]]:
        """Return PBT's takeovers in order: env_steps, member, parent and the new settings.

        parent is configuration * seeds + seed; the settings are those of the next row, or None.
        """
        members = [rows for seeds in self.rows for rows in seeds]
        settings = lambda row: {name: row[name][0] if row else None for name in self.names}
        found = [
            {"env_steps": row["env_steps"], "member": m, "parent": row["parent"][0],
             **settings(after)}
            for m, rows in enumerate(members)
            for row, after in itertools.zip_longest(rows, rows[1:])
            if row.get("parent", [m])[0] != m
        ]
        return sorted(found, key=lambda row: (row["env_steps"], row["member"]))

    def table(self) -> list[dict[str, Any]]:
        """Return a row a configuration, best first."""
        rows, order, scores = [], self.ranking(), self.scores
        for rank, (c, after) in enumerate(itertools.zip_longest(order, order[1:]), 1):
            low, high = bootstrap(scores[c])
            why = sorted({self.lost[c, s] for s in range(len(self.seeds)) if (c, s) in self.lost})
            better = math.nan
            if after is not None and np.isfinite(scores[after]).all():
                better = win_rate(scores[c], scores[after])
            rows.append({
                "rank": rank, "configuration": c, **self.configurations[c], "iqm": iqm(scores[c]),
                "low": low, "high": high, "better_than_next": better,
                "mean": interval(self.final[c])[0], "scores": self.final[c].tolist(),
                "lost": "; ".join(why),
            })  # fmt: skip
        return rows

    def frame(self, log: bool = False) -> Any:
        """Return a pandas DataFrame, a row a configuration and seed. Needs the extra [pandas].

        log: a row a log row, configuration and seed instead, with all metrics.
        """
        own = lambda c, seed: {"configuration": c, "seed": seed, **self.configurations[c]}
        members = [(c, s, own(c, seed)) for c in range(len(self.configurations))
                   for s, seed in enumerate(self.seeds)]
        if not log:
            return frame([member | {"eval_return": self.final[c, s]} for c, s, member in members])
        alone = lambda row: {name: x[0] if isinstance(x, list) else x for name, x in row.items()}
        return frame([alone(row) | member for c, s, member in members for row in self.rows[c][s]])

    def best(self) -> int:
        """Return the first configuration of the ranking."""
        return self.ranking()[0]

    def improvement(self, a: int, b: int) -> tuple[float, float, float]:
        """Return (P, low, high): the probability that a run of a beats one of b, or NaN."""
        scores = self.scores[[a, b]]
        return probability_of_improvement(*scores) if np.isfinite(scores).all() else (math.nan,) * 3

    def __str__(self) -> str:
        return shown.as_text(self)

    def _repr_html_(self) -> str:
        return shown.as_html(self)

    def __repr__(self) -> str:
        lines = [f"<Sweep: {shown.title(self)}>"]
        for rank, c in enumerate(self.ranking()[:3], 1):
            settings = ", ".join(f"{name} = {shown.short(value)}"
                                 for name, value in self.configurations[c].items())
            score = f"{iqm(self.scores[c]):,.4g}" if np.isfinite(self.final[c]).any() else "none"
            lines.append(f"  {rank}. {settings[:200]}: IQM {score}")
        return "\n".join([*lines, f"  in {self.path}; print() shows the whole table"])


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return each value once, numbers in order, others in order of appearance."""
    found = list({repr(v): v for v in values}.values())
    return sorted(found) if all(isinstance(v, (int, float)) for v in found) else found


def read_sweep(path: str | Path) -> SweepResult:
    """Read the results of a sweep's folder, from its finished parts."""
    content = read_json(Path(path) / "sweep.json")
    with reading("sweep", str(path)):
        return _results(Path(path), content)


def _results(path: Path, content: dict[str, Any]) -> SweepResult:
    run = content["base"]["run"]
    configurations = [{k: v for k, v in c.items() if k != "trial"}
                      for c in content["configurations"]]
    ended = _ended(path, content)
    seeds = [run["seed"] + i for i in range(run["seeds"])]
    final = np.full((len(configurations), len(seeds)), np.nan)
    rows: list[list[list[dict[str, Any]]]] = [[[] for _ in seeds] for _ in configurations]
    lost: dict[tuple[int, int], str] = {}
    for index, (part, result) in enumerate(zip(content["parts"], ended, strict=True)):
        logged, size = read_log(part_folder(path, index)), _size(part)
        scores = result.get("eval_return") or [None] * size
        reasons = {x["member"]: f"{x['reason']} at {x['env_steps']:,} steps"
                   for x in result.get("lost") or ()}
        for member, score in enumerate(scores):
            c = part["configurations"][member // part["seeds"]]
            s = part["seed"] - run["seed"] + member % part["seeds"]
            final[c, s] = math.nan if score is None else score
            own = lambda x, m=member: [x[m]] if isinstance(x, list) else x
            rows[c][s] = [{name: own(x) for name, x in row.items()} for row in logged]
            if score is None:
                why = reasons.get(member) or _dropped(logged, member)
                lost[c, s] = why or ("no score" if result else "not trained yet")
    return SweepResult(path, content, configurations, seeds, final, lost, rows)


def _size(part: dict[str, Any]) -> int:
    return len(part["configurations"]) * part["seeds"]


def _ended(path: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each part's result, {} before its end; raises for members that the sweep lacks."""
    wrong = lambda fits: ConfigError("sweep", str(path / "sweep.json"), fits)
    count, found = len(content["configurations"]), []
    if count * content["base"]["run"]["seeds"] > MOST_MEMBERS:
        raise wrong(f"one of at most {MOST_MEMBERS:,} members")
    for index, part in enumerate(content["parts"]):
        folder = part_folder(path, index)
        found.append(RunDir(folder).result() if (folder / "result.json").is_file() else {})
        size = len(found[-1].get("eval_return") or ()) or min(_size(part), MOST_MEMBERS)
        if _size(part) != size or not all(0 <= c < count for c in part["configurations"]):
            raise wrong(f"one whose part {index} has the members of {folder}/result.json")
    return found


def _dropped(rows: Sequence[dict[str, Any]], member: int) -> str:
    """Return where successive halving dropped a member."""
    at = next((row["env_steps"] for row in rows if "kept" in row and not row["kept"][member]), None)
    return "" if at is None else f"dropped at {at:,} steps"


def write_results(result: SweepResult) -> None:
    """Write table.csv and best.json."""
    rows = []
    for row in result.table():
        scores, lost = row.pop("scores"), row.pop("lost")
        row |= {f"seed_{seed}": score for seed, score in zip(result.seeds, scores, strict=True)}
        rows.append({name: _cell(value) for name, value in row.items()} | {"lost": lost})
    write_csv(result.path / "table.csv", rows)
    if np.isfinite(result.final).any():
        configs.write_json(result.path / "best.json", best_config(result))


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows with equal keys as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    configs.write_text(path, out.getvalue())


def last_settings(result: SweepResult, configuration: int) -> Settings:
    """Return a configuration's last settings: under PBT those of its best seed."""
    scores = np.nan_to_num(result.final[configuration], nan=-np.inf)
    rows = result.rows[configuration][int(np.argmax(scores))]
    begun = result.configurations[configuration]
    return begun | {name: rows[-1][name][0] for name in begun if rows
                    and rows[-1].get(name, [None])[0] is not None}


def best_config(result: SweepResult) -> dict[str, Any]:
    """Return a config.json that trains the best configuration with all seeds (`train --config`)."""
    algo, env, run, about = decode_base(result.content, (), result.path)
    about.pop("preset", None)  # its settings differ from the preset's
    algo, env = configure(algo, env, last_settings(result, result.best()))
    # on any devices, in the same sampling groups
    place = {"devices": None, "mesh": None, "groups": run.sampling_groups if run.sampling_groups > 1
             else None}
    run = dataclasses.replace(run, selection=None, on_nan="stop", **place)
    return Sweep(algo, env, run, about, ()).base


def _cell(value: Any) -> Any:
    """Return a number that reads back the same, or "" for none."""
    if not isinstance(value, float):
        return value
    return f"{value:.9g}" if math.isfinite(value) else ""
