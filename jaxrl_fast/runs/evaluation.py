"""Evaluations of a session: who is lost in one, who reached the target, whose agent is the best so far."""

from __future__ import annotations

import functools
import math

import numpy as np

from jaxrl_fast.engine.rollout import ACTION, OBSERVATION
from jaxrl_fast.runs.lost import lose, warn_of
from jaxrl_fast.runs.session import Session

IN_EVALUATION = {OBSERVATION: "observations in an evaluation are not finite", ACTION: "actions in an evaluation are not finite"}


def told(s: Session, played: int, episodes: int) -> None:
    """Show how far an evaluation is; say once that it plays fewer episodes than it might."""
    fewer = s.config.eval_episodes is None and episodes < s.config.most_episodes and not s.said
    s.said = s.said or fewer
    for sink in s.sinks:
        if fewer:
            sink.message(
                f"evaluations play as many episodes as fit an eighth of the steps, {episodes} in this one "
                f"(eval_episodes = {s.config.most_episodes} plays {s.config.most_episodes} each time)"
            )
        sink.evaluating(played, episodes)


def mean_length(s: Session) -> float | None:
    """Mean steps of an episode in the last rows that know of one, in training or evaluations, the longer one of the two."""
    found = []
    for name in ("episode_length", "eval_length"):
        known = (row.metrics.get(name, np.full(1, np.nan)) for row in reversed(s.history))
        found.append(next((float(np.nanmean(x)) for x in known if np.isfinite(x).any()), 0.0))
    return max(found) or None


def evaluate(s: Session) -> tuple[dict[str, np.ndarray], str | None]:
    """(metrics, eval_return of every member among them; what is not finite or None).

    Keeps the best agent and who reached the target.

    As `not_finite`: with `on_nan = "mark"` a member whose return is not finite is lost, and only the last one is a message.
    """
    with s.programs.paused(), s.programs.clock.during("evaluate"):
        s.programs.told, s.programs.length = functools.partial(told, s), mean_length(s)
        found = s.by_member(s.programs.evaluate(s.state, s.rows), np.nan)
    told(s, s.config.most_episodes, s.config.most_episodes)
    scores, message = np.array(found.ret), None
    metrics = {"eval_return": scores}
    if found.episodes is not None:
        metrics |= {"eval_length": np.array(found.length, float), "eval_episodes": np.array(found.episodes, float)}
        s.episodes = int(found.episodes[0])
    scores[list(s.lost)] = np.nan
    for member in [i for i in s.live if not np.isfinite(scores[i])]:
        what = IN_EVALUATION.get(int(found.fault[member]), f"eval_return is {scores[member]}")
        what = lose(s, member, s.env_steps, what)
        message = message or what
    warn_of(s, s.sanity.look_at_parameters(found.largest), s.env_steps)
    if message and (s.config.on_nan == "stop" or not s.live):
        return metrics, message
    scores[list(s.lost)] = np.nan
    for i, value in enumerate(scores):
        if s.config.target_return is not None and s.reached[i] is None and value >= s.config.target_return:
            s.reached[i] = {"env_steps": s.env_steps, "eval_return": float(value)}
    mean = float(np.mean(scores[s.live])) if s.live else -math.inf
    if mean > s.best_score:
        s.best_score, s.best_scores, s.best_rows = mean, scores, s.rows
        s.best_agent, s.best_lanes = s.programs.snapshot(s.state.agent), s.who()
    return metrics, None
