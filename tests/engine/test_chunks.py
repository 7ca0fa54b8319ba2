"""Results do not depend on the chunk; rows fall on fixed iterations; a program is traced and
compiled once."""

from __future__ import annotations

import types
from collections import Counter

import jax
import jax.monitoring
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.engine import grid, programs

BOTH = pytest.mark.parametrize("name", family(["ppo", "dqn"], ["dqn"]))


@pytest.fixture
def rows_of_a_chunk(monkeypatch):
    """Set how many rows fit a chunk."""

    def limit(rows):
        monkeypatch.setattr(programs, "ROWS", rows)
        monkeypatch.setattr(grid, "ROWS", rows)

    return limit


@pytest.mark.parametrize(("name", "rows", "seconds"), family([
    ("dqn", 64, 1e-9), ("dqn", 64, 1e9), ("dqn", 3, 1e9), ("ppo", 64, 1e-9),
], ["dqn"]))  # fmt: skip
def test_a_run_is_independent_of_its_chunks(name, rows, seconds, unbroken, rows_of_a_chunk,
                                            tmp_path):
    whole, whole_dir = unbroken(name)
    rows_of_a_chunk(rows)
    chunks = []
    session = tools.train(name, tmp_path / "run", chunk_seconds=seconds,
                          dependencies=tools.noting(chunks))
    held = [rows for _, rows in chunks]
    assert sum(held) == whole.grid.rows
    assert max(held) == {(64, 1e-9): 1, (64, 1e9): whole.grid.eval_rows, (3, 1e9): 3}[rows, seconds]
    tools.assert_same(session.state, whole.state)
    assert tools.logged(tmp_path / "run") == tools.logged(whole_dir)


@BOTH
def test_evaluation_does_not_touch_training(name, unbroken):
    whole, _ = unbroken(name)
    session = tools.train(name, eval_every=0, chunk_seconds=1e9)
    tools.assert_same(session.state, whole.state)
    drop = lambda rows: [{k: v for k, v in r.items() if k != "eval_return"}
                         for r in tools.through_json(rows)]
    assert drop(session.history) == drop(whole.history)


@BOTH
def test_rows_fall_on_fixed_steps(name, unbroken):
    whole, whole_dir = unbroken(name)
    rows = tools.logged(whole_dir)
    assert [r["env_steps"] for r in rows] == list(range(64, 1281, 64))
    evaluated = [r["env_steps"] for r in rows if "eval_return" in r]
    warm = 64 if name == "dqn" else 0  # the first row is the warm-up's
    assert evaluated == sorted({*range(warm + 320, 1281, 320), rows[-1]["env_steps"]})
    assert tools.through_json(whole.history) == rows
    assert ("loss" in rows[0]) is False and "episode_return" in rows[0]


@BOTH
def test_one_program_from_make_train_is_the_same_run(name, unbroken):
    """`jax.jit(make_train(...))`, to rounding: there the settings are constants."""
    whole, _ = unbroken(name)
    train = jf.make_train(tools.algorithm(name), tools.environment(), tools.TOTAL, log_every=64)
    state, metrics = jax.jit(train)(jax.random.key(0))
    assert {m.shape for m in metrics.values()} == {(whole.grid.rows,)}
    steps, returns = whole.curve("episode_return")
    trained = steps > whole.grid.env_steps(0)
    rows = np.isin(metrics["env_steps"], steps)  # in which an episode ended
    np.testing.assert_array_equal(metrics["env_steps"][rows], steps[trained])
    np.testing.assert_array_equal(np.isfinite(metrics["episode_return"]), rows)
    np.testing.assert_allclose(metrics["episode_return"][rows][:4], returns[trained][:4, 0],
                               rtol=1e-5)
    tools.assert_same(state.key, whole.state.key)
    assert jax.tree.structure(state) == jax.tree.structure(whole.state)


def test_a_frame_of_a_run(unbroken, modules):
    """Plain columns: a row a log row, and a curve leaves out the rows without a value."""
    modules(pandas=types.SimpleNamespace(DataFrame=lambda rows: rows))
    whole, _ = unbroken("ppo")
    rows = whole.frame()
    assert [r["env_steps"] for r in rows] == [r.env_steps for r in whole.history] and {
        r["seed"] for r in rows} == {0}
    assert all(np.ndim(value) == 0 for row in rows for value in row.values())
    steps, scores = whole.curve("eval_return")
    assert (
        steps.tolist() == [320, 640, 960, 1280] and scores.shape == (4, 1)
        and np.isfinite(scores).all()
    )
    assert [r["eval_return"] for r in rows if "eval_return" in r] == scores[:, 0].tolist()
    with pytest.raises(jf.ConfigError,
                       match="metric must be one of .*, got 'episode_retrun'.*'episode_return'"):
        whole.curve("episode_retrun")


@pytest.mark.matrix("test_one_program_from_make_train_is_the_same_run")
def test_make_train_evaluates_on_its_grid():
    train = jf.make_train(
        tools.algorithm("ppo"), tools.environment(), 640, log_every=64, eval_every=128,
        eval_episodes=4
    )
    _, metrics = jax.jit(train)(jax.random.key(0))
    np.testing.assert_array_equal(np.isfinite(metrics["eval_return"]), np.arange(1, 11) % 2 == 0)


compiles = Counter()
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiles.update([event]))
TRACE, COMPILE = (
    "/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/backend_compile_duration")


@pytest.mark.matrix("test_the_next_run_of_the_same_kind_compiles_nothing")
@BOTH
def test_one_trace_and_one_compile_for_all_chunks(name, monkeypatch):
    """Twenty chunks of different sizes after the first: nothing is traced or compiled any more."""
    traces, chunk, seen = [], programs.chunk, []
    monkeypatch.setattr(programs, "chunk", lambda *args: (traces.append(args), chunk(*args))[1])
    at = lambda session, rows: seen.append((compiles[TRACE], compiles[COMPILE]))
    before = compiles[TRACE], compiles[COMPILE]
    algo = tools.algorithm(name, hidden=(5,))  # as no other test has it
    tools.train(algo, eval_every=0, hooks=[at], chunk_seconds=1e-9)
    assert len(traces) == 1
    assert len(seen) > 15 and len(set(seen[1:-1])) == 1, seen  # the last row is evaluated
    assert seen[0][0] > before[0] and seen[0][1] > before[1]  # the events are there to be counted


@pytest.mark.parametrize(("name", "seeds"), family([("ppo", 1), ("dqn", 3)], ["ppo"]))
def test_the_next_run_of_the_same_kind_compiles_nothing(name, seeds):
    """The next run has another seed, learning rate and length."""
    for rate, seed, fresh in ((1e-3, 0, True), (7e-4, 1, False)):
        before = compiles[COMPILE]
        algo = tools.algorithm(name, hidden=(6,), learning_rate=rate)
        tools.train(algo, seed=seed, seeds=seeds, total_steps=256 + 64 * seed, eval_every=128)
        assert (compiles[COMPILE] > before) == fresh


@pytest.mark.matrix(
    "tests/engine/test_launches.py::test_a_log_row_has_the_same_numbers_in_both_forms")
def test_an_unrolled_rollout_is_the_same():
    runs = [tools.train("ppo", total_steps=64, log_every=32, eval_every=0, unroll=unroll)
            for unroll in (1, 3)]
    tools.assert_close(*(run.state for run in runs))
    made = [(run.lanes.programs, run.state) for run in runs]
    loops = [one._chunk.lower(one.run, state, np.int32(0), np.int32(1)).as_text()
             for one, state in made]
    assert len(loops[1]) > len(loops[0])  # three steps stand there
