"""Several processes as one run (`jax.distributed`).

All processes launch the same device programs in the same order. The first one decides and tells
the others (`tell`); it alone writes, draws and prints (`is_first`, `on_first`). With a single
process each function does the plain thing.
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


def start(coordinator: str | None = None, processes: int | None = None,
          process: int | None = None) -> None:
    """Join the other processes, before JAX's backend starts.

    Without arguments JAX finds them (TPU pods, Slurm, Open MPI). coordinator: HOST:PORT of the
    first process.  processes: their number.  process: index of this one, from 0.
    """
    given = (coordinator, processes, process)
    if any(x is not None for x in given) and any(x is None for x in given):
        missing = next(n for n, x in zip(("coordinator", "processes", "process"),
                                         given, strict=True) if x is None)
        raise ConfigError(missing, None, "given: coordinator, processes and process are given "
                                         "together, or none of them")
    if processes is not None and not 0 <= process < processes:
        raise ConfigError("process", process,
                          f"from 0 to {processes - 1}, below processes = {processes}")
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        raise ConfigError("distributed", True,
                          "False without processes that find each other: on a TPU pod or under "
                          "Slurm JAX finds them, elsewhere give coordinator, processes and "
                          f"process ({first_line(error)})") from error  # fmt: skip


def several() -> bool:
    """Return whether this run has more than one process, without starting the backend."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Return whether this process logs, draws and prints."""
    return not several() or jax.process_index() == 0


def fetch(tree: Any, whole: Any) -> Any:
    """Return NumPy arrays of whole leaves, in all processes; whole: the replicated sharding."""
    return jax.device_get(together(tree, whole))


def together(tree: Any, whole: Any) -> Any:
    """Copy leaves of several processes to every device; does not wait."""
    if not several():
        return tree
    return jax.tree.map(lambda x: x.addressable_data(0), _laid(whole)(tree))


def put(tree: Any, sharding: Any, fn: Callable[[Any], Any] | None = None) -> Any:
    """Return `jax.device_put` of fn(tree): equal in every process, or arrays over all of them."""
    if not several():
        return jax.device_put(tree if fn is None else fn(tree), sharding)
    return (_laid(sharding) if fn is None else jax.jit(fn, out_shardings=sharding))(tree)


@functools.lru_cache(16)
def _laid(sharding: Any) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: tree, out_shardings=sharding)


def tell(value: T) -> T:
    """Return the first process's value, any JSON, in all processes."""
    if not several():
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    text = np.frombuffer(json.dumps(value if is_first() else None).encode(), np.uint8)
    size = int(broadcast_one_to_all(np.int32(text.size)))
    padded = np.zeros(size, np.uint8)
    padded[: min(size, text.size)] = text[:size]
    return json.loads(np.asarray(broadcast_one_to_all(padded)).astype(np.uint8).tobytes())


def on_first(fn: Callable[[], T]) -> T | None:
    """Call fn in the first process while others wait for its result (None there) or error."""
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
    """Raise ConfigError in every process if `content`, any JSON, differs between them."""
    if not several():
        return
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    all_of_them = _gathered(np.frombuffer(digest, np.uint8))
    other = np.flatnonzero((all_of_them != all_of_them[0]).any(axis=1))
    if other.size:
        text = difference(json.loads(json.dumps(content)), tell(content)).encode()[:400].ljust(400)
        told = _gathered(np.frombuffer(text, np.uint8))[other[0]]
        where = told.astype(np.uint8).tobytes().decode(errors="ignore").strip()
        raise ConfigError(what, f"{where} in process {other[0]} and process 0",
                          "the same in every process")


def _gathered(x: Any) -> np.ndarray:
    """Return the arrays x [...] of all processes, [processes, size]."""
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(x)).reshape(jax.process_count(), -1)


def difference(here: Any, there: Any, name: str = "") -> str:
    """Return the first place where two trees of JSON differ: `run.seed: 1 and 0`."""
    for kind, keys in ((dict, lambda x: list(x)), (list, lambda x: list(range(len(x))))):
        if isinstance(here, kind) and isinstance(there, kind) and keys(here) == keys(there):
            at = next((k for k in keys(here) if here[k] != there[k]), None)
            return "" if at is None else difference(here[at], there[at],
                                                    f"{name}.{at}" if name else str(at))
    return f"{name}: {json.dumps(here)[:150]} and {json.dumps(there)[:150]}"


def check_shared(path: Any) -> None:
    """Raise ConfigError in every process if one does not see the first one's new file."""
    if not several():
        return
    until = time.monotonic() + 30.0  # a network file system shows it late
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.2)
    there = _gathered(np.bool_(path.exists()))[:, 0]
    if not there.all():
        blind = ", ".join(map(str, np.flatnonzero(~there)))
        raise ConfigError("out", str(path.parent), "a folder that all processes share; process "
                                                   f"{blind} does not see {path.name}")


_polls = itertools.count()  # of the process: JAX's numbers must not repeat with another run


def preempted() -> bool:
    """Return whether all processes must stop because one got SIGTERM; all call it as often."""
    if not several():
        return False
    from jax.experimental.multihost_utils import reached_preemption_sync_point

    return bool(reached_preemption_sync_point(next(_polls)))


class Pace:
    """Seconds a row, measured once by the first process: all must run chunks of equal length."""

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
