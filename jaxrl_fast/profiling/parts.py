"""The parts of an iteration, and the profile that is made of them; frozen, for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxrl_fast.doctor.facts import Limits
from jaxrl_fast.ops import scopes
from jaxrl_fast.profiling import hlo
from jaxrl_fast.profiling.timing import Timing

LEARN = "learn"  # loss and optimizer together, where only pieces are timed
PROGRAM, ACTORS, LEARNER = "program", "actors", "learner"
LOOPS, TRANSFER, IDLE, HOST, WAITING = "loops", "transfer", "idle", "host", "waiting"
NAMES = {  # in the order of an iteration
    scopes.RANDOM: "random numbers",
    scopes.ENVIRONMENT: "environment step",
    scopes.RESET: "reset",
    scopes.PREPROCESS: "preprocessing",
    scopes.POLICY: "policy",
    scopes.TARGETS: "targets",
    scopes.STORE: "storing memory",
    scopes.SAMPLE: "sampling memory",
    hlo.FORWARD: "loss forward",
    hlo.BACKWARD: "loss backward",
    scopes.OPTIMIZER: "optimizer",
    LEARN: "learning",
    LOOPS: "loops",
    hlo.OTHER: "rest of the program",
    TRANSFER: "transfer",
    HOST: "host loop",
    WAITING: "waiting",
    IDLE: "idle",
}
ARITHMETIC, MEMORY, STARTS = "arithmetic", "memory", "starts"


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of an iteration of all members.

    side: "program"; with environments on the host "actors" or "learner", each a whole by itself.
    share: of its side's time. seconds, flops, bytes, starts: of an iteration; starts are executed
    instructions, a GPU's launches. roof: the limit of the device that is nearest, "" if none is
    known; of_roof: the part of it that is reached, above 1 for memory if caches serve it.
    """

    name: str
    side: str
    share: float
    seconds: float
    flops: float = 0.0
    bytes: float = 0.0
    starts: float = 0.0
    roof: str = ""
    of_roof: float = 0.0

    @property
    def title(self) -> str:
        """Return the printed name."""
        return NAMES[self.name]


@dataclasses.dataclass(frozen=True)
class Profile:
    """The time of an iteration by part.

    source: "trace" (times of instructions), "ablation" (pieces alone) or "clock" (a run on the
    host). busy: what other processes do to the numbers, "" if the device is free. alone: shares of
    the pieces timed alone, if they were. note: what could not be measured.
    """

    algo: str
    environment: str
    device: str
    source: str
    timing: Timing
    parts: tuple[Part, ...]
    limits: Limits | None = None
    alone: Mapping[str, float] = dataclasses.field(default_factory=dict)
    busy: str = ""
    note: str = ""

    def side(self, name: str) -> tuple[Part, ...]:
        """Return a side's parts in the order of an iteration."""
        order = list(NAMES)
        found = [part for part in self.parts if part.side == name]
        return tuple(sorted(found, key=lambda part: order.index(part.name)))

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the sides: the program, or actors and learner."""
        return tuple(dict.fromkeys(part.side for part in self.parts))

    def share(self, *names: str, side: str | None = None) -> float:
        """Return the share of parts together."""
        chosen = (p for p in self.parts if p.name in names and side in (None, p.side))
        return sum(part.share for part in chosen)


def with_roof(part: Part, limits: Limits, precision: str, devices: int = 1) -> Part:
    """Return a part with the nearest limit of its device: arithmetic, memory or starts.

    Each limit is the least time that the device needs for that much of it, by its measured rates.
    """
    if part.seconds <= 0:
        return part
    kind = precision if precision in limits.products else "float32"
    least = {
        ARITHMETIC: part.flops / (limits.products[kind] * devices),
        MEMORY: part.bytes / (limits.bandwidth * devices),
        STARTS: part.starts * limits.start / devices,
    }
    roof = max(least, key=least.__getitem__)
    reached = least[roof] / part.seconds
    return dataclasses.replace(part, roof=roof, of_roof=reached) if reached else part
