"""From a function of one run to one of a population: an axis by `vmap` or `lax.map`, laid over the devices.

No member ever talks to another, so the compiled program holds no collective.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxrl_fast import runtime
from jaxrl_fast.errors import ConfigError

AXIS = "population"
MODES = ("auto", "vmap", "map")


@dataclasses.dataclass(frozen=True)
class Population:
    """`size` members on `devices`; one member has no axis at all. `padded` is what divides by the devices.

    mode "vmap": the members of a device in one batch (best on accelerators); "map": one after the other (best on
    CPU cores, and the way around jaxlib 0.10's deadlock). On one device "map" is bitwise equal to single runs; over
    several devices XLA fuses the program otherwise, and members equal single runs to rounding.
    """

    size: int
    mode: str
    devices: tuple[Any, ...]

    @property
    def padded(self) -> int:
        return -(-self.size // len(self.devices)) * len(self.devices)

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices), (AXIS,))

    @property
    def sharding(self) -> Any:
        """Where the leaves with a member axis live."""
        if len(self.devices) == 1:
            return jax.sharding.SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @property
    def replicated(self) -> Any:
        if len(self.devices) == 1:
            return self.sharding
        return NamedSharding(self.mesh, PartitionSpec())

    def lift(self, fn: Callable) -> Callable:
        """fn(run, x, *rest) of one member -> the same with x and the result [padded, ...]; run and rest are shared."""
        if self.size == 1:
            return fn

        def members(run, xs, *rest):
            if self.mode == "vmap":
                return jax.vmap(fn, in_axes=(None, 0) + (None,) * len(rest))(run, xs, *rest)
            return jax.lax.map(lambda x: fn(run, x, *rest), xs)

        if len(self.devices) == 1:
            return members

        def sharded(run, xs, *rest):
            own, shared = PartitionSpec(AXIS), PartitionSpec()
            specs = (shared, own) + (shared,) * len(rest)
            # check_vma off: nothing here is reduced over the mesh, and its rules reject loops with mixed carries
            return jax.shard_map(members, mesh=self.mesh, in_specs=specs, out_specs=own, check_vma=False)(
                run, xs, *rest
            )

        return sharded

    def keys(self, seed: int) -> jax.Array:
        """Root keys on the devices: member i has the key of a single run with seed `seed + i`."""
        if self.size == 1:
            return jax.device_put(jax.random.key(seed), self.sharding)
        seeds = np.asarray([seed + i for i in range(self.size)] + [seed] * (self.padded - self.size), np.uint32)
        return jax.device_put(jax.vmap(jax.random.key)(jnp.asarray(seeds)), self.sharding)

    def members(self, tree: Any) -> Any:
        """NumPy leaves [size, ...] of a fetched tree, padding dropped; a single run gets the axis."""
        if self.size == 1:
            return jax.tree.map(lambda x: np.asarray(x)[None], tree)
        return jax.tree.map(lambda x: np.asarray(x)[: self.size], tree)

    def member(self, tree: Any, index: int) -> Any:
        return tree if self.size == 1 else jax.tree.map(lambda x: x[index], tree)


def spread(size: int, mode: str = "auto") -> None:
    """Ask for a CPU device a core, at most one a member; where that comes too late, say once what to do.

    A number of devices that the user chose is left alone, and so is a mode that has no use for several.
    """
    wanted = min(size, runtime.cpu_count())
    if runtime.request_host_devices(wanted) or jax.default_backend() != "cpu" or jax.config.jax_num_cpu_devices > 0:
        return
    have = len(jax.local_devices())
    if have < wanted and not (mode == "vmap" and runtime.vmap_hangs_on_cpu()):
        _warn_of_idle_cores(size, wanted, have)


@functools.cache
def _warn_of_idle_cores(size: int, wanted: int, have: int) -> None:
    warnings.warn(
        f"seeds = {size} could be trained on {wanted} CPU cores, but JAX has started with {have} CPU device(s) already: "
        "import jaxrl_fast and start the run before other JAX work, or start Python with "
        f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}",
        stacklevel=4,
    )


def plan_population(size: int, mode: str = "auto", devices: Any = None) -> Population:
    """The default placement: all devices, `map` on CPU (jaxlib 0.11 and several devices: `vmap`), else `vmap`."""
    if mode not in MODES:
        raise ConfigError("population", mode, f"one of {', '.join(MODES)}")
    devices = tuple(jax.local_devices() if devices is None else devices)
    devices = devices[: max(1, min(size, len(devices)))]
    cpu = devices[0].platform == "cpu"
    if mode == "auto":
        spread = cpu and len(devices) > 1 and not runtime.vmap_hangs_on_cpu()
        mode = "vmap" if spread or not cpu else "map"
    if mode == "vmap" and cpu and len(devices) > 1 and runtime.vmap_hangs_on_cpu():
        devices = devices[:1]  # a batch of LAPACK calls (orthogonal initializers of other libraries) never returns
    return Population(size, mode, devices)
