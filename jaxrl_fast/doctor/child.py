"""Start JAX's backend in a child process: XLA ends a process over an unknown flag.

The child prints a line of JSON for each part as soon as it knows it; the parent takes every line
that came.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrl_fast.doctor.facts import Backend, Cache, Limits
from jaxrl_fast.doctor.software import remove_flags

PARTS = {"backend": Backend, "cache": Cache, "limits": Limits}
PATIENCE = 40.0  # seconds until a backend hangs
Start = Callable[[Mapping[str, str]], tuple[str, str]]
_REFUSED = (
    re.compile(r"Unknown flags? in XLA_FLAGS: (.*)"),
    re.compile(r"Couldn't interpret value \S* for flag (\S+?)\.?\s"),
)


def examine(environment: Mapping[str, str], start: Start | None = None) -> dict[str, Any]:
    """Return {part: value} of a child; flags that XLA refuses are named and left out."""
    start, environment, refused = start or _start, dict(environment), []
    while True:
        out, complaint = start(environment)
        found = dict(_parts(out))
        names = [name for name in refused_flags(complaint) if name not in refused]
        if "backend" in found or not names:
            break
        refused += names
        environment["XLA_FLAGS"] = remove_flags(environment.get("XLA_FLAGS", ""), names)
    error = "" if "limits" in found else _last_line(complaint)
    backend = found.get("backend", Backend())
    backend = dataclasses.replace(backend, error=error, unknown_flags=tuple(refused))
    return found | {"backend": backend}


def refused_flags(complaint: str) -> list[str]:
    """Return the flags that XLA complains of before it ends the process."""
    found = [text for pattern in _REFUSED for text in pattern.findall(complaint)]
    names = (token.partition("=")[0] for text in found for token in text.split())
    return ["--" + name.removeprefix("--") for name in names]


def _parts(out: str) -> Iterator[tuple[str, Any]]:
    for line in out.splitlines():
        if line.startswith('{"part":'):
            read = json.loads(line)
            lists = {k: tuple(v) if isinstance(v, list) else v for k, v in read["value"].items()}
            yield read["part"], PARTS[read["part"]](**lists)


def _last_line(complaint: str) -> str:
    lines = [line for line in complaint.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"F\d{4} |\w*Error\b|RuntimeError", line)]
    return re.sub(r"^F\d.*?\] ", "", (told or lines or ["it ended without a word"])[-1]).strip()


def start_without_unknown_flags(environment: Mapping[str, str]) -> Backend:
    """Return the backend that starts without the flags that XLA refuses; takes a second."""
    return examine(environment, lambda given: _start(given, "backend"))["backend"]


def takes_flags() -> bool:
    """Return whether XLA reads XLA_FLAGS, in a fork of this process: by jaxlib, milliseconds."""
    if not hasattr(os, "fork"):
        return False
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as `import jax` does, before jaxlib
    from jaxlib import xla_client

    if (child := os.fork()) == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # XLA complains at length
            xla_client.CompileOptions()  # ends the process over a flag that it refuses
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _start(environment: Mapping[str, str], *parts: str) -> tuple[str, str]:
    """Return a child's output and errors. parts: to print; none: all."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH", ""))))
    command = [sys.executable, "-P", "-m", "jaxrl_fast.doctor.child", *parts]
    try:
        ended = subprocess.run(command, env={**environment, "PYTHONPATH": path}, text=True,
                               capture_output=True, timeout=PATIENCE)  # fmt: skip
    except subprocess.TimeoutExpired as error:
        read = lambda text: text.decode(errors="replace") if isinstance(text, bytes) else text or ""
        ended = f"\nRuntimeError: no answer in {PATIENCE:g} s"
        return read(error.stdout), read(error.stderr) + ended
    return ended.stdout, ended.stderr


def main() -> None:
    """Print JAX's devices, the state of the compile cache and the limits of the device."""
    import jax

    from jaxrl_fast import runtime
    from jaxrl_fast.doctor.limits import measure_device

    devices, chosen = jax.devices(), jax.config.jax_platforms or ""
    kinds = tuple(device.device_kind for device in devices)
    memory = runtime.device_memory(devices[0])
    _tell("backend", Backend(devices[0].platform, kinds, chosen, memory))
    if sys.argv[1:] == ["backend"]:
        return
    events: Counter[str] = Counter()
    count = lambda name, **_: events.update([name.rpartition("/")[2]])
    jax.monitoring.register_event_listener(count)
    folder = runtime.enable_compile_cache() or ""
    error = folder and why_not_writable(folder)
    trial = try_cache(events) if folder and not error else {}
    limits = measure_device(devices[0])
    counts = {"requests": events["compile_requests_use_cache"], "hits": events["cache_hits"]}
    _tell("cache", Cache(folder, **contents(folder), error=error, **(trial | counts)))
    _tell("limits", limits)


def _tell(part: str, value: Any) -> None:
    print(json.dumps({"part": part, "value": dataclasses.asdict(value)}), flush=True)


def why_not_writable(folder: str) -> str:
    """Return why no program can be kept in a folder, "" if one can."""
    if Path(folder).is_file():
        return "a file of this name is there"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def contents(folder: str) -> dict[str, Any]:
    """Return how many programs a folder holds, their bytes, and how many were read again."""
    if not Path(folder).is_dir() or not folder:
        return {}
    with os.scandir(folder) as entries:
        found = [entry.stat() for entry in entries if entry.name.endswith("-cache")]
    noted = keeps_access_times(folder)
    return {
        "programs": len(found),
        "size_bytes": sum(stat.st_size for stat in found),
        "reused": sum(s.st_atime > s.st_mtime for s in found) if noted else None,
        "free_bytes": shutil.disk_usage(folder).free,
    }


def keeps_access_times(folder: str) -> bool:
    """Return whether reading a file of this folder is noted in its access time."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            os.utime(file.name, (1e9, 2e9))  # read before it was written: any reading is noted
            Path(file.name).read_bytes()
            return os.stat(file.name).st_atime > 1e9
    except OSError:
        return False


def try_cache(events: Counter[str]) -> dict[str, Any]:
    """Compile a program twice -> whether the folder returned it, and the seconds of both."""
    import jax
    import jax.numpy as jnp

    # The doctor's programs are small; they are kept so that the next call finds them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    program = lambda x: jnp.linalg.inv(jnp.tanh(x @ x) + jnp.eye(8)).sum()
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)

    def compiled() -> tuple[float, bool]:
        jax.clear_caches()
        lowered, before = jax.jit(program).lower(shape), events["cache_hits"]
        began = time.perf_counter()
        lowered.compile()
        return time.perf_counter() - began, events["cache_hits"] > before

    (first, known), (again, returned) = compiled(), compiled()
    compile_seconds = None if known else first  # an earlier doctor has compiled it
    return {"returned": returned, "compile_seconds": compile_seconds, "read_seconds": again}


if __name__ == "__main__":
    main()
