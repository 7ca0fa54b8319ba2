"""A new sweep: its checks, all of them before its folder is written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from jaxrl_fast import distributed
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import import_named
from jaxrl_fast.algorithms.presets import resolve_names
from jaxrl_fast.engine.config import MOST_MEMBERS, RunConfig, run_config
from jaxrl_fast.engine.iteration import check_types
from jaxrl_fast.engine.keywords import SweepSettings
from jaxrl_fast.engine.members import configure, spread_members
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.logs.sinks import check_hooks
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs import videos
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.runs.train import at_start, check_start
from jaxrl_fast.sweeps.configurations import Settings, check_names, configurations_of
from jaxrl_fast.sweeps.folder import folder_of, lock_folder, open_folder
from jaxrl_fast.sweeps.parts import FORMAT, Part, Sweep, part_folder, split


@contextlib.contextmanager
def open_sweep(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None, sample: Mapping[str, str] | None = None,
    members: int | None = None, selection: Any = None, wave: int | None = None,
    out: str | Path = "auto", about: dict[str, Any] | None = None, hooks: Sequence[Any] = (),
    **settings: Unpack[SweepSettings],
) -> Iterator[tuple[Path, Sweep, list[dict[str, Any]]]]:  # fmt: skip
    """Yield the arguments of `train_opened` for a new sweep, checked and its folder locked.

    The arguments are `sweep`'s.

    Raises:
        ConfigError: a bad setting of any configuration; nothing is written.
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
        check_int("members", members, 2, MOST_MEMBERS)
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
    total_members = len(configurations) * config.seeds
    if len(configurations) > MOST_MEMBERS:
        raise ConfigError("grid", f"{len(configurations):,} configurations",
                          f"at most {MOST_MEMBERS:,}: a sweep has no more members")
    if total_members > MOST_MEMBERS:  # waves too: one table holds them all
        raise ConfigError("seeds", config.seeds,
                          f"at most {MOST_MEMBERS // len(configurations):,} with "
                          f"{len(configurations):,} configurations: a sweep has at most "
                          f"{MOST_MEMBERS:,} members")
    spread_members(env, config, total_members)
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
    videos.check(config)
    if selection or config.start_from is not None:
        for part in parts:
            check_start(prepare_part(found, part, outline=True), hooks)
    cut = json.loads(json.dumps([dataclasses.asdict(part) for part in parts]))
    content = {"format": FORMAT, "base": found.base, "configurations": configurations, "parts": cut}
    with lock_folder(out):
        # parts of the folder: another machine would cut other waves
        yield out, found, distributed.tell(
            distributed.on_first(lambda: _open_parts(out, content, wave)))


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


def settings_of(sweep: Sweep, part: Part) -> tuple[Algorithm, Environment, RunConfig]:
    """Return the algorithm, environment and run of a part."""
    chosen = [sweep.configurations[c] for c in part.configurations]
    config = dataclasses.replace(sweep.config, seed=part.seed, seeds=part.seeds,
                                 population=_columns(chosen))
    return *configure(sweep.algo, sweep.env, chosen[0]), at_start(config)


def prepare_part(sweep: Sweep, part: Part, outline: bool = False) -> Prepared:
    """Return the run of a part. outline: see `prepare`."""
    built = [sweep.built(c) for c in part.configurations]
    return prepare(*settings_of(sweep, part), sweep.about, built=built, outline=outline)
