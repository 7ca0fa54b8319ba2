"""`jaxrl-fast profile`: the time of an iteration by part, and ways to save it."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl_fast import runtime
from jaxrl_fast.algorithms import ALGORITHMS, list_algorithms
from jaxrl_fast.cli.args import BUSY, Option, drop_replaced
from jaxrl_fast.cli.train import Plan, read_plan, resolve
from jaxrl_fast.doctor import machine
from jaxrl_fast.doctor.limits import measure_device
from jaxrl_fast.doctor.ready import busy, check_cache, check_idle
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.files import folders
from jaxrl_fast.logs.terminal import is_terminal
from jaxrl_fast.profiling import ablation, report
from jaxrl_fast.profiling.advice import Case, Suggestion, advise
from jaxrl_fast.profiling.measure import check, measure, with_scopes
from jaxrl_fast.profiling.timing import start_timed_run
from jaxrl_fast.profiling.trials import Trial, try_suggestion
from jaxrl_fast.runs.config_json import write_text

OPTIONS = (
    Option("out", "path", help="folder for profile.png and profile.json", metavar="DIR",
           hint="default: profiles/ALGO-ENV-N; the run's own folder"),
    Option("trace", "path", help="also keep a trace for https://ui.perfetto.dev",
           metavar="FOLDER", hint="default: none"),
    Option("try", "bool", False, "run each suggestion and report its gain"),
    Option("ablation", "bool", False, "also time pieces of the iteration alone, as a check"),
    BUSY,
    Option("seconds", "float", 3.0, "seconds of each measurement", limits=(0.01, 600)),
)  # fmt: skip
Described = Callable[[Sequence[str]], tuple[Plan, dict[str, Any]]]


def as_config(argv: Sequence[str]) -> list[str]:
    """Return the flags for `profile RUN`: the run's settings, results beside it.

    Raises ConfigError for one name that is neither a folder nor an algorithm.
    """
    names = list(itertools.takewhile(lambda token: not token.startswith("-"), argv))
    if len(names) != 1 or names[0] in ALGORITHMS:
        return list(argv)
    if not Path(names[0]).is_dir():
        valid = f"an existing run directory, or ALGO ENV{nearest(names[0], list_algorithms())}"
        raise ConfigError("RUN", names[0], valid)
    out = () if any(token.partition("=")[0] == "--out" for token in argv) else ("--out", names[0])
    return ["--config", names[0], *argv[1:], *out]


def profile(argv: Sequence[str]) -> None:
    """Measure, print the table and the advice, and write profile.json and profile.png."""
    argv = as_config(argv)
    again = lambda more: [*drop_replaced(argv, more), *more]
    with_flags = lambda more: read_plan(again(more), "profile")
    plan, given = with_flags(())
    seconds = given.get("seconds", 3.0)
    check(resolve(plan, given)[2])
    here = machine.examine()  # before JAX uses the device
    if not given.get("busy"):
        check_idle(here, jax.default_backend())
    prepared = _prepared(plan, given)
    if given.get("ablation"):
        ablation.check(prepared)
    out, kept = _folders(plan, given)
    check_cache(runtime.enable_compile_cache())
    if is_terminal(sys.stderr):
        print("compiling, timing and tracing takes about a minute", file=sys.stderr)
    limits = measure_device(jax.devices()[0])
    found, one = measure(prepared, limits, seconds, kept)
    found = dataclasses.replace(found, busy=busy(here, jax.default_backend()))
    if given.get("ablation"):
        pieces = ablation.shares(ablation.time_pieces(one))
        found = dataclasses.replace(found, alone=pieces)
    settings = registry.settings_of(plan.environment) if plan.environment else {}
    own = {name.removeprefix("env."): value for name, value in given.items()
           if name.startswith("env.")}
    case = Case(found, prepared, jax.default_backend(), settings | plan.env | own)
    suggestions = advise(case)
    print(report.table(found), flush=True)
    trials = _trials(with_flags, suggestions, seconds) if given.get("try") else []
    own = [option.flag for option in OPTIONS]
    typed = lambda flags: shlex.join(["jaxrl-fast", "train", *drop_replaced(again(flags), own)])
    print(report.advice_lines(suggestions, trials, typed))
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "profile.json", report.as_json(found, suggestions, trials))
    print(report.picture(found, out / "profile.png"))
    if kept:
        print(f"trace: {kept}, for https://ui.perfetto.dev")


def _prepared(plan: Plan, given: dict[str, Any]) -> Prepared:
    algo, env, config = resolve(plan, given)
    return prepare(algo, env, config)


def _folders(plan: Plan, given: dict[str, Any]) -> tuple[Path, Path | None]:
    """Return the folders of results and trace. Raises ConfigError for one that takes none."""
    stem = "-".join([plan.cls.name, plan.environment or "run"]).replace("/", "-").replace(":", "-")
    free = (path for n in itertools.count(1)
            if not (path := Path("profiles") / f"{stem}-{n}").exists())
    out = folders.folder_path("--out", given["out"] if "out" in given else next(free))
    folders.check_writable("--out", out)
    if "trace" not in given:
        return out, None
    kept = folders.folder_path("--trace", given["trace"])
    if kept.is_dir() and any(kept.iterdir()):
        raise ConfigError("--trace", str(kept), "a new or empty folder")
    folders.check_writable("--trace", kept)
    return out, kept


def _trials(
    with_flags: Described, suggestions: Sequence[Suggestion], seconds: float
) -> list[Trial]:
    """Run each suggestion in turns with the settings without it; the best first."""
    opened = lambda flags: start_timed_run(_prepared(*with_flags(flags)))
    with with_scopes(), opened(()) as base:
        found = [try_suggestion(one, base, lambda one=one: opened(one.flags), seconds)
                 for one in suggestions]
    return sorted(found, key=lambda trial: -(trial.gain or 1.0))
