"""Several processes as one run (`jax.distributed`): what each does alone, and what they can only do together.

All of them run this program side by side, each on its own devices, and launch the same device programs in the same
order. So whatever would differ between them is decided by the first process and told to the others (`tell`), what is
written, drawn and printed is the first one's alone (`is_first`, `on_first`), and arrays that lie on the devices of
several processes are fetched together (`fetch`). In a single process each of these is the plain thing.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from jaxrl_fast.errors import ConfigError, UserError, first_line

T = TypeVar("T")


def start(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Join the other processes, before JAX's backend starts. Without arguments JAX finds them (TPU pods, Slurm, Open MPI).

    coordinator: HOST:PORT of the first process.  processes: how many there are.  process: which of them this is, from 0.
    """
    given = (coordinator, processes, process)
    if any(x is not None for x in given) and any(x is None for x in given):
        missing = next(n for n, x in zip(("coordinator", "processes", "process"), given, strict=True) if x is None)
        raise ConfigError(missing, None, "given: coordinator, processes and process are given together, or none of them")
    if processes is not None and not 0 <= process < processes:
        raise ConfigError("process", process, f"from 0 to {processes - 1}, below processes = {processes}")
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        raise ConfigError("distributed", True, "False without processes that find each other: on a TPU pod or under Slurm JAX "
                          f"sees them, elsewhere give coordinator, processes and process "
                          f"({first_line(error)})") from error  # fmt: skip


def several() -> bool:
    """Whether this run has more than one process. Does not start the backend of one that has no others."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Whether this process is the one that logs, draws and prints."""
    return not several() or jax.process_index() == 0


def fetch(tree: Any, whole: Any) -> Any:
    """NumPy arrays of whole leaves, wherever they lie; whole: the sharding that has them on every device. All call it."""
    return jax.device_get(together(tree, whole))


def together(tree: Any, whole: Any) -> Any:
    """Leaves of several processes copied to every device, so that each process can read them. Does not wait."""
    if not several():
        return tree
    return jax.tree.map(lambda x: x.addressable_data(0), _laid(whole)(tree))


def put(tree: Any, sharding: Any, fn: Callable[[Any], Any] | None = None) -> Any:
    """`jax.device_put`, of fn(tree) where there is one: what every process has alike, or arrays that lie on all of them."""
    if not several():
        return jax.device_put(tree if fn is None else fn(tree), sharding)
    return (_laid(sharding) if fn is None else jax.jit(fn, out_shardings=sharding))(tree)


@functools.lru_cache(16)
def _laid(sharding: Any) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: tree, out_shardings=sharding)


def tell(value: T) -> T:
    """The first process's value, any JSON, to all of them."""
    if not several():
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    text = np.frombuffer(json.dumps(value if is_first() else None).encode(), np.uint8)
    size = int(broadcast_one_to_all(np.int32(text.size)))
    padded = np.zeros(size, np.uint8)
    padded[: min(size, text.size)] = text[:size]
    return json.loads(np.asarray(broadcast_one_to_all(padded)).astype(np.uint8).tobytes())


def on_first(fn: Callable[[], T]) -> T | None:
    """fn() in the first process, while the others wait: what it returns, None in the others; its error in all."""
    if not several():
        return fn()
    result, failure = None, None
    if is_first():
        try:
            result = fn()
        except BaseException as error:
            failure = error
    said = tell(None if failure is None else [str(failure), getattr(failure, "exit_code", 1)])
    if failure is not None:
        raise failure
    if said is not None:
        error = UserError(said[0])
        error.exit_code = said[1]
        raise error
    return result


def check_same(what: str, content: Any) -> None:
    """ConfigError in every process where `content`, any JSON, differs between them."""
    if not several():
        return
    from jax.experimental.multihost_utils import process_allgather

    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    all_of_them = np.asarray(process_allgather(np.frombuffer(digest, np.uint8))).reshape(jax.process_count(), -1)
    other = np.flatnonzero((all_of_them != all_of_them[0]).any(axis=1))
    if other.size:
        text = difference(json.loads(json.dumps(content)), tell(content)).encode()[:400].ljust(400)
        told = np.asarray(process_allgather(np.frombuffer(text, np.uint8))).reshape(jax.process_count(), -1)[other[0]]
        where = told.astype(np.uint8).tobytes().decode(errors="ignore").strip()
        raise ConfigError(what, f"{where} in process {other[0]} and process 0", "the same in every process")


def difference(here: Any, there: Any, name: str = "") -> str:
    """The first place where two trees of JSON differ, and what stands there: `run.seed: 1 and 0`."""
    for kind, keys in ((dict, lambda x: list(x)), (list, lambda x: list(range(len(x))))):
        if isinstance(here, kind) and isinstance(there, kind) and keys(here) == keys(there):
            at = next((k for k in keys(here) if here[k] != there[k]), None)
            return "" if at is None else difference(here[at], there[at], f"{name}.{at}" if name else str(at))
    return f"{name}: {json.dumps(here)[:150]} and {json.dumps(there)[:150]}"


def check_shared(path: Any) -> None:
    """ConfigError in every process where one of them does not see what the first one has just written there."""
    if not several():
        return
    from jax.experimental.multihost_utils import process_allgather

    until = time.monotonic() + 30.0  # a network file system shows it with a delay
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.2)
    there = np.asarray(process_allgather(np.bool_(path.exists()))).reshape(-1)
    if not there.all():
        blind = ", ".join(map(str, np.flatnonzero(~there)))
        raise ConfigError("out", str(path.parent), f"a folder that all processes share; process {blind} does not see {path.name}")


_polls = itertools.count()  # of the process: what JAX compares may not begin again with another run


def preempted() -> bool:
    """Whether all processes are to stop now, because one of them was sent SIGTERM; all call it as often."""
    if not several():
        return False
    from jax.experimental.multihost_utils import reached_preemption_sync_point

    return bool(reached_preemption_sync_point(next(_polls)))


class Pace:
    """Seconds a row. With several processes those of the first one, measured once: all must run chunks of the same length."""

    def __init__(self):
        self.told: float | None = None
        self.measured = 0

    def __call__(self, seconds: float) -> float:
        if not several():
            return seconds
        self.measured += 1
        if self.measured <= 2:  # the first chunk loads the program
            self.told = tell(seconds)
        return self.told
