"""Settings before XLA starts, and the persistent compile cache; imports nothing heavy."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxrl_fast.errors import ConfigError

# jaxlib 0.10 deadlocks on few CPU cores in programs vmapped over members unless this scheduler is
# off. A compiler option on `jit` does not help; 0.11 does not hang, and an unknown flag aborts.
HANG_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
_LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold"
_DEVICES_FLAG = "--xla_force_host_platform_device_count"
_SAME_BITS = "--xla_gpu_deterministic_ops"
_MEMORY = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION",
           "XLA_PYTHON_CLIENT_PREALLOCATE")


@functools.cache  # a package's metadata are parsed anew each time
def version(name: str) -> str:
    """Return the installed version of a package, "" if it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def jaxlib_version(text: str | None = None) -> tuple[int, int]:
    if not (text := text or version("jaxlib")):
        raise ImportError("jaxlib must be installed, got none: pip install jax", name="jaxlib")
    return tuple(int(x) for x in text.split(".")[:2])


def vmap_hangs_on_cpu(jaxlib: str | None = None) -> bool:
    """Return whether a jaxlib (None: this one) deadlocks with LAPACK on several CPU devices."""
    return jaxlib_version(jaxlib) < (0, 11)


def divides_batches(jaxlib: str | None = None) -> bool:
    """Return whether a CPU divides every batched product among threads: jaxlib 0.11 does."""
    # for small products the threads cost more than they gain (docs/decisions/torsos.md)
    return jaxlib_version(jaxlib) >= (0, 11)


def backend_started() -> bool:
    if "jax" not in sys.modules:
        return False
    try:
        from jax._src import xla_bridge

        return bool(xla_bridge.backends_are_initialized())
    except (ImportError, AttributeError):  # a private name: if it moves, assume the worst
        return True


def xla_flags() -> str:
    """Return XLA_FLAGS, or the text of the file that it names, which XLA allows."""
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if flags and not flags.startswith("-") and Path(flags).is_file():
        return " ".join(Path(flags).read_text().split())
    return flags


def has_own_flags() -> bool:
    """Return whether XLA_FLAGS holds more than the flag that `prepare_xla` adds."""
    return xla_flags() not in ("", f"{HANG_FLAG}=false" if vmap_hangs_on_cpu() else "")


def _add_xla_flag(flag: str, value: str) -> bool:
    """Add a flag to XLA_FLAGS unless the user set it; return False if it is too late."""
    flags = xla_flags()
    lost_file = flags and not flags.startswith("-")  # over which XLA ends the process
    if flag in flags or lost_file:
        return True
    if backend_started():
        return False
    os.environ["XLA_FLAGS"] = f"{flags} {flag}={value}".strip()
    return True


def prepare_xla() -> None:
    """Switch off the scheduler that hangs, at `import jaxrl_fast`, if this jaxlib has it."""
    if vmap_hangs_on_cpu() and not _add_xla_flag(HANG_FLAG, "false"):
        import jax

        if jax.default_backend() == "cpu":
            warnings.warn(
                "JAX's backend was started before `import jaxrl_fast`: with this jaxlib a program "
                "vmapped over several members can hang on a CPU. Import jaxrl_fast first, or set "
                f"XLA_FLAGS={HANG_FLAG}=false.",
                stacklevel=3,
            )


def once_options(platform: str) -> dict[str, Any] | None:
    """Return compiler options for a program that runs once: on a CPU, without optimizations."""
    if platform != "cpu":
        return None
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    if jaxlib_version() == (0, 10):  # later ones have no such option
        options["xla_cpu_use_fusion_emitters"] = False
    return options


def loop_options(platform: str, parallel: bool) -> dict[str, Any] | None:
    """Return compiler options for training: on a CPU, loops of one thread unless `parallel`."""
    # XLA takes a batch from a replay for a read of the whole replay, and divides a small gather
    alone = platform == "cpu" and not parallel
    return {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"} if alone else None


def traced_options(platform: str) -> dict[str, Any] | None:
    """Return compiler options to trace a program: to a profiler a CUDA graph is one event."""
    return {"xla_gpu_enable_command_buffer": ""} if platform in ("gpu", "cuda") else None


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Pause Python's garbage collector until `resume_gc()`: imports and traces leave little."""
    enabled = gc.isenabled() or any(_paused)  # another thread may have paused it
    try:
        _paused.append(enabled)
        gc.disable()
        yield
    finally:
        resume_gc()
        if enabled:
            gc.enable()


_paused: list[bool] = []  # whether the collector ran when it was paused


def resume_gc() -> None:
    """End the pause of `pause_gc()`."""
    if any(_paused):
        gc.enable()
    _paused.clear()


def cpu_count() -> int:
    """Return the cores of this process; the environment variable NPROC (as in XLA) lowers it."""
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    limit = os.environ.get("NPROC", "")
    return max(1, min(cores, int(limit))) if limit.isascii() and limit.isdigit() else cores


def request_loop_kernels() -> bool:
    """Ask a CPU's compiler for one kernel a loop of small operations; False if it is too late."""
    return _add_xla_flag(_LOOPS, str(10**12))


def loops_are_kernels() -> bool:
    """Return whether a CPU's compiler makes one kernel of a loop without scatter or sort."""
    return _LOOPS in xla_flags()


def request_host_devices(count: int) -> bool:
    """Ask for `count` CPU devices (no effect on accelerators); False if the backend runs."""
    return count <= 1 or _add_xla_flag(_DEVICES_FLAG, str(count))


# what this process has set for a GPU: a variable or a flag, and its value
_own: dict[str, str] = {}


def set_gpu(deterministic: bool, memory_fraction: float | None,
            platform: Callable[[], str] | None = None) -> None:
    """Set variables and flags for a GPU's backend before its start; others ignore them.

    The user's own environment variables win. Warns if an earlier run of this process has set
    `deterministic` and this one does without. Raises ConfigError for `deterministic` against
    XLA_FLAGS, and if a GPU's backend runs with something else.
    """
    on_gpu = lambda: (platform or _platform)() == "gpu"
    late = "given before JAX's backend starts: {}={} in the environment of Python is early enough"
    if deterministic:
        if flag_value(_SAME_BITS) in ("false", "0"):
            raise ConfigError("deterministic", True,
                              f"False with XLA_FLAGS={_SAME_BITS}=false: leave one of them out")
        new = flag_value(_SAME_BITS) is None
        if _add_xla_flag(_SAME_BITS, "true"):
            _own.update({_SAME_BITS: "true"} if new else {})
        elif on_gpu():
            raise ConfigError("deterministic", True, late.format("XLA_FLAGS", f"{_SAME_BITS}=true"))
    elif _SAME_BITS in _own and on_gpu():
        warnings.warn("deterministic=False has no effect: an earlier run of this process has set "
                      "it, and JAX reads it once. A new process is faster.", stacklevel=2)
    if memory_fraction is not None and not _set_memory(memory_fraction) and on_gpu():
        first = [value for name, value in _own.items() if name in _MEMORY]
        valid = late.format(_MEMORY[0], f"{memory_fraction:g}")
        if first:
            valid = f"{first[0]} as in an earlier run of this process: JAX reads it once"
        raise ConfigError("memory_fraction", memory_fraction, valid)


def flag_value(flag: str) -> str | None:
    """Return the value of a flag in XLA_FLAGS in lower case, or None."""
    found = [x.partition("=")[2].lower() for x in xla_flags().split()
             if x.partition("=")[0] == flag]
    return found[-1] if found else None  # XLA takes the last


def _platform() -> str:
    import jax

    return jax.default_backend()


def _set_memory(fraction: float) -> bool:
    """Set the part of a GPU's memory to take, 0: none ahead; return False if it is too late."""
    if any(name in os.environ and name not in _own for name in _MEMORY):
        return True
    name, value = _MEMORY[0], f"{fraction:g}"
    if not fraction:
        name, value = "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
    if _own.get(name) == value:
        return True
    if backend_started():
        return False
    for earlier in set(_MEMORY) & set(_own):
        os.environ.pop(earlier, None)
        del _own[earlier]
    os.environ[name] = _own[name] = value
    return True


def device_memory(device: Any) -> int | None:
    """Return the bytes for programs on this device (a CPU: the container's limit), or None."""
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    return host_memory()


def host_memory() -> int | None:
    """Return the bytes of this machine, or of its container if they are fewer, or None."""
    limits = []
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        pass
    return min(limits, default=None)


def has_nvidia_card(driver: Path = Path("/proc/driver/nvidia/gpus"),
                    which: Callable[[str], str | None] = shutil.which) -> bool:
    """Return whether this machine has an NVIDIA card with its driver."""
    return (driver.is_dir() and any(driver.iterdir())) or which("nvidia-smi") is not None


def idle_card(platform: str, chosen: str | None,
              probe: Callable[[], bool] = has_nvidia_card) -> str | None:
    """Return the remedy for a card that JAX does not use, or None.

    platform: JAX's. chosen: the platforms that the user has asked for, JAX_PLATFORMS.
    """
    if platform != "cpu" or chosen or not probe():
        return None
    return ("an NVIDIA card is here, but JAX runs on the CPU: pip install "
            f"'jax[cuda12]=={version('jax')}'")


def enable_compile_cache() -> str | None:
    """Keep compiled programs on disk, unless set otherwise; return the folder or None."""
    import jax

    if jax.config.jax_compilation_cache_dir:
        return jax.config.jax_compilation_cache_dir
    place = os.environ.get("JAXRL_FAST_CACHE", "")
    if place.lower() in ("off", "0", "none"):
        return None
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    base = Path(place) if place else shared / "jaxrl_fast"
    jax.config.update("jax_compilation_cache_dir", str(base))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return str(base)


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    names = "jaxrl_fast", "jax", "jaxlib", "flax", "optax", "numpy", "gymnax", "brax"
    return {"python": ".".join(map(str, sys.version_info[:3]))} | {
        name: found for name in names if (found := version(name))}
