"""Measure the limits of a device: `measure_device(device)` takes about three seconds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import runtime
from jaxrl_fast.doctor.facts import Limits

Clock = Callable[[], float]
LONG = 0.01  # seconds of a measurement beside which starting it does not count


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured: sides of matrices, bytes of arrays, repetitions; seconds of each.

    sides: of a CPU's matrices, growing. large: of an accelerator's, which compiles one size a
    precision; the first that fits.
    """

    sides: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    arrays: tuple[int, ...] = (2**28, 2**30)
    transfer: int = 2**26
    calls: int = 200
    turns: int = 1000
    seconds: float = 0.4
    large: tuple[int, ...] = (8192, 4096, 2048)


def measure_device(device: Any, sizes: Sizes = Sizes(), clock: Clock = time.perf_counter) -> Limits:
    """Return the measured limits of one of JAX's devices.

    Each number is the best of several: the limit of an undisturbed device.
    """
    kinds = precisions(device.platform, getattr(device, "compute_capability", None))
    queued, alone = call_seconds(device, sizes, clock)
    to_device, from_device = transfer_rates(device, sizes, clock)
    return Limits(
        device=device.device_kind,
        products={kind: product_rate(device, kind, sizes, clock) for kind in kinds},
        bandwidth=bandwidth(device, sizes, clock),
        call=queued,
        round_trip=alone,
        turn=turn_seconds(device, sizes, clock),
        to_device=to_device,
        from_device=from_device,
    )


def precisions(platform: str, capability: str | None) -> tuple[str, ...]:
    """Return the precisions in which a device multiplies at different speeds.

    capability: an NVIDIA card's; TF32 and bfloat16 came with 8.0.
    """
    if platform == "tpu":
        return "float32", "bf16"
    try:
        modern = platform == "gpu" and float(capability or "nan") >= 8
    except ValueError:  # an AMD card's is a name
        modern = False
    return ("float32", "tf32", "bf16") if modern else ("float32",)


def shortest(
    run: Callable[[Any], Any], seconds: float, clock: Clock, fresh: Callable[[], Any] = lambda: None
) -> float:
    """Return the shortest time of run(fresh()) in about `seconds`, of three runs at least."""
    run(fresh())  # compiles
    times, end = [], clock() + seconds
    while len(times) < 3 or (clock() < end and len(times) < 100):
        given = fresh()
        began = clock()
        run(given)
        times.append(clock() - began)
    return max(min(times), 1e-9)


def sides_of(platform: str, memory: int, sizes: Sizes) -> tuple[int, ...]:
    """Return the sides of the matrices to multiply; two take at most a quarter of the memory.

    A product of small matrices on an accelerator measures its start.
    """
    fits = lambda side: 2 * 4 * side**2 <= memory // 4
    if platform == "cpu":
        return tuple(filter(fits, sizes.sides))
    return tuple(filter(fits, sizes.large))[:1]


def product_rate(device: Any, kind: str, sizes: Sizes, clock: Clock) -> float:
    """Return the FLOP/s of products of square matrices: the best of `sides_of`."""
    dtype = jnp.bfloat16 if kind == "bf16" else jnp.float32
    precision = {"float32": "highest", "tf32": "tensorfloat32", "bf16": None}[kind]
    multiply = jax.jit(lambda x: jnp.matmul(x, x, precision=precision))
    best, end = 0.0, clock() + sizes.seconds
    for side in sides_of(device.platform, runtime.device_memory(device) or 2**34, sizes):
        x = jax.device_put(np.full((side, side), 0.5, dtype), device)
        taken = shortest(lambda _, x=x: multiply(x).block_until_ready(), sizes.seconds / 4, clock)
        best = max(best, 2 * side**3 / taken)
        if taken > LONG or clock() > end:
            break
    return best


def bandwidth(device: Any, sizes: Sizes, clock: Clock) -> float:
    """Return bytes/s of changing an array in place, read and written, by the largest array."""
    change = jax.jit(lambda x: x * 1.0001 + 1.0, donate_argnums=0)
    most, rate = (runtime.device_memory(device) or 2**34) // 16, 0.0
    for size in sizes.arrays:
        kept = [jax.device_put(np.zeros(min(size, most) // 4, np.float32), device)]

        def run(_: None, kept: list = kept) -> None:
            kept[0] = change(kept[0])
            kept[0].block_until_ready()

        taken = shortest(run, sizes.seconds / 2, clock)
        rate = 2 * kept[0].nbytes / taken
        if taken > LONG or size > most:
            break
    return rate


def call_seconds(device: Any, sizes: Sizes, clock: Clock) -> tuple[float, float]:
    """Return seconds a call of a small program: queued behind others, and with its result."""
    step = jax.jit(lambda x: x + 1)
    x = jax.device_put(np.float32(0), device)

    def queue(_: None) -> None:
        y = x
        for _ in range(sizes.calls):
            y = step(y)
        y.block_until_ready()

    alone = shortest(lambda _: step(x).block_until_ready(), sizes.seconds / 4, clock)
    return shortest(queue, sizes.seconds / 4, clock) / sizes.calls, alone


def turn_seconds(device: Any, sizes: Sizes, clock: Clock) -> float:
    """Return seconds a turn of a loop in a program, around a product of 8 x 8 matrices."""
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, sizes.turns, lambda i, y: jnp.tanh(y @ x), x))
    x = jax.device_put(np.full((8, 8), 0.1, np.float32), device)
    taken = shortest(lambda _: loop(x).block_until_ready(), sizes.seconds / 4, clock)
    return taken / sizes.turns


def transfer_rates(device: Any, sizes: Sizes, clock: Clock) -> tuple[float | None, float | None]:
    """Return bytes/s from the host to a device and back; None for a CPU, which shares memory."""
    if device.platform == "cpu":
        return None, None
    here, make = np.zeros(sizes.transfer // 4, np.float32), jax.jit(lambda x: x + 1)
    there = jax.device_put(here, device)
    new = lambda: make(there).block_until_ready()  # an array keeps its copy on the host
    send = lambda _: jax.device_put(here, device).block_until_ready()
    to_device = shortest(send, sizes.seconds / 2, clock)
    from_device = shortest(np.asarray, sizes.seconds / 2, clock, new)
    return here.nbytes / to_device, here.nbytes / from_device
