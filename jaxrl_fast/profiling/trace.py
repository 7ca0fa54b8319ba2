"""Time of each instruction, from a trace of JAX's profiler.

A trace of a CPU has an event for each thunk in the thread that runs it, loops around what they
hold; one of a GPU has an event for each kernel in its stream. Both name the HLO instruction.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import timeit
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Key = tuple[str, str]  # module, instruction


class Event(NamedTuple):
    """An executed instruction: start and end in nanoseconds of the trace."""

    module: str
    op: str
    start: float
    end: float


@dataclasses.dataclass
class Spent:
    """An instruction's time: seconds of each execution without the events inside.

    inner: events directly inside, of all executions.
    """

    times: list[float] = dataclasses.field(default_factory=list)
    inner: int = 0

    @property
    def calls(self) -> int:
        """Return the number of executions."""
        return len(self.times)

    @property
    def least(self) -> float:
        """Return the sum if each execution took as long as the shortest: for loops."""
        return self.calls * min(self.times)

    @property
    def seconds(self) -> float:
        """Return the sum if each took the lower quartile: other processes lengthen many."""
        return self.calls * sorted(self.times)[(self.calls - 1) // 4]


class Trace(NamedTuple):
    """Time by instruction without that of instructions inside it.

    span: seconds between the first start and the last end.
    """

    spent: Mapping[Key, Spent]
    span: float

    @property
    def events(self) -> int:
        """Return the number of executions."""
        return sum(one.calls for one in self.spent.values())


@contextlib.contextmanager
def recording(folder: Path, perfetto: bool = False) -> Iterator[None]:
    """Record a trace into `folder`, without Python's own calls, which would slow it down.

    perfetto: also a file for https://ui.perfetto.dev.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(str(folder), create_perfetto_trace=perfetto, profiler_options=options)
    try:
        yield
    finally:
        jax.profiler.stop_trace()


def read(folder: Path) -> Trace:
    """Return the newest trace in a folder."""
    files = sorted(folder.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    if not files:
        return sum_events([])
    data = jax.profiler.ProfileData.from_file(str(files[-1]))
    return sum_events(_lines(data))


def _lines(data: Any) -> list[list[Event]]:
    planes = list(data.planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    if found := [line for plane in devices for line in _device_lines(plane)]:
        return found
    return [events for plane in planes for line in plane.lines if (events := _events(line))]


def _device_lines(plane: Any) -> list[list[Event]]:
    """Return the events of a device's streams, or of a TPU's line of operations."""
    lines = list(plane.lines)
    streams = [line for line in lines if line.name.startswith("Stream")]
    chosen = streams or [line for line in lines if line.name == "XLA Ops"]
    return [events for line in chosen if (events := _events(line, kernels=True))]


def _events(line: Any, kernels: bool = False) -> list[Event]:
    """Return a line's events that name an instruction; kernels: also those with only a name."""
    found = []
    for event in line.events:
        stats = dict(event.stats)
        op = stats.get("hlo_op") or (event.name if kernels else None)
        if op:
            start = event.start_ns
            module = str(stats.get("hlo_module", ""))
            found.append(Event(module, str(op), start, start + event.duration_ns))
    return found


def sum_events(lines: Iterable[list[Event]]) -> Trace:
    """Return the time of every instruction: its own, without the events inside."""
    spent: dict[Key, Spent] = defaultdict(Spent)
    outer: list[Event] = []
    for line in lines:
        around: list[tuple[Event, list[float], int]] = []  # with times and place of its own
        for event in sorted(line, key=lambda e: (e.start, -e.end)):
            while around and event.start >= around[-1][0].end:
                around.pop()
            if around:
                parent, times, place = around[-1]
                times[place] -= (min(event.end, parent.end) - event.start) * 1e-9
                spent[parent.module, parent.op].inner += 1
            else:
                outer.append(event)
            own = spent[event.module, event.op].times
            own.append((event.end - event.start) * 1e-9)
            around.append((event, own, len(own) - 1))
    start = min((event.start for event in outer), default=0.0)
    end = max((event.end for event in outer), default=0.0)
    return Trace(dict(spent), (end - start) * 1e-9)


def pool(traces: Sequence[Trace]) -> dict[Key, Spent]:
    """Return the executions of several traces together."""
    found: dict[Key, Spent] = defaultdict(Spent)
    for trace in traces:
        for key, one in trace.spent.items():
            found[key].times += one.times
            found[key].inner += one.inner
    return dict(found)


CALIBRATION = 1000, 20  # turns of a small loop, calls


class Overhead(NamedTuple):
    """Seconds that recording an event adds to its own time, and to the loop around it."""

    own: float = 0.0
    around: float = 0.0


def overhead() -> Overhead:
    """Return what recording costs in a thread of a CPU, by a small loop with and without."""
    turns, calls = CALIBRATION
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, turns, lambda i, y: jnp.tanh(y @ x), x))
    x = jnp.full((8, 8), 0.1)
    call = lambda: loop(x).block_until_ready()
    shortest = lambda: min(timeit.repeat(call, repeat=calls, number=1))
    shortest()  # compiles
    alone = shortest()
    with tempfile.TemporaryDirectory() as folder:
        with recording(Path(folder)):
            shortest()
        spent = read(Path(folder)).spent.values()
    inside = [one for one in spent if not one.inner]
    events = max(sum(one.calls for one in inside), 1)
    # all of the loop's own time is in there
    own = sum(one.seconds for one in inside) - calls * alone
    return Overhead(max(0.0, own) / events, sum(one.least for one in spent if one.inner) / events)
