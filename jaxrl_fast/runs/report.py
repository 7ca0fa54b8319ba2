"""The report of a run: one HTML page of its folder, while it runs and afterwards."""

from __future__ import annotations

import dataclasses
import functools
import json
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import MOST_MEMBERS, RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import UserError
from jaxrl_fast.files import folders
from jaxrl_fast.logs import html, svg
from jaxrl_fast.logs.jsonl import line_of, metrics_to_lists
from jaxrl_fast.logs.meanings import meaning
from jaxrl_fast.logs.page import bar, code, figure, grid, page, picture, section, tiles, wide
from jaxrl_fast.logs.plots import PALETTE
from jaxrl_fast.logs.rows import FIXED
from jaxrl_fast.ops.aggregate import span
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.logged import read_log
from jaxrl_fast.runs.rundir import RunDir, run_path, seed_folder
from jaxrl_fast.runs.seed_results import side_by_side

MOST_LINES = 64  # members with a line of their own
MOST_VIDEOS = 6  # the newest ones
AGAIN = 10  # seconds after which the page of a run in training loads again


@dataclasses.dataclass(frozen=True)
class Subject:
    """A run to report on: config.json, and its objects if their modules can be imported."""

    content: dict[str, Any]
    algo: Algorithm | None = None
    env: Environment | None = None
    config: RunConfig | None = None

    @classmethod
    def of(cls, content: dict[str, Any], folder: Path | None = None) -> Subject:
        """Return the subject of a config.json; `folder`: its place, for the files that it names."""
        try:
            return cls(content, *configs.decode(content, folder))
        except UserError:  # a module that is not here: the page shows the file
            return cls(content)

    @property
    def title(self) -> str:
        return f"{self.content['algorithm']['name']} on {self.content['environment']['name']}"

    def labels(self) -> list[str]:
        if self.config is None:
            return []
        return [self.config.label(i) for i in range(min(self.config.members, MOST_LINES))]

    def settings(self) -> str:
        """Return sections of the settings that differ from defaults, and the whole file."""
        known = [] if self.algo is None else [
            self.algo._repr_html_(), self.env._repr_html_(),
            html.block("run", html.settings(self.config)),
        ]  # fmt: skip
        content = code(json.dumps(self.content, indent=2))
        return wide("".join(known)) + html.fold("config.json", content)

    def memory(self) -> str:
        """Return the memory plan's table of a run on a CPU, for this machine; "" for other runs."""
        if self.algo is None or not self.content.get("device", "").endswith("(cpu)"):
            return ""
        try:
            return wide(prepare(self.algo, self.env, self.config, outline=True).plan._repr_html_())
        except UserError:
            return ""

    def where(self) -> str:
        """Return the device and the versions of the libraries."""
        versions = ", ".join(f"{name} {version}"
                             for name, version in self.content.get("versions", {}).items())
        return f"{self.content.get('device', '')}; {versions}"


@functools.lru_cache(maxsize=4)
def described(path: Path, changed: int) -> tuple[Subject, str, str]:
    """Return a run's outline, memory plan and settings, once while config.json stays the same.

    changed: the time of the file's last change.
    """
    subject = Subject.of(configs.read_config(path), path)
    return subject, subject.memory(), subject.settings()


def run_report(path: str | Path, modules: Sequence[str] = (), refresh: bool = False) -> str:
    """Return the page of a run directory.

    Args:
        modules: yours to import first, as for `load`.
        refresh: let a browser load the page again while the run goes on.

    Raises ConfigError for a folder without a run.
    """
    path = run_path("run", path)
    for module in modules:
        configs.imports.import_user_module(module)
    file = path / "config.json"
    subject, memory, settings = described(path, file.stat().st_mtime_ns if file.is_file() else 0)
    rundir = RunDir(path)
    result = rundir.result() if (path / "result.json").is_file() else {}
    rows = _rows(rundir, subject.content["run"], bool(result))
    going = not result and folders.holder(path) is not None
    state = "finished" if result else "in training" if going else "not finished"
    parts = [
        f"<h1>{escape(subject.title)}</h1>",
        f'<p class="soft">{escape(f"{path}: {state}. {subject.where()}")}</p>',
        tiles(_numbers(subject, rows, result)),
        section("Learning curve", _curve(rows, subject.labels())),
        section("The agent", grid(_videos(path), "small")),
        section("Lost members", _lost(result)),
        section("Metrics", grid(_metrics(rows, subject.labels()))),
        section("Time", _time(rows, result)),
        section("Memory", memory),
        section("Settings", settings),
        section("How to reproduce",
                reproduce(subject.content, _commands(path, format_import_flags(subject.content)))),
    ]
    return page(subject.title, parts, AGAIN if refresh and going else None)


def _rows(rundir: RunDir, run: dict[str, Any], over: bool) -> list[dict[str, Any]]:
    """Return the log rows; before the end of seeds in turn those of each seed's folder."""
    if over or not rundir.in_turn:
        return read_log(rundir.path)
    first, seeds = run.get("seed", 0), min(run.get("seeds", 1), MOST_MEMBERS)
    folders_of_seeds = (seed_folder(rundir.path, first + i) for i in range(seeds))
    return [metrics_to_lists(json.loads(line_of(row)))
            for row in side_by_side([RunDir(folder).history() for folder in folders_of_seeds])]


def _numbers(subject: Subject, rows: list[dict[str, Any]],
             result: dict[str, Any]) -> dict[str, str]:
    """Return the numbers at the head of the page."""
    run, found = subject.content["run"], {}
    scores = [x for x in result.get("eval_return") or () if x is not None]
    if scores:
        interval = span(np.array(scores)).replace(",", ":", 1)
        found[f"final return{interval}"] = f"{np.mean(scores):,.4g}"
    if result.get("best_eval_return") is not None:
        found["best evaluation"] = f"{result['best_eval_return']:,.4g}"
    last = rows[-1] if rows else {}
    steps = result.get("env_steps", last.get("env_steps", 0))
    whole = max(steps, run["total_steps"])  # the last row may end beyond the number asked for
    found["environment steps"] = f"{svg.short(steps)} of {svg.short(whole)}"
    rate = result.get("steps_per_second") or last.get("steps_per_second")
    found |= {"steps a second": f"{rate:,.0f}"} if rate else {}
    seconds = result.get("wall_seconds") or last.get("wall_seconds")
    found |= {"wall clock": f"{seconds:,.1f} s"} if seconds else {}
    seed, seeds = run.get("seed", 0), run.get("seeds", 1)
    found |= {"seed": str(seed)} if seeds == 1 else {"seeds": f"{seed} to {seed + seeds - 1}"}
    return found


def _curve(rows: list[dict[str, Any]], labels: Sequence[str]) -> str:
    if not rows:
        return "<p>No log row yet.</p>"
    told = "Point at a line for its values. Dots are evaluations, with their interval."
    return grid([figure(svg.learning_curve({"": rows}, members=labels),
                        f"{meaning('episode_return')} {told}")], "whole")


def _metrics(rows: list[dict[str, Any]], labels: Sequence[str]) -> list[str]:
    """Return a figure for every column of the log but the learning curve's."""
    names = dict.fromkeys(name for row in rows for name in row
                          if name not in ("env_steps", "wall_seconds", "episode_return"))
    as_lists = [{k: [v] if k in FIXED and k != "env_steps" else v for k, v in row.items()}
                for row in rows]
    draw = lambda name: svg.learning_curve({"": as_lists}, name,
                                           labels, evaluations=False, width=svg.NARROW)
    return [figure(draw(name), meaning(name), name) for name in names]


def _videos(path: Path) -> list[str]:
    films = [file for parts in ("videos", "seed-*/videos") for kind in ("gif", "mp4")
             for file in folders.own_files(path, f"{parts}/*.{kind}")]
    found = sorted(films, key=lambda file: (file.stem, str(file)))
    ends = [file for pattern in ("rollout.gif", "seed-*/rollout.gif")
            for file in folders.own_files(path, pattern)]
    at = lambda file: f"after {int(file.stem):,} steps" if file.stem.isdigit() else "at the end"
    seed = lambda file: "".join(f", {part}" for part in file.relative_to(path).parts
                                if part.startswith("seed-"))
    shown = [*found[-MOST_VIDEOS:], *ends[:MOST_VIDEOS]]
    return [figure(picture(file, f"an episode {at(file)}"),
                   f"{at(file)}{seed(file)}") for file in shown]


def _lost(result: dict[str, Any]) -> str:
    rows = [(x.get("member"), f"{x.get('env_steps', 0):,}", x.get("reason"))
            for x in result.get("lost") or ()]
    return wide(html.table(rows, ("member", "steps", "reason"), left=3)) if rows else ""


def _time(rows: list[dict[str, Any]], result: dict[str, Any]) -> str:
    """Return seconds by activity, once the run has ended."""
    seconds = {name: x for name, x in (result.get("seconds") or {}).items() if x}
    if not seconds:
        return f"<p>{rows[-1]['wall_seconds']:,.1f} s so far.</p>" if rows else ""
    total = sum(seconds.values())
    table = [(name, f"{x:,.1f} s", f"{100 * x / total:.1f}%") for name, x in seconds.items()]
    return bar({name: x / total for name, x in seconds.items()}, PALETTE) + html.table(table)


def _commands(path: Path, imports: str) -> list[str]:
    where = shlex.quote(str(path))
    return [
        f"jaxrl-fast train --config {where}/config.json{imports}",
        f"jaxrl-fast eval {where}{imports}",
        f"jaxrl-fast train --resume {where}{imports}",
    ]  # fmt: skip


def reproduce(content: dict[str, Any], commands: Sequence[str], file: str = "config.json") -> str:
    """Return the commands that repeat what `file` holds, after those that install the library."""
    versions = content.get("versions", {})
    exact = [f"{name}=={versions[name]}" for name in ("jax", "jaxlib", "flax", "optax")
             if name in versions]
    lines = [
        f"python -m venv env && . env/bin/activate  # Python {versions.get('python', '3.11')}",
        f"pip install -e CHECKOUT {' '.join(exact)}  # the folder of jaxrl_fast "
        f"{versions.get('jaxrl_fast', '')}",
    ]
    told = (
        f"{file} holds every setting and the seeds; the same versions on the same kind of device "
        "give the same bits."
    )
    return code("\n".join([*lines, *commands])) + f"<p>{told}</p>"


def format_import_flags(content: dict[str, Any]) -> str:
    """Return the flags that import a run's modules."""
    return "".join(f" --import {module}" for module in content.get("imports", ()))
