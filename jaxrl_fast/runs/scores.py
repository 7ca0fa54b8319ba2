"""Evaluations of a run in training: columns of its log rows, and its final scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.logs.rows import Measured, Row
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.sentinel import EvaluationProgress, Sanity, evaluate
from jaxrl_fast.runs.signals import Signals, Stopped


class Scored(NamedTuple):
    """An evaluation's outcome."""

    columns: dict[str, np.ndarray] = {}
    bad: str | None = None  # a message on non-finite values that ends the run
    failed: HostError | None = None  # of the environments; the agent stays valid
    failure: Exception | Stopped | None = None  # any other error; the rows stay valid


class Scorer:
    """Evaluates a run at rows and at its end, where the last row gets the evaluation."""

    def __init__(self, run: Result, sinks: Sequence[Sink], signals: Signals, sanity: Sanity):
        self.run, self.sinks, self.signals, self.sanity = run, sinks, signals, sanity
        self.progress = EvaluationProgress(run.config, sinks)

    def evaluate(self, rows: Sequence[Measured] = ()) -> Scored:
        """Evaluate the members now. rows: the newest, which the history does not hold yet."""
        self.run.lanes.programs.context.latest = rows
        try:
            found = Scored(*evaluate(self.run, self.sanity, self.progress))
            if self.run.over:  # hooks of the last row see it
                self._take(found.columns)
            return found
        except HostError as error:
            error.args = (f"{error}, in an evaluation",)
            return Scored(failed=error)
        except (Exception, Stopped) as error:
            return Scored(failure=error)
        finally:
            self.run.lanes.programs.context.latest = ()

    def due(self) -> bool:
        """Return whether the run is over and its last row has no evaluation.

        A signal leaves it to the resume.
        """
        missing = not self._whole() or "eval_return" not in self.run.history[-1].metrics
        return self.run.over and missing and not self.signals.caught

    def _whole(self) -> bool:
        """Return whether the history ends with the run's last row; a log that was cut does not."""
        return bool(self.run.history) and self.run.history[-1].env_steps == self.run.env_steps

    def end(self) -> Scored:
        """Take the final scores from the last row; evaluate if it lacks them."""
        run, found = self.run, Scored()
        if self.signals.caught:
            return found
        if self.due():
            found = self.evaluate()
            if found.failed or found.failure:
                return found
            self._complete(found.columns)
        self._take(found.columns or run.history[-1].metrics)
        return found

    def _take(self, columns: dict[str, np.ndarray]) -> None:
        """Keep the final scores in the run."""
        played = columns.get("eval_episodes")
        self.run.eval_return = columns["eval_return"]
        self.run.episodes = None if played is None else int(np.ravel(played)[0])

    def extend(self, rows: list[Row], columns: dict[str, np.ndarray]) -> None:
        """Add columns to the last of `rows`, which are the last of the run."""
        self.run.history[-1] = rows[-1] = rows[-1].extended(columns)

    def _complete(self, columns: dict[str, np.ndarray]) -> None:
        """Write the last row anew: an interruption or older version left its evaluation out."""
        run, whole = self.run, self._whole()
        if whole:
            self.extend(run.history[-1:], columns)
        for sink in self.sinks:
            sink.evaluated(run.env_steps, columns["eval_return"])
            if whole:
                sink.cut(run.env_steps - 1)
                sink.write(run.history[-1])
