"""Seeds of environments on the host: each its own run, in turn, and together one run.

    DIR/config.json, metrics.jsonl, result.json, curve.png    of all seeds, like a population's
    DIR/seed-0/ ...                                           run directories, one a seed
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import (
    ConfigError,
    NonFiniteError,
    RunError,
    WriteError,
    brief,
    check_int,
    writing,
)
from jaxrl_fast.files import folders
from jaxrl_fast.logs import plots
from jaxrl_fast.logs.jsonl import line_of, read_jsonl
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.result import AnyResult, Result
from jaxrl_fast.runs.rundir import RunDir, seed_folder
from jaxrl_fast.runs.seed_results import Trained, of_run, overall_rate, side_by_side
from jaxrl_fast.runs.signals import Interrupted, Signals, Stopped, run_so_far

Sinks = Callable[[RunConfig], Sequence[Sink]]  # (settings of a seed) -> its sinks


@dataclasses.dataclass(repr=False)
class SeedsInTurn(AnyResult):
    """Seeds that train one after another: the value of `train`, like a `Result` by seed.

    A hook gets the `Result` of the seed in training; its `stop` ends that seed.
    """

    prepared: Prepared
    out: RunDir | None
    begin: Callable[[Prepared, Sequence[Sink]], Result]  # train a seed to its end
    make_sinks: Sinks | None = None
    progress: bool = False
    trained: dict[int, Trained] = dataclasses.field(default_factory=dict)
    going: Result | None = None  # the interrupted member

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property of ours that failed
            return object.__getattribute__(self, name)
        hint = ""
        if hasattr(Result, name) or name in _OF_A_SEED:
            hint = ": a hook gets the Result of each seed, which has it"
        raise AttributeError(f"seeds that trained one after another have no {name!r}{hint}")

    def _done(self) -> str:
        return f"{len(self.trained)} of {self.config.seeds} seeds trained, one after another"

    def train(self) -> SeedsInTurn:
        """Train every unfinished seed in order, then write the results of all."""
        with Signals() as signals:  # between seeds; a run has its own
            for member, seed in enumerate(self.config.member_seeds()):
                if member in self.trained:
                    continue
                if self.progress:
                    print(f"seed {seed}, {member + 1} of {self.config.seeds}", file=sys.stderr,
                          flush=True)
                self.trained[member], self.going = of_run(self._ended(member, signals)), None
                if not self.over:
                    self.write_log()
                    if signals.caught:
                        raise self._interrupted(signals.caught, member + 1)
            self.write_log()
            if self.out:
                self.out.write_result(self)
        if signals.caught:
            raise self._interrupted(signals.caught, self.config.seeds - 1)
        if not np.isfinite(self.eval_return).any():
            raise NonFiniteError("no seed has a score: all were lost, "
                                 f"{'; '.join(x['reason'] for x in self.lost.values())}")
        return self

    def _ended(self, member: int, signals: Signals) -> Result:
        going, part = self.going, self.prepared.seed(member)
        sinks = self.make_sinks(part.config) if self.make_sinks else ()
        try:
            with signals.at_once("before it was compiled"):  # afterwards the run handles them
                return going.go_on(sinks) if going else self.begin(part, sinks)
        except Stopped as stop:
            run = getattr(stop, "run", None)
            if run is not None and run.go_on is None:  # during the run's closing
                self.trained[member], self.going = of_run(run), None
            else:
                self.going = run or going
            if not self.trained and self.going is None:
                raise
            self.write_log()
            raise self._interrupted(stop.signum, member) from None
        except RunError as error:
            found = isinstance(error, NonFiniteError) and error.run is not None
            if found and self.config.on_nan == "mark":
                warnings.warn(f"seed {part.config.seed} is lost: {error}", stacklevel=2)
                return error.run
            raise

    def _interrupted(self, signum: int, member: int) -> Interrupted:
        steps = self.going.progress.iterations * self.going.grid.steps if self.going else 0
        if member in self.trained:
            steps = self.trained[member].env_steps
        return Interrupted(signum, self.out and self.out.path, steps,
                           run=self, seed=self.config.seed + member)

    def resume(self, sinks: Sinks | None = None) -> SeedsInTurn:
        """Resume an interrupted run; returns this run when it has ended.

        sinks: a function as in `train`; by default the run's own. Raises ConfigError for a run that
        has ended.
        """
        if self.over:
            raise ConfigError("run", "over", "one that was interrupted; `jf.resume` gives a run "
                                             "directory a new end")
        self.make_sinks = sinks_of_each(sinks) or self.make_sinks
        with folders.hold_lock("resume", self.out.path) if self.out else contextlib.nullcontext():
            return run_so_far(self.train)

    def write_log(self) -> None:
        """Write metrics.jsonl and its plot for the seeds so far."""
        if not self.out:
            return
        histories = [RunDir(seed_folder(self.out.path, seed)).history()
                     for seed in self.config.member_seeds()]
        try:
            with writing(self.out.metrics):
                configs.write_text(self.out.metrics,
                                   b"".join(map(line_of, side_by_side(histories))).decode())
        except WriteError as error:
            command = f"jaxrl-fast train --resume {shlex.quote(str(self.out.path))}"
            raise RunError(f"{error}; seeds that have ended are whole: once it can be written, go "
                           f"on with {command}") from error
        rows = read_jsonl(self.out.metrics)
        try:
            if rows and self.config.pictures:
                name = f"{self.algo.name} {registry.name_of(self.env)}"
                plots.learning_curve({name: rows}, self.out.path / "curve.png")
        except Exception as error:
            warnings.warn(f"the pictures of {self.out.path} could not be drawn: {brief(error)}",
                          stacklevel=2)

    def _of_each(self, name: str, missing: Any) -> list[Any]:
        return [getattr(self.trained[m], name) if m in self.trained else missing
                for m in range(self.config.seeds)]

    @property
    def over(self) -> bool:
        return len(self.trained) == self.config.seeds

    @property
    def history(self) -> list[Row]:
        """Return log rows with members side by side, NaN for missing rows."""
        found = self._of_each("history", [])
        if self.going:
            found[self._member_going] = self.going.history
        return side_by_side(found)

    @property
    def eval_return(self) -> np.ndarray | Any:
        """Return the last evaluations, float32 [members], NaN for missing ones; None before any."""
        return np.array(self._of_each("eval_return", np.nan), np.float32) if self.trained else None

    @property
    def best_score(self) -> float:
        """Return the mean over seeds of their best evaluations."""
        scores = np.array([x.best_score for x in self.trained.values()])
        scores = scores[np.isfinite(scores)]
        return float(scores.mean()) if scores.size else -np.inf

    @property
    def lost(self) -> dict[int, dict[str, Any]]:
        """Return {member: env_steps and reason} of members that became NaN or infinite."""
        return {m: x.lost for m, x in sorted(self.trained.items()) if x.lost}

    @property
    def live(self) -> list[int]:
        return [m for m in range(self.config.seeds) if m not in self.lost]

    @property
    def reached(self) -> list[Any]:
        return self._of_each("reached", None)

    @property
    def _begun(self) -> list[Trained | Result]:
        return [*self.trained.values(), *([self.going] if self.going else [])]

    @property
    def _member_going(self) -> int:
        return self.going.config.seed - self.config.seed

    @property
    def env_steps(self) -> int:
        """Return the environment steps of the member with most."""
        return max((x.env_steps for x in self._begun), default=0)

    @property
    def eval_episodes(self) -> int:
        """Return the fewest episodes of the seeds' last evaluations."""
        return min((x.eval_episodes for x in self.trained.values()),
                   default=self.config.most_episodes)

    @property
    def seconds(self) -> dict[str, float]:
        """Return the wall-clock seconds by activity, of all seeds."""
        spent = [x.seconds for x in self._begun]
        return {name: sum(x.get(name, 0.0) for x in spent)
                for name in ("compile", "train", "evaluate", "write")}

    @property
    def steps_per_second(self) -> float:
        return overall_rate([(x.env_steps, x.steps_per_second) for x in self.trained.values()])

    @property
    def _here(self) -> list[int]:
        """Return the members that have begun: those with an agent."""
        return [*sorted(self.trained), *([self._member_going] if self.going else [])]

    def agent(self, member: int | None = None) -> Agent:
        """Return one seed's current agent. member: None: the best of the final evaluations."""
        here = self._here
        if member is None and here:
            scores = self.eval_return
            if scores is None:
                scores = np.full(self.config.seeds, -np.inf)
            member = max(here, key=lambda m: np.nan_to_num(scores[m], nan=-np.inf))
        if member is not None:
            check_int("member", member, 0, self.config.seeds - 1)
        if member not in here:
            raise ConfigError("member", member,
                              f"one that has begun ({', '.join(map(str, here)) or 'none has'})")
        return self.trained[member].make_agent() if member in self.trained else self.going.agent(0)


_OF_A_SEED = {field.name for field in dataclasses.fields(Result)}


def sinks_of_each(sinks: Any) -> Sinks | None:
    """Return `sinks`. Raises ConfigError for one run's sinks where every seed needs its own."""
    if not callable(sinks) and sinks:
        named = ", ".join(type(sink).__name__ for sink in sinks)
        reason = "seeds of environments on the host train one after another"
        raise ConfigError("sinks", named,
                          f"a function of a seed's RunConfig that returns its sinks: {reason}")
    return sinks or None
