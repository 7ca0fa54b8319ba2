"""Shared by every test: the library is imported before JAX starts, and compiled programs are kept
between sessions."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import sys
import tempfile
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest import mock

import pytest

# Tests compile far more than they run: what makes programs fast is left out, which takes a third of
# the time. XLA's own passes stay. Set before JAX starts, and inherited by the programs that tests
# start. Users have these for `init` alone.
QUICK = {"--xla_backend_optimization_level": "0", "--xla_llvm_disable_expensive_passes": "true"}
if metadata.version("jaxlib").startswith("0.10."):  # others abort where they do not know a flag
    QUICK |= {"--xla_cpu_use_fusion_emitters": "false",
              "--xla_cpu_parallel_codegen_split_count": "1"}
if not any(flag in os.environ.get("XLA_FLAGS", "") for flag in QUICK):
    os.environ["XLA_FLAGS"] = " ".join(
        [os.environ.get("XLA_FLAGS", ""), *map("=".join, QUICK.items())]).strip()

import jax  # noqa: E402
import numpy as np  # noqa: E402

# It imports jaxrl_fast, which sets XLA flags before the backend starts.
from helpers import matrix  # noqa: E402
from helpers import runs as tools  # noqa: E402
from jaxrl_fast import algorithms, imports, runtime  # noqa: E402
from jaxrl_fast.cli import command as cli  # noqa: E402
from jaxrl_fast.doctor import machine  # noqa: E402
from jaxrl_fast.doctor.facts import Machine  # noqa: E402
from jaxrl_fast.engine import programs  # noqa: E402
from jaxrl_fast.envs import sources  # noqa: E402
from jaxrl_fast.logs.sinks import SINKS  # noqa: E402
from jaxrl_fast.ops import lowering  # noqa: E402
from jaxrl_fast.sweeps.samplers import SAMPLERS  # noqa: E402


def _cache_folder() -> str:
    """A folder of the tests' own, so that they neither fill nor use the cache of a user's runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    writable = os.access(base if base.exists() else base.parent, os.W_OK)
    return str((base if writable else Path(tempfile.gettempdir())) / "jaxrl_fast-tests")


def _memory_folder() -> str:
    """Return /dev/shm if it has room and may hold programs, else "", for pytest's own choice."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return ""
    fits = found.f_bavail * found.f_frsize > 2 * 2**30 and not found.f_flag & os.ST_NOEXEC
    return "/dev/shm" if fits and os.access("/dev/shm", os.W_OK) else ""


# Runs write many small files and wait for a disk's journal: half of the time of tests that read
# damaged ones.
if folder := _memory_folder():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)
# JAXRL_FAST_CACHE=off switches it off. Only long compilations are kept, also those of the processes
# and notebooks that tests start: writing the small programs too took 4 to 9% of a first run.
# `.ci/run` keeps all, for its next run.
KEPT = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
os.environ.setdefault("JAXRL_FAST_CACHE", _cache_folder())
if folder := runtime.enable_compile_cache():
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(KEPT))
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": folder,
                   "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}  # fmt: skip


class _Kept(list):
    """The functions of the latest kinds of runs. A user's process keeps those of one: here an
    equal run comes after others, or after one that an error has ended."""

    def __setitem__(self, where, found):
        others = [one for one in self if all(one is not new for new in found)]
        super().__setitem__(slice(None), [*others, *found][-_KINDS:])


_KINDS = 8
programs._latest = _Kept()


# Files that take long for their size. Atari's two share a program: not at once.
LONG = ("test_notebooks.py", "test_check_atari.py", "test_processes.py", "test_mesh.py",
        "test_conformance.py", "test_check_memory.py", "test_atari_kernel.py", "test_tune_speed.py")
# tracing makes many objects: looking for cycles took an eighth of the time
gc.set_threshold(50_000, 20, 10)
# started before a test asks for several seeds, so that this process keeps the devices that it has
jax.devices()


def pytest_addoption(parser):
    parser.addoption("--matrix-share", metavar="K/N", type=matrix.share, default=(1, 1),
                     help="with -m matrix: run the K-th of N shares of its rows")


def pytest_collection_modifyitems(config, items):
    """Long files first, so that the workers end together: `LONG`, then by the size of the file."""
    matrix.drop_marks(items, matrix.other_marks(config))
    config.collected_items = items.copy()  # before the marks select some: see test_matrix.py
    if other := matrix.keep_share(items, *config.getoption("--matrix-share")):
        config.hook.pytest_deselected(items=other)
    size = {path: path.stat().st_size for path in {item.path for item in items}}
    place = {name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: (place.get(item.path.name, len(LONG)), -size[item.path]))


def pytest_collection_finish():
    _freeze()


def _freeze():
    """Leave what lives now out of later collections of garbage, which took 0.3 s or more."""
    gc.collect()
    gc.freeze()


def _resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _share_of_memory() -> int:
    """Return a worker's share of half the machine's memory, in bytes; at least 2 GiB."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(2 * 2**30, (runtime.host_memory() or 0) // (2 * workers))


_most_bytes = [_share_of_memory()]


@pytest.fixture(autouse=True, scope="module")
def _freeze_after_a_file():
    yield
    _freeze()


@pytest.fixture(autouse=True)
def _forget_programs():
    """Drop compiled programs once they fill a worker's share: those of all files are 5 GiB, and a
    run that is traced again is slow. To drop them takes 4 CPU seconds."""
    yield
    if _resident_bytes() > _most_bytes[0]:
        jax.clear_caches()
        gc.unfreeze()
        _freeze()
        # glibc keeps what is free, and the process stays as large
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        _most_bytes[0] = max(_most_bytes[0], _resident_bytes() + 2**30)


@pytest.fixture(autouse=True)
def _forget_names():
    """Forget what a test registered, and which modules it named."""
    registries = (algorithms.ALGORITHMS, SINKS, SAMPLERS, sources.SOURCES)
    known = [sources.USER, imports.named,
             *(x for one in registries for x in (one.added, one.loaded, one.said))]
    before = [x.copy() for x in known]
    yield
    for now, then in zip(known, before, strict=True):
        now.clear()
        (now.extend if isinstance(now, list) else now.update)(then)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def clock():
    """A `Clock` from its three numbers; all zero by default."""
    import jax.numpy as jnp

    from jaxrl_fast.types import Clock

    def make(iteration: int = 0, update: int = 0, progress: float = 0.0) -> Clock:
        return Clock(jnp.int32(iteration), jnp.int32(update), jnp.float32(progress))

    return make


@pytest.fixture
def every_platform():
    """Trace this test's programs for every platform, not for this process's alone."""
    with lowering.known(lowering.ALL):
        yield


@pytest.fixture(scope="session")
def both_forms():
    """both_forms(f, *args): f(*args) of the program for a CPU and of the program for a GPU, both
    run here, as NumPy arrays."""
    def run(function, *args):
        ours = jax.tree.map(np.asarray, jax.jit(function)(*args))
        with lowering.known("cuda"):
            return ours, jax.tree.map(np.asarray, jax.jit(function)(*args))

    return run


@pytest.fixture
def modules(monkeypatch):
    """modules(wandb=x): `import wandb` finds x; None: it is not installed; a text: an empty
    package."""
    made = (
        lambda x: importlib.util.module_from_spec(ModuleSpec(x, None)) if isinstance(x, str) else x)
    return lambda **found: [monkeypatch.setitem(sys.modules, name, made(x))
                            for name, x in found.items()]


@pytest.fixture
def another_program(monkeypatch):
    """Another program takes a third of a core."""
    monkeypatch.setattr(machine, "examine",
                        lambda: Machine(cores=2, all_cores=2, load=9.0, share=0.3))


@pytest.fixture
def compile_cache(monkeypatch):
    """compile_cache(folder): compiled programs are kept there; None: nowhere."""
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAXRL_FAST_CACHE", "off")
    yield lambda folder: jax.config.update("jax_compilation_cache_dir", folder and str(folder))
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def cores(monkeypatch):
    """cores(n): this process may use n cores."""
    monkeypatch.delenv("NPROC", raising=False)
    return lambda n: monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(n), raising=False)


@pytest.fixture
def device_memory(monkeypatch):
    """device_memory(n): the memory plan counts with n bytes of a device; None: they are not
    known."""
    return lambda size: monkeypatch.setattr(runtime, "device_memory", lambda device: size)


@pytest.fixture
def nothing_compiles(monkeypatch):
    """A run that gets as far as its programs fails with an AttributeError."""
    monkeypatch.delattr(programs.Programs, "compile")


@pytest.fixture
def run_cli(capsys):
    """(exit code, stdout, stderr) of a command line, in this process."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = cli.main(list(argv))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture(scope="session")
def as_users_have_it():
    """A context in which programs are compiled as users have them, not quickly (`QUICK`)."""
    options = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
    if "fusion_emitters" in os.environ["XLA_FLAGS"]:
        options |= {"xla_cpu_use_fusion_emitters": True, "xla_cpu_parallel_codegen_split_count": 32}
    compile = jax.stages.Lowered.compile
    as_then = lambda lowered, own=None: compile(lowered, options | (own or {}))
    return lambda: mock.patch.object(jax.stages.Lowered, "compile", as_then)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory):
    """name of an algorithm -> (session, run directory) of the whole run."""
    done = {}

    def get(name):
        if name not in done:
            out = tmp_path_factory.mktemp("unbroken") / name
            done[name] = tools.train(name, out), out
        return done[name]

    return get


@pytest.fixture(scope="session")
def singles(as_users_have_it):
    """name -> sessions of single runs with seeds 0, 1, 2 to the middle of the horizon, compiled as
    users have them."""
    done = {}

    def get(name):
        if name not in done:
            with as_users_have_it():
                done[name] = [
                    tools.train(
                        name, seed=i, total_steps=tools.HALF, horizon=tools.TOTAL, eval_every=0
                    ) for i in range(3)
                ]
        return done[name]

    return get


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working directory from which modules are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]
