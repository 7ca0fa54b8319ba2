"""Facts about a machine, as frozen values that JSON can hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Card:
    """An NVIDIA card as its driver reports it, before JAX has used it."""

    name: str
    driver: str
    used_bytes: float
    total_bytes: float
    utilization: float  # of the last moment, in [0, 1]


@dataclasses.dataclass(frozen=True)
class Machine:
    """Cores, load, memory and cards.

    cores: of this process. all_cores: of the machine, which the load counts. share: the part of a
    core that one busy thread got. quota: cores that the container allows, None: all.
    """

    cores: int
    all_cores: int
    processor: str = ""
    load: float | None = None
    share: float = 1.0
    quota: float | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None
    nvidia: bool = False
    cards: tuple[Card, ...] = ()

    @property
    def busy(self) -> bool:
        """Return whether others take this process's cores, so that measurements are too low."""
        return self.share < 0.8 or (self.load is not None and self.load > self.all_cores)


@dataclasses.dataclass(frozen=True)
class Unmet:
    """A requirement of an installed package that another installed package does not meet."""

    package: str
    name: str  # of the other package
    versions: str  # that it may have; "": any
    found: str  # "": not installed


@dataclasses.dataclass(frozen=True)
class Backend:
    """JAX's backend as a process of its own found it.

    error: why it did not start, or with a platform why it could not be measured.
    """

    platform: str = ""
    kinds: tuple[str, ...] = ()  # of its devices
    chosen: str = ""  # the platforms that the user asked JAX for
    memory_bytes: int | None = None  # of the first device, for programs
    error: str = ""
    unknown_flags: tuple[str, ...] = ()  # that this XLA refused; left out for the rest


@dataclasses.dataclass(frozen=True)
class Cache:
    """The folder of compiled programs and a program that went through it.

    reused: programs that were read after they were written, None: the file system does not say.
    requests, hits: JAX's own events for the doctor's programs. returned: whether a program that was
    compiled, written and forgotten came back from the folder.
    """

    folder: str = ""  # "": off
    programs: int = 0
    size_bytes: int = 0
    reused: int | None = None
    error: str = ""  # why it cannot be written
    free_bytes: int | None = None
    requests: int = 0
    hits: int = 0
    returned: bool = False
    compile_seconds: float | None = None
    read_seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """Measured limits of a device: the roofs of a roofline.

    products: FLOP/s of square matrix products by precision. bandwidth: bytes/s read and written.
    call: seconds between programs that are queued one after another. round_trip: seconds of a
    program with its result. turn: seconds of a turn of a loop in a program, around one small
    product. to_device, from_device: bytes/s, None: the device works in the host's memory.
    """

    device: str
    products: Mapping[str, float]
    bandwidth: float
    call: float
    round_trip: float
    turn: float
    to_device: float | None = None
    from_device: float | None = None

    @property
    def start(self) -> float:
        """Return seconds of an instruction in a program: a third of a turn, which has three."""
        return self.turn / 3


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that is known; limits: None if no device could be measured."""

    versions: Mapping[str, str]
    machine: Machine
    backend: Backend = Backend()
    cache: Cache = Cache()
    limits: Limits | None = None
    unmet: tuple[Unmet, ...] = ()
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)  # XLA_FLAGS in force
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)  # others that matter


@dataclasses.dataclass(frozen=True)
class Advice:
    """A change and the line that makes it.

    level: "wrong" (exit code 1), "faster" or "note". gain: how many times faster at most, as far as
    it was measured; 1: not known.
    """

    name: str
    level: str
    text: str
    line: str
    gain: float = 1.0
