"""Scale a calibration to the whole run: the forecast for this machine."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.grid import Grid, episodes_of_all
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.forecast.amounts import Forecast, Range
from jaxrl_fast.forecast.calibrate import Calibration, short_rows

LEAST = 1.1  # factor either way of a speed that was measured for seconds and lasts for hours
LATER_SEEDS = 0.25  # part of a compile that a further seed in turn takes: programs are kept


def forecast(
    prepared: Prepared, found: Calibration, price: float | None = None, start: float = 0.0
) -> Forecast:
    """Forecast a run on this machine.

    price: of an hour. start: seconds of the process before the run, by `process_age`.
    """
    env, config, grid = prepared.env, prepared.config, prepared.grid
    turns = config.seeds if in_turn(env, config) else 1
    iterations = grid.rows * grid.row
    train = iteration_seconds(found.iterations) * iterations + make_exact_range(found.warmup)
    evaluate = evaluation_seconds(prepared, found)
    checkpoints = (train + evaluate) * (1 / (60 * config.checkpoint_minutes))
    write = make_exact_range(found.end + found.rows * grid.rows) + checkpoints * found.checkpoint
    parts = {
        "start": make_exact_range(start),
        "compile": compile_seconds(found, turns, same_programs(prepared)),
        "train": train * turns,
        "evaluate": evaluate * turns,
        "write": write * turns,
    }
    plan = prepared.plan.compiled(found.temporaries)
    steps = grid.steps * (1 if turns > 1 else config.members)
    each = iteration_seconds(found.iterations)
    return Forecast(
        device=device(prepared),
        parts=parts,
        need=plan.need,
        have=plan.have,
        steps_per_second=Range(steps / each.high, steps / each.middle, steps / each.low),
        watts=found.watts,
        price=price,
    )


def make_exact_range(seconds: float) -> Range:
    return Range(seconds, seconds, seconds)


def iteration_seconds(seconds: tuple[float, ...]) -> Range:
    """Return an iteration's seconds: the mean of the chunks, between their deciles and `LEAST`."""
    mean, ordered = statistics.fmean(seconds), sorted(seconds)
    tenth = len(ordered) // 10
    return Range(min(ordered[tenth], mean / LEAST), mean, max(ordered[-1 - tenth], mean * LEAST))


def compile_seconds(found: Calibration, turns: int, same: bool) -> Range:
    """Return the seconds of compiling, as long as it took here up to anew.

    same: whether the run has the very programs that were compiled, or others of the same size.
    """
    more = LATER_SEEDS * (turns - 1)
    anew = found.compile + found.cached
    expected = found.compile if same else anew
    return Range(found.compile, expected * (1 + more), anew * (1 + 2 * more))


def same_programs(prepared: Prepared) -> bool:
    """Return whether a calibration has the log rows of the run, and so its programs."""
    grid = prepared.grid
    return short_rows(prepared.algo, prepared.env, prepared.config) == grid.row * grid.steps


def evaluation_seconds(prepared: Prepared, found: Calibration) -> Range:
    """Return the seconds of all evaluations: episodes as long as now, up to the time limit."""
    episode = found.evaluate / max(found.episodes, 1)
    limit = prepared.env.spec.max_episode_steps
    longest = 2 * found.length if found.length else limit  # of many episodes, the last one to end
    grow = max(1.0, limit / longest) if limit and longest else 3.0
    each = episode * sum(episodes(prepared, found))
    return Range(each, each * (1 + grow) / 2, each * grow)


def episodes(prepared: Prepared, found: Calibration) -> list[int]:
    """Return the episodes of each evaluation of a member, the one at the end included."""
    grid, config = prepared.grid, prepared.config
    if backend_of(prepared.env).one_program:
        return [config.most_episodes] * count_evaluations(grid)
    return episodes_of_all(config, grid, lambda _: found.length)


def count_evaluations(grid: Grid) -> int:
    """Return the evaluations of a run: one every `eval_rows` rows, and one at the end."""
    if not grid.eval_rows:
        return 1
    return grid.rows // grid.eval_rows + (grid.rows % grid.eval_rows > 0)


def device(prepared: Prepared) -> str:
    devices = prepared.population.devices
    return f"{len(devices)} x {devices[0].device_kind}"


def process_age(proc: Path = Path("/proc")) -> float:
    """Return the seconds since this process began; 0 if the system does not tell."""
    try:
        ticks = int((proc / "self/stat").read_text().rpartition(")")[2].split()[19])
        return float((proc / "uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
