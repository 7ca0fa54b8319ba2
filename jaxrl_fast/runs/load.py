"""Loading from a run directory: the trained agent, or the run itself to resume."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import distributed
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import plan_grid
from jaxrl_fast.engine.members import in_turn, spread_members
from jaxrl_fast.engine.offline import replay_after
from jaxrl_fast.engine.placement import elsewhere
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.errors import ConfigError, check_choice, check_int, expected
from jaxrl_fast.files import folders
from jaxrl_fast.logs.sinks import Sink, check_hooks
from jaxrl_fast.logs.terminal import shows
from jaxrl_fast.memory import Filled
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs import hub
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.checkpoints.metadata import parse_metadata
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.export import safetensors
from jaxrl_fast.runs.reading import read_member, read_meta
from jaxrl_fast.runs.result import AnyResult, Result
from jaxrl_fast.runs.rundir import RunDir, run_path, seed_folder
from jaxrl_fast.runs.seed_results import ended_seeds
from jaxrl_fast.runs.seeds_in_turn import SeedsInTurn, sinks_of_each
from jaxrl_fast.runs.signals import run_so_far
from jaxrl_fast.runs.train import Around, begin, run_prepared
from jaxrl_fast.types import RunState
from jaxrl_fast.values import expand_home

HOST = ("actors", "actors_on", "host_timeout", "restarts")  # settings that a resume may change


def load(path: str | Path, which: str = "auto", member: int | None = None,
         modules: Sequence[str] = ()) -> Agent:
    """Return the agent of a run directory, or of an exported policy.

    path: a run directory, a folder that `Agent.export` wrote in safetensors, or
        "hf://OWNER/NAME[@REVISION]" (extra [hub]).
    which: "best" by evaluation, "last", or "auto": the best if there is one.
    member: seed of a population. None: the best at the time of the checkpoint "best"; for "last",
        the best at the end (the first without a result).
    """
    check_choice("which", which, ("auto", "best", "last"))
    order = ("best", "last") if which == "auto" else (which,)
    path = hub.fetch("path", path) if hub.is_remote(path) else path
    if isinstance(path, (str, Path)) and safetensors.is_exported(Path(expand_home(path))):
        return Agent(*safetensors.load(Path(expand_home(path)), which, member, modules))
    run, env, config, agent, row, _, score = read_member(path, order, member, modules)
    whole = isinstance(agent, RunState)
    return Agent(run.algo, env, config, agent.agent if whole else agent, row, score)


def experience(run: Any, member: int = 0, modules: Sequence[str] = ()) -> Filled:
    """Return the replay of a run's member, for `save_memory` and `train(experience=...)`.

    run: a result of `train`, or a run directory, for its last checkpoint.
    """
    if isinstance(run, (str, Path)):
        run, _, config, state, rows, iterations, _ = read_member(run, ("last",), member, modules)
        if iterations is None:  # a checkpoint without them, of an older version
            grid = plan_grid(run.algo, config)
            iterations = grid.warmup + rows * grid.row
        return replay_after(run, state.memory, iterations)
    if not isinstance(run, AnyResult):
        raise expected("run", "a run directory, or a result of jf.train", repr(run)[:100])
    check_int("member", member, 0, run.config.members - 1)
    if not isinstance(run, Result):
        if not run.path:
            raise ConfigError("run", "in memory", "one with `out`: copies, and seeds that train "
                                                  "one after another, keep no replay in memory")
        return experience(run.path, member, modules)
    members = run.lanes.members.tolist()
    if member not in members:
        raise ConfigError("member", member,
                          f"one that is still there ({', '.join(map(str, members))})")
    first = dataclasses.replace(run.prepared.members.first, algo=run.setup(member)[0])
    store = run.population.member(run.state.memory, members.index(member))
    return replay_after(first, store, run.progress.iterations)


def resume(
    path: str | Path, total_steps: int | None = None, horizon: int | None = None,
    modules: Sequence[str] = (),
    hooks: Sequence[Any] = (), sinks: Sequence[Any] = (), tensorboard: bool = True,
    progress: bool | None = None,
    devices: int | str | None = None, mesh: Mapping[str, int] | None = None, **host: Any,
):  # fmt: skip
    """Resume a run from its last checkpoint, bit for bit, and return it, like `train`.

    Args:
        total_steps: a new end; a target return reached by every member does not stop the run again.
        horizon: a new horizon of schedules. Without one they keep the horizon of the start and stay
            at their end values past it (with a warning).
        modules, hooks, sinks, tensorboard, progress: as in `train`.
        devices, mesh: new placement ("all": all devices); on another number of devices, results are
            equal to rounding.
        host: other values of `HOST`, for environments on the host; they restart in any case.
    """
    for name in host:
        check_choice("resume", name, HOST)
    return run_so_far(lambda: resume_run(
        path, Around(hooks, sinks, tensorboard, shows(progress)), total_steps=total_steps,
        horizon=horizon, modules=modules, devices=devices, mesh=mesh, **host,
    ))  # fmt: skip


def resume_run(
    path: str | Path, around: Around = Around(), argument: str = "path", part: bool = False,
    **settings: Any,
) -> Result | SeedsInTurn:  # fmt: skip
    """Resume for callers that stop with the run: Ctrl-C always raises `Interrupted`.

    argument: `path` in errors. part: of a run that has warned of its horizon. settings: as in
    `resume`.
    """
    if isinstance(path, (str, Path)):  # before the first process finds it missing and others do not
        distributed.check_shared(Path(path) / "config.json")
    path = run_path(argument, path)
    configs.read_config(path)  # before anything is made in another folder
    with folders.hold_lock(argument, path):
        return _resume(path, around, argument, part, **settings)


def _resume(path, around, argument, part, total_steps=None, horizon=None, modules=(),
            devices=None, mesh=None, **host):  # fmt: skip
    """Resume from a locked folder."""
    check_hooks(around.hooks)
    algo, env, config, content = configs.load(path, modules)
    config = elsewhere(config, devices, mesh)
    spread_members(env, config)  # before a checkpoint read starts JAX's backend
    grid = plan_grid(algo.bind(env.spec), config)
    ends = {k: v for k, v in {"total_steps": total_steps, "horizon": horizon}.items()
            if v is not None}
    new = dataclasses.replace(config, **host, **ends, log_every=grid.row * grid.steps)
    end = lambda config: config.horizon or config.total_steps
    if end(new) != end(config):  # which moves no evaluation
        new = dataclasses.replace(new, eval_every=grid.eval_rows * grid.row * grid.steps)
    if in_turn(env, config):
        more = {"modules": modules, "devices": devices, "mesh": mesh} | host
        about = {name: content[name] for name in ("preset", "imports") if name in content}
        return _resume_in_turn(path, around, prepare(algo, env, new, about), more)
    with Checkpoints(RunDir(path).checkpoints, read_only=True) as checkpoints:
        distributed.on_first(checkpoints.check_own)
        whole = lambda *one: read_meta(checkpoints, *one, algo, env, config) and one[1]
        find = lambda: checkpoints.read(("last",), whole)
        number = distributed.tell(distributed.on_first(find))
        if number is None:
            raise ConfigError(argument, str(path),
                              "a run that has saved a checkpoint; start it again instead")
        with checkpoints.reading("last", number):
            last = parse_metadata(number, checkpoints.meta("last", number), grid)
    if total_steps is not None and all(last.progress.reached):
        new = dataclasses.replace(new, target_return=None)
    done = grid.env_steps(last.progress.rows)
    if last.env_steps not in (None, done):
        raise ConfigError("config", str(Path(path) / "config.json"),
                          f"the file that the run wrote: its checkpoint is at {last.env_steps:,} "
                          "steps, and its settings (total_steps, horizon, log_every, num_envs, "
                          f"num_steps) put it at {done:,}. total_steps of a resume sets a new end")
    if total_steps is not None and total_steps < done:
        raise ConfigError("total_steps", total_steps, f"at least the {done:,} steps that are done")
    RunDir(path).history(done)  # a damaged log is refused before anything is compiled
    prepared = prepare(algo, env, new, size=len(last.members))
    if not part:
        _warn_of_horizon(new)
    return run_prepared(prepared, lambda: RunDir(path), around, last)


def _warn_of_horizon(config: RunConfig) -> None:
    if config.total_steps > (config.horizon or 0):
        warnings.warn(
            f"total_steps {config.total_steps:,} is beyond the horizon {config.horizon:,} fixed at "
            "the start: schedules such as the learning rate stay at their end values; --horizon "
            "(or horizon=) sets a new one",
            stacklevel=3,
        )


def _resume_in_turn(path: Path, around: Around, prepared: Prepared,
                    more: dict[str, Any]) -> SeedsInTurn:
    """Resume seeds that take turns: ended ones stay. more: other arguments of `resume_run`."""
    make_sinks, rundir = sinks_of_each(around.sinks), RunDir(path)
    trained = ended_seeds(path, prepared, more["modules"])
    if len(trained) < prepared.config.seeds:
        _warn_of_horizon(prepared.config)

    def train_seed(part: Prepared, sinks: Sequence[Sink]) -> Result:
        folder, its = seed_folder(path, part.config.seed), around._replace(sinks=sinks)
        if not RunDir(folder).resumable:
            folders.discard(folder)
            return begin(part, folder, its)
        old = configs.read_config(folder)["run"]
        given = lambda name: (
            None if getattr(part.config, name) == old.get(name) else getattr(part.config, name)
        )
        return resume_run(folder, its, part=True, total_steps=given("total_steps"),
                          horizon=given("horizon"), **more)

    run = SeedsInTurn(prepared, rundir, train_seed, make_sinks, around.progress, trained)
    rundir.update(prepared)
    return run.train()
