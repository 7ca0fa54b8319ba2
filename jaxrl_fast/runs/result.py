"""A run for its user: the value of `train`, and the argument of hooks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import configure
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, expected, nearest
from jaxrl_fast.logs import html, svg
from jaxrl_fast.logs.rows import curve, rate_of, shown, table
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.logs.walltime import TRAIN
from jaxrl_fast.ops.aggregate import span
from jaxrl_fast.runs.agent import Agent, HasEnv
from jaxrl_fast.runs.checkpoints.metadata import Best, Progress
from jaxrl_fast.runs.lanes import Lanes
from jaxrl_fast.runs.pictures import Video
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.runs.signals import run_so_far


class AnyResult:
    """The common part of `Result` (one program), `SeedsInTurn` (seeds one by one) and `KeptRun`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (KeptRun(self),)

    def __repr__(self) -> str:
        title, *facts = self._told()
        return "\n  ".join([f"<Run: {title}>", *facts])

    def _repr_html_(self) -> str:
        title, *facts = self._told()
        scores, rows = self.eval_return, list(map(shown, self.history))
        several = ([] if scores is None or not span(scores)
                   else [f"final return of {len(scores)} members{span(scores)}"])
        picture = svg.image(svg.learning_curve({"": rows})) if rows else ""
        run = html.block("run", html.settings(self.config))
        parts = self.algo._repr_html_(), self.env._repr_html_(), run
        return html.block(title, html.lines(*facts, *several), picture, *parts)

    def _told(self) -> tuple[str, str, str]:
        """Return the title of a run's short form and its lines."""
        scores, seeds = self.eval_return, self.config.member_seeds()
        first, last = min(seeds), max(seeds)
        which = f"seed {first}" if first == last else f"seeds {first} to {last}"
        which = which if len(seeds) == 1 else f"{len(seeds)} members, {which}"
        lost = f", {len(self.lost)} of them lost" if self.lost else ""
        known = scores is not None and np.isfinite(scores).any()
        final = "not evaluated at the end"
        if known:
            final = f"mean return {np.nanmean(scores):,.4g} at the end"
        best = f", best {self.best_score:,.4g}" if np.isfinite(self.best_score) else ""
        place = f"in {self.path}" if self.path else "in memory"
        rate = f"{self.steps_per_second:,.0f} steps/s, " if self.steps_per_second > 0 else ""
        return (
            f"{self.algo.name} on {registry.name_of(self.env)}, {which}{lost}",
            f"{self._done()}; {final}{best}",
            f"{rate}{self.wall_seconds:.1f} s; {place}",
        )

    @property
    def algo(self) -> Algorithm:
        return self.prepared.bound

    @property
    def env(self) -> Environment:
        return self.prepared.env

    @property
    def config(self) -> RunConfig:
        return self.prepared.config

    @property
    def path(self) -> Path | None:
        """Return the run directory; None for a run in memory."""
        return self.out.path if self.out else None

    @property
    def wall_seconds(self) -> float:
        return sum(self.seconds.values())

    def curve(self, metric: str = "episode_return") -> tuple[np.ndarray, np.ndarray]:
        """Return (env_steps [rows], values [rows, members]) of a metric, without empty rows.

        Raises ConfigError for a metric that no row of this run has.
        """
        known = {"eval_return"}.union(*(row.metrics for row in self.history))
        if self.history and metric not in known:
            raise ConfigError("metric", metric,
                              f"one of {', '.join(sorted(known))}{nearest(metric, known)}")
        return curve(self.history, self.config.members, metric)

    def frame(self) -> Any:
        """Return a pandas DataFrame, one row a log row and member, with settings and metrics.

        Needs the extra [pandas].
        """
        return table(self.history, self.config.member_seeds(), self.config.member_settings())

    def video(
        self, member: int | None = None, env: Environment | None = None,
        seed: int = 0, max_steps: int = 500
    ) -> Video:
        """Return pictures of an episode of `agent(member)` for a notebook; see `Agent.video`."""
        return self.agent(member).video(env, seed, max_steps)


def _itself(kept: KeptRun) -> KeptRun:
    return kept


class KeptRun(HasEnv, AnyResult):
    """A run in a pickle or copy: agents, log rows and scores, without programs and device state.

    Raises ConfigError for a run of several processes, where none has all agents.
    """

    __reduce__ = object.__reduce__  # its attributes pickle
    algo = config = path = None  # attributes here
    facts = ("config", "path", "history", "eval_return", "eval_episodes", "best_score", "env_steps",
             "steps_per_second", "seconds", "lost", "live", "reached", "over")  # fmt: skip

    def __init__(self, run: AnyResult):
        if distributed.several():
            raise expected("run", "read with jf.load: no process has all agents", "several "
                           "processes")
        self.algo, self.env, self._text = run.algo, run.env, run._done()
        for name in self.facts:
            value = getattr(run, name)  # a run that goes on changes its lists
            setattr(self, name, value.copy() if isinstance(value, (list, dict)) else value)
        self._agents: dict[int, Agent] = {}
        for member in run._here:
            lost = member in run.lost  # perhaps before its first checkpoint
            with contextlib.suppress(ConfigError) if lost else contextlib.nullcontext():
                self._agents[member] = agent = run.agent(member)
                agent.state = jax.device_get(agent.state)

    @property
    def _here(self) -> list[int]:
        return sorted(self._agents)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not (hasattr(Result, name) or name in _OF_A_RUN):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(f"a copy of a run has no {name!r}: the run has it, which `jf.train` "
                             "returned")

    def agent(self, member: int | None = None) -> Agent:
        """Return a copy of one member's agent. member: None: the best of the final evaluation."""
        there = self._here
        if member is None and there:
            scores = np.full(self.config.members, -np.inf)
            if self.eval_return is not None:
                scores = np.nan_to_num(self.eval_return, nan=-np.inf)
            member = max(there, key=lambda i: scores[i])
        if member not in there:
            raise ConfigError("member", member, f"one that is here ({', '.join(map(str, there))})")
        kept = self._agents[member]
        state = jax.device_put(kept.state)
        return Agent(kept.algo, kept.env, kept.config, state, kept.iteration, kept.score)

    def resume(self, *_: Any) -> Any:
        where = f"jf.resume({str(self.path)!r})" if self.path else "`resume()` of the run itself"
        raise ConfigError("run", "a copy", f"the run itself, to go on: {where}")

    def _done(self) -> str:
        return self._text


@dataclasses.dataclass(repr=False)
class Result(AnyResult):
    """A run of one program: its members, log rows and scores.

    A hook gets it during training. `state`, the RunState on the device, is then donated to the next
    chunk: copy what must stay. `rows` counts finished log rows, `history` holds them.
    """

    prepared: Prepared
    lanes: Lanes
    out: RunDir | None
    progress: Progress
    best: Best = dataclasses.field(default_factory=Best)
    eval_return: np.ndarray | Any = None  # [members] of the final evaluation; None before it
    episodes: int | None = None  # of the last evaluation, if not the settings' number
    stop_requested: bool = False
    go_on: Callable[[Sequence[Sink]], Result] | None = None  # after an interruption

    grid = property(attrgetter("prepared.grid"), doc="Where rows and evaluations fall.")
    population = property(attrgetter("lanes.population"),
                          doc="Where the members live that have a lane.")
    state = property(attrgetter("lanes.state"),
                     doc="The RunState on the device, leaves [lanes, ...]; for one no such axis.")
    history = property(attrgetter("lanes.programs.context.history"), doc="The log rows so far.")
    lost = property(attrgetter("lanes.lost"),
                    doc="{member: env_steps and reason} of members that became NaN or infinite.")
    live = property(attrgetter("lanes.live"), doc="Members that are still trained, and finite.")
    rows = property(attrgetter("progress.rows"),
                    doc="Log rows that are done, the warm-up's not counted.")
    reached = property(attrgetter("progress.reached"),
                       doc="[members] Where each reached the target return, or None.")
    best_score = property(attrgetter("best.score"), doc="The best mean return of an evaluation.")
    best_rows = property(attrgetter("best.rows"),
                         doc="The log row of the best evaluation; -1 before the first.")

    @property
    def _here(self) -> list[int]:
        """Return the members with an agent: those with a lane."""
        return [int(member) for member in self.lanes.members]

    @property
    def env_steps(self) -> int:
        """Return the environment steps of one member so far, in whole rows."""
        return self.grid.env_steps(self.rows)

    @property
    def steps_per_second(self) -> float:
        """Return the environment steps of all members per second of training, NaN for none."""
        return rate_of(self.progress.train_steps, self.progress.train_seconds)

    @property
    def seconds(self) -> dict[str, float]:
        """Return wall-clock seconds by activity: compile (and start), train, evaluate, write."""
        found = {name: self.progress.seconds.get(name, 0.0)
                 for name in ("compile", "train", "evaluate", "write")}
        for name, spent in self.lanes.programs.clock.seconds().items():
            found["train" if name in TRAIN else name] += spent
        return found

    @property
    def eval_episodes(self) -> int:
        """Return the episodes of the last evaluation; on the host, maybe fewer than set."""
        return self.episodes or self.config.most_episodes

    @property
    def over(self) -> bool:
        if self.rows >= self.grid.rows or self.stop_requested:
            return True
        return self.config.target_return is not None and all(self.reached[i] for i in self.live)

    def setup(self, member: int = 0) -> tuple[Algorithm, Environment]:
        chosen = {name: float(values[member]) for name, values in self.lanes.settings.items()}
        algo, env = configure(self.algo, self.env, self.config.settings_of(member) | chosen)
        return algo.bind(env.spec), env

    def resume(self, sinks: Sequence[Sink] = ()) -> Result:
        """Resume an interrupted run, bit for bit; returns this run when it has ended.

        sinks: the user's own; the interruption closed the earlier ones. Raises ConfigError for a
        run that has ended or failed.
        """
        if self.go_on is None:
            raise ConfigError("run", "over", "one that was interrupted; `jf.resume` gives a run "
                                             "directory a new end")
        return run_so_far(lambda: self.go_on(sinks))

    def stop(self) -> None:
        """End the run after this chunk; for hooks."""
        self.stop_requested = True

    def agent(self, member: int | None = None) -> Agent:
        """Return a copy of one member's agent; with several processes, all must call it.

        member: None: the best of the final evaluation, before it the first.
        """
        if member is None:
            known = self.eval_return is not None
            member = (int(np.argmax(np.nan_to_num(self.eval_return, nan=-np.inf))) if known
                      else int(self.lanes.members[0]))
        state = jax.device_put(jax.jit(tree.copy)(self.lanes.agent(member)), jax.local_devices()[0])
        score = None if self.eval_return is None else float(self.eval_return[member])
        return Agent(*self.setup(member), self.config, state, self.rows, score)

    def _done(self) -> str:
        return f"{self.env_steps:,} of {self.grid.env_steps(self.grid.rows):,} steps"


_OF_A_RUN = {field.name for field in dataclasses.fields(Result)}  # some without a default
