"""Populations: a run's functions with a member axis (`vmap` or a loop) over the devices.

The mesh has axes ("population", "env"). Members never communicate: `shard_map` splits them. Along
env one member's environments, rollout and replay are divided and its agent is on every device.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxrl_fast import distributed
from jaxrl_fast.ops import lowering
from jaxrl_fast.tree import summary, take
from jaxrl_fast.types import RunState

AXIS, ENV_AXIS = "population", "env"


@dataclasses.dataclass(frozen=True)
class Population:
    """`size` members on `devices`; a single member has no axis.

    env: devices of one member, neighbours in `devices`; the rest lie along the population. mode:
    "vmap", a device's members in one batch (best on accelerators), or "map", one by one (best on
        CPU cores). On one device "map" equals single runs bitwise, over several to rounding.
    """

    size: int
    mode: str
    devices: tuple[Any, ...]
    env: int = 1

    @property
    def places(self) -> int:
        return len(self.devices) // self.env

    @property
    def padded(self) -> int:
        return -(-self.size // self.places) * self.places

    def __str__(self) -> str:
        """Return the text `3 members on 2 devices, 2 on each, 1 of them padding`."""
        if len(self.devices) == 1:
            return f"{self.size} member{'s' * (self.size > 1)} on one device"
        each = (f", {self.padded // self.places} on each" if self.env == 1
                else f", each divided over {self.env}")
        padding = f", {self.padded - self.size} of them padding" if self.padded > self.size else ""
        return (f"{self.size} member{'s' * (self.size > 1)} on {len(self.devices)} "
                f"devices{each}{padding}")

    @property
    def platform(self) -> str:
        return self.devices[0].platform

    def tracing(self) -> AbstractContextManager:
        """Return a context to trace programs in, without what other platforms need."""
        return lowering.known(lowering.platform_of(self.devices[0]))

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices).reshape(self.places, self.env), (AXIS, ENV_AXIS))

    def _laid(self, *axes: str | None) -> Any:
        if len(self.devices) == 1:
            return jax.sharding.SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    @property
    def sharding(self) -> Any:
        """Return the sharding of members' own data: leaves [padded, ...], for one member [...]."""
        return self._laid() if self.size == 1 else self._laid(AXIS)

    @property
    def replicated(self) -> Any:
        return self._laid()

    @property
    def state_sharding(self) -> RunState:
        """Return a RunState's shardings, a prefix: agent and key whole, environments divided."""
        own = self.sharding
        by_env = (own if self.env == 1 else self._laid(ENV_AXIS) if self.size == 1
                  else self._laid(AXIS, ENV_AXIS))
        return RunState(own, by_env, by_env, by_env, by_env, by_env, own)

    def abstract_state(self, shapes: RunState) -> RunState:
        laid = jax.tree.broadcast(self.state_sharding, shapes)
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
                            shapes, laid)

    def lift(self, fn: Callable, swept: Sequence[int] = ()) -> Callable:
        """Lift fn(run, x, *rest): x, results and `swept` leaves of run become [padded, ...]."""
        if self.size == 1:
            return fn

        def members(own, leaves, xs, *rest, structure):
            def member(own, x, *rest):
                filled = dict(zip(swept, own, strict=True))
                run = jax.tree.unflatten(structure,
                                         [filled.get(i, leaf) for i, leaf in enumerate(leaves)])
                return fn(run, x, *rest)

            if self.mode == "vmap":
                return jax.vmap(member, in_axes=(0, 0) + (None,) * len(rest))(own, xs, *rest)
            return _in_turns(lambda own, x: member(own, x, *rest), own, xs)

        def population(run, xs, *rest):
            leaves, structure = jax.tree.flatten(run)
            own = [leaves[i] for i in swept]
            leaves = [None if i in swept else x for i, x in enumerate(leaves)]
            place = functools.partial(members, structure=structure)
            if self.places > 1:
                split, shared = PartitionSpec(AXIS), PartitionSpec()
                specs = (split, shared, split) + (shared,) * len(rest)
                # check_vma off: nothing is reduced over the mesh; it rejects mixed carries
                laid = {"mesh": self.mesh, "in_specs": specs, "out_specs": split,
                        "axis_names": {AXIS}}
                place = jax.shard_map(place, **laid, check_vma=False)
            return place(own, leaves, xs, *rest)

        return population

    def keys(self, seeds: Sequence[int]) -> jax.Array:
        """Return root keys on the devices: a member's equals a single run's with its seed."""
        padded = np.asarray([*seeds, *[seeds[0]] * (self.padded - self.size)], np.uint32)
        if jax.config.jax_default_prng_impl == "threefry2x32":  # without a program to compile
            # as `jax.random.key` makes them
            words = np.stack([np.zeros_like(padded), padded], axis=-1)
            placed = distributed.put(words if self.size > 1 else words[0], self.sharding)
            return jax.random.wrap_key_data(placed)
        make = _keys if self.size > 1 else jax.random.key
        return jax.jit(make, out_shardings=self.sharding)(padded if self.size > 1 else padded[0])

    def place(self, tree: Any, sharding: Any = None) -> Any:
        """Lay leaves [size, ...] over the devices; the last member fills the padding."""
        index = np.minimum(np.arange(self.padded), self.size - 1)
        filled = lambda tree: (
            tree if self.size == self.padded else jax.tree.map(lambda leaf: leaf[index], tree)
        )
        return distributed.put(tree, self.sharding if sharding is None else sharding, filled)

    def members(self, tree: Any) -> Any:
        """Return a fetched tree as NumPy leaves [size, ...], unpadded; one run gets the axis."""
        index = None if self.size == 1 else slice(self.size)
        return jax.tree.map(lambda x: np.asarray(x)[index], tree)

    def member(self, tree: Any, index: int) -> Any:
        # one program, not one a leaf
        return tree if self.size == 1 else jax.jit(take)(tree, index)


def _in_turns(fn: Callable, own: Any, xs: Any) -> Any:
    """Loop fn(own, x) over members like `lax.map`; a result like x replaces x in the carry."""
    kind = lambda tree: [(jnp.shape(x), jnp.result_type(x)) for x in jax.tree.leaves(tree)]
    leaves, structure = jax.tree.flatten(xs)
    replaces = False

    def one(leaves, turn):
        nonlocal replaces
        i, own = turn
        x = jax.tree.unflatten(structure, [jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False)
                                           for leaf in leaves])
        result = fn(own, x)
        replaces = type(result) is tuple and kind(result[0]) == kind(x)
        if not replaces:
            return leaves, result
        new = jax.tree.leaves(result[0])
        put = [jax.lax.dynamic_update_index_in_dim(leaf, x, i, 0)
               for leaf, x in zip(leaves, new, strict=True)]
        return put, result[1:]

    leaves, rest = jax.lax.scan(one, leaves, (jnp.arange(leaves[0].shape[0], dtype=jnp.int32), own))
    return (jax.tree.unflatten(structure, leaves), *rest) if replaces else rest


class Members(NamedTuple):
    """One `Run` for a whole population (`members.gather`)."""

    first: Any  # the first configuration, without a member axis
    run: Any  # leaves `swept` are [members, ...], the others as in `first`
    swept: tuple[int, ...] = ()

    def place(self, population: Population) -> Any:
        """Return the Run on the devices, swept leaves with their members. Shapes stay shapes."""
        leaves, structure = jax.tree.flatten(self.run)

        def put(i, x):
            sharding = population.sharding if i in self.swept else population.replicated
            if isinstance(x, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
            return population.place(x) if i in self.swept else distributed.put(x, sharding)

        return jax.tree.unflatten(structure, [put(i, x) for i, x in enumerate(leaves)])

    def take(self, lanes: Sequence[int]) -> Members:
        """Return some of the members; a single one has no axis."""
        leaves, structure = jax.tree.flatten(self.run)
        if not self.swept:
            return self
        index = lanes[0] if len(lanes) == 1 else np.asarray(lanes)
        leaves = [np.asarray(x)[index] if i in self.swept else x for i, x in enumerate(leaves)]
        run = jax.tree.unflatten(structure, leaves)
        return Members(self.first, run, () if len(lanes) == 1 else self.swept)

    __repr__ = summary


_keys = jax.vmap(jax.random.key)  # one function, so that JAX knows its program again
