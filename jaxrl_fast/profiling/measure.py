"""Measure a run: time it, trace it, and add the instructions' times up by part."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl_fast.doctor.facts import Limits
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.chunks import Chunk
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import ROWS
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.walltime import ACTORS as OF_ACTORS
from jaxrl_fast.ops.scopes import ENVIRONMENT, POLICY
from jaxrl_fast.profiling import ablation, hlo, trace
from jaxrl_fast.profiling.parts import (
    ACTORS,
    HOST,
    IDLE,
    LEARNER,
    LOOPS,
    PROGRAM,
    TRANSFER,
    WAITING,
    Part,
    Profile,
    with_roof,
)  # fmt: skip
from jaxrl_fast.profiling.timing import TimedRun, Timing, start_timed_run

TRACED = 0.05  # seconds of training in a trace
TRACES = 4
LEARN = "jit_learn"  # module of the learner of a run on the host


class Sum(NamedTuple):
    """The cost of a part in an iteration."""

    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    starts: float = 0.0

    def plus(self, seconds: float, flops: float, size: float, starts: float) -> Sum:
        """Return the sum with one more instruction."""
        return Sum(
            self.seconds + seconds, self.flops + flops, self.bytes + size, self.starts + starts
        )


@contextlib.contextmanager
def with_scopes() -> Iterator[None]:
    """Let programs of the compile cache differ by their scopes, which JAX leaves out otherwise."""
    name = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, name)
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, before)


def check(config: RunConfig) -> None:
    """Raise ConfigError for an offline run."""
    if config.offline:
        raise ConfigError("experience_fraction", config.experience_fraction,
                          "below 1 for a profile: an offline run steps no environment, its updates "
                          "are all of it")


def measure(
    prepared: Prepared, limits: Limits | None, seconds: float = 3.0, folder: Path | None = None
) -> tuple[Profile, TimedRun]:
    """Return the profile of a run and the run itself, for more measurements.

    Args:
        limits: of the first device, see `doctor.limits.measure_device`; None: no roofs.
        seconds: of the timed training.
        folder: of the trace that is kept, for Perfetto; None: no trace is kept.
    """
    check(prepared.config)
    with with_scopes(), start_timed_run(prepared) as one:
        if backend_of(prepared.env).one_program:
            return on_device(one, limits, seconds, folder), one
        return on_host(one, limits, seconds, folder), one


def on_device(one: TimedRun, limits: Limits | None, seconds: float, folder: Path | None) -> Profile:
    """Return the profile of environments in the program, from traces of its instructions."""
    timing = one.timing(seconds)
    whole = one.rows
    row = timing.iteration * one.prepared.grid.row
    one.rows = max(1, min(ROWS, round(TRACED / row)))
    one.programs.recompile_for_trace(one.state)
    recorded, call = _record(one, folder)
    iterations, one.rows = TRACES * one.rows * one.prepared.grid.row, whole
    spent = trace.pool(recorded)
    found = attribute(spent, _modules(spent), _overhead(one, spent), iterations)
    devices = one.programs.population.devices
    gap = max(0.0, call - min(each.span for each in recorded))
    apart = {HOST: min(timing.iteration, gap / _iterations_between_syncs(one, timing))}
    if devices[0].platform != "cpu":  # its work is done beside the host's
        busy = sum(each.seconds for each in found.values()) / len(devices)
        apart[IDLE] = max(0.0, timing.iteration - apart[HOST] - busy)
    parts = _share_rest(PROGRAM, found, apart, timing.iteration)
    if found:
        return _profile(one, "trace", timing, parts, limits)
    ablation.check(one.prepared)
    parts = _share_rest(PROGRAM, _pieces_alone(one, timing), {}, timing.iteration)
    note = "the profiler recorded no instruction of the program: these are pieces alone"
    return _profile(one, "ablation", timing, parts, limits, note)


def _pieces_alone(one: TimedRun, timing: Timing) -> dict[str, Sum]:
    """Return the pieces of an iteration alone, and the rest of its time."""
    pieces = {ablation.PARTS[name]: Sum(taken) for name, taken in ablation.time_pieces(one).items()}
    rest = timing.iteration - sum(piece.seconds for piece in pieces.values())
    return pieces | {hlo.OTHER: Sum(max(0.0, rest))}


def on_host(one: TimedRun, limits: Limits | None, seconds: float, folder: Path | None) -> Profile:
    """Return the profile of environments on the host: the run's own clock, as in `time.png`.

    The learner's updates are divided by a trace of its program.
    """
    chunks: list[Chunk] = []
    timing = one.timing(seconds, chunks.append)
    one.programs.recompile_for_trace(one.state)
    recorded, _ = _record(one, folder)
    learner = {key: spent for key, spent in trace.pool(recorded).items() if key[0] == LEARN}
    iterations = TRACES * one.prepared.grid.row
    overhead = _overhead(one, learner)
    inside = attribute(learner, _modules(learner), overhead, iterations)
    shares = _clock_shares([chunk.metrics for chunk in chunks])
    each = timing.iteration
    actors = dict(zip(OF_ACTORS, (ENVIRONMENT, TRANSFER, POLICY, WAITING), strict=True))
    parts = [
        Part(name, ACTORS, shares[f"time_actors_{who}"], each * shares[f"time_actors_{who}"])
        for who, name in actors.items()
    ]
    updates = shares["time_learner_updates"]
    total = sum(one.seconds for one in inside.values()) or 1.0
    for name, found in (inside or {hlo.OTHER: Sum(1.0)}).items():
        share = updates * found.seconds / total
        parts.append(Part(name, LEARNER, share, each * share, *found[1:]))
    waits = shares["time_learner_waits"]
    rest = max(0.0, 1 - updates - waits)
    parts += [Part(WAITING, LEARNER, waits, each * waits), Part(HOST, LEARNER, rest, each * rest)]
    return _profile(one, "clock", timing, parts, limits)


def _profile(
    one: TimedRun, source: str, timing: Timing, parts: Sequence[Part],
    limits: Limits | None, note: str = ""
) -> Profile:
    prepared, population = one.prepared, one.programs.population
    if limits:
        devices, precision = len(population.devices), prepared.algo.precision
        counted = lambda part: part.starts and part.name != LOOPS
        roofed = lambda part: with_roof(part, limits, precision, devices)
        parts = [roofed(part) if counted(part) else part for part in parts]
    kind = population.devices[0].device_kind
    name = prepared.env.spec.name
    return Profile(prepared.algo.name, name, kind, source, timing, tuple(parts), limits, note=note)


def _record(one: TimedRun, folder: Path | None) -> tuple[list[trace.Trace], float]:
    """Return traces of calls, and the seconds of the shortest."""
    walls, found = [], []
    for i in range(TRACES):
        with contextlib.ExitStack() as stack:
            keeps = folder is not None and i == 0
            place = folder if keeps else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with trace.recording(place, perfetto=keeps):
                walls.append(one.call()[0])
            found.append(trace.read(place))
    return found, min(walls)


def _modules(spent: Mapping[trace.Key, trace.Spent]) -> dict[str, hlo.Module]:
    """Return the compiled modules of a trace by name: of several, the one with its instructions."""
    ops: dict[str, set[str]] = {}
    for module, op in spent:
        ops.setdefault(module, set()).add(op)
    found: dict[str, hlo.Module] = {}
    for executable in jax.devices()[0].client.live_executables():
        for text in executable.hlo_modules():
            if text.name in ops or (set(ops) == {""}):
                module = hlo.parse(text.to_string())
                best = found.get(text.name)
                if best is None or _count_held(module, ops) > _count_held(best, ops):
                    found[text.name] = module
    return found


def _count_held(module: hlo.Module, ops: Mapping[str, set[str]]) -> int:
    wanted = ops.get(module.name, ops.get("", set()))
    return sum(op in module.instructions or op in module.kernels for op in wanted)


def attribute(
    spent: Mapping[trace.Key, trace.Spent], modules: Mapping[str, hlo.Module],
    overhead: trace.Overhead, iterations: int,
) -> dict[str, Sum]:  # fmt: skip
    """Return the cost of each part in an iteration."""
    found: dict[str, Sum] = {}
    for (name, op), each in spent.items():
        module = modules.get(name) or next((m for m in modules.values() if op in m.kernels), None)
        instruction = module and module.instructions.get(module.kernels.get(op, op))
        part, cost = hlo.OTHER, hlo.Cost()
        if instruction:
            control = instruction.op in hlo.CONTROL
            part = LOOPS if control and each.inner else module.part(instruction.name)
            cost = hlo.Cost() if each.inner else module.cost(instruction.name)
        elif op.startswith("Memcpy") and "DtoD" not in op and "D2D" not in op:
            part = TRANSFER
        own = each.least if each.inner else each.seconds
        recording = overhead.own * each.calls + overhead.around * each.inner
        seconds = max(0.0, own - recording) / iterations
        calls = each.calls / iterations
        starts = 0.0 if each.inner else calls
        found[part] = found.get(part, Sum()).plus(seconds, cost.flops * calls,
                                                  cost.bytes * calls, starts)
    return found


def _overhead(one: TimedRun, spent: Mapping[trace.Key, trace.Spent]) -> trace.Overhead:
    """Return what recording adds to events: on accelerators nothing, whose clocks are hardware."""
    on_cpu = one.programs.population.devices[0].platform == "cpu"
    return _overhead_here() if on_cpu and spent else trace.Overhead()


@functools.cache
def _overhead_here() -> trace.Overhead:
    """Return the overhead on this machine, measured once a process."""
    return trace.overhead()


def _iterations_between_syncs(one: TimedRun, timing: Timing) -> int:
    """Return the iterations of a run between two waits for its device."""
    row = one.prepared.grid.row
    rows = int(one.prepared.config.chunk_seconds / max(timing.iteration * row, 1e-9))
    return row * max(1, min(ROWS, rows))


def _share_rest(side: str, found: Mapping[str, Sum], apart: Mapping[str, float],
            iteration: float) -> list[Part]:
    """Return parts whose shares sum to 1: the parts of the program share the rest of `apart`."""
    left = max(0.0, iteration - sum(apart.values()))
    total = sum(one.seconds for one in found.values()) or 1.0
    parts = [
        Part(name, side, left / iteration * one.seconds / total, left * one.seconds / total,
             *one[1:])
        for name, one in found.items()
    ]
    return parts + [Part(name, side, s / iteration, s) for name, s in apart.items()]


def _clock_shares(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares of the clock over calls, weighted by their length."""
    sums: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for each in metrics:
        for name, mean in each.items():
            if name.startswith("time_"):
                sums[name] += float(mean.total.sum())
                lengths[name] += float(mean.count.sum())
    return {name: sums[name] / lengths[name] for name in sums if lengths[name]}
