"""Raw frames a second of the frame kernel on an H100, from its machine code and recorded games."""

from __future__ import annotations

import math
from typing import NamedTuple

import _atari_sass as sass
from _atari_traces import Turns

from jaxrl_fast.envs.atari import kernel

_CORES, _SCHEDULERS = 132, 4  # of an H100
_REGISTERS, _GRANULE = 65_536, 8  # of a core; a thread's are rounded up
_BANDWIDTH = 3.35e12  # bytes/s
# Of the screens around the kernel, by lane and frame: both change places, one is packed and back.
_AROUND = 8 * 250 * 160


class Case(NamedTuple):
    """Assumptions of an estimate."""

    latencies: sass.Latencies
    clock: float  # Hz
    slack: float  # over the model: a launch's slowest warp, and code that the first cache lacks
    traffic: float  # part of the memory's bandwidth that copies reach
    launch: float  # seconds


# Loads hit the first cache (33 cycles), a mix of both, or the second one (260) every time; the 32
# addresses of an access lie in 4, 16 or 32 lines.
CASES = {
    "high": Case(sass.Latencies(33, 25, 4), 1.98e9, 1.0, 0.9, 1.5e-6),
    "expected": Case(sass.Latencies(60, 30, 16), 1.755e9, 1.15, 0.8, 2.5e-6),
    "low": Case(sass.Latencies(260, 40, 32), 1.6e9, 1.5, 0.6, 4e-6),
}


class Warp(NamedTuple):
    """What a frame costs a warp, in cycles and instructions."""

    alone: float  # cycles
    busy: float  # of the busier arithmetic pipe
    memory: float  # of the memory pipe, which a core has once
    instructions: float


def warp(turns: Turns, case: Case, parts: dict[str, sass.Part]) -> Warp:
    """Return the cost of a frame's turns."""
    counts = {
        "every turn": turns.all, "a write to the TIA": turns.tia,
        "a segment of a line": turns.draws, "32 pixels": turns.groups,
    }  # fmt: skip

    def total(field: str) -> float:
        return sum(getattr(parts[name], field) * count for name, count in counts.items())

    pipe = total("memory") * case.latencies.accesses
    return Warp(total("cycles"), total("busy"), pipe, total("instructions"))


def frames_a_second(lanes: int, cost: Warp, case: Case, registers: int, launches: int) -> float:
    """Return raw frames a second of `lanes` machines; `cost`: of a warp of `kernel.lanes_of`."""
    own = kernel.lanes_of(lanes)
    rounded = math.ceil(registers / _GRANULE) * _GRANULE
    most = _REGISTERS // (rounded * kernel.WARP * _SCHEDULERS)  # warps of a scheduler at a time
    left = math.ceil(lanes / own / _CORES)  # warps that a core must run
    cycles = 0.0
    while left > 0:
        now = min(left, most * _SCHEDULERS)
        cycles += max(cost.alone, math.ceil(now / _SCHEDULERS) * cost.busy,
                      now * cost.memory * own / kernel.WARP)
        left -= now
    around = lanes * _AROUND / (_BANDWIDTH * case.traffic) + launches * case.launch
    return lanes / (cycles * case.slack / case.clock + around)
