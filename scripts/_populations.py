"""Many runs of a contestant in one program, and whether our side is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxrl_fast.bench.race import Contestant


def usable(jf: Any, algorithm: str, notes: list[str]) -> bool:
    """Whether our side can be measured; says so where not."""
    if jf is not None and hasattr(jf, "make_train") and hasattr(jf, algorithm):
        return True
    notes.append(f"jaxrl_fast is absent, or has no make_train or {algorithm}: measured without it")
    return False


def population_mode() -> str:
    """How the library lays members out by default."""
    import jax

    return "map" if jax.local_devices()[0].platform == "cpu" else "vmap"


def members(one: Contestant, size: int, how: str, name: str) -> Contestant:
    """A contestant of one key as one of `size` keys, scores averaged."""
    import jax

    devices = jax.local_devices()
    devices = devices if size % len(devices) == 0 else devices[:1]

    def keys(turn):
        return (
            jax.vmap(jax.random.key)(jax.numpy.arange(size, dtype=jax.numpy.uint32) + turn * size),)

    def member(out, i):
        return jax.tree.map(lambda x: x[i], out)

    judge = one.score
    score = judge and (lambda out: sum(judge(member(out, i)) for i in range(size)) / size)
    build = lambda: spread(one.build(), how, devices)
    return Contestant(name, size * one.steps, build, keys, score, one.count)


def spread(fn: Callable, how: str, devices: list) -> Callable:
    """`fn` of one key -> of many keys: "vmap" on one device, or "map": shared out over devices, one
    after the other."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, PartitionSpec

    if how == "vmap":
        return jax.vmap(fn)
    over = PartitionSpec("members")
    return jax.shard_map(
        lambda keys: jax.lax.map(fn, keys),
        mesh=Mesh(np.asarray(devices), ("members",)),
        in_specs=over,
        out_specs=over,
        check_vma=False,
    )
