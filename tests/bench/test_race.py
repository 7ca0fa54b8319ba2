"""Programs that take turns."""

from __future__ import annotations

import jax
import pytest

from jaxrl_fast.bench.race import Contestant, Loop, machine, race, ratios_of


def test_contestants_take_turns_after_one_unmeasured_run():
    order = []
    loops = [Loop(name, 10, lambda name=name: lambda: order.append(name)) for name in "ab"]
    found = race(loops, 3, log=lambda text: None)["contestants"]
    assert order == ["a", "b", *"ab", *"ba", *"ab"]
    assert len(found["a"]["seconds"]) == 3 and found["a"]["compile"] >= 0
    assert found["b"]["steps_per_second"] == pytest.approx(10 / found["b"]["median_seconds"])


def test_a_peer_that_fails_is_named_and_left_out():
    def broken():
        raise RuntimeError("no such name in this numpy")

    told = []
    loops = [Loop("jaxrl_fast", 10, lambda: lambda: None), Loop("peer", 10, broken)]
    assert list(race(loops, 1, told.append)["contestants"]) == ["jaxrl_fast"]
    assert "left out: peer does not run here: " in told[0] and "no such name" in told[0]
    with pytest.raises(RuntimeError):
        race([Loop("jaxrl_fast", 10, broken)], 1, told.append)


def test_a_peer_without_a_step_is_left_out():
    told = []
    loops = [Loop("jaxrl_fast", 10, lambda: lambda: None), Loop("peer", 0, lambda: lambda: None)]
    assert race(loops, 1, told.append)["ratios"] == {}
    assert "left out: peer" in told[0] and "--scale must be larger" in told[0]


def test_a_function_is_compiled_and_scored_by_its_result():
    one = Contestant(
        "jaxrl_fast", 5, lambda: lambda x: 2 * x, lambda turn: (jax.numpy.float32(turn),),
        score=float, count=lambda out: 7,
    )  # fmt: skip
    found = race([one], 2, log=lambda text: None)["contestants"]["jaxrl_fast"]
    assert found["scores"] == [0.0, 2.0] and found["steps"] == 7
    assert found["trace"] > 0 and found["compile"] > 0


def test_ratios_are_of_each_turn_and_of_equal_work():
    mine = {"steps": 200, "seconds": [1.0, 2.0, 4.0]}
    peer = {"steps": 100, "seconds": [1.0, 3.0, 4.0]}
    found = ratios_of({"jaxrl_fast": mine, "peer": peer})["jaxrl_fast / peer"]
    assert found == {"median": 2.0, "turns": [2.0, 3.0, 2.0]}


def test_the_machine_has_a_device_and_versions():
    found = machine()
    assert found["versions"]["jax"] == jax.__version__ and found["device"].endswith("(cpu)")
