"""Shared by every test: the library is imported before JAX starts, and compiled programs are kept between sessions."""

from __future__ import annotations

import gc
import os
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

# Tests compile far more than they run: what makes programs fast is left out, which takes a third of the time. XLA's own
# passes stay. Set before JAX starts, and inherited by the programs that tests start. Users have these for `init` alone.
QUICK = {"--xla_backend_optimization_level": "0", "--xla_llvm_disable_expensive_passes": "true"}
if metadata.version("jaxlib").startswith("0.10."):  # others abort where they do not know a flag
    QUICK["--xla_cpu_use_fusion_emitters"] = "false"
if not any(flag in os.environ.get("XLA_FLAGS", "") for flag in QUICK):
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *map("=".join, QUICK.items())]).strip()

import jaxrl_fast  # noqa: E402, F401  (sets XLA flags before the backend starts)
from jaxrl_fast import runtime  # noqa: E402


def _cache_folder() -> str:
    """A folder of the tests' own, so that they neither fill nor use the cache of a user's runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    writable = os.access(base if base.exists() else base.parent, os.W_OK)
    return str((base if writable else Path(tempfile.gettempdir())) / "jaxrl_fast-tests")


# Programs that tests start in a process of their own inherit it. JAXRL_FAST_CACHE=off switches it off.
os.environ.setdefault("JAXRL_FAST_CACHE", _cache_folder())
runtime.enable_compile_cache()


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Drop what a file compiled: a process that kept the programs of all files would hold 5 GB at the end."""
    yield
    import jax

    jax.clear_caches()
    gc.collect()


@pytest.fixture
def key():
    import jax

    return jax.random.key(0)


@pytest.fixture
def rng():
    import numpy as np

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
def both_forms(monkeypatch):
    """both_forms(f, *args): f(*args) of the program for a CPU and of the program for a GPU, both run here, as NumPy arrays."""
    import jax
    import numpy as np

    from jaxrl_fast import lowering

    def run(function, *args):
        ours = jax.tree.map(np.asarray, jax.jit(function)(*args))
        with monkeypatch.context() as patched:
            patched.setattr(lowering, "GPUS", ("cpu",))
            jax.clear_caches()
            gpus = jax.tree.map(np.asarray, jax.jit(function)(*args))
        jax.clear_caches()
        return ours, gpus

    return run
