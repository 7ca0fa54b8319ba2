"""The folders of seeds that take turns, checked before a resume writes in any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.engine.config import IN_MEMORY, RunConfig
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.errors import expected
from jaxrl_fast.files.folders import check_folder
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.reading import check_seed
from jaxrl_fast.runs.rundir import RunDir, seed_folder
from jaxrl_fast.runs.seed_results import Trained, of_folder


def ended_seeds(path: Path, prepared: Prepared, modules: Sequence[str] = ()) -> dict[int, Trained]:
    """Return {member: results} of finished seeds; the others can continue or restart.

    Args:
        path: the run directory of all seeds.
        prepared: the run with its new end.

    Raises:
        ConfigError: a seed's folder is a link, holds another run, has more steps than the new end,
            or can neither continue nor restart.
    """
    ended, config = {}, prepared.config
    for seed in config.member_seeds():
        folder = seed_folder(path, seed)
        check_folder(folder)
        if not folder.exists():
            _check_anew(folder, config)
            continue
        if (folder / "config.json").is_file():
            check_seed(folder, prepared.algo, prepared.env, seed, modules)
        result = of_folder(folder, modules) if (folder / "result.json").is_file() else None
        if result and (result.lost or _end(folder) == (config.total_steps, config.horizon)):
            ended[seed - config.seed] = result
        elif RunDir(folder).resumable:
            _check_done(folder, config, prepared.grid)
        elif result:
            remedy = f"move {folder.name} elsewhere and resume the run, which restarts this seed"
            raise expected(str(folder), "a run with its checkpoints", f"one that has ended and lost them; {remedy}")
        else:
            _check_anew(folder, config)
    return ended


def _check_done(folder: Path, config: RunConfig, grid: Grid) -> None:
    """Raise ConfigError without a whole checkpoint, or with one past the end of the run."""
    with Checkpoints(RunDir(folder).checkpoints, read_only=True) as checkpoints:
        checkpoints.check_own()
        meta = checkpoints.read(("last",), checkpoints.meta)
    done = grid.env_steps(meta["rows"])
    if done > grid.env_steps(grid.rows):
        go_on = "give that many, or more, as total_steps (--total-steps)"
        raise expected("total_steps", f"at least the {done:,} steps that {folder.name} has", f"{config.total_steps:,}: {go_on}")


def _check_anew(folder: Path, config: RunConfig) -> None:
    """Raise ConfigError for a seed without checkpoints that cannot restart."""
    if config.start_from == IN_MEMORY:
        gone = f"parameters in memory, which are gone with their process, and {folder.name} has no checkpoint"
        remedy = "`resume()` of the run in that process goes on with it; jf.load reads the seeds that have ended"
        raise expected("start_from", "a run directory", f"{gone}; {remedy}")


def _end(folder: Path) -> tuple[Any, Any]:
    """Return total_steps and horizon of a run directory."""
    run = configs.read_config(folder)["run"]
    return run["total_steps"], run.get("horizon")
