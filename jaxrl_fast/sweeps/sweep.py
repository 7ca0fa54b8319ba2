"""Sweeps: many settings times many seeds in few programs, with results in one folder.

Configurations with the same static settings are a group: one population in one program. A group
that does not fit the device's memory trains in waves. Each wave is a `Part`, a run directory.

    DIR/sweep.json      base settings, configurations, parts
    DIR/parts/00/ ...   run directories
    DIR/table.csv ...   the results (sweeps/results.py, sweeps/plots.py)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import import_named
from jaxrl_fast.algorithms.presets import resolve_names
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.iteration import check_types
from jaxrl_fast.engine.keywords import SweepSettings
from jaxrl_fast.engine.members import configure, spread_members
from jaxrl_fast.engine.placement import elsewhere, population_of
from jaxrl_fast.engine.prepared import Prepared, check_metric, prepare
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, NonFiniteError, brief, check_int
from jaxrl_fast.files import folders
from jaxrl_fast.logs.sinks import check_hooks
from jaxrl_fast.logs.terminal import shows
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.settings import check_settings
from jaxrl_fast.runs.load import resume_run
from jaxrl_fast.runs.reading import settings_of_folder
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.runs.signals import Interrupted, Stopped
from jaxrl_fast.runs.train import Around, at_start, begin
from jaxrl_fast.sweeps import plots as sweep_plots
from jaxrl_fast.sweeps.configurations import Settings, check_names, configurations_of
from jaxrl_fast.sweeps.folder import folder_of, lock_folder, open_folder
from jaxrl_fast.sweeps.parts import (
    FORMAT,
    Part,
    Sweep,
    decode_base,
    part_folder,
    read_folder,
    split,
)
from jaxrl_fast.sweeps.results import SweepResult, read_sweep, write_results


def sweep(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None = None, *,
    grid: Mapping[str, Sequence[Any]] | None = None, sample: Mapping[str, str] | None = None,
    members: int | None = None, selection: Any = None, wave: int | None = None,
    out: str | Path = "auto",
    progress: bool | None = None, about: dict[str, Any] | None = None, hooks: Sequence[Any] = (),
    **settings: Unpack[SweepSettings],
) -> SweepResult:  # fmt: skip
    """Train every configuration with every seed, and compare them.

    Args:
        algo, env, total_steps: as in `jf.train`, names too.
        grid: {"algo.learning_rate": [1e-4, 1e-3], "env.gravity": [9.8]}, all combinations.
        sample: {"algo.discount": "uniform:0.95,0.999"}, `members` draws, crossed with the grid.
        selection: `jf.PBT` (draws its own settings for `members` members) or `jf.Halving`.
        wave: members that train at once, at most; by default as many as the memory plan allows,
            without what XLA adds when it compiles.
        hooks, progress: as in `jf.train`, for every run.
        out: the sweep's folder; "auto": a new one in `sweeps/`, numbered. To resume, name it.
        settings: fields of `RunConfig`; `on_nan` is "mark" here.

    The folder of the same sweep is resumed. Raises ConfigError for anything wrong with any
    configuration, before the first one trains.
    """
    check_hooks(hooks)
    algo, env, total_steps, settings, about = resolve_names(algo, env, total_steps, settings, about)
    check_types(algo, env)
    out, about = folder_of(out, algo, env), about or {}
    config = run_config(
        total_steps, {"on_nan": "mark", **settings, "selection": selection}, algo)
    seed, pbt = config.seed, getattr(selection, "kind", "") == "pbt"
    if pbt:
        if members is None or grid or sample:
            raise ConfigError("selection", "pbt", "given members = N and neither grid nor sample: "
                                                  "PBT draws from its own priors")
        check_names(algo, env, {}, selection.priors, config)
        check_int("members", members, 2, 1_000_000)
        configurations = [{} for _ in range(members)]
        for name, values in selection.draw(seed, members).items():
            configurations = [c | {name: v} for c, v in zip(configurations, values, strict=True)]
    else:
        check_names(algo, env, grid or {}, sample or {}, config)
        configurations = configurations_of(grid, sample, members, seed)
        import_named(type(algo), [(k.removeprefix("algo."), v) for c in configurations
                                  for k, v in c.items()])
        if configurations == [{}]:
            raise ConfigError("grid", grid, "settings to compare; or give sample with members")
    if config.population is not None:
        raise ConfigError("population", config.population,
                          "None: grid and sample hold the settings that differ")
    spread_members(env, config, len(configurations) * config.seeds)
    found = Sweep(algo, env, config, about, configurations, hooks)
    asked = {"base": found.base, "configurations": json.loads(json.dumps(configurations)),
             "wave": wave}
    distributed.check_same("sweep", asked)  # before they plan
    parts = split(found, wave)
    if selection and len(parts) > 1:
        raise ConfigError("selection", selection.kind,
                          f"None: one program for all members, not {len(parts)}, is needed; leave "
                          "out static settings, or take fewer members")  # fmt: skip
    if selection:
        selection.check(dataclasses.replace(config, population=_columns(configurations)))
        if not hooks:  # hooks may add the metric to the log
            check_metric(_prepared(found, parts[0], outline=True))
    cut = json.loads(json.dumps([dataclasses.asdict(part) for part in parts]))
    content = {"format": FORMAT, "base": found.base, "configurations": configurations, "parts": cut}
    with lock_folder(out):
        # parts of the folder: another machine would cut other waves
        parts = distributed.tell(distributed.on_first(lambda: _open_parts(out, content, wave)))
        return _run(out, found, parts, shows(progress))


def _open_parts(out: Path, content: dict[str, Any], wave: int | None) -> list[dict[str, Any]]:
    """Return the folder's parts, cut anew for another `wave` if none has begun."""
    there = open_folder(out, content, ("configurations",))
    if wave is None or there["parts"] == content["parts"]:
        return there["parts"]
    folders = [part_folder(out, i) for i in range(len(there["parts"]))]
    if any((folder / "result.json").exists() or RunDir(folder).resumable for folder in folders):
        raise ConfigError("wave", wave,
                          "left out: parts of this sweep are trained as they were cut")
    configs.write_json(out / "sweep.json", there | {"parts": content["parts"]})
    return content["parts"]


def _columns(configurations: Sequence[Settings]) -> dict[str, list[Any]]:
    return {name: [c[name] for c in configurations] for name in configurations[0]}


def resume_sweep(
    out: str | Path, modules: Sequence[str] = (), progress: bool = False,
    devices: int | str | None = None,
    mesh: Mapping[str, int] | None = None, argument: str = "out", hooks: Sequence[Any] = (),
) -> SweepResult:  # fmt: skip
    """Resume a sweep: finished parts stay, the interrupted one continues.

    modules: of the user, imported first.  devices, mesh: as in `jf.resume`; waves stay. argument:
    the folder's name in errors.
    """
    out, content, place = Path(out), read_folder(out, argument), {"devices": devices, "mesh": mesh}
    if "optuna" in content:
        raise ConfigError("out", str(out),
                          "a sweep; this is a search by Optuna (`tuning.resume_search`)")
    members = len(content["configurations"])
    with reopen(out, content, members, modules, place, argument, hooks) as sweep:
        return _run(out, sweep, content["parts"], progress, place)


@contextlib.contextmanager
def reopen(
    out: Path, content: dict[str, Any], members: int, modules: Sequence[str],
    place: Mapping[str, Any], argument: str, hooks: Sequence[Any] = (),
) -> Iterator[Sweep]:  # fmt: skip
    """Yield the sweep of a folder, locked, to resume on other devices (`place`).

    members: configurations that train at once.
    """
    algo, env, config, about = decode_base(content, modules, out)
    config = elsewhere(config, **place)
    spread_members(env, config, members * config.seeds)
    with folders.hold_lock(argument, out):
        yield Sweep(algo, env, config, about, content["configurations"], hooks)


def _run(out: Path, sweep: Sweep, parts, progress: bool,
         place: Mapping[str, Any] | None = None) -> SweepResult:
    run_parts(out, sweep, parts, progress, place)
    distributed.tell(True)  # the first process has written the last result
    result = read_sweep(out)
    if distributed.is_first():
        finish(result)
    return result


def run_parts(out: Path, sweep: Sweep, parts, progress: bool,
              place: Mapping[str, Any] | None = None,
              done: dict[int, str | None] | None = None) -> None:
    """Train the unfinished parts of sweep.json; an interrupted one resumes, on `place`.

    done: parts that earlier calls of this process checked or trained, with the identity of their
        experience; this call adds its own.
    """
    done = {} if done is None else done
    for i, part in enumerate(Part(**p) for p in parts):
        if i in done:
            continue
        folder = part_folder(out, i)
        if folder.is_symlink() or folder.parent.is_symlink():  # incomplete parts are trained anew
            raise ConfigError("parts", str(folder),
                              "a folder in the sweep's, not a link, to go on with it")
        state = [(folder / "result.json").exists(), RunDir(folder).resumable]
        ended, cut_off = distributed.tell(state)
        if ended or cut_off:
            check = functools.partial(_check_part, out, folder, sweep, part)
            done[i] = distributed.tell(distributed.on_first(check))
        done.setdefault(i)
        if ended:
            continue
        if progress and distributed.is_first():
            population = population_of(sweep.config, len(part.configurations) * part.seeds)
            where = f"; {population}" if len(population.devices) > 1 else ""
            print(f"part {i + 1} of {len(parts)}: {_summary(part, sweep.configurations)}{where}",
                  flush=True)
        around = Around(sweep.hooks, progress=progress)
        try:
            if cut_off:
                resume_run(folder, around, **place or {})
            else:
                if distributed.is_first():
                    folders.discard(folder)
                begin(_prepared(_same_experience(sweep, done), part), folder, around)
        except Stopped as stopped:  # within the part, or before it was compiled
            raise Interrupted(stopped.signum, out, getattr(stopped, "env_steps", 0),
                              "sweep") from None
        except NonFiniteError as error:  # all its members; other parts continue
            if sweep.config.on_nan != "mark":
                raise
            warnings.warn(f"part {i + 1} of {len(parts)} is lost: {error}", stacklevel=2)


def _check_part(out: Path, folder: Path, sweep: Sweep, part: Part) -> str | None:
    """Return the identity of a begun part's experience, if known.

    Raises ConfigError unless the part has the settings that sweep.json says now.
    """
    try:
        algo, env, config, _ = configs.load(folder)
        written = settings_of_folder(folder, algo, env, config)
    except ConfigError:  # a damaged file: a resume names it, and results do not need it
        return None
    if config.experience == sweep.config.experience:  # the folder may be gone by now
        sweep = _same_experience(sweep, {0: config.experience_id})
    check_settings(out / "sweep.json", folder, written, *_settings(sweep, part))
    return config.experience_id


def _same_experience(sweep: Sweep, done: Mapping[int, str | None]) -> Sweep:
    """Return a sweep whose next parts learn from the experience of the parts in `done`."""
    known = next(filter(None, done.values()), sweep.config.experience_id)
    if known == sweep.config.experience_id:
        return sweep  # with the configurations that it has built
    return dataclasses.replace(sweep, config=dataclasses.replace(sweep.config, experience_id=known))


def _settings(sweep: Sweep, part: Part) -> tuple[Algorithm, Environment, RunConfig]:
    """Return the algorithm, environment and run of a part."""
    chosen = [sweep.configurations[c] for c in part.configurations]
    config = dataclasses.replace(sweep.config, seed=part.seed, seeds=part.seeds,
                                 population=_columns(chosen))
    return *configure(sweep.algo, sweep.env, chosen[0]), at_start(config)


def _prepared(sweep: Sweep, part: Part, outline: bool = False) -> Prepared:
    """Return the run of a part. outline: see `prepare`."""
    built = [sweep.built(c) for c in part.configurations]
    return prepare(*_settings(sweep, part), sweep.about, built=built, outline=outline)


def finish(result: SweepResult) -> None:
    """Write table.csv, best.json and, unless the runs have none, the plots."""
    write_results(result)
    if np.isfinite(result.final).any() and result.content["base"]["run"].get("pictures", True):
        try:
            sweep_plots.draw(result)
        except Exception as error:  # results exist; a plot must not fail them
            warnings.warn(f"the pictures of {result.path} could not be drawn: {brief(error)}",
                          stacklevel=2)


def _summary(part: Part, configurations: Sequence[Settings]) -> str:
    members = len(part.configurations) * part.seeds
    first = configurations[part.configurations[0]]
    fixed = [f"{k} = {v}" for k, v in first.items()
             if len({repr(configurations[c][k]) for c in part.configurations}) == 1]
    return ", ".join([f"{members} member{'s' * (members > 1)}", *fixed])
