"""Restoring a run from its checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import jax

from jaxrl_fast import distributed
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs.checkpoints.errors import DamagedError
from jaxrl_fast.runs.checkpoints.metadata import Saved
from jaxrl_fast.runs.checkpoints.store import Checkpoints, abstract
from jaxrl_fast.runs.result import Result


def restore(run: Result, saved: Saved, checkpoints: Checkpoints, sinks: Sequence[Sink]) -> None:
    """Read the state from `last` and the score to beat from `best`; cut the log at the state."""
    lanes, programs, population = run.lanes, run.lanes.programs, run.population
    like = jax.eval_shape(programs.unpadded, lanes.state)
    lanes.state = None  # a second one may not fit
    if population.size in (1, population.padded):
        lanes.state = checkpoints.restore("last", saved.number, population.abstract_state(like))
    else:
        whole = abstract(like, population.replicated)
        lanes.state = programs.padded(checkpoints.restore("last", saved.number, whole))
    checkpoints.pass_over("last", saved.number)
    lanes.lost = saved.lost
    with checkpoints.reading("last", saved.number):
        lanes.change(saved.settings)
    try:
        best = checkpoints.read(("best",), checkpoints.meta)
    except DamagedError as error:
        best = None
        warnings.warn(f"{error}; the score to beat is that of the next evaluation", stacklevel=2)
    if best is not None:
        run.best.score, run.best.rows = float(best["best_score"]), int(best["best_rows"])
    distributed.on_first(lambda: [sink.cut(run.env_steps) for sink in sinks] and None)
    if run.out:
        run.history = run.out.history(run.env_steps)
        _warn_of_holes(run)
        distributed.on_first(lambda: run.out.update(run.prepared))  # after the checkpoint


def _warn_of_holes(run: Result) -> None:
    """Warn of log rows missing before the checkpoint of a resume."""
    there = {row.env_steps for row in run.history}
    missing = [steps for steps in map(run.grid.env_steps, range(1, run.rows + 1)) if steps not in there]
    if missing and distributed.is_first():
        warnings.warn(
            f"{run.out.metrics} lacks {len(missing)} of the {run.rows} log rows before the checkpoint at {run.env_steps:,} "
            f"steps (the first at {missing[0]:,}): it was cut short or damaged; the run goes on without them",
            stacklevel=2,
        )
