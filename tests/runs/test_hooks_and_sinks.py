"""Hooks and sinks of the user, the target return, and the best checkpoint."""

from __future__ import annotations

import contextlib
import csv
import json
import signal
from unittest import mock

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.engine.programs import Programs
from jaxrl_fast.errors import WriteError
from jaxrl_fast.logs.csv_file import CsvSink
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.signals import Stopped


class Collects(Sink):
    def __init__(self):
        self.rows, self.calls = [], []

    def open(self):
        self.calls.append("open")

    def write(self, row):
        self.rows.append(row)
        self.calls.append("write")

    def flush(self):
        self.calls.append("flush")

    def cut(self, env_steps):
        self.calls.append(("cut", env_steps))

    def ended(self, outcome):
        self.calls.append(("ended", outcome))

    def close(self):
        self.calls.append("close")


@pytest.mark.parametrize("name", family(["ppo", "dqn"], ["dqn"]))
def test_a_sink_gets_every_row_once_in_order(name, unbroken, tmp_path):
    __, whole_dir = unbroken(name)
    sink = Collects()
    session = tools.train(name, tmp_path / "run", sinks=[sink])
    assert tools.through_json(sink.rows) == tools.logged(whole_dir)
    assert all(a is b for a, b in zip(sink.rows, session.history, strict=True))
    assert sink.calls[-2:] == [("ended", "finished"), "close"] and sink.calls.count("close") == 1
    assert "flush" in sink.calls  # before the checkpoint
    wall = [r.wall_seconds for r in sink.rows]
    assert wall == sorted(wall) and wall[0] >= 0
    timed = [r.steps_per_second > 0 for r in sink.rows]
    assert timed == [name != "dqn", *[True] * (len(timed) - 1)]  # all but a warm-up's
    assert session.steps_per_second > 0 and session.wall_seconds >= wall[-1]


@pytest.mark.parametrize(("name", "settings"), family([
    ("ppo", dict(eval_every=0)),  # at the end alone
    ("ppo", dict(eval_every=192)),  # 640 is no multiple
    ("dqn", {}),  # rows begin after the warm-up
    ("ppo", dict(eval_every=0, seeds=2)),
    ("ppo", dict(eval_every=0, hooks=[lambda run, rows: run.rows > 4 and run.stop()])),
], 2))  # fmt: skip
def test_the_last_row_holds_the_evaluation_at_the_end(name, settings, tmp_path):
    """In metrics.jsonl, CSV, TensorBoard, frame and curve, once."""
    sink = Collects()
    logs = [sink, CsvSink(tmp_path / "rows.csv")]
    run = tools.train(name, tmp_path / "run", sinks=logs, total_steps=tools.HALF, tensorboard=True,
                      **settings)
    score = run.eval_return.tolist()
    rows = tools.logged(tmp_path / "run")
    assert rows[-1]["env_steps"] == run.env_steps and rows[-1]["eval_return"] == score
    assert [row["env_steps"] for row in rows] == sorted({row["env_steps"] for row in rows})
    assert sink.rows[-1] is run.history[-1] and len(sink.rows) == len(rows) == len(run.history)
    steps, values = run.curve("eval_return")
    assert steps[-1] == run.env_steps and values[-1].tolist() == score
    assert run.frame()["eval_return"].tolist()[-len(score):] == score
    (result,) = [tools.read(tmp_path / "run" / "result.json")]
    assert result["eval_return"] == rows[-1]["eval_return"]
    *_, last = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
    assert float(last["eval_return"]) == score[-1]
    assert events(tmp_path / "run", "eval_return")[-1] == (run.env_steps, pytest.approx(
        float(np.mean(score))))


def events(run, tag):
    """(step, value) of a scalar in TensorBoard's events."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted((run / "tensorboard").iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            event = Event.FromString(data[at + 12 : at + 12 + size])
            found += [(event.step, value.simple_value) for value in event.summary.value
                      if value.tag == tag]
            at += 16 + size
    return found


def test_a_resume_completes_a_last_row_without_its_evaluation(tmp_path):
    """An older version left it out, and so does Ctrl-C during the last evaluation."""
    run = tools.train("ppo", tmp_path / "run", eval_every=0, total_steps=tools.HALF)
    file = tmp_path / "run" / "metrics.jsonl"
    whole = file.read_bytes()
    *lines, last = whole.splitlines(keepends=True)
    row = json.loads(last)
    assert row.pop("eval_return") == run.eval_return[0]
    file.write_bytes(b"".join([*lines, json.dumps(row, separators=(",", ":")).encode(), b"\n"]))
    sink = Collects()
    again = tools.resume(tmp_path / "run", sinks=[sink])
    assert file.read_bytes() == whole
    assert again.history[-1].metrics["eval_return"] == run.eval_return
    assert sink.calls[:4] == [("cut", tools.HALF), "open", ("cut", tools.HALF - 1), "write"]
    assert tools.resume(tmp_path / "run").eval_return == run.eval_return  # read, not played again


def test_a_log_that_lost_its_end_does_not_give_an_earlier_score(tmp_path):
    """The file ends with an evaluated row, at half of the run."""
    run = tools.train("ppo", tmp_path / "run", total_steps=tools.HALF)
    file = tmp_path / "run" / "metrics.jsonl"
    *lines, last = file.read_bytes().splitlines(keepends=True)[:5]
    early = json.dumps(json.loads(last) | {"eval_return": 1.0}, separators=(",", ":")).encode()
    assert b"eval_return" in last and run.eval_return != 1.0
    file.write_bytes(b"".join([*lines, early, b"\n"]))
    with pytest.warns(UserWarning, match="lacks 5 of the 10 log rows"):
        again = tools.resume(tmp_path / "run")
    assert again.eval_return == run.eval_return and again.agent().score == run.eval_return[0]
    assert tools.read(tmp_path / "run" / "result.json")["eval_return"] == run.eval_return.tolist()


@pytest.mark.parametrize("total", [64, tools.HALF])
def test_an_evaluation_that_fails_loses_no_training(total, tmp_path, monkeypatch):
    """Its rows are logged, hooks see them, and the run is saved; a resume evaluates.

    A hook that fails then does not hide the evaluation's error.
    """
    settings, seen = dict(total_steps=total, horizon=tools.TOTAL, eval_every=0), []

    def hook(run, rows):
        seen.extend(row.env_steps for row in rows)
        if rows[-1].env_steps == total:
            raise ZeroDivisionError

    whole = tools.train("ppo", **settings)
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="mine") as error:
        patched.setattr(Programs, "evaluate", mock.Mock(side_effect=RuntimeError("mine")))
        tools.train("ppo", tmp_path / "run", hooks=[hook], **settings)
    assert seen == list(range(64, total + 1, 64))
    assert "the run is saved; the last good checkpoint is" in error.value.__notes__[0]
    rows = tools.logged(tmp_path / "run")
    assert [row["env_steps"] for row in rows] == list(range(64, total + 1, 64))
    assert not any("eval_return" in row for row in rows)
    again = tools.resume(tmp_path / "run")
    tools.assert_same(again.state, whole.state)
    assert again.eval_return == whole.eval_return
    assert tools.logged(tmp_path / "run") == tools.through_json(whole.history)


def test_an_evaluation_that_fails_before_a_selection_leaves_it_to_the_resume(tmp_path,
                                                                             monkeypatch):
    settings = dict(population={"algo.learning_rate": [1e-3, 1e-4]},
                    selection=jf.Halving(1), total_steps=tools.HALF)
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="mine") as error:
        patched.setattr(Programs, "evaluate", mock.Mock(side_effect=RuntimeError("mine")))
        tools.train("ppo", tmp_path / "run", **settings)
    assert not hasattr(error.value, "__notes__")
    assert len(tools.logged(tmp_path / "run")) == 5
    assert not list((tmp_path / "run" / "checkpoints").glob("last/*"))


def test_a_failed_hook_of_a_run_that_cannot_be_saved_says_so(tmp_path, monkeypatch):
    """orbax writes in a thread: a full disk shows when the run waits for it."""
    full = WriteError("last", "No space left on device")
    monkeypatch.setattr(Checkpoints, "wait", mock.Mock(side_effect=full))
    with pytest.raises(ZeroDivisionError) as error:
        tools.train("ppo", tmp_path / "run", hooks=[lambda run, rows: 1 / 0])
    (note,) = error.value.__notes__
    assert note.startswith("the run is not saved: cannot write last: No space left on device; ")


def test_an_interrupt_within_a_hook_saves_the_run(tmp_path):
    """Such as of a run that the hook starts: its handlers take the signal."""
    def interrupted(run, rows):
        raise Stopped(signal.SIGINT, "in a run of the hook")

    with pytest.raises(Stopped, match="in a run of the hook"):
        tools.train("ppo", tmp_path / "run", hooks=[interrupted])
    assert list((tmp_path / "run" / "checkpoints").glob("last/[0-9]*"))


def test_the_row_of_a_warm_up_has_no_speed():
    """The run's rate is of training, and so are those of its rows."""
    run = tools.train("dqn")
    warm, *others = run.history
    assert warm.env_steps == run.grid.env_steps(0) == 64
    assert np.isnan(warm.steps_per_second) and run.progress.train_steps == run.env_steps - 64
    seconds = sum(64 / row.steps_per_second for row in others)
    assert 64 * len(others) / seconds == pytest.approx(run.steps_per_second, rel=1e-3)


def test_a_sink_is_cut_at_resume_and_gets_later_rows(tmp_path):
    tools.train("ppo", tmp_path / "run", total_steps=tools.HALF, horizon=tools.TOTAL)
    sink = Collects()
    tools.resume(tmp_path / "run", tools.TOTAL, sinks=[sink])
    assert sink.calls[:3] == [("cut", tools.HALF), "open", "write"]
    assert [r.env_steps for r in sink.rows] == list(range(tools.HALF + 64, tools.TOTAL + 1, 64))


def test_a_hook_sees_session_and_rows_after_every_chunk(unbroken):
    whole, _ = unbroken("ppo")
    seen = []

    def hook(session, rows):
        assert session.env_steps == rows[-1].env_steps == session.history[-1].env_steps
        # it may be read here
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(session.state.agent.params))
        seen.extend(rows)

    session = tools.train("ppo", hooks=[hook], chunk_seconds=1e9)
    assert (
        tools.through_json(seen) == tools.through_json(session.history)
        == tools.through_json(whole.history)
    )
    tools.assert_same(session.state, whole.state)


def test_a_hook_ends_the_run_which_can_resume(unbroken, tmp_path):
    whole, whole_dir = unbroken("dqn")

    def hook(session, rows):
        if session.rows >= 7:
            session.stop()

    session = tools.train("dqn", tmp_path / "run", hooks=[hook], chunk_seconds=1e-9)
    assert session.rows == 7 and session.eval_return.shape == (1,)
    end = session.env_steps
    assert tools.logged(tmp_path / "run")[-1]["eval_return"] == session.eval_return.tolist()
    assert tools.read(tmp_path / "run" / "result.json")["env_steps"] == whole.grid.env_steps(7)
    session = tools.resume(tmp_path / "run")
    tools.assert_same(session.state, whole.state)
    log = lambda folder: tools.but_ends(tools.logged(folder), end)
    assert log(tmp_path / "run") == log(whole_dir)


def test_a_hook_that_fails_loses_no_training(unbroken, tmp_path):
    """Its error comes out as it is, with a note on how to go on."""
    whole, whole_dir = unbroken("ppo")

    def hook(session, rows):
        if session.rows == 7:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as error:
        tools.train("ppo", tmp_path / "run", hooks=[hook], chunk_seconds=1e-9)
    assert error.value.args == ("mine",)
    assert "the run is saved; the last good checkpoint is" in error.value.__notes__[0]
    assert f"jf.resume('{tmp_path / 'run'}')" in error.value.__notes__[0]
    session = tools.resume(tmp_path / "run")
    tools.assert_same(session.state, whole.state)
    assert tools.logged(tmp_path / "run") == tools.logged(whole_dir)


def test_a_hook_adds_columns_to_the_log(unbroken, tmp_path):
    whole, _ = unbroken("ppo")
    twice = lambda session, rows: {"twice": 2 * rows[-1].metrics["episode_length"],
                                   "rows": len(session.history)}
    four = (
        lambda session, rows: {"four": 2 * rows[-1].metrics["twice"]} if "twice" in rows[-1].metrics
        else None
    )
    sink = Collects()
    session = tools.train("ppo", tmp_path / "run", hooks=[twice, four], sinks=[sink],
                          chunk_seconds=1e-9)
    assert all(a is b for a, b in zip(sink.rows, session.history, strict=True))
    tools.assert_same(session.state, whole.state)
    for i, (row, plain) in enumerate(zip(session.history, whole.history, strict=True), 1):
        np.testing.assert_array_equal(row.metrics["four"], 4 * plain.metrics["episode_length"])
        assert row.metrics["rows"].tolist() == [i]
    assert tools.logged(tmp_path / "run")[-1]["rows"] == [len(whole.history)]


@pytest.mark.parametrize(("columns", "message"), [
    ({3: 1.0},
     r"result of a hook must be None, or a dict of names and numbers, got \{3: 1.0\}; such columns "
     r"are left out"),
    ({"episode_return": 1},
     "column of a hook must be a name that the log rows do not have, got 'episode_return'"),
    ({"parent": 1}, "column of a hook must be a name that the log rows do not have"),
    ({"x": [1, 2, 3]}, r"column x of a hook must be a number, or 1 numbers, got \[1, 2, 3\]"),
    ({"x": "much"}, "column x of a hook must be a number"),
])  # fmt: skip
def test_wrong_columns_of_hooks_are_left_out_with_one_warning(columns, message, unbroken):
    """Only the wrong rows lose the column; the run and other hooks' columns go on."""
    whole, _ = unbroken("ppo")
    wrong = lambda session, rows: columns if session.rows != 3 else {"right": 1}
    with pytest.warns(UserWarning, match=message) as found:
        session = tools.train("ppo", hooks=[wrong, lambda session, rows: {"other": 2}],
                              chunk_seconds=1e-9)
    assert len([w for w in found if "hook" in str(w.message)]) == 1
    tools.assert_same(session.state, whole.state)
    for i, (row, plain) in enumerate(zip(session.history, whole.history, strict=True), 1):
        assert set(row.metrics) - set(plain.metrics) == {"other"} | ({"right"} if i == 3 else set())
        np.testing.assert_array_equal(row.metrics["episode_length"],
                                      plain.metrics["episode_length"])


@pytest.mark.parametrize("result", [3, True, "text", [1.0], {}])
def test_a_result_of_a_hook_that_is_no_dict_is_ignored(result, recwarn):
    session = tools.train("ppo", hooks=[lambda session, rows: result], total_steps=128)
    assert session.over and not [w for w in recwarn if "hook" in str(w.message)]


@pytest.mark.parametrize("method", family(["write", "close", "flush", "open", "cut"], 2))
def test_a_sink_that_fails_is_left_out_with_a_warning(method, unbroken, tmp_path):
    whole, _ = unbroken("ppo")
    failing, other = Collects(), Collects()
    setattr(failing, method, lambda *args: 1 / 0)
    tools.train("ppo", tmp_path / "run", total_steps=tools.HALF, horizon=tools.TOTAL)
    said = (
        "Collects (failed, and the run goes on without it|could not be closed): .*division by zero")
    with pytest.warns(UserWarning, match=said) as found:
        session = tools.resume(tmp_path / "run", tools.TOTAL, sinks=[failing, other])
    assert len([w for w in found if "Collects" in str(w.message)]) == 1
    tools.assert_same(session.state, whole.state)
    assert len(other.rows) == (tools.TOTAL - tools.HALF) // 64
    assert len(failing.rows) == {"cut": 0, "open": 0, "write": 0}.get(method, len(other.rows))


def test_an_error_of_a_hook_ends_the_run_and_closes_the_sinks():
    sink = Collects()
    with pytest.raises(ZeroDivisionError):
        tools.train("ppo", hooks=[lambda session, rows: 1 / 0], sinks=[sink])
    assert sink.calls[-2:] == [("ended", "failed"), "close"]


@pytest.mark.parametrize(("settings", "message"), [
    ({"hooks": [3]}, r"hooks must be a list of functions hook\(run, rows\), got \[3\]"),
    ({"hooks": print}, "hooks must be a list of functions"),
    ({"sinks": [3]}, "sinks must be objects of a subclass of jf.Sink, got 3"),
    ({"sinks": lambda config: None}, "sinks must be a list of jf.Sink, .* got None"),
])  # fmt: skip
def test_bad_hooks_and_sinks_are_refused(settings, message, tmp_path):
    with pytest.raises(jf.ConfigError, match=message):
        tools.train("ppo", tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_opens_no_sink_and_leaves_nothing(tmp_path, device_memory):
    sink = Collects()
    device_memory(1000)
    with pytest.raises(jf.ConfigError, match="memory must be "):
        tools.train("ppo", tmp_path / "run", sinks=[sink])
    assert sink.calls == [("ended", "failed"), "close"] and not (tmp_path / "run").exists()


class Failing(Programs):
    def chunk(self, state, t0, rows):
        return super().chunk(state, t0, rows) if t0 < self.grid.warmup else 1 / 0


@pytest.mark.parametrize("case", ["new", "empty", "another's file", "a row"])
def test_a_run_that_fails_before_its_first_row_cleans_up(case, tmp_path):
    """The same command can be given again: only the run's own files go."""
    run, sink, failing = tmp_path / "run", Collects(), Collects()
    failing.open = mock.Mock(side_effect=jf.ConfigError("project", "p", "one that opens"))
    if case == "a row":
        failing.open = failing.flush
    if case == "empty":
        run.mkdir()
    if case == "another's file":
        sink.open = lambda: (run / "notes").write_text("keep")
    with pytest.raises(ZeroDivisionError if case == "a row" else jf.ConfigError):
        # DQN's warm-up is a row
        algo = "dqn" if case == "a row" else "ppo"
        tools.train(algo, run, sinks=[sink, failing], dependencies=Dependencies(Failing))
    left = sorted(p.name for p in run.iterdir()) if run.exists() else None
    expected = {"new": None, "empty": [], "another's file": ["notes"],
                "a row": ["config.json", "metrics.jsonl"]}
    assert left == expected[case]


@pytest.fixture
def scripted():
    """Evaluations that come to what a table {rows: [score of each member]} says."""
    with contextlib.ExitStack() as stack:
        yield lambda table: stack.enter_context(tools.evaluations(table.__getitem__))


def test_the_run_ends_when_every_member_has_reached_the_target(scripted, tmp_path):
    scripted({2: [0.2, 0.1], 4: [0.9, 0.3], 6: [0.1, 0.95], 8: [0.0, 0.0]})
    run = tmp_path / "run"
    session = tools.train("ppo", run, seeds=2, eval_every=128, target_return=0.9)
    expected = [{"env_steps": 256, "eval_return": 0.9}, {"env_steps": 384, "eval_return": 0.95}]
    assert session.reached == expected and session.env_steps == 384
    assert session.progress.train_steps == 2 * 384  # of both members
    result = tools.read(run / "result.json")
    assert (
        result["reached"] == expected and result["eval_return"] == [0.1, 0.95]
        and result["env_steps"] == 384
    )
    assert result["best_eval_return"] == pytest.approx(0.6)
    assert len(tools.logged(run)) == 6 and tools.logged(run)[-1]["eval_return"] == [0.1, 0.95]


def test_reached_targets_survive_a_resume(scripted, tmp_path):
    scripted({2: [0.2, 0.1], 4: [0.9, 0.3], 6: [0.1, 0.3], 8: [0.0, 2.0], 10: [0.0, 0.0]})
    run = tmp_path / "run"
    hook = lambda session, rows: session.stop() if session.rows >= 6 else None
    tools.train("ppo", run, seeds=2, eval_every=128, target_return=0.9, hooks=[hook])
    session = tools.resume(run)
    assert session.reached == [{"env_steps": 256, "eval_return": 0.9},
                               {"env_steps": 512, "eval_return": 2.0}]
    assert session.env_steps == 512 and session.best_rows == 8


def test_a_run_at_its_target_resumes_to_a_new_end(scripted, tmp_path):
    """The printed command names the new end; without one the run has nothing left to do."""
    scripted({rows: [0.95] for rows in (2, 4, 6)})
    run = tmp_path / "run"
    tools.train("ppo", run, eval_every=128, target_return=0.9)
    assert tools.resume(run).env_steps == 128
    session = tools.resume(run, 384)
    assert session.env_steps == 384 and len(tools.logged(run)) == 6
    assert session.reached == [{"env_steps": 128, "eval_return": pytest.approx(0.95)}]


def test_a_target_that_is_missed_outlives_a_new_end(scripted, tmp_path):
    scripted({2: [0.2], 4: [0.95], 6: [0.95]})
    tools.train("ppo", tmp_path / "run", eval_every=128, target_return=0.9, total_steps=128,
                horizon=tools.TOTAL)
    assert tools.resume(tmp_path / "run", 384).env_steps == 256


def test_a_target_that_is_never_looked_at_is_refused(tmp_path):
    with pytest.raises(jf.ConfigError,
                       match=r"target_return must be None with eval_every = 0, got 0.9"):
        tools.train("ppo", tmp_path / "run", eval_every=0, target_return=0.9)
    assert not (tmp_path / "run").exists()


def test_the_speed_of_a_run_that_ends_in_its_first_chunk(scripted):
    session = tools.train("ppo", hooks=[lambda session, rows: session.stop()])
    assert (
        session.rows == 1 and session.steps_per_second == session.history[-1].steps_per_second > 0)
    scripted({1: [1.0]})
    assert tools.train("ppo", eval_every=64, target_return=0.5).steps_per_second > 0


def test_the_best_agent_is_kept_beside_the_last(scripted, tmp_path):
    scripted({2: [0.2], 4: [0.9], 6: [0.1], 8: [0.9], 10: [0.5]})
    run, seen = tmp_path / "run", {}
    keep = lambda session, rows: seen.update({session.rows: tools.arrays(session.state.agent)})
    session = tools.train("ppo", run, total_steps=640, eval_every=128, hooks=[keep])
    best, last = jf.load(run), jf.load(run, "last")
    # the first of two that are as good
    assert (best.iteration, last.iteration, session.best_rows) == (4, 10, 4)
    tools.assert_same_arrays(tools.arrays(best.state), seen[4])
    tools.assert_same_arrays(tools.arrays(last.state), seen[10])
    tools.assert_same(last.state, session.agent().state)


def test_members_of_a_checkpoint(scripted, tmp_path):
    scripted({10: [0.2, 0.9]})
    run = tmp_path / "run"
    session = tools.train("ppo", run, seeds=2, total_steps=640, eval_every=0)
    for index in range(2):
        tools.assert_same(jf.load(run, member=index).state, session.agent(index).state)
    tools.assert_same(jf.load(run).state, session.agent(1).state)  # the one that evaluated best
    with pytest.raises(jf.ConfigError, match="member must be .* 0 to 1, got 2"):
        jf.load(run, member=2)


def test_the_member_is_the_best_one_of_the_checkpoint(scripted, tmp_path):
    """The best member at the end may have been poor when `best` was taken."""
    scripted({4: [0.5, 0.9], 8: [0.8, 0.1]})
    run, seen = tmp_path / "run", {}
    keep = lambda s, rows: seen.update({s.rows: tools.arrays(s.agent(1).state)})
    session = tools.train("ppo", run, seeds=2, total_steps=512, eval_every=256, hooks=[keep],
                          chunk_seconds=1e9)
    tools.assert_same_arrays(tools.arrays(jf.load(run).state), seen[4])
    tools.assert_same(jf.load(run, "last").state, session.agent(0).state)


def test_a_loaded_agent_acts(unbroken):
    whole, run = unbroken("ppo")
    agent = jf.load(run, "last")
    tools.assert_same(agent.state, whole.agent().state)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(64, 4)).astype(np.float32)
    batch = agent.act(obs)
    assert batch.shape == (64,) and isinstance(batch, np.ndarray) and set(batch.tolist()) == {0, 1}
    one = agent.act(obs[0])
    assert one.shape == () and one in (0, 1)
    assert [int(agent.act(o)) for o in obs[:8]] == batch[:8].tolist()
    seen = normalize_obs(whole.env.spec.observation, whole.state.agent.moments, obs)
    policy = whole.algo.networks.policy(whole.state.agent.params, seen)
    np.testing.assert_array_equal(batch, policy.mode())
    sampled = [agent.act(obs, "sample", jax.random.key(i)) for i in (0, 0, 1)]
    np.testing.assert_array_equal(sampled[0], sampled[1])
    assert (sampled[0] != sampled[2]).any()
    for arguments, message in ((("sample",), "key must be .*got None"),
                               (("gredy",), "mode must be .*got 'gredy'")):
        with pytest.raises(jf.ConfigError, match=message):
            agent.act(obs, *arguments)


def test_a_loaded_agent_plays(unbroken):
    _, run = unbroken("dqn")
    agent = jf.load(run, "last")
    found = agent.evaluate(episodes=8, seed=3)
    again = agent.evaluate(episodes=8, seed=3)
    np.testing.assert_array_equal(found.ret, again.ret)
    np.testing.assert_array_equal(found.ret, found.length)  # CartPole pays one a step
    assert found.finished.all() and found.ret.shape == (8,) and found.ret.max() <= 30
