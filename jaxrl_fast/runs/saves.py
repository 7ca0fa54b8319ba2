"""What of a session goes to its checkpoints, and comes back from them."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.engine.members import leaf_names
from jaxrl_fast.engine.programs import NEVER, Part
from jaxrl_fast.errors import WriteError
from jaxrl_fast.runs.checkpoint import Checkpoints, DamagedError, abstract, to_json
from jaxrl_fast.runs.rundir import whole_run
from jaxrl_fast.runs.session import Session
from jaxrl_fast.types import Mean


def save(s: Session, checkpoints: Checkpoints) -> None:
    """Flush the log, then write the best agent and the whole state from a snapshot that no donation can touch."""
    for sink in s.sinks:
        sink.flush()
    save_best(s, checkpoints)
    if s.saved != s.iterations:
        part, newest, s.saved = s.programs.part, checkpoints.latest("last"), s.iterations
        meta = {
            "rows": s.rows, "env_steps": s.env_steps, "wall_seconds": s.wall_seconds, "reached": s.reached,
            "seconds": s.seconds, "train_seconds": s.train_seconds, "train_steps": s.train_steps,
            "row_seconds": s.row_seconds, **s.who(),
            "iterations": s.iterations, "part": part.metrics if part else {},
            "names": s.programs.names, "reports": list(s.programs.reports),
        }  # fmt: skip
        number = s.rows if newest is None else max(s.rows, newest + 1)  # a part of a row has none of its own
        checkpoints.save("last", number, s.programs.snapshot(s.state), to_json(meta))


def save_best(s: Session, checkpoints: Checkpoints) -> None:
    """The best agent, if it is not on disk yet.

    Its number is that of its row, or a later one: the newest is kept, and a run that was killed before its `last`
    was written and resumed with another horizon may find a better agent in an earlier row than the one on disk.
    """
    if s.best_agent is None:
        return
    newest = checkpoints.latest("best")
    number = s.best_rows if newest is None else max(s.best_rows, newest + 1)
    meta = {"best_rows": s.best_rows, "best_score": s.best_score, "best_scores": s.best_scores, **s.best_lanes}
    checkpoints.save("best", number, s.best_agent, to_json(meta))
    s.best_agent = None


def rescue(s: Session, checkpoints: Checkpoints | None) -> str:
    """Put the log and the best agent of a failed run on the disk; says which checkpoints there are."""
    try:
        for sink in s.sinks:
            sink.flush()
        if checkpoints is None:
            return ""
        save_best(s, checkpoints)
        checkpoints.wait()
    except WriteError as error:  # what ended the run comes first
        return f"; {error}{standing(s.out.path)}"
    number = checkpoints.newest("last")
    if number is not None:
        good = checkpoints.folder / "last" / str(number)
        return f"; the last good checkpoint is {good} (go on with {resuming(s.out.path)})"
    none = f"; no checkpoint was due before it (checkpoint_minutes = {s.config.checkpoint_minutes:g})"
    best = checkpoints.newest("best") is not None
    return none + (f", the best agent until then is in {checkpoints.folder / 'best'}" if best else "")


def standing(path: Path) -> str:
    """What is left of a run that can no longer write to its directory, and how to go on."""
    again = "start the run again"
    if whole_run(path) != path:
        again = f"once it can be written again, go on with {resuming(path)}, which begins {path.name} anew"
    if not (path / "config.json").is_file():  # orbax makes the folders of a checkpoint again
        return f"; {path} is gone: {again}"
    with Checkpoints(path / "checkpoints", read_only=True) as checkpoints:
        number = checkpoints.newest("last")
    if number is None:
        return f"; there is no whole checkpoint: {again}"
    good = checkpoints.folder / "last" / str(number)
    return f"; {good} is whole: once it can be written again, go on with {resuming(path)}"


def resuming(path: Path) -> str:
    """Say what to type to go on with a run, or with the one that a seed is a part of."""
    path = whole_run(path)
    return f"jaxrl-fast train --resume {shlex.quote(str(path))} or, from Python, jf.resume({str(path)!r})"


def restore(s: Session, checkpoints: Checkpoints, number: int) -> None:
    """The whole state from `last`, the score to beat from `best`; the log ends where the state does."""
    meta = checkpoints.meta("last", number)
    like = jax.eval_shape(s.programs.unpadded, s.state)
    s.state = None  # a second one may not fit
    if s.population.size in (1, s.population.padded):
        s.state = checkpoints.restore("last", number, s.population.abstract_state(like))
    else:
        s.state = s.programs.padded(checkpoints.restore("last", number, abstract(like, s.population.replicated)))
    checkpoints.pass_over("last", number)
    with checkpoints.reading("last", number):
        _take(s, meta)
    try:
        best = checkpoints.read(("best",), checkpoints.meta)
    except DamagedError as error:
        best = None
        warnings.warn(f"{error}; the score to beat is that of the next evaluation", stacklevel=2)
    if best is not None:
        s.best_score, s.best_rows = float(best["best_score"]), int(best["best_rows"])
    distributed.on_first(lambda: [sink.cut(s.env_steps) for sink in s.sinks] and None)
    if s.out:
        s.history = s.out.history(s.env_steps)
        warn_of_holes(s)
        distributed.on_first(lambda: s.out.update(s.prepared))  # now that the checkpoint was read


def _take(s: Session, meta: dict[str, Any]) -> None:
    """What a checkpoint `last` says beside its state."""
    s.rows, s.wall_seconds, s.reached = int(meta["rows"]), float(meta["wall_seconds"]), list(meta["reached"])
    if meta.get("part"):
        s.programs.part = Part(int(meta["iterations"]), {name: Mean(*np.float32(mean)) for name, mean in meta["part"].items()})
    s.programs.names = dict(meta.get("names", {}))
    s.programs.reports = dict.fromkeys(meta.get("reports", ()), NEVER)
    s.saved = s.iterations
    s.row_seconds = float(meta.get("row_seconds", 0.0))  # older versions have no such times
    s.earlier = {k: float(v) for k, v in meta.get("seconds", {"train": s.wall_seconds}).items()}
    s.train_seconds, s.train_steps = float(meta["train_seconds"]), int(meta["train_steps"])
    for name, values in meta["settings"].items():
        s.settings[name] = np.asarray(values, np.float32)
        s.programs.change(leaf_names(s.members.first).index(name), s.settings[name])
    s.lost = {int(x["member"]): {k: x[k] for k in ("env_steps", "reason")} for x in meta["lost"]}


def warn_of_holes(s: Session) -> None:
    """Say which rows of the log are missing before the checkpoint that a run goes on from."""
    there = {row.env_steps for row in s.history}
    missing = [steps for steps in map(s.grid.env_steps, range(1, s.rows + 1)) if steps not in there]
    if missing and distributed.is_first():
        warnings.warn(
            f"{s.out.metrics} lacks {len(missing)} of the {s.rows} log rows before the checkpoint at {s.env_steps:,} steps "
            f"(the first at {missing[0]:,}): it was cut short or damaged; the run goes on without them",
            stacklevel=2,
        )
