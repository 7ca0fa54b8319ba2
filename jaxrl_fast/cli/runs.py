"""`jaxrl-fast eval`, `plot` and `compare`: commands for existing runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxrl_fast import runtime, values
from jaxrl_fast.cli.args import IMPORT, PROG, Option, choices_text, parse, positionals
from jaxrl_fast.engine.config import MODES
from jaxrl_fast.errors import ConfigError, NonFiniteError, UserError, check_choice, check_seed
from jaxrl_fast.logs import plots
from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.ops import aggregate
from jaxrl_fast.runs import config_json as configs

EVAL = (
    Option("episodes", "int", 128, "episodes to play"),
    Option("seed", "int", 0, "seed of these episodes"),
    Option("which", "str", "auto", "checkpoint; auto: the best, else the last", metavar="{auto,best,last}"),
    Option("member", "int", None, "member of a population", hint="default: the one that evaluated best"),
    Option("mode", "str", None, "how actions are chosen", metavar=choices_text(MODES), hint="default: as in training"),
    IMPORT,
)
PLOT = (
    Option("metric", "word", "episode_return", "metric to draw, a name in metrics.jsonl"),
    Option("out", "file", None, "file to write: png, svg or pdf", metavar="FILE",
           hint="default: curve.png in the run; curves.png here for several"),
)  # fmt: skip
COMPARE = (
    Option("out", "file", None, "plot of the learning curves to write", metavar="FILE", hint="default: none"),
    Option("csv", "file", None, "the table as a file", metavar="FILE", hint="default: none"),
)


def run_directories(argv: list[str], most: int) -> tuple[list[str], list[str]]:
    """Return (the paths before and between the flags, the flags)."""
    runs, flags = positionals(argv, most)
    return [values.path("run", run) for run in runs], flags


def evaluate(argv: list[str]) -> None:
    """Play episodes with a trained agent and print their returns."""
    runs, flags = run_directories(argv, 1)
    given = parse(f"{PROG} eval RUN", "Play episodes with a trained agent.", EVAL, flags)
    if not runs:
        raise UserError(f"eval needs a run directory: {PROG} eval RUN")
    check_seed("seed", given.get("seed", 0))
    check_choice("mode", given.get("mode", "greedy"), MODES)
    runtime.enable_compile_cache()
    from jaxrl_fast.runs.load import load

    agent = load(runs[0], given.get("which", "auto"), given.get("member"), given.get("import", ()))
    found = agent.evaluate(given.get("episodes", 128), given.get("seed", 0), given.get("mode"))
    bad = int(np.sum(~np.isfinite(found.ret)))
    if bad:
        raise NonFiniteError(f"the return of {bad} of {found.ret.size} episodes is not finite: a reward, an observation or an "
                             "action was not")  # fmt: skip
    print(f"{agent.algo.name} on {agent.environment}, {given.get('mode') or agent.config.eval_mode} actions")
    print(f"return {found.ret.mean():.2f} over {found.ret.size} episodes{aggregate.span(found.ret)}")
    print(f"lowest {found.ret.min():.2f}, highest {found.ret.max():.2f}, mean length {found.length.mean():.1f}")
    cut = int(np.sum(~found.finished))
    if cut:
        print(f"{cut} episodes were cut at the step limit")


def plot(argv: list[str]) -> None:
    """Draw the learning curves of runs into one plot."""
    runs, flags = run_directories(argv, len(argv))
    given = parse(f"{PROG} plot RUN [RUN ...]", "Draw the learning curves of runs into one plot.", PLOT, flags)
    if not runs:
        raise UserError(f"plot needs at least one run directory: {PROG} plot RUN [RUN ...]")
    rows, names = {}, {}
    for run in dict.fromkeys(runs):
        path = Path(run)
        if not path.is_dir():
            raise ConfigError("run", run, "an existing run directory")
        content = configs.read_config(path)
        if not (path / "metrics.jsonl").is_file():
            raise ConfigError("run", run, "a run with a metrics.jsonl; this one has logged nothing")
        names[run] = f"{content['algorithm'].get('name')} {content['environment'].get('name')}"
        rows[run] = read_jsonl(path / "metrics.jsonl")
        if not rows[run]:
            raise ConfigError("run", run, f"one that has logged a row; {path / 'metrics.jsonl'} has none")
    same = len(set(names.values())) < len(names)  # then the folders tell the runs apart
    rows = {f"{names[run]} ({run})" if same else names[run]: found for run, found in rows.items()}
    metric = given.get("metric", "episode_return")
    name = "curve" if metric == "episode_return" else metric.replace("/", "_")
    own = Path(runs[0]) / f"{name}.png" if len(runs) == 1 else Path("curves.png")
    out = Path(given.get("out", own))
    try:
        print(plots.learning_curve(rows, out, metric=metric))
    except OSError as error:
        raise ConfigError("--out", str(out), f"a file that can be written: {error.strerror}") from error


def compare(argv: list[str]) -> None:
    """Print runs side by side: IQMs with intervals, and the probability that one beats the next."""
    from jaxrl_fast.sweeps.comparison import compare_runs, comparison_rows, format_comparison, write_comparison

    runs, flags = run_directories(argv, len(argv))
    given = parse(f"{PROG} compare RUN RUN [RUN ...]", "Compare the final scores of runs.", COMPARE, flags)
    if len(runs) < 2:
        raise UserError(f"compare needs at least two run directories: {PROG} compare RUN RUN")
    entries = compare_runs(runs)
    table = comparison_rows(entries)
    print(format_comparison(table))
    if "out" in given:
        rows = {e.label: read_jsonl(e.path / "metrics.jsonl") for e in entries}
        try:
            print(plots.learning_curve(rows, given["out"]))
        except OSError as error:
            raise ConfigError("--out", given["out"], f"a file that can be written: {error.strerror}") from error
    if "csv" in given:
        try:
            print(write_comparison(table, given["csv"]))
        except OSError as error:
            raise ConfigError("--csv", given["csv"], f"a file that can be written: {error.strerror}") from error
