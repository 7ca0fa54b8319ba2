"""SIGTERM and Ctrl-C at the command line, in a process of its own: the chunk ends, it is saved, and
the run goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import pickle
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

from helpers import runs as tools
from jaxrl_fast import runtime
from jaxrl_fast.engine import programs
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.errors import ConfigError, RunError, WriteError
from jaxrl_fast.logs.progress import ProgressSink
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.runs.signals import Interrupted, Signals, Stopped

loop = importlib.import_module("jaxrl_fast.runs.loop")

ARGUMENTS = [  # in the programs of `tools.train("ppo")`
    "train", "ppo", "CartPole-v1", "--total-steps", "5e7", "--log-every", "64", "--eval-every",
    "0", "--chunk-seconds", "0.01", "--no-tensorboard", "--no-preset", "--algo.num-envs", "4",
    "--algo.num-steps", "8", "--algo.hidden", "8", "--algo.num-epochs", "2",
    "--algo.num-minibatches", "2", "--algo.normalize-observations", "--eval-episodes", "4",
    "--env.max-steps-in-episode", "30",
]  # fmt: skip


@pytest.mark.parametrize(("signum", "code"), [
    (signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_signal_saves_and_the_run_resumes(signum, code, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "jaxrl_fast", *ARGUMENTS, "--out", str(run)], cwd=tmp_path,
        text=True,
        env=tools.subprocess_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while not (run / "metrics.jsonl").exists() or len(
            (run / "metrics.jsonl").read_text().splitlines()
        ) < 3:
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            time.sleep(0.05)
        process.send_signal(signum)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code, err
    last = err.strip().splitlines()[-1]
    assert f"stopped by {signal.Signals(signum).name} at " in last and "Traceback" not in err
    assert f"go on with: jaxrl-fast train --resume {run}" in last
    assert not (run / "result.json").exists()
    rows = tools.logged(run)
    done = rows[-1]["env_steps"]
    assert f"{done:,} environment steps" in last  # every row that was logged is saved
    session = tools.resume(run, done + 3 * 1024)
    algo, env, config, _ = configs.load(run)
    settings = dataclasses.asdict(config)
    assert settings["total_steps"] == done + 3 * 1024 and settings["horizon"] == 50_000_000
    whole = tools.train(algo, tmp_path / "whole", env, **settings)
    tools.assert_same(session.state, whole.state)
    assert tools.logged(run) == tools.logged(tmp_path / "whole")


@pytest.fixture
def interruptible():
    """A shell starts what it puts into the background with SIGINT ignored: these tests are not
    about that."""
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, found)


def test_the_second_signal_reaches_python(interruptible):
    """Signals of one moment count once: `timeout` sends two."""
    before, now = signal.getsignal(signal.SIGINT), [0.0]
    with pytest.raises(KeyboardInterrupt), Signals(lambda: now[0]) as signals:
        for signum in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(signum)
        assert signals.caught == signal.SIGINT
        now[0] = 1.1
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_are_put_back(interruptible):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with Signals() as signals:
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] != before
    assert (
        [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
        and signals.caught is None
    )


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "nohup"])
def test_a_closed_terminal_stops_a_run_unless_nohup_started_it(before):
    found = signal.signal(signal.SIGHUP, before)
    try:
        with Signals() as signals:
            assert (signal.getsignal(signal.SIGHUP) == signal.SIG_IGN) == (before == signal.SIG_IGN)
            signal.raise_signal(signal.SIGHUP)
        assert signals.caught == (None if before == signal.SIG_IGN else signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, found)


def test_a_context_within_another_takes_over(interruptible):
    """A signal noted by the outer context counts within, and a later one does not end the outer
    block."""
    with Signals() as outer, outer.at_once("outside"):
        with Signals() as inner:
            signal.raise_signal(signal.SIGINT)
            assert (inner.caught, outer.caught) == (signal.SIGINT, None)
        signal.raise_signal(signal.SIGTERM)
        assert (inner.caught, outer.caught) == (signal.SIGINT, signal.SIGTERM)
    with Signals() as outer:
        signal.raise_signal(signal.SIGTERM)
        with Signals() as inner, pytest.raises(Stopped,
                                               match="SIGTERM within"), inner.at_once("within"):
            pass


def test_a_context_entered_again_has_caught_nothing(interruptible):
    signals = Signals()
    for signum in (signal.SIGTERM, signal.SIGINT):
        with signals:
            assert signals.caught is None
            signal.raise_signal(signum)
        assert signals.caught == signum


def test_an_interrupt_without_a_run_directory():
    """Nothing is saved, and the caller still gets a KeyboardInterrupt."""
    hook = lambda session, rows: signal.raise_signal(signal.SIGINT) if session.rows == 3 else None
    with pytest.raises(Interrupted, match="stopped by SIGINT at 192 environment steps") as error:
        tools.train("ppo", hooks=[hook], chunk_seconds=1e-9, eval_every=0)
    assert error.value.exit_code == 130 and isinstance(error.value, KeyboardInterrupt)
    assert str(error.value).endswith("nothing is saved without `out`")


def during(monkeypatch, owner, name):
    """SIGTERM each time that this function of the run is called."""
    original = getattr(owner, name)
    again = lambda *args, **named: (signal.raise_signal(signal.SIGTERM),
                                    original(*args, **named))[1]
    monkeypatch.setattr(owner, name, again)


@pytest.mark.parametrize(
    ("owner", "name", "result"),
    [(loop, "measure", False), (programs.Programs, "evaluate", False), (RunDir, "finish", True)],
)
def test_a_signal_after_the_last_chunk_is_heeded(owner, name, result, unbroken, tmp_path,
                                                 monkeypatch):
    """The signal comes in the last rows, in the final evaluation or at the result: saved, and exit
    code 143."""
    settings = dict(total_steps=64, horizon=tools.TOTAL, eval_every=0)
    whole = tools.train("ppo", **settings)
    with monkeypatch.context() as patched, pytest.raises(
        Interrupted, match="SIGTERM at 64 environment steps"
    ) as error:
        during(patched, owner, name)
        tools.train("ppo", tmp_path / "run", **settings)
    assert error.value.exit_code == 143 and (tmp_path / "run" / "result.json").exists() == result
    session = tools.resume(tmp_path / "run")
    tools.assert_same(session.state, whole.state)
    assert session.eval_return == whole.eval_return and (tmp_path / "run" / "result.json").exists()


def test_a_signal_in_the_last_chunk_leaves_the_evaluation_to_the_resume(tmp_path, monkeypatch):
    """The run is saved first, and the hooks get the last row once."""
    settings = dict(total_steps=64, horizon=tools.TOTAL, eval_every=0)
    whole, played, seen = tools.train("ppo", **settings), [], []
    hook = lambda run, rows: seen.extend(row.env_steps for row in rows)
    evaluate = programs.Programs.evaluate
    noting = lambda *args, **named: (played.append(1), evaluate(*args, **named))[1]
    monkeypatch.setattr(programs.Programs, "evaluate", noting)
    with monkeypatch.context() as patched, pytest.raises(Interrupted, match="at 64 environment"):
        during(patched, programs.Programs, "chunk")
        tools.train("ppo", tmp_path / "run", hooks=[hook], **settings)
    assert seen == [64] and not played
    session = tools.resume(tmp_path / "run", hooks=[hook])
    assert seen == [64] and len(played) == 1 and session.eval_return == whole.eval_return
    assert tools.logged(tmp_path / "run") == tools.through_json(whole.history)


def test_hooks_get_the_rows_of_an_evaluation_that_a_signal_ends(tmp_path, monkeypatch):
    """On the host it fails then; the resume does not call the hooks for these rows."""
    seen = []
    hook = lambda run, rows: seen.extend(row.env_steps for row in rows)

    def stopped(*args, **named):
        signal.raise_signal(signal.SIGTERM)
        raise HostError("an environment ended")

    with monkeypatch.context() as patched, pytest.raises(Interrupted, match="at 320 environment"):
        patched.setattr(programs.Programs, "evaluate", stopped)
        with pytest.warns(UserWarning, match="its unfinished part is left out"):
            tools.train("ppo", tmp_path / "run", hooks=[hook], chunk_seconds=1e-9)
    assert seen == list(range(64, 321, 64))


def test_a_signal_says_saved_after_the_checkpoint_is_written(tmp_path, monkeypatch):
    """orbax writes in a thread: a full disk shows when the run waits for it."""
    full = WriteError("last", "No space left on device")

    def stopped(*args):
        monkeypatch.setattr(Checkpoints, "wait", mock.Mock(side_effect=full))
        signal.raise_signal(signal.SIGINT)

    with pytest.raises((RunError, Stopped), match="cannot write last: No space left") as error:
        tools.train("ppo", tmp_path / "run", hooks=[stopped])
    assert isinstance(error.value, RunError)


def test_a_signal_in_the_middle_of_a_turn_waits_for_the_next(tmp_path):
    """One that comes after the look at it must not save a chunk that was neither checked nor
    logged."""

    class Late:
        """Caught from the second look on: the first turn finds none at its one look."""

        looks = 0

        @property
        def caught(self):
            self.looks += 1
            return signal.SIGINT if self.looks > 1 else None

        def poll(self):
            pass

        def at_once(self, where):
            return contextlib.nullcontext()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    with pytest.raises(Interrupted, match="at 128 environment steps"):
        tools.train("ppo", tmp_path / "run", eval_every=0, chunk_seconds=1e-9,
                    dependencies=Dependencies(signals=Late))
    assert [r["env_steps"] for r in tools.logged(tmp_path / "run")] == [64, 128]


STOP_AT = 3


def interrupts(session, rows):
    """A hook: Ctrl-C once, after some rows."""
    if session.rows == STOP_AT:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("out", [None, "run"])
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_an_interrupted_run_resumes_from_memory(name, out, unbroken, tmp_path, monkeypatch,
                                                interruptible):
    """The call returns the run at a prompt; its `resume` ends as an unbroken run, checkpoints and
    log included."""
    whole, settings = unbroken(name)[0], dict(hooks=[interrupts], chunk_seconds=1e-9)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    run = tools.train(name, out and tmp_path / out, **settings)
    assert run.rows == STOP_AT and run.eval_return is None and len(run.frame()) == len(run.history)
    assert run.resume() is run
    tools.assert_same(tools.state(run), tools.state(whole))
    assert run.rows == run.grid.rows and np.array_equal(run.eval_return, whole.eval_return)
    rows = tools.logged(tmp_path / out) if out else tools.through_json(run.history)
    assert rows == tools.through_json(whole.history)
    if out:
        assert (tmp_path / out / "result.json").exists()
        tools.assert_same(tools.resume(tmp_path / out).state, run.state)
    with pytest.raises(ConfigError, match="one that was interrupted"):
        run.resume()


def test_in_a_program_an_interrupt_ends_it_and_holds_the_run(interruptible):
    with pytest.raises(Interrupted) as error:
        tools.train("ppo", hooks=[interrupts], chunk_seconds=1e-9)
    assert error.value.run.resume().rows == error.value.run.grid.rows


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["compile", "init", "ready"])
def test_a_signal_while_compiling_leaves_nothing(name, signum, tmp_path, interruptible):
    called = []

    def signalled(*args):
        called.append(signum)
        signal.raise_signal(signum)
        return getattr(programs.Programs, name)(*args)

    made = type("Signalled", (programs.Programs,), {name: signalled})
    with pytest.raises(Stopped, match="while compiling") as error:
        tools.train("ppo", tmp_path / "run", dependencies=Dependencies(made))
    assert (
        error.value.exit_code == 128 + signum and len(called) == 1
        and list(tmp_path.iterdir()) == []
    )


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_destructor_ends_the_block_in_silence(signum, interruptible, capsys):
    """Python drops what is raised there, and prints it; so it does while it collects garbage."""

    class Signalling:
        def __del__(self):
            signal.raise_signal(signum)

    before = sys.unraisablehook
    stops = pytest.raises(Stopped, match=f"{signum.name} while compiling")
    with Signals() as signals, stops, signals.at_once("while compiling"):
        Signalling()
        time.sleep(10)
        pytest.fail("the signal was dropped")
    assert sys.unraisablehook is before and capsys.readouterr() == ("", "")


@pytest.mark.parametrize("cleanup", [(RunDir, "discard"), (runtime, "resume_gc")],
                         ids=["discard", "garbage"])
def test_a_second_signal_does_not_stop_the_cleanup(cleanup, tmp_path, monkeypatch):
    """Python's own handler would end the process in the middle of the cleanup."""
    own, ended = signal.signal(signal.SIGTERM, lambda *_: ended.append(1)), []
    during(monkeypatch, programs.Programs, "ready")
    during(monkeypatch, *cleanup)
    with pytest.raises(Stopped, match="while compiling"):
        tools.train("ppo", tmp_path / "run")
    signal.signal(signal.SIGTERM, own)
    assert not ended and list(tmp_path.iterdir()) == []


def test_a_signal_while_the_chunk_compiles_after_a_warm_up_saves_it(tmp_path, unbroken,
                                                                    interruptible):
    class Signalled(programs.Programs):
        def ready(self, name):
            if name == "chunk":
                signal.raise_signal(signal.SIGINT)
            super().ready(name)

    with pytest.raises(Interrupted):
        tools.train("dqn", tmp_path / "run", dependencies=Dependencies(Signalled))
    tools.assert_same(tools.resume(tmp_path / "run").state, unbroken("dqn")[0].state)


def test_a_signal_while_a_resume_compiles_leaves_the_run_as_it_was(tmp_path, monkeypatch,
                                                                   interruptible):
    tools.train("ppo", tmp_path / "run", total_steps=64)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    during(monkeypatch, programs.Programs, "ready")
    with pytest.raises(Stopped, match="the run is as it was"):
        tools.resume(tmp_path / "run", 128)
    assert {p: p.read_bytes()
            for p in tmp_path.rglob("*") if p.is_file() and p.name != "config.json"} == {
        p: x for p, x in before.items() if p.name != "config.json"}  # fmt: skip


def test_compile_time_is_in_no_rate(monkeypatch):
    """A compilation in the first chunk and in the first evaluation, of an hour each by the
    clock."""
    clock, hour = time.perf_counter, 3600.0
    skipped = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + skipped[0])

    class Slow(programs.Programs):
        def ready(self, name):
            if name in ("chunk", "evaluate") and name not in self._compiled:
                with self.clock.during("compile"):
                    skipped[0] += hour
            super().ready(name)

    shown = io.StringIO()
    bar = ProgressSink(tools.TOTAL, shown, clock=iter(range(0, 10**9, 10**6)).__next__)
    run = tools.train("ppo", sinks=[bar], chunk_seconds=1e-9, dependencies=Dependencies(Slow))
    assert run.wall_seconds > 2 * hour > run.lanes.programs.clock.spent("compile") - 60
    assert all(row.steps_per_second > 10 for row in run.history)
    left = [line.split("ETA ")[1] for line in shown.getvalue().splitlines() if "ETA" in line]
    assert [wall for wall, _ in bar._seen] == sorted(wall for wall, _ in bar._seen)
    assert len(left) > 5 and all(text < "0:30" for text in left), left


def test_an_interrupt_passes_from_a_process_to_another_without_the_run():
    stop = Interrupted(signal.SIGTERM, "runs/x", 100, run=object(), seed=3)
    back = pickle.loads(pickle.dumps(stop))
    assert type(back) is Interrupted and str(back) == str(stop) and back.run is None
    assert (back.signum, back.exit_code, back.env_steps, back.path) == (15, 143, 100, "runs/x")


def test_a_sweep_interrupted_at_a_prompt_names_the_call_that_goes_on(monkeypatch):
    assert str(Interrupted(signal.SIGINT, "sweeps/x", 100, "sweep")).endswith(
        "--resume sweeps/x")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert str(Interrupted(signal.SIGINT, "sweeps/x", 100, "sweep")).endswith(
        "--resume sweeps/x (from Python: the same call with out='sweeps/x')")
