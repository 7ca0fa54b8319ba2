"""Measured limits, at tiny sizes and with a clock of the test's own."""

from __future__ import annotations

import itertools

import jax
import pytest

from jaxrl_fast.doctor import limits
from jaxrl_fast.doctor.limits import Sizes

TINY = Sizes((8, 16), (1 << 12, 1 << 13), transfer=1 << 12, calls=3, turns=4, seconds=1.0)


def ticking(step: float):
    count = itertools.count()
    return lambda: next(count) * step


@pytest.mark.parametrize(
    ("platform", "capability", "kinds"),
    [
        ("cpu", None, ["float32"]),
        ("gpu", "9.0", ["float32", "tf32", "bf16"]),
        ("gpu", "7.5", ["float32"]),
        ("gpu", "gfx90a", ["float32"]),
        ("tpu", None, ["float32", "bf16"]),
    ],
)
def test_precisions_of_a_device(platform, capability, kinds):
    assert list(limits.precisions(platform, capability)) == kinds


def test_limits_are_counted_in_the_clocks_seconds():
    device = jax.devices()[0]
    fast, slow = (limits.measure_device(device, TINY, ticking(step)) for step in (1e-3, 2e-3))
    assert fast.products == {"float32": pytest.approx(2 * 16**3 / 1e-3)}  # a tick a run
    assert fast.bandwidth == pytest.approx(2 * (1 << 13) / 1e-3)
    assert (fast.call, fast.round_trip, fast.turn) == pytest.approx((1e-3 / 3, 1e-3, 1e-3 / 4))
    assert fast.to_device is fast.from_device is None
    assert slow.products["float32"] == pytest.approx(fast.products["float32"] / 2)
    assert slow.turn == pytest.approx(2 * fast.turn)


def test_a_long_product_ends_the_growth():
    device = jax.devices()[0]
    assert limits.product_rate(device, "float32", TINY, ticking(1.0)) == pytest.approx(2 * 8**3)


@pytest.mark.parametrize(
    ("platform", "memory", "sides"),
    [
        ("cpu", 2**27, (512, 1024, 2048)),
        ("gpu", 140 * 2**30, (8192,)),
        ("gpu", 2**30, (4096,)),
        ("tpu", 16 * 2**30, (8192,)),
    ],
)
def test_an_accelerator_multiplies_large_matrices(platform, memory, sides):
    assert limits.sides_of(platform, memory, Sizes()) == sides


@pytest.mark.parametrize("kind", ["tf32", "bf16"])
def test_products_of_other_precisions_are_traced(kind):
    assert limits.product_rate(jax.devices()[0], kind, TINY, ticking(1e-3)) > 0


def test_the_shortest_of_several_runs():
    clock = iter([0.0, 0.0, 5.0, 6.0, 8.0, 9.0, 12.0, 13.0])
    seen = []
    taken = limits.shortest(seen.append, 0.0, lambda: next(clock), itertools.count().__next__)
    assert taken == 2.0 and seen == [0, 1, 2, 3]


def test_transfers_of_a_device_with_memory_of_its_own():
    class Apart:
        platform = "gpu"

    device = jax.devices()[0]
    put = jax.device_put
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jax, "device_put", lambda x, to: put(x, device))
        rates = limits.transfer_rates(Apart(), TINY, ticking(1e-3))
    assert rates == pytest.approx((4.096e6, 4.096e6))
