"""`jaxrl-fast eval`, `plot` and `compare`: commands for existing runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast import values
from jaxrl_fast.cli.args import AGENT, Option, load_agent, read_arguments
from jaxrl_fast.engine.config import MODES
from jaxrl_fast.errors import ConfigError, NonFiniteError
from jaxrl_fast.logs import plots
from jaxrl_fast.ops import aggregate
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.logged import read_log

EVAL = (
    Option("episodes", "int", 128, "episodes to play"),
    Option("seed", "int", 0, "seed of these episodes", limits=(0, 2**32 - 1)),
    Option("mode", "str", None, "how actions are chosen", "default: as in training",
           choices=MODES),
    *AGENT,
)
PLOT = (
    Option("metric", "word", "episode_return", "metric to draw, a name in metrics.jsonl"),
    Option("out", "file", None, "file to write: png, svg or pdf",
           "default: curve.png in the run; curves.png here for several"),
)  # fmt: skip
COMPARE = (
    Option("out", "file", None, "plot of the learning curves to write"),
    Option("csv", "file", None, "the table as a file"),
)


@contextlib.contextmanager
def _written(flag: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(flag, path, f"a file that can be written: {error.strerror}") from error


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the log rows of a run. Raises ConfigError without any."""
    if not (path / "metrics.jsonl").is_file():
        raise ConfigError("run", str(path), "a run with a metrics.jsonl; this one has none")
    rows = read_log(path)
    if not rows:
        raise ConfigError("run", str(path),
                          f"one that has logged a row; {path / 'metrics.jsonl'} has none")
    return rows


def evaluate(argv: list[str]) -> None:
    """Play episodes with a trained agent and print their returns."""
    (run,), given = read_arguments("eval", "Play episodes with a trained agent.", argv)
    agent = load_agent(run, given)
    found = agent.evaluate(given.get("episodes", 128), given.get("seed", 0), given.get("mode"))
    ret = found.ret
    bad = int(np.sum(~np.isfinite(ret)))
    if bad:
        raise NonFiniteError(f"the return of {bad} of {ret.size} episodes is not finite: a "
                             "reward, an observation or an action was not")  # fmt: skip
    print(f"{agent.algo.name} on {agent.environment}, "
          f"{given.get('mode') or agent.config.eval_mode} actions")
    print(f"return {ret.mean():.2f} over {ret.size} episodes{aggregate.span(ret)}")
    print(f"lowest {ret.min():.2f}, highest {ret.max():.2f}, mean length {found.length.mean():.1f}")
    cut = int(np.sum(~found.finished))
    if cut:
        print(f"{cut} episodes were cut at the step limit")


def plot(argv: list[str]) -> None:
    """Draw the learning curves of runs into one plot."""
    about = "Draw the learning curves of runs into one plot."
    runs, given = read_arguments("plot", about, argv)
    runs = [values.path("run", run) for run in runs]
    rows, names = {}, {}
    for run in dict.fromkeys(runs):
        path = Path(run)
        if not path.is_dir():
            raise ConfigError("run", run, "an existing run directory")
        content = configs.read_config(path)
        names[run] = f"{content['algorithm'].get('name')} {content['environment'].get('name')}"
        rows[run] = _rows(path)
    same = len(set(names.values())) < len(names)  # then the folders tell the runs apart
    rows = {f"{names[run]} ({run})" if same else names[run]: found for run, found in rows.items()}
    metric = given.get("metric", "episode_return")
    name = "curve" if metric == "episode_return" else metric.replace("/", "_")
    own = Path(runs[0]) / f"{name}.png" if len(runs) == 1 else Path("curves.png")
    out = Path(given.get("out", own))
    with _written("--out", str(out)):
        print(plots.learning_curve(rows, out, metric=metric))


def compare(argv: list[str]) -> None:
    """Print runs side by side: IQMs with intervals, and the probability that one beats the next."""
    from jaxrl_fast.sweeps.comparison import compare_runs, comparison_rows, format_comparison
    from jaxrl_fast.sweeps.results import write_csv

    about = "Compare the final scores of runs."
    runs, given = read_arguments("compare", about, argv)
    entries = compare_runs([values.path("run", run) for run in runs])
    table = comparison_rows(entries)
    print(format_comparison(table))
    if "out" in given:
        rows = {e.label: _rows(e.path) for e in entries}
        with _written("--out", given["out"]):
            print(plots.learning_curve(rows, given["out"]))
    if "csv" in given:
        with _written("--csv", given["csv"]):
            write_csv(Path(given["csv"]), table)
        print(given["csv"])
