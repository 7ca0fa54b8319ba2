"""`jaxrl-fast sweep`: its flags and its output."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Sequence
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import DISTRIBUTED, IMPORT, PROG, SEVERAL, Option, has_flag, parse
from jaxrl_fast.cli.before_jax import join, spread
from jaxrl_fast.cli.options import option_of, resume_options
from jaxrl_fast.cli.resume import PLACE
from jaxrl_fast.cli.train import Plan, about_of, on_device, out_of, read_plan, resolve
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import (
    ConfigError,
    NonFiniteError,
    check_choice,
    expected,
    nearest,
)
from jaxrl_fast.sweeps.configurations import grid_of
from jaxrl_fast.sweeps.parts import read_folder
from jaxrl_fast.sweeps.samplers import SAMPLERS, sampler_of
from jaxrl_fast.sweeps.selection import PBT, Halving
from jaxrl_fast.values import convert, pieces


def _declared(cls: type, field: str, name: str, hint: str = "") -> Option:
    """Return the flag `name` for a setting of a selection."""
    default = cls.__dataclass_fields__[field].default
    return dataclasses.replace(option_of(cls, field, default, hint), name=name)


MOST = (1, 1_000_000)
OF_PBT = ("pbt_every", "pbt_fraction")
OPTIONS = (
    Option("grid", "append",
           help="a setting and its values: algo.learning-rate=1e-4,1e-3; several: all combinations",
           metavar="SETTING=A,B,...", hint="repeatable"),
    Option("sample", "append", help="a setting and its sampler: "
                                    f"{', '.join(cls.form for cls in SAMPLERS.ours.values())}",
           metavar="SETTING=SAMPLER", hint="repeatable"),
    Option("members", "int", None, "number of draws from the samplers", "required with --sample",
           limits=MOST),
    Option("pbt", "bool", False, "population based training of the --sample settings"),
    *(_declared(PBT, flag.removeprefix("pbt_"), flag) for flag in OF_PBT),
    Option("optuna", "int", None, "trials that Optuna suggests, --members at a time",
           "default: no search", limits=MOST),
    _declared(Halving, "rungs", "halving", "default: no configuration is dropped"),
    Option("wave", "int", None, "members that train at once, at most",
           "default: as many as the memory plan allows", limits=MOST),
    _declared(Halving, "eta", "eta"),
    *DISTRIBUTED,
)  # fmt: skip
RESUMED = (
    Option("resume", "path", help="folder of the sweep", metavar="DIR", hint="required"),
    *resume_options(*PLACE), IMPORT, *DISTRIBUTED,
)  # fmt: skip


def start(argv: list[str]) -> None:
    """Train a new sweep, or go on with the one of --resume."""
    join(argv, lambda folder: read_folder(folder).get("base", {}))
    cores = runtime.cpu_count()  # a sweep has members for all cores
    if not has_flag(argv, "--resume"):
        return new_sweep(*read_plan(argv, "sweep", cores))
    given = parse(f"{PROG} sweep --resume", "Resume a sweep.", RESUMED, argv)
    spread(argv, read_folder(given["resume"]).get("base"), cores)
    resume(given["resume"], given.get("import", ()),
           {name: given[name] for name in PLACE if name in given})


def assignments(flag: str, texts: Sequence[str], options: Sequence[Option]) -> dict[str, str]:
    """Return {setting: the text after "="}."""
    known = {option.key: option for option in options if option.group}
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals or not value:
            raise ConfigError(flag, text, "SETTING=VALUES, such as algo.learning-rate=1e-4,1e-3")
        if name not in known:
            inner = [k for k in known if k.partition(".")[2] == name]
            raise ConfigError(flag, text, "a setting of the algorithm or the "
                                          f"environment{nearest(name, inner or known)}")
        if name in found:
            raise ConfigError(flag, text, f"one list for {name}")
        found[name] = value
    return found


def grid_values(flag: str, option: Option, text: str) -> list[Any]:
    """Return the values between commas (lists: between semicolons, 64,64;128,128)."""
    name, several = f"{flag} {option.key}", option.kind in SEVERAL
    found = pieces(name, text, ";" if several else ",")
    if option.kind == "bool":
        for piece in found:
            check_choice(name, piece.lower(), ("true", "false"))
        return [piece.lower() == "true" for piece in found]
    return [convert(name, option.kind, (piece,) if several else piece) for piece in found]


def new_sweep(plan: Plan, given: dict[str, Any]) -> None:
    """Train and compare the configurations of the flags."""
    from jaxrl_fast.sweeps.opening import open_sweep
    from jaxrl_fast.sweeps.sweep import train_opened
    from jaxrl_fast.sweeps.tuning import open_search, train_trials

    algo, env, config = resolve(plan, given)
    prepare(algo, env, config, outline=True)  # a bad setting comes before what a sweep lacks
    by_name = {o.key: o for o in plan.options}
    texts = assignments("--grid", given.get("grid", ()), plan.options)
    grid = {name: grid_values("--grid", by_name[name], text) for name, text in texts.items()}
    sample, selection = assignments("--sample", given.get("sample", ()), plan.options), None
    _check_flags(given)
    if given.get("pbt"):
        selection = PBT(sample, **{flag.removeprefix("pbt_"): given[flag]
                                   for flag in OF_PBT if flag in given})
        sample = {}
    elif "halving" in given:
        selection = Halving(given["halving"], given.get("eta", Halving.eta))
    grid_of(grid)
    for name, text in sample.items():
        sampler_of(name, text)
    about, name = about_of(plan, given), plan.environment or env.spec.name
    out = out_of(given, "sweeps", algo.name, name)
    run = {k: v for k, v in config.settings().items() if k not in ("population", "selection")}
    if "on_nan" not in given:
        run["on_nan"] = "mark"
    common = {"sample": sample or None, "out": out, "about": about, **run}
    if "optuna" in given:
        opened = open_search(algo, env, trials=given["optuna"], members=given.get("members", 16),
                             **common)
    else:
        opened = open_sweep(algo, env, grid=grid or None, members=given.get("members"),
                            selection=selection, wave=given.get("wave"), **common)
    train = train_trials if "optuna" in given else train_opened
    with opened as arguments:  # a refused sweep prints its error alone
        print(f"{algo.name} on {name}: {plan.source}\nsweep directory: "
              f"{out}\n{on_device(algo, config.deterministic)}", flush=True)
        result = train(*arguments, True)
    print_result(result)


def _check_flags(given: dict[str, Any]) -> None:
    """Raise ConfigError for flags that do not go together."""
    chosen = [flag for flag in ("pbt", "halving", "optuna") if flag in given]
    if len(chosen) > 1:
        got = " and ".join(f"--{flag}" for flag in chosen)
        raise expected("sweep", "given one of --pbt, --halving and --optuna", got)
    if "pbt" in chosen and not given.get("sample"):
        example = "--sample algo.learning-rate=loguniform:1e-5,1e-2"
        valid = f"given with --pbt, which changes its settings: {example}"
        raise expected("--sample", valid, "none")
    if not chosen and not given.get("grid") and not given.get("sample"):
        example = "--grid algo.learning-rate=1e-4,3e-4,1e-3, or --sample with --members"
        raise expected("sweep", f"given settings to compare: {example}", "none")
    if "optuna" in chosen and "wave" in given:
        valid = "left out with --optuna: --members says how many are trained at once"
        raise ConfigError("--wave", given["wave"], valid)
    if "optuna" in chosen and "grid" in given:
        valid = "left out with --optuna: it searches --sample, where choice:A,B is a list"
        raise ConfigError("--grid", given["grid"], valid)
    for flag, owner in {"eta": "halving", **dict.fromkeys(OF_PBT, "pbt")}.items():
        if flag in given and owner not in chosen:
            name = f"--{flag.replace('_', '-')}"
            raise ConfigError(name, given[flag], f"left out without --{owner}")


def resume(path: str, imports: Sequence[str], place: dict[str, Any]) -> None:
    """Resume a sweep or an Optuna search, on the devices of `place`."""
    from jaxrl_fast.sweeps.sweep import resume_sweep
    from jaxrl_fast.sweeps.tuning import resume_search

    go_on = resume_search if "optuna" in read_folder(path) else resume_sweep
    print_result(go_on(path, imports, progress=True, argument="--resume", **place))


def print_result(result: Any) -> None:
    """Print the table and the next commands."""
    print(result)
    print(f"in {result.path}: table.csv, "
          f"{', '.join(sorted(p.name for p in result.path.glob('*.png')))}")
    if (result.path / "best.json").exists():
        print(f"what comes next:\n  jaxrl-fast report {shlex.quote(str(result.path))}")
        print(f"  jaxrl-fast train --config {shlex.quote(str(result.path / 'best.json'))}  # the "
              "best configuration")
    elif not math.isfinite(max(result.final.flat, key=math.isfinite)):
        raise NonFiniteError(f"no member of {result.path} has a score: all were lost")
