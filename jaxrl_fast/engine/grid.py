"""Log rows, evaluations and the end of a run, in iterations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import EVAL_EPISODES, RunConfig
from jaxrl_fast.errors import ConfigError

EVAL_SHARE, FEWEST_EPISODES = 1 / 8, 5  # of a host evaluation: share of training steps
ROWS = 64  # most log rows of a chunk; the number is an argument, so one program serves all
AHEAD = 16  # rows by which an asynchronous environment may lead the slowest one


@dataclasses.dataclass(frozen=True)
class Grid:
    """Fixed by settings, not by chunks: row r covers `row` iterations from warmup + r * row."""

    steps: int  # environment steps of an iteration; offline, its updates
    warmup: int  # iterations
    row: int  # iterations of a log row
    rows: int  # log rows without the warm-up's
    eval_rows: int  # rows between evaluations; 0: only at the end
    horizon: int  # iterations

    @property
    def planned_rows(self) -> int:
        """Return the log rows of the horizon: of the whole run, if this is a part of one."""
        return max(1, -(-(self.horizon - self.warmup) // self.row))

    def env_steps(self, rows: int) -> int:
        return (self.warmup + rows * self.row) * self.steps

    def whole_rows(self, iterations: int) -> int:
        """Return the log rows completed after `iterations`."""
        return max(0, iterations - self.warmup) // self.row


def plan_grid(algo: Algorithm, config: RunConfig) -> Grid:
    """Plan whole log rows that cover `total_steps`: the run is rounded up, by at most one row."""
    steps, warmup = (
        (algo.updates, 0) if config.offline else (algo.steps_per_iteration, algo.warmup_iterations)
    )
    total = -(-config.total_steps // steps)
    if warmup >= total:
        raise ConfigError("total_steps", config.total_steps,
                          f"more than the {warmup * steps:,} steps of random actions at the start "
                          "(algo.learning_starts)")
    horizon = max(-(-(config.horizon or config.total_steps) // steps), warmup + 1)
    planned = horizon - warmup  # a longer or resumed run has the same rows
    row = max(1, planned // 100 if config.log_every is None
              else min(config.log_every // steps, max(planned, total - warmup)))
    rows = max(1, -(-(total - warmup) // row))
    per_eval = (max(1, planned // row // 10) if config.eval_every is None
                else -(-config.eval_every // (row * steps)))
    iterations = warmup + rows * row
    counted = {"updates": algo.updates}
    if not config.offline:
        counted["the rows of an environment"] = algo.num_steps
    what, most = max(counted.items(), key=lambda item: item[1])
    if iterations * max(most, 1) >= 2**31:
        limit = (2**31 // max(most, 1)) * steps
        raise ConfigError("total_steps", config.total_steps,
                          f"at most {limit:,} with these settings: {what} are int32")
    return Grid(steps, warmup, row, rows, per_eval, horizon)


def next_rows(
    grid: Grid, done: int, boundaries: Collection[int], chunk_seconds: float,
    row_seconds: float | None
) -> int:
    """Return the log rows of a chunk of `chunk_seconds`, one if `row_seconds` is None.

    It stops at an evaluation, a row of `boundaries` or the end of the run.
    """
    n = min(ROWS, grid.rows - done, max(1, int(chunk_seconds / row_seconds)) if row_seconds else 1)
    if grid.eval_rows:
        n = min(n, grid.eval_rows - done % grid.eval_rows)
    return min([n, *(b - done for b in boundaries if b > done)])


def host_episodes(config: RunConfig, grid: Grid, rows: int, length: float | None,
                  since: int = 0, last: bool = False) -> int:
    """Return the episodes of an evaluation on the host after `rows` rows; 0: it is left out.

    By default, episodes of `length` steps fill `EVAL_SHARE` of the steps since the last evaluation,
    at the end of all. An evaluation is left out if fewer than `FEWEST_EPISODES` fit, unless
    `eval_every` or `target_return` asks for it. Steps, not seconds, so that a repeated run plays as
    many.

    Args:
      since: Environment steps of the run at the evaluation before; 0 without one.
      last: The run ends here, so there is an evaluation.
    """
    if config.eval_episodes is not None:
        return config.eval_episodes
    last = last or rows >= grid.rows or not grid.eval_rows or rows % grid.eval_rows > 0
    steps = grid.env_steps(rows) - (0 if last else since or grid.env_steps(0))
    fitting = int(EVAL_SHARE * steps / length) if length else 0
    asked = last or config.eval_every is not None or config.target_return is not None
    if fitting < FEWEST_EPISODES and not asked:
        return 0
    return min(max(fitting, FEWEST_EPISODES), EVAL_EPISODES)


def episodes_of_all(config: RunConfig, grid: Grid,
                    length: Callable[[int], float | None]) -> list[int]:
    """Return the episodes of each evaluation on the host. length: of episodes, by the log row."""
    rows = range(grid.eval_rows, grid.rows, grid.eval_rows) if grid.eval_rows else ()
    played, since = [], 0
    for row in (*rows, grid.rows):
        played.append(host_episodes(config, grid, row, length(row), since))
        since = grid.env_steps(row) if played[-1] else since
    return played


def sizes_of(num_envs: int, groups: int) -> list[int]:
    return [num_envs // groups + (i < num_envs % groups) for i in range(groups)]


def ahead_of(config: RunConfig, algo: Algorithm) -> int:
    """Return the rollouts by which actors may lead; default: 1 off-policy, else 0."""
    return config.ahead if config.ahead is not None else int(algo.off_policy)


def ring_rows(num_steps: int) -> int:
    """Return the ring's rows for asynchronous environments: whole rollouts plus their lead."""
    return num_steps * -(-(num_steps + 2 * AHEAD) // num_steps)
