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
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.keywords import SweepSettings
from jaxrl_fast.engine.members import spread_members
from jaxrl_fast.engine.placement import elsewhere, population_of
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, NonFiniteError, brief
from jaxrl_fast.files import folders
from jaxrl_fast.logs.terminal import shows
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.settings import check_settings
from jaxrl_fast.runs.load import resume_run
from jaxrl_fast.runs.reading import settings_of_folder
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.runs.signals import Interrupted, Stopped
from jaxrl_fast.runs.train import Around, begin
from jaxrl_fast.sweeps import plots as sweep_plots
from jaxrl_fast.sweeps.configurations import Settings
from jaxrl_fast.sweeps.opening import open_sweep, prepare_part, settings_of
from jaxrl_fast.sweeps.parts import Part, Sweep, decode_base, part_folder, read_folder
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
    with open_sweep(algo, env, total_steps, grid, sample, members, selection, wave, out, about,
                    hooks, **settings) as opened:
        return train_opened(*opened, shows(progress))


def train_opened(
    out: Path, sweep: Sweep, parts: Sequence[dict[str, Any]], progress: bool,
    place: Mapping[str, Any] | None = None,
) -> SweepResult:  # fmt: skip
    """Train the unfinished parts of a locked folder and write the results."""
    run_parts(out, sweep, parts, progress, place)
    distributed.tell(True)  # the first process has written the last result
    result = read_sweep(out)
    if distributed.is_first():
        finish(result)
    return result


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
        return train_opened(out, sweep, content["parts"], progress, place)


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
                begin(prepare_part(_same_experience(sweep, done), part), folder, around)
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
    check_settings(out / "sweep.json", folder, written, *settings_of(sweep, part))
    return config.experience_id


def _same_experience(sweep: Sweep, done: Mapping[int, str | None]) -> Sweep:
    """Return a sweep whose next parts learn from the experience of the parts in `done`."""
    known = next(filter(None, done.values()), sweep.config.experience_id)
    if known == sweep.config.experience_id:
        return sweep  # with the configurations that it has built
    return dataclasses.replace(sweep, config=dataclasses.replace(sweep.config, experience_id=known))


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
