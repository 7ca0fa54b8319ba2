"""A resumed run equals an unbroken one bit for bit: state, replay, log rows."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import json
import logging
import math
import os
import resource
import shutil
import sys
import threading
import time
import warnings
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import jaxrl_fast as jf
from helpers import fresh
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.errors import RunError, WriteError
from jaxrl_fast.files import checksums, folders
from jaxrl_fast.runs.checkpoints import errors, store
from jaxrl_fast.runs.checkpoints.errors import GONE
from jaxrl_fast.runs.checkpoints.save import Saver
from jaxrl_fast.runs.checkpoints.store import Checkpoints


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """name -> a fresh copy of a run that ended in the middle of its horizon."""
    base, done = tmp_path_factory.mktemp("half"), {}

    def get(name, to):
        if name not in done:
            done[name] = base / name
            tools.train(name, done[name], total_steps=tools.HALF, horizon=tools.TOTAL)
        shutil.copytree(done[name], to)
        return to

    return get


def test_on_other_devices(unbroken, tmp_path):
    """A run that names more devices than there are now is refused, and goes on where it is told
    that any will do."""
    whole, _ = unbroken("ppo")
    out = tmp_path / "x"
    tools.train("ppo", out, total_steps=tools.HALF, horizon=tools.TOTAL)
    content = json.loads((out / "config.json").read_text())
    content["run"]["devices"] = 64
    (out / "config.json").write_text(json.dumps(content))
    with pytest.raises(jf.ConfigError, match="devices must be .*got 64"):
        tools.resume(out, tools.TOTAL)
    session = tools.resume(out, tools.TOTAL, devices="all")
    tools.assert_same(session.state, whole.state)
    assert json.loads((out / "config.json").read_text())["run"]["devices"] is None


@pytest.mark.parametrize(("name", "seeds"), family([
    ("ppo", 1), ("ppo", 3), ("rainbow", 1), pytest.param("dqn", 1, marks=pytest.mark.slow),
], 1))  # fmt: skip
def test_a_checkpoint_without_newer_fields(name, seeds, unbroken, tmp_path, monkeypatch):
    """Written by a version whose running returns were one float32 each (CartPole's have no more to
    them), and whose replay
    kept no successors of truncated rows: those that it holds are never learned from.
    """
    save, out = Checkpoints.save, tmp_path / "x"

    def old(state):
        memory = state.memory
        if name == "dqn":
            memory = memory._replace(next_obs=())
        elif name == "rainbow":
            rows = {k: v for k, v in memory.rows._asdict().items() if k != "next_obs"}
            memory = memory._replace(rows=rows)
        episodes = {k: getattr(state.episodes, k) for k in ("ret", "length")}
        return state._replace(agent=agent(state.agent), episodes=episodes, memory=memory)

    def agent(state):  # without statistics of rewards
        return {k: v for k, v in state._asdict().items() if k != "rewards"}

    with monkeypatch.context() as patch:
        then = lambda self, which, n, state, meta: save(
            self, which, n, (old if which == "last" else agent)(state), meta)
        patch.setattr(Checkpoints, "save", then)
        tools.train(name, out, total_steps=tools.HALF, horizon=tools.TOTAL, seeds=seeds)
    assert all(jf.load(out, which).state.params for which in ("best", "last"))
    session = tools.resume(out, tools.TOTAL)
    assert not np.asarray(session.state.episodes.lost).any() and np.asarray(
        session.state.episodes.ret).any()
    whole = unbroken(name)[0].state
    if name == "ppo" and seeds == 1:
        tools.assert_same(session.state, whole)
    elif seeds == 1:
        form = lambda state: {name: (x.shape, x.dtype) for name, x in tools.arrays(state).items()}
        assert form(session.state) == form(whole)


def test_an_env_axis_must_divide_the_groups(half, tmp_path):
    with pytest.raises(jf.ConfigError, match="mesh env must be a divisor of 1, the groups .*got 2"):
        tools.resume(half("ppo", tmp_path / "x"), tools.TOTAL, mesh={"env": 2})


@pytest.mark.parametrize(
    "name",
    family([
        "ppo", "dqn", "rainbow", "iqn", "impala", "sac", "apg", "es", "td3",
        *(pytest.param(x, marks=pytest.mark.slow)
          for x in ("pqn", "ars", "c51", "apex", "crossq", "tqc", "qr_dqn")),
    ], ["ppo", "dqn"]),
)  # fmt: skip
def test_two_halves_are_the_whole(name, half, unbroken, tmp_path):
    whole, whole_dir = unbroken(name)
    run = half(name, tmp_path / "run")
    log = lambda folder: tools.but_ends(tools.logged(folder), tools.HALF)
    assert log(run) == log(whole_dir)[: len(log(run))]
    assert "eval_return" in tools.logged(run)[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = tools.resume(run, tools.TOTAL)
    tools.assert_same(tools.state(session), tools.state(whole))
    assert log(run) == log(whole_dir)
    assert [r.env_steps for r in session.history] == [r["env_steps"] for r in tools.logged(run)]
    np.testing.assert_array_equal(session.eval_return, whole.eval_return)
    if name not in ("dqn", "rainbow", "apex", "c51",
        "qr_dqn"):  # the others' first half had one more evaluation, maybe the best
        assert (session.best_rows, session.best_score) == (whole.best_rows, whole.best_score)
    assert (session.env_steps, session.grid) == (whole.env_steps, whole.grid)


def test_orbaxs_half_read_states_are_not_shown(monkeypatch):
    """Orbax's error goes through `sys.unraisablehook`, page after page; other errors are shown as
    before."""
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    _, quiet = errors.Quiet(), errors.Quiet()
    for file, count in ((ocp.__file__, 0), (__file__, 1)):
        made = {}
        exec(compile("async def read(): pass", file, "exec"), made)
        coroutine = made["read"]()
        sys.unraisablehook(SimpleNamespace(object=coroutine, exc_value=None))
        coroutine.close()
        assert len(shown) == count
    sys.unraisablehook(SimpleNamespace(object=print, exc_value=None))
    late = SimpleNamespace(object=None, exc_value=RuntimeError("Event loop is closed"))
    sys.unraisablehook(late)
    assert len(shown) == 2
    quiet.note_failure()
    quiet.end()
    sys.unraisablehook(late)
    assert len(shown) == 2 and sys.unraisablehook is quiet  # what failed may come late


def test_the_hooks_of_python_are_put_back(monkeypatch):
    """The order in which the owners of hooks end does not matter."""
    before = lambda unraisable: None
    monkeypatch.setattr(sys, "unraisablehook", before)
    monkeypatch.setattr(logging.getLogger("asyncio"), "filters", [])
    first, second = errors.Quiet(), errors.Quiet()
    first.end()
    assert sys.unraisablehook is second
    second.end()
    assert sys.unraisablehook is before and logging.getLogger("asyncio").filters == []


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: bytes(255 - x for x in data)],
                         ids=["empty", "flipped"])
def test_a_read_that_fails_in_many_threads_is_one_line(damage, unbroken, tmp_path, monkeypatch):
    shown = []
    shutil.copytree(unbroken("dqn")[1], tmp_path / "run")
    for file in tmp_path.rglob("d/*"):
        file.write_bytes(damage(file.read_bytes()))
    for file in tmp_path.rglob("checksums.json"):
        file.unlink()
    monkeypatch.setattr(sys, "unraisablehook",
                        lambda unraisable: shown.append(unraisable.exc_value))
    with pytest.raises(jf.ConfigError,
                       match="checkpoint must be a whole checkpoint that this run wrote"):
        jf.load(tmp_path / "run", "last")
    time.sleep(0.3)  # tensorstore's threads
    gc.collect()
    assert not shown


@pytest.mark.parametrize(("text", "shown"), [
    ("Task exception was never retrieved\nfuture: <Task coro=<write() defined at "
     "lib/orbax/checkpoint/x.py:1> exception=E()>", 0),
    ("Future exception was never retrieved\nfuture: <Future "
     "exception=E('last/3.orbax-checkpoint-tmp/d')>", 0),
    ("Task exception was never retrieved\nfuture: <Task coro=<mine() defined at mine.py:1> "
     "exception=E()>", 1),
    ("Executing <Task of orbax> took 2 seconds", 1),
])  # fmt: skip
def test_orbaxs_half_written_states_are_not_shown(text, shown, monkeypatch, caplog):
    quiet = errors.Quiet()
    logging.getLogger("asyncio").error(text)
    quiet.end()
    assert len(caplog.records) == shown


@pytest.mark.slow
@pytest.mark.timeout(900)
# resets from a pool, and as they are needed
@pytest.mark.parametrize(("name", "num_steps"), [("ppo", 8), ("sac", 1)])
def test_with_physics_and_statistics(name, num_steps, tmp_path):
    """brax's pipeline states, masses that every episode draws, and running statistics of
    observations; two learning rates."""
    env = jf.make("brax/inverted_pendulum", episode_length=20,
                  randomize="link.inertia.mass=0.8:1.2")
    algo = tools.algorithm(name, normalize_observations=True, num_steps=num_steps)
    settings = dict(env=env, population={"algo.learning_rate": [1e-3, 3e-4]})
    whole = tools.train(algo, tmp_path / "whole", **settings)
    tools.train(algo, tmp_path / "run", total_steps=tools.HALF, horizon=tools.TOTAL, **settings)
    session = tools.resume(tmp_path / "run", tools.TOTAL)
    tools.assert_same(tools.state(session), tools.state(whole))
    assert tools.logged(tmp_path / "run") == tools.logged(tmp_path / "whole")
    # some were cut, maybe with shorter ones
    assert max(np.nanmax(r.metrics["episode_length"]) for r in session.history) > 15


KILLED = """
import os, signal, sys
from helpers import runs as tools
from jaxrl_fast import Sink

class Dies(Sink):  # gets a row after metrics.jsonl has it
    def write(self, row):
        if row.env_steps >= int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

tools.train(sys.argv[1], sys.argv[2], sinks=[Dies()], hooks=[lambda *_: None],
            checkpoint_minutes=1e-9, chunk_seconds=1e-9)
"""


@pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
def test_a_killed_run_resumes(name, unbroken, tmp_path):
    whole, whole_dir = unbroken(name)
    run = tmp_path / "run"
    ended = fresh.python(KILLED, name, run, whole.grid.env_steps(9), timeout=150,
                         environment=tools.subprocess_environment())
    assert ended.returncode == -9, ended.stderr
    checkpoints = Checkpoints(run / "checkpoints", read_only=True)
    saved = checkpoints.latest("last")
    checkpoints.close()
    assert 0 < saved < 9 and not (run / "result.json").exists()
    left = tools.logged(run)
    # rows that will be cut
    assert left[-1]["env_steps"] == whole.grid.env_steps(9) > whole.grid.env_steps(saved)
    session = tools.resume(run)
    tools.assert_same(tools.state(session), tools.state(whole))
    assert tools.logged(run) == tools.logged(whole_dir)
    assert (run / "result.json").exists()


EACH = dict(checkpoint_minutes=1e-9, chunk_seconds=1e-9)  # a checkpoint a row


def test_a_damaged_checkpoint_is_skipped_and_later_rows_repeated(unbroken, tmp_path):
    whole, whole_dir = unbroken("ppo")
    run = tmp_path / "run"
    tools.train("ppo", run, total_steps=tools.HALF, horizon=tools.TOTAL, **EACH)
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        newest, older = checkpoints.numbers("last")
    largest = max((run / "checkpoints" / "last" / str(newest)).rglob("*"),
                  key=lambda p: p.is_file() and p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    content = json.loads((run / "config.json").read_text())
    # one more checkpoint, at the end
    content["run"] |= {"checkpoint_minutes": 60.0, "chunk_seconds": 1.0}
    (run / "config.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning,
                      match=rf"last/{newest} is damaged .*its checksum differs.*in its place: "
                            rf".*last/{older}"):
        session = tools.resume(run, tools.TOTAL)
    tools.assert_same(tools.state(session), tools.state(whole))
    assert tools.logged(run) == tools.logged(whole_dir)
    # the whole one has stayed, the damaged one is gone
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        assert (
            checkpoints.numbers("last") == [checkpoints.newest("last"), older]
            and checkpoints.newest("last") > newest
        )


@pytest.mark.parametrize(
    "error", family([OSError(5, "Input/output error"), OSError(24, "Too many open files")], 1))
def test_a_temporary_disk_failure_costs_no_checkpoint(error, tmp_path, monkeypatch):
    run = tmp_path / "run"
    tools.train("ppo", run, total_steps=tools.HALF, horizon=tools.TOTAL, **EACH)
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        newest, older = checkpoints.numbers("last")
    verify = store.verify_checksums

    def fails(folder):
        if folder.name == str(newest):
            raise error
        verify(folder)

    monkeypatch.setattr(store, "verify_checksums", fails)
    with Checkpoints(run / "checkpoints") as checkpoints, pytest.warns(
        UserWarning, match=f"last/{newest} is damaged"
    ):
        assert checkpoints.read(("last",), lambda which, number: number) == older
        checkpoints.pass_over("last", older)
        checkpoints._drop_damaged("last")
        assert checkpoints.numbers("last") == [newest, older]


def test_a_checkpoint_reaches_the_disk_while_the_run_goes_on(tmp_path, monkeypatch):
    """Its files and its name: a disk may turn read-only a second later."""
    last, fsync, save = tmp_path / "run" / "checkpoints" / "last", os.fsync, Saver.save
    synced, savers, seen = {}, [], []

    def note(opened):
        fsync(opened)
        synced[folders.identity(opened)] = store.numbers_in(last)

    def save_once(saver):
        save(saver)
        saver.at = math.inf
        savers.append(saver)

    def look(run, rows):
        if savers:
            savers[0].checkpoints._managers["last"].wait_until_finished()
            seen.append(synced.get(folders.identity(last)) == store.numbers_in(last) != [])

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Saver, "save", save_once)
    tools.train("ppo", tmp_path / "run", hooks=[look], **EACH)
    assert len(savers) == 2 and seen[-1]  # in mid-run, and at the end
    assert {folders.identity(tmp_path / "run" / name)
            for name in ("config.json", "metrics.jsonl", "result.json")} <= set(synced)
    for number in store.numbers_in(last):
        files = [path for path in (last / str(number)).rglob("*") if path.is_file()]
        files.remove(last / str(number) / "commit_success.txt")  # written after the name, not read
        assert len(files) > 5 and {folders.identity(path) for path in files} <= set(synced)


def test_a_disk_that_loses_a_checkpoint_ends_the_run(tmp_path, monkeypatch):
    def fails(opened):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def unsupported(opened):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", unsupported)
    folders.sync(tmp_path)
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        folders.sync(tmp_path)
    with (pytest.raises(WriteError, match=r"cannot write .*last.*Input/output error"),
          Checkpoints(tmp_path / "checkpoints") as checkpoints):
        checkpoints.save("last", 1, {"x": jnp.arange(3)}, {})
        checkpoints.wait()


@pytest.mark.parametrize("moment", ["wait", "close"])
def test_a_disk_that_loses_a_checkpoints_name_ends_the_run(moment, tmp_path, monkeypatch):
    fsync = os.fsync

    def fails(opened):
        if os.readlink(f"/proc/self/fd/{opened}").endswith("/last"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(opened)

    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save("last", 1, {"x": jnp.arange(3)}, {})
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(WriteError, match=r"cannot write .*last: Input/output error"):
        getattr(checkpoints, moment)()
    checkpoints.close()
    assert checkpoints.numbers("last") == [1]


def test_the_sums_of_arrays_are_made_early_and_their_thread_ends(tmp_path, monkeypatch):
    early, write, finish = [], store.write_checksums, checksums.EarlyChecksums.finish

    def finish_later(self):
        until = time.monotonic() + 20
        while not self._sums and time.monotonic() < until:
            time.sleep(0.001)
        return finish(self)

    monkeypatch.setattr(checksums.EarlyChecksums, "finish", finish_later)
    monkeypatch.setattr(store, "write_checksums",
                        lambda folder, sums: early.append(sums) or write(folder, sums))
    arrays = {"x": jnp.asarray(np.random.default_rng(0).normal(size=2_000_000), jnp.float32)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save("last", 1, arrays, {})
    assert "checksums" not in {thread.name for thread in threading.enumerate()}
    (found,) = early
    assert {name for name, _, _ in found} <= {
        file.name for file in tmp_path.glob("last/1/state/*/d/*")} and found


def test_a_failed_write_is_told_before_a_failed_sync(tmp_path, monkeypatch):
    def full(folder, sums):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fails(opened):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(store, "write_checksums", full)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("last", 1, {"x": jnp.arange(3)}, {})
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(WriteError, match="No space left"):
        checkpoints.close()


def test_a_failed_write_ends_the_thread_of_its_sums(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(checkpoints._manager("last"), "save", mock.Mock(side_effect=full))
    with pytest.raises(WriteError, match="No space left"):
        checkpoints.save("last", 1, {"x": jnp.arange(3)}, {})
    assert "checksums" not in {thread.name for thread in threading.enumerate()}
    checkpoints.close()


def test_a_damaged_best_checkpoint_is_named_and_gives_way_to_the_next(half, tmp_path):
    run = half("ppo", tmp_path / "run")
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        numbers = checkpoints.numbers("best")
    for number in numbers:
        (run / "checkpoints" / "best" / str(number) / "checksums.json").write_text("{")
    with pytest.warns(UserWarning,
                      match=r"best.* is damaged|whole checkpoint .*best/.* the score to beat"):
        tools.resume(run, tools.TOTAL)
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        assert checkpoints.newest("best") not in (None, *numbers)
        assert not set(numbers) & set(checkpoints.numbers("best"))


def test_a_resume_verifies_each_checkpoint_once(half, tmp_path, monkeypatch):
    run, seen = half("ppo", tmp_path / "run"), []
    verify = store.verify_checksums
    monkeypatch.setattr(store, "verify_checksums",
                        lambda folder: (seen.append(folder), verify(folder)))
    tools.resume(run, tools.TOTAL)
    assert seen and len(set(seen)) == len(seen)


def test_a_log_that_lacks_rows_is_named(half, tmp_path):
    run = half("ppo", tmp_path / "run")
    file = run / "metrics.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.warns(UserWarning,
                      match=r"metrics.jsonl lacks 1 of the \d+ log rows before the checkpoint"):
        tools.resume(run, tools.TOTAL)


def gone(run):
    run.rename(run.with_name("aside"))


def replaced(run):
    gone(run)
    run.write_text("a file, where the run was")


def in_the_way(run):
    """A file where the checkpoints were. The saver's thread, in the middle of one, may make their
    folder again in between."""
    for n in itertools.count():
        (run / "checkpoints").rename(run.with_name(f"aside-{n}"))
        with contextlib.suppress(IsADirectoryError):
            (run / "checkpoints").write_text("")
            return


def limited(run):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize(
    ("happens", "says"),
    [(gone,
      "metrics.jsonl: it was removed while the run wrote it; .*run is gone: start the run again"),
     (replaced, "metrics.jsonl: .*run is gone: start the run again"),
     (in_the_way,
      f"cannot write .*checkpoints/last: {GONE}; there is no whole checkpoint: start the run "
      f"again"),
     (limited, r"cannot write .*run/.*File too large; .*last/\d+ is whole: .* train --resume ")],
)  # fmt: skip
def test_a_run_that_cannot_write_names_the_newest_whole_checkpoint(happens, says, unbroken,
                                                                   tmp_path):
    run, limits = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    hook = lambda session, rows: happens(run) if session.rows == 4 else None
    try:
        with pytest.raises(RunError, match=says) as error:
            tools.train("ppo", run, hooks=[hook], **EACH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value) and error.value.exit_code == 1
    if happens is limited:
        tools.assert_same(tools.resume(run).state, unbroken("ppo")[0].state)


def test_a_removed_config_json_is_written_again_at_the_end(tmp_path):
    file, was = tmp_path / "run" / "config.json", []

    def hook(session, rows):
        if session.rows == 4:
            was.append(file.read_bytes())
            file.unlink()

    tools.train("ppo", tmp_path / "run", total_steps=tools.HALF, hooks=[hook], **EACH)
    assert json.loads(file.read_bytes()) == json.loads(was[0])
    assert (tmp_path / "run" / "result.json").is_file()


@pytest.mark.matrix("test_two_halves_are_the_whole")
@pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
def test_two_halves_are_the_whole_in_the_code_that_users_run(name, as_users_have_it, tmp_path):
    with as_users_have_it():
        whole = tools.train(name, tmp_path / "whole", total_steps=tools.HALF, horizon=tools.TOTAL)
        tools.train(name, tmp_path / "run", total_steps=tools.HALF // 2, horizon=tools.TOTAL)
        session = tools.resume(tmp_path / "run", tools.HALF)
    tools.assert_same(tools.state(session), tools.state(whole))
    rows = [{k: v for k, v in row.items() if k != "eval_return"}
            for row in tools.logged(tmp_path / "run")]
    assert rows == [{k: v for k, v in row.items() if k != "eval_return"}
                    for row in tools.logged(tmp_path / "whole")]


def test_rows_after_the_checkpoint_are_cut(half, unbroken, tmp_path):
    _, whole_dir = unbroken("ppo")
    run = half("ppo", tmp_path / "run")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    with open(run / "metrics.jsonl", "a") as file:
        file.write(
            json.dumps(last | {"env_steps": last["env_steps"] + 64, "value_loss": [123.0]}) + "\n")
        file.write('{"env_steps": 768, "wall_')  # torn by the crash
    tools.resume(run, tools.TOTAL)
    assert tools.logged(run) == tools.logged(whole_dir)


def test_a_finished_run_resumes_to_itself(half, tmp_path):
    run = half("ppo", tmp_path / "run")
    before, result = tools.logged(run), tools.read(run / "result.json")
    session = tools.resume(run)
    assert tools.logged(run) == before and session.env_steps == tools.HALF
    assert tools.read(run / "result.json")["eval_return"] == result["eval_return"]


def test_wall_time_adds_up_over_a_resume(half, tmp_path):
    run = half("ppo", tmp_path / "run")
    before = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["wall_seconds"]
    session = tools.resume(run, tools.TOTAL)
    wall = [r.wall_seconds for r in session.history]
    assert wall == sorted(wall) and session.wall_seconds > before > 0


def test_past_the_horizon_schedules_stay_at_their_end(unbroken, tmp_path):
    """The annealed learning rate is zero there, so the parameters stay what they are."""
    whole, whole_dir = unbroken("ppo")
    shutil.copytree(whole_dir, tmp_path / "run")
    with pytest.warns(UserWarning,
                      match=r"total_steps 1,536 is beyond the horizon 1,280 .*--horizon"):
        session = tools.resume(tmp_path / "run", 1536)
    assert session.env_steps == 1536 and session.grid.horizon == whole.grid.horizon
    tools.assert_same(session.state.agent.params, whole.state.agent.params)
    assert tools.logged(tmp_path / "run")[:20] == tools.logged(whole_dir)
    assert len(tools.logged(tmp_path / "run")) == 24


def test_a_new_horizon_changes_the_schedule_and_not_the_rows(unbroken, tmp_path):
    whole, whole_dir = unbroken("ppo")
    shutil.copytree(whole_dir, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = tools.resume(tmp_path / "run", 2560, horizon=2560)
    assert session.grid.horizon == 2 * whole.grid.horizon
    assert (session.grid.row, session.grid.eval_rows) == (whole.grid.row, whole.grid.eval_rows)
    moved = tools.arrays(session.state.agent.params), tools.arrays(whole.state.agent.params)
    assert all((moved[0][k] != moved[1][k]).any() for k in moved[0])
    steps = [r["env_steps"] for r in tools.logged(tmp_path / "run")]
    assert steps == list(range(64, 2561, 64))
    config = tools.read(tmp_path / "run" / "config.json")["run"]
    assert (config["total_steps"], config["horizon"]) == (2560, 2560)


def test_a_horizon_shorter_than_a_row_moves_no_rows(unbroken, tmp_path):
    whole, whole_dir = unbroken("ppo")
    shutil.copytree(whole_dir, tmp_path / "run")
    with pytest.warns(UserWarning, match="is beyond the horizon 32"):
        session = tools.resume(tmp_path / "run", 1536, horizon=32)
    assert (session.grid.row, session.grid.eval_rows) == (whole.grid.row, whole.grid.eval_rows)
    steps = [r["env_steps"] for r in tools.logged(tmp_path / "run")]
    assert steps == list(range(64, 1537, 64))


def test_an_end_before_the_current_step_is_refused(half, tmp_path):
    run = half("ppo", tmp_path / "run")
    before = (run / "config.json").read_bytes()
    with pytest.raises(jf.ConfigError,
                       match=r"total_steps must be at least the 640 steps .*got 100"):
        tools.resume(run, 100)
    assert (run / "config.json").read_bytes() == before


@pytest.mark.matrix("tests/sweeps/test_sweep.py::test_a_stopped_sweep_resumes")
def test_a_population_resumes_too(tmp_path):
    whole = tools.train("dqn", seeds=3, eval_every=0)
    tools.train("dqn", tmp_path / "run", seeds=3, eval_every=0, total_steps=tools.HALF,
                horizon=tools.TOTAL)
    session = tools.resume(tmp_path / "run", tools.TOTAL)
    tools.assert_same(tools.state(session), tools.state(whole))
    log = tools.but_ends(tools.logged(tmp_path / "run"), tools.HALF)
    assert log == tools.but_ends(tools.through_json(whole.history), tools.HALF)
    assert log[-1]["eval_return"] == whole.eval_return.tolist()


# in an earlier row, nowhere, in the same one
@pytest.mark.parametrize("found", family([2, None, 4], 2))
def test_a_kill_between_best_and_last_loses_no_best_agent(found, tmp_path):
    """`best` is of row 4, `last` of row 1: resumed with another horizon the rows are other ones."""
    scores = {2: 0.1, 4: 0.5}
    with tools.evaluations(lambda rows: [scores.get(rows, 0.2)]):
        run, older, seen = tmp_path / "run", tmp_path / "older", {}
        settings = dict(eval_every=64, horizon=tools.TOTAL)
        tools.train("ppo", older, total_steps=64, **settings)
        keep = lambda s, rows: seen.update({s.rows: tools.arrays(s.state.agent)})
        tools.train("ppo", run, total_steps=256, hooks=[keep], **settings)
        shutil.rmtree(run / "checkpoints" / "last")
        shutil.copytree(older / "checkpoints" / "last", run / "checkpoints" / "last")
        row = {2: 2, 4: 4, None: 4}[found]
        if found:
            scores[found], score = 0.9, 0.9
        else:
            scores[4], score = 0.3, 0.5
        session = tools.resume(run, 384, horizon=2 * tools.TOTAL, hooks=[keep] if found else [])
    assert (session.best_score, session.best_rows) == (score, row)
    agent = jf.load(run, "best")
    assert agent.iteration == row
    tools.assert_same_arrays(tools.arrays(agent.state), seen[row])
    later = Checkpoints(run / "checkpoints", read_only=True)
    assert later.meta("best", later.latest("best"))["best_scores"] == [score]
    later.close()


@jf.settings
class Wanders(jf.SingleEnv):
    """Keeps a key of its own in its state."""

    spec = jf.EnvSpec("wanders", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2), 4)

    def reset_one(self, key):
        return (key, jnp.int32(0)), jnp.zeros(1)

    def step_one(self, key, state, action):
        own, time = state
        obs = jax.random.uniform(own, (1,))
        return (key, time + 1), obs, jnp.float32(action), False, time + 1 >= 4


@pytest.mark.matrix("test_two_halves_are_the_whole")
def test_keys_in_an_environments_state_are_resumed(tmp_path):
    algo = jf.PPO(num_envs=4, num_steps=8, hidden=(4,))
    train = lambda steps, out: jf.train(
        algo, Wanders(), steps, out=out, horizon=128, log_every=32, eval_every=0, eval_episodes=2,
        tensorboard=False)
    whole, _ = train(128, None), train(64, tmp_path / "half")
    resumed = jf.resume(tmp_path / "half", total_steps=128, tensorboard=False)
    tools.assert_same(resumed.state, whole.state)
