"""Train the beginning of a run, as `jaxrl-fast train` would, and note the time of each part."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import plan_grid
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.engine.tuned import add_tuned
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.forecast.energy import Meter
from jaxrl_fast.profiling.timing import short_row
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.train import Around, at_start, begin

CHUNKS = 12  # of a calibration: the first one is left out
SAVED = "/jax/compilation_cache/compile_time_saved_sec"  # JAX's event of a program from the cache


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Measured seconds of a run's beginning, of all members; of one seed on the host.

    compile: until the first iteration. cached: seconds of it that the compile cache saved. warmup:
    of the random steps. iterations: of each chunk, one iteration. evaluate: of the last evaluation,
    `episodes` a member. length: mean steps of an episode, None: none ended. checkpoint, end: of
    writing a checkpoint, and of the last one with the pictures. rows: of writing a log row. watts:
    mean power, None: not readable. temporaries: bytes of compiled programs on a device.
    """

    compile: float
    cached: float
    warmup: float
    iterations: tuple[float, ...]
    evaluate: float
    episodes: int
    length: float | None
    checkpoint: float
    end: float
    rows: float
    watts: float | None
    temporaries: tuple[Any, ...]


def short_rows(algo: Algorithm, env: Environment, config: RunConfig) -> int:
    """Return the environment steps of log rows that a calibration can afford."""
    grid = plan_grid(algo.bind(env.spec), config)
    return short_row(grid, 1 if in_turn(env, config) else config.members) * grid.steps


def calibrate(
    algo: Algorithm, env: Environment, config: RunConfig, seconds: float = 5.0
) -> Calibration:
    """Train for about `seconds` in a temporary folder.

    The programs are those of the run: compiled for its members, devices, horizon and settings.
    A replay's random steps come first, however long they take.

    Raises:
        ConfigError: the run does not fit the device or its settings do not fit each other.
        RunError: it failed.
    """
    config = at_start(config)
    turns = {"seeds": 1} if in_turn(env, config) else {}
    short = dataclasses.replace(
        config, log_every=short_rows(algo, env, config), eval_every=0, target_return=None,
        chunk_seconds=seconds / CHUNKS, checkpoint_minutes=seconds / 2 / 60, **turns,
    )  # fmt: skip
    watch = Watch(seconds)
    with tempfile.TemporaryDirectory() as folder, _saved() as saved:
        prepared, _ = add_tuned(prepare(algo, env, short))  # as `train` does
        run = begin(prepared, Path(folder) / "run", Around((watch,)))
        return watch.calibration(run, sum(saved))


class Watch:
    """A hook that notes a run's clock after each chunk and stops it in time."""

    def __init__(self, seconds: float):
        self.seconds, self.meter = seconds, None
        # iterations, seconds of training, seconds of writing
        self.marks: list[tuple[int, float, float]] = []

    def __call__(self, run: Result, rows: list) -> None:
        self.meter = self.meter or Meter()
        self.meter.sample()
        progress = run.progress
        self.marks.append((progress.iterations, progress.train_seconds, run.seconds["write"]))
        if progress.train_seconds >= self.seconds and len(self.marks) > 2:
            run.stop()

    def calibration(self, run: Result, saved: float) -> Calibration:
        """Return the calibration of a finished run."""
        grid, spent, marks = run.grid, run.seconds, self.marks
        first = (grid.warmup, 0.0, marks[0][2])
        pairs = list(zip([first, *marks], marks, strict=False))
        chunks = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0]]
        writes = sorted(b[2] - a[2] for a, b in pairs[1:])
        usual = writes[len(writes) // 2] if writes else 0.0
        _, lengths = run.curve("episode_length")
        return Calibration(
            compile=spent["compile"],
            cached=max(saved, 0.0),
            warmup=max(spent["train"] - run.progress.train_seconds, 0.0) if grid.warmup else 0.0,
            iterations=tuple(chunks[1:] or chunks),
            evaluate=spent["evaluate"],
            episodes=run.eval_episodes,
            length=float(lengths[-1].mean()) if len(lengths) else None,
            checkpoint=max(writes[-1] - usual, 0.0) if writes else 0.0,
            end=max(spent["write"] - marks[-1][2], 0.0),
            rows=usual * len(marks) / max(run.rows, 1),
            watts=self.meter.watts(),
            temporaries=tuple(run.lanes.programs.memory_analysis().values()),
        )


@contextlib.contextmanager
def _saved() -> Iterator[list[float]]:
    """Note the seconds that programs from the compile cache saved."""
    found: list[float] = []

    def note(name: str, seconds: float, **_: Any) -> None:
        if name == SAVED:
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
