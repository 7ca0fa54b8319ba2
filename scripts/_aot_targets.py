"""Describe accelerators to their compilers: `h100`, `h100:4`, `v5e:2x2`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
import os
import re
from typing import Any

from jaxrl_fast.errors import ConfigError, nearest


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A card as XLA:GPU's compiler describes it, from its maker's data sheets."""

    name: str
    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    fpus: int  # float32 lanes of each
    shared: int  # KiB of shared memory of each; a block may use one less
    bandwidth: float  # bytes/s
    l2: int  # MiB
    clock: float  # GHz, boost
    memory: float  # bytes
    accelerated: bool  # has the architecture's own features (sm_90a)


# Cores, clocks, bandwidth, caches: NVIDIA's whitepapers "A100 Tensor Core GPU Architecture" and
# "H100 Tensor Core GPU Architecture", and the data sheet of the H200 (an H100 with other memory).
# Limits of a block and of a core: CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability". H100: as XLA reads it from the card, which tells 132 cores at 1.98 GHz.
GPUS = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 164, 2.039e12, 40, 1.41, 80e9, False),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 228, 3.35e12, 50, 1.98, 80 * 2**30, True
    ),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 128, 228, 4.8e12, 50, 1.98, 141e9, True),
}
TPUS = ("v5e", "v6e")
CHIPS = "2x2"  # the smallest topology that the TPU compiler takes for a host

_CONFIG = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {l2}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {optin}
  cuda_compute_capability {{ {capability} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {version}"
  device_address_bits: 64
  name: "{name}"
  driver_version: "13.0.0"
  runtime_version: "12.9.0"
  compile_time_toolkit_version: "12.9.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{name}"
"""


def config(gpu: Gpu) -> str:
    """Return a card as a text of XLA's GpuTargetConfigProto."""
    major, minor = gpu.capability
    features = " feature_extension: ACCELERATED_FEATURES" if gpu.accelerated else ""
    return _CONFIG.format(
        shared=gpu.shared * 2**10, optin=(gpu.shared - 1) * 2**10, cores=gpu.cores, fpus=gpu.fpus,
        bandwidth=int(gpu.bandwidth), l2=gpu.l2 * 2**20, clock=gpu.clock, memory=int(gpu.memory),
        name=gpu.name, capability=f"major: {major}{f' minor: {minor}' if minor else ''}{features}",
        version=f"{major}.{minor}{'a' if gpu.accelerated else ''}",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Target:
    """Accelerators of one kind: `size` is a number of cards, or a TPU's topology."""

    kind: str
    size: str

    @property
    def name(self) -> str:
        return self.kind if self.size == "1" else f"{self.kind}:{self.size}"

    @property
    def platform(self) -> str:
        return "cuda" if self.kind in GPUS else "tpu"

    def devices(self) -> tuple[Any, ...]:
        """Return its devices, for compilation alone. Raises ConfigError without their plugin."""
        from jax.experimental import topologies

        check_plugin(self)
        if self.platform == "tpu":
            return tuple(topologies.get_topology_desc(self.name, "tpu").devices)
        described = topologies.get_topology_desc(
            "", "cuda", topology=f"1x1x{self.size}", target_config=config(GPUS[self.kind])
        )
        return tuple(described.devices)

    def described(self) -> Any:
        """Return a context to trace and lower in: JAX 0.11 asks it for the card of a kernel."""
        from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

        if self.platform == "tpu":
            return contextlib.nullcontext()
        device = AbstractDevice(GPUS[self.kind].name, None, "gpu")
        return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def parse(name: str) -> Target:
    """Return the target of `h100`, `h100:4`, `v5e` or `v5e:2x4`. Raises ConfigError for another."""
    kind, _, size = name.partition(":")
    if kind in GPUS and re.fullmatch(r"[1-9]\d{0,2}|", size):
        return Target(kind, size or "1")
    if kind in TPUS and re.fullmatch(r"[1-9]\d?x[1-9]\d?|", size):
        return Target(kind, size or CHIPS)
    known = [*GPUS, *TPUS]
    near = nearest(kind, known) if kind not in known else ""
    forms = "with a number of GPUs ('h100:4') or a TPU's topology ('v5e:2x2')"
    raise ConfigError("target", name, f"one of {', '.join(map(repr, known))}, {forms}{near}")


PLUGINS = {"cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin"), "tpu": ("libtpu",)}
EXTRAS = {"cuda": "cuda12", "tpu": "tpu"}


def has_plugin(platform: str) -> bool:
    """Return whether the compiler for "cuda" or "tpu" is installed."""
    return any(importlib.util.find_spec(name) for name in PLUGINS[platform])


def check_plugin(target: Target) -> None:
    """Raise ConfigError with the pip command unless the target's compiler is installed."""
    if not has_plugin(target.platform):
        pip = f"pip install -e '.[{EXTRAS[target.platform]}]' brings it, and needs no accelerator"
        raise ConfigError("target", target.name, f"one whose compiler is installed: {pip}")


def prepare() -> None:
    """Set up the environment of a process that compiles ahead of time. Before JAX starts."""
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "JAXRL_FAST_CACHE": "off",
    }
    found = importlib.util.find_spec("nvidia")
    for place in found.submodule_search_locations or () if found else ():
        for folder in ("cuda_nvcc", "cu13"):  # with ptxas, by the plugin's CUDA
            tools = os.path.join(place, folder, "bin")
            if os.path.isdir(tools) and tools not in os.environ["PATH"].split(os.pathsep):
                os.environ["PATH"] += os.pathsep + tools


def chips(target: Target) -> int:
    """Return the number of devices."""
    return math.prod(map(int, target.size.split("x")))
