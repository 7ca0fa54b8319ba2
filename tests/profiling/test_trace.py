"""Times of instructions from events of a trace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxrl_fast.profiling import trace
from jaxrl_fast.profiling.trace import Event, Spent

LOOP = [
    Event("m", "while", 0, 1_000),
    Event("m", "add", 100, 300),
    Event("m", "call", 400, 900),
    Event("m", "mul", 500, 800),
    Event("m", "add", 1_000, 1_200),  # begins as the loop ends: not inside
]


def test_an_instructions_time_excludes_instructions_inside():
    found = trace.sum_events([LOOP]).spent
    seconds = {op: sum(one.times) for (_, op), one in found.items()}
    assert seconds == pytest.approx({"while": 300e-9, "add": 400e-9, "call": 200e-9, "mul": 300e-9})
    inner = {op: one.inner for (_, op), one in found.items()}
    assert inner == {"while": 2, "add": 0, "call": 1, "mul": 0}


def test_a_trace_spans_the_events_of_all_threads():
    found = trace.sum_events([LOOP, [Event("m", "dot", 600, 1_500)]])
    assert found.events == 6 and found.span == pytest.approx(1_500e-9)
    assert trace.sum_events([]) == trace.Trace({}, 0.0)


def test_executions_that_others_interrupt_do_not_count():
    assert Spent([3.0, 1.0, 70.0, 2.0, 50.0]).seconds == pytest.approx(10.0)  # the lower quartile
    assert Spent([2.0, 1.5, 70.0, 50.0]).least == pytest.approx(6.0)


def test_traces_are_pooled():
    once = trace.sum_events([LOOP])
    both = trace.pool([once, once])
    assert both["m", "add"].calls == 4 and both["m", "while"].inner == 4
    assert once.spent["m", "add"].calls == 2


@pytest.mark.matrix(
    "tests/profiling/test_measure.py::test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_a_recorded_program_names_its_instructions(tmp_path):
    @jax.jit
    def program(x):
        return jax.lax.fori_loop(0, 50, lambda i, y: jnp.tanh(y @ x), x)

    x = jnp.full((64, 64), 0.01)
    program(x).block_until_ready()
    with trace.recording(tmp_path):
        program(x).block_until_ready()
    found = trace.read(tmp_path)
    ours = {op: one for (module, op), one in found.spent.items() if module == "jit_program"}
    assert max(one.calls for one in ours.values()) >= 50
    assert 0 < sum(one.seconds for one in ours.values()) < 1
    assert any(one.inner >= 50 for one in ours.values())  # the loop


def test_a_folder_without_a_trace_has_no_time(tmp_path):
    assert trace.read(tmp_path).events == 0


@pytest.mark.matrix(
    "tests/profiling/test_measure.py::test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_recording_an_event_takes_less_than_some_microseconds():
    own, around = trace.overhead()
    assert 0 <= own < 1e-4 and 0 <= around < 1e-4
