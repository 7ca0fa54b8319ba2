"""Evaluations of a run: lost members, reached targets, and the best agents so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.rollout import ACTION, OBSERVATION
from jaxrl_fast.logs.rows import without
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs.checkpoints.metadata import Best
from jaxrl_fast.runs.result import Result
from jaxrl_fast.runs.sentinel import PARAMETER, Sanity, lose, warn_of

IN_EVALUATION = {OBSERVATION: "observations in an evaluation are not finite", ACTION: "actions in an evaluation are not finite"}


class EvaluationProgress:
    """Shows an evaluation's progress in `sinks`; says once if it plays fewer episodes."""

    def __init__(self, config: RunConfig, sinks: Sequence[Sink]):
        self.most, self.sinks = config.most_episodes, sinks
        self.said = config.eval_episodes is not None  # given explicitly: all are played

    def __call__(self, played: int, episodes: int) -> None:
        fewer, self.said = not self.said and episodes < self.most, self.said or episodes < self.most
        for sink in self.sinks:
            if fewer:
                sink.message(
                    f"evaluations play as many episodes as fit an eighth of the steps, {episodes} in this one "
                    f"(eval_episodes = {self.most} plays {self.most} each time)"
                )
            sink.evaluating(played, episodes)


def evaluate(run: Result, sanity: Sanity, progress: EvaluationProgress) -> tuple[dict[str, np.ndarray], str | None]:
    """Return log columns (`eval_return` [members]), and a message on non-finite values."""
    programs = run.lanes.programs
    with programs.paused(), programs.clock.during("evaluate"):
        found = programs.evaluate(run.state, run.rows, told=progress)
        found = run.lanes.by_member(found, np.nan)
    progress(run.config.most_episodes, run.config.most_episodes)
    scores, message, columns = without(found.ret, run.lost), None, {}
    if found.episodes is not None:
        columns = {"eval_length": np.array(found.length, float), "eval_episodes": np.array(found.episodes, float)}
        run.episodes = int(found.episodes[0])
    for member in [i for i in run.live if not np.isfinite(scores[i])]:
        what = IN_EVALUATION.get(int(found.fault[member]), f"eval_return is {scores[member]}")
        what = lose(run, member, run.env_steps, what)
        message = message or what
    warn_of(run.config, sanity.look({PARAMETER: found.largest}), run.env_steps)
    if message and (run.config.on_nan == "stop" or not run.live):
        return {"eval_return": scores, **columns}, message
    scores = without(scores, run.lost)
    for i, value in enumerate(scores):
        if run.config.target_return is not None and run.reached[i] is None and value >= run.config.target_return:
            run.reached[i] = {"env_steps": run.env_steps, "eval_return": float(value)}
    mean = float(np.mean(scores[run.live])) if run.live else -math.inf
    if mean > run.best.score:
        run.best = Best(mean, scores, run.rows, programs.snapshot(run.state.agent), run.lanes.who())
    return {"eval_return": scores, **columns}, None
