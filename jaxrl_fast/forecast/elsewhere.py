"""Forecast a run's iterations for an accelerator that is not here, from its traced program.

Seconds of an iteration = launches x seconds of one + bytes / bandwidth + FLOPs / peak, each with a
factor. The factors were fitted by scripts/fit_gpu_model.py: launches to programs compiled for an
H100, seconds to speeds measured on an H200.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.doctor.quantities import gib, si
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import BLOCK, STEP_LIMIT, judge
from jaxrl_fast.engine.grid import Grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.memory_plan import MemoryPlan
from jaxrl_fast.engine.population import Population
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.forecast import work
from jaxrl_fast.forecast.amounts import Forecast, Range, about, between
from jaxrl_fast.forecast.here import count_evaluations
from jaxrl_fast.forecast.sheets import Sheet
from jaxrl_fast.ops import lowering

# launches of an operation: a product, one of few terms, a reduction, a turn of a loop
LAUNCHES = {"products": 2.016, "tiny": 1.483, "reductions": 0.544, "turns": 4.1}
LAUNCH = 1.514e-6  # seconds
TRAFFIC, ARITHMETIC = 2.057, 0.903  # times the seconds of bytes and FLOPs at the peaks
JAX_TAKES = 0.75  # of an accelerator's memory
START, COMPILE, WRITE = between(3, 15), between(5, 90), between(2, 10)  # seconds, assumed


def launches(counts: Counter) -> float:
    """Return the kernels, copies and library calls that a GPU launches for counted operations."""
    return sum(each * counts[name] for name, each in LAUNCHES.items())


def seconds(counts: Counter, sheet: Sheet) -> Range:
    """Return the seconds of counted operations on a device."""
    moving, computing = counts["bytes"] / sheet.bandwidth, counts["flops"] / sheet.float32
    spent = LAUNCH * launches(counts) + TRAFFIC * moving + ARITHMETIC * computing
    return about(spent, sheet.spread)


class Traced:
    """The programs of a run as `members` members on one device see them, traced with shapes."""

    def __init__(self, run: Run, members: int, platform: str):
        self.members, self.platform = members, platform
        shaped = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))
        self.run = jax.tree.map(shaped, run)
        shape = jax.ShapeDtypeStruct((members,) * (members > 1), jnp.uint32)
        self.keys = jax.eval_shape(self.lift(jax.random.key, 0), shape)
        with lowering.known(platform):
            self.state = jax.eval_shape(self.lift(iteration.init, None, 0), self.run, self.keys)

    def lift(self, fn: Any, *axes: int | None) -> Any:
        return jax.vmap(fn, in_axes=axes) if self.members > 1 else fn

    def iteration(self, grid: Grid) -> Counter:
        """Return the counts (`work`) of one iteration."""
        row = min(grid.row, iteration.DRAW_AHEAD_ITERATIONS)
        rows = lambda run, state, t: iteration.iterations(run, state, t, row, True)
        t = jax.ShapeDtypeStruct((), jnp.int32)
        rows = self.lift(rows, None, 0, None)
        counts = self.count(rows, self.run, self.state, t)
        return Counter({name: value / row for name, value in counts.items()})

    def evaluation(self, config: RunConfig) -> Counter:
        """Return the counts of `BLOCK` steps of an evaluation."""
        chosen = config.most_episodes, config.eval_mode, BLOCK
        score = lambda run, agent, key: judge(run.env, run.algo, agent, key, *chosen)
        agent, score = self.state.agent, self.lift(score, None, 0, 0)
        return self.count(score, self.run, agent, self.keys)

    def count(self, fn: Any, *args: Any) -> Counter:
        """Return the counts of a program of the platform alone."""
        with lowering.known(self.platform):
            return work.of(fn, *args, platform=self.platform)


def forecast(prepared: Prepared, sheet: Sheet, count: int, price: float | None = None) -> Forecast:
    """Forecast a run on `count` devices that are not here; members are divided evenly.

    Raises ConfigError for environments on the host: their steps run on a processor.
    """
    if not backend_of(prepared.env).one_program:
        valid = "left out with environments on the host: a processor steps them"
        raise ConfigError("--on", sheet.name, valid)
    config, grid = prepared.config, prepared.grid
    used = min(count, config.members)
    members = -(-config.members // used)
    traced = Traced(prepared.members.first, members, sheet.platform)
    one = traced.iteration(grid)
    each, block = seconds(one, sheet), seconds(traced.evaluation(config), sheet)
    longest = -(-(prepared.env.spec.max_episode_steps or STEP_LIMIT) // BLOCK)
    blocks = Range(1, (1 + longest) / 2, longest)
    trained = each * (grid.rows * grid.row)
    random = Range(0.0, each.middle / 2, each.high) * grid.warmup
    played = Range(block.low, block.middle * blocks.middle, block.high * blocks.high)
    parts = {
        "start": START,
        "compile": COMPILE,
        "train": trained + random,
        "evaluate": played * count_evaluations(grid),
        "write": WRITE,
    }
    plan, steps = plan_on(prepared.plan, sheet, used), grid.steps * config.members
    return Forecast(
        device=f"{count} x {sheet.name}",
        parts=parts,
        need=plan.need,
        have=plan.have,
        steps_per_second=Range(steps / each.high, steps / each.middle, steps / each.low),
        price=price,
        assumptions=assumptions(one, sheet, used, count),
    )


def plan_on(plan: MemoryPlan, sheet: Sheet, used: int) -> MemoryPlan:
    """Return the memory plan of the same members on `used` such devices."""
    device = SimpleNamespace(platform=sheet.platform, process_index=0, device_kind=sheet.name)
    population = Population(plan.population.size, "vmap", (device,) * used)
    return dataclasses.replace(plan, population=population, have=int(JAX_TAKES * sheet.memory))


def assumptions(counts: Counter, sheet: Sheet, used: int, count: int) -> tuple[str, ...]:
    """Return the assumptions of the forecast, a sentence each."""
    known = "measured on such a card", "assumed, compared with an H200 alone"
    ends = lambda x: f"{x.low:g} to {x.high:g} s"
    found = [
        f"an iteration on one device: {launches(counts):,.0f} launches, "
        f"{gib(counts['bytes'])} moved, {si(counts['flops'], 'FLOP')}, counted in the program",
        f"{sheet.name}: {si(sheet.bandwidth, 'B/s')} and {si(sheet.float32, 'FLOP/s')} in float32, "
        f"by its data sheet; {si(LAUNCH, 's')} a launch, measured on an H200",
        f"training is within a factor of {sheet.spread:g} ({known[sheet.spread >= 2]})",
        f"start {ends(START)}, compile {ends(COMPILE)}, files {ends(WRITE)}; an evaluation plays "
        f"{BLOCK} steps up to the time limit",
        "nothing else runs on the device; the memory is without XLA's temporaries",
    ]
    if sheet.platform == "tpu":
        found.append("a TPU starts an operation as fast as a GPU a kernel: none was measured")
    if used < count:
        found.append(f"{count - used} of {count} devices stay idle: a member is not divided")
    return tuple(found)
