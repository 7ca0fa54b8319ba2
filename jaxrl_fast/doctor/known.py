"""Versions, flags and variables that are known to hurt, with the reason and the remedy."""

from __future__ import annotations

import dataclasses

from jaxrl_fast.runtime import HANG_FLAG

ON, OFF = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")


@dataclasses.dataclass(frozen=True)
class Known:
    """A version with a trap; platform "": on each. unless: a flag, its values that avoid it."""

    package: str
    versions: str
    platform: str
    level: str
    reason: str
    remedy: str
    unless: tuple[str, tuple[str, ...]] = ("", ())


PAIRS = (
    Known(
        "jaxlib", "<0.11", "cpu", "wrong",
        "programs vmapped over members hang for good on few cores, by XLA's concurrency-optimized "
        "scheduler",
        f'export XLA_FLAGS="$XLA_FLAGS {HANG_FLAG}=false"',
        (HANG_FLAG, OFF),
    ),
    Known(
        "jaxlib", "<0.11", "cpu", "note",
        "LAPACK calls of your own networks (jnp.linalg.qr, flax's orthogonal initializer) hang in "
        "a batch of members on several devices; the members of a run go one after another there",
        "pip install -U 'jax>=0.11,<0.12'",
    ),
    Known(
        "jax", ">=0.11", "", "note",
        "jnp.empty and jnp.empty_like no longer hold zeros: code of yours that relies on "
        "them computes with old memory",
        "grep -rn --include='*.py' 'jnp.empty' .",
    ),
    Known(
        "brax", "==0.14.*", "", "note",
        "brax/swimmer is refused: its fluid forces call a function that JAX has removed",
        "jaxrl-fast list environments | grep brax/",
    ),
)  # fmt: skip
PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")  # of the same version as jaxlib


@dataclasses.dataclass(frozen=True)
class Switch:
    """A value of a flag or variable that hurts; platform "": on each; values (): any value."""

    name: str
    values: tuple[str, ...]
    platform: str
    level: str
    reason: str


HURTING_FLAGS = (
    Switch("--xla_gpu_deterministic_ops", ON, "gpu", "faster",
           "no kernel is chosen by measuring, and scatters add in order"),
    Switch("--xla_gpu_autotune_level", ("0",), "gpu", "faster", "no kernel is chosen by measuring"),
    Switch("--xla_gpu_enable_command_buffer", ("",), "gpu", "faster",
           "kernels are launched one by one, not as CUDA graphs"),
    Switch("--xla_cpu_multi_thread_eigen", OFF, "cpu", "faster", "products use one core"),
    Switch("--xla_backend_optimization_level", ("0", "1"), "", "faster",
           "programs are hardly optimized"),
    Switch("--xla_dump_to", (), "", "faster", "each compiled program is written out as text"),
)  # fmt: skip
HURTING_VARIABLES = (
    Switch("JAX_DISABLE_JIT", ON, "", "wrong",
           "nothing is compiled: each operation runs by itself"),
    Switch("JAX_DEBUG_NANS", ON, "", "faster", "each program waits for its result and is checked"),
    Switch("JAX_DEBUG_INFS", ON, "", "faster", "each program waits for its result and is checked"),
    Switch("JAX_CHECK_TRACER_LEAKS", ON, "", "faster", "programs are traced anew at each call"),
    Switch("JAX_ENABLE_X64", ON, "", "faster", "numbers without a dtype take 64 bits"),
    Switch("JAX_ENABLE_COMPILATION_CACHE", OFF, "", "faster", "each run compiles anew"),
    Switch("XLA_PYTHON_CLIENT_ALLOCATOR", ("platform",), "gpu", "faster",
           "each array is asked from the driver"),
    Switch("CUDA_LAUNCH_BLOCKING", ("1",), "gpu", "faster", "the host waits for each kernel"),
)  # fmt: skip
SHOWN = ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "NPROC", "JAXRL_FAST_CACHE",
         "JAX_COMPILATION_CACHE_DIR", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION",
         "XLA_PYTHON_CLIENT_PREALLOCATE")  # fmt: skip
VARIABLES = (*SHOWN, *(switch.name for switch in HURTING_VARIABLES))


@dataclasses.dataclass(frozen=True)
class Missing:
    """A flag that was measured to help."""

    flag: str
    value: str
    platform: str
    gain: float
    reason: str


MISSING_FLAGS = (
    Missing("--xla_gpu_enable_command_buffer",
            "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,DYNAMIC_SLICE_FUSION,WHILE",
            "gpu", 1.07,
            "CUDA graphs with loops: 1.07 times the speed for PPO CartPole on an H200, 1 for DQN"),
)  # fmt: skip
