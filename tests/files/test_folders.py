"""Folders of runs: paths as the system reads them, unwritable folders, and one process a folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import jaxrl_fast as jf
from jaxrl_fast import values
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.files import folders
from jaxrl_fast.runs.rundir import RunDir, check_empty, check_free, check_outside, numbered
from jaxrl_fast.sweeps import tuning

TRAIN = ["train", "ppo", "CartPole-v1", "--total-steps", "256", "--no-tensorboard"]
SWEEP = ["sweep", "ppo", "CartPole-v1", "--total-steps", "256", "--grid", "algo.discount=0.9,0.99"]
HOLD = """
import sys, time
from pathlib import Path
from jaxrl_fast.files import folders
lock = folders.hold("out", Path(sys.argv[1]))
assert folders.claim(Path(sys.argv[1], "../sac-1"))
print("held", flush=True)
time.sleep(60)
"""


pytestmark = pytest.mark.usefixtures("nothing_compiles")  # all of this is known before


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def other(tmp_path):
    """A folder that another process holds, and that process, which will make sac-1 beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield folder, process
        process.kill()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def test_processes_that_start_at_once_number_their_folders_apart(other, tmp_path):
    _, process = other
    assert numbered(str(tmp_path), "sac") == numbered(".", "sac").resolve() == tmp_path / "sac-2"
    (tmp_path / "sac-2").mkdir()
    assert numbered(str(tmp_path), "sac") == tmp_path / "sac-3"
    process.kill()
    process.wait()
    assert numbered(str(tmp_path), "sac") == tmp_path / "sac-1"


def test_a_name_is_free_where_claims_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_names", [])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert numbered("runs", "sac") == Path("runs/sac-1")


@pytest.mark.parametrize("out",
                         ["new/../victim", "victim/../victim", "a/../../here/victim",
                          "link/../victim", ".", "a/..",
                                 "victim/sub/.."])  # fmt: skip
@pytest.mark.parametrize("command", [TRAIN, SWEEP], ids=["train", "sweep"])
def test_a_path_is_resolved_before_its_checks(out, command, run_cli, tmp_path, monkeypatch):
    here = tmp_path / "here"
    (here / "victim" / "sub").mkdir(parents=True)
    (here / "victim" / "config.json").write_text("{}")
    (here / "link").symlink_to(here / "victim")
    monkeypatch.chdir(here)
    before = contents(tmp_path)
    code, printed, err = run_cli(*command, "--out", out)
    assert code == 2 and "out must be " in err and printed == "", err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "out",
    ["/proc/x", "/proc/1/x/y", "x" * 300, "/".join(["y" * 200] * 30), "file/run", "", " ", "a\0b",
     "loop/x"],
    ids=["proc", "proc-deep", "name", "path", "file", "empty", "blank", "null", "loop"],
)  # fmt: skip
@pytest.mark.parametrize("command", [TRAIN, SWEEP], ids=["train", "sweep"])
def test_an_unwritable_folder_is_refused_before_compiling(out, command, run_cli, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = contents(tmp_path)
    code, printed, err = run_cli(*command, f"--out={out}")
    *others, last = err.splitlines()
    assert code == 2 and printed == "" and last.startswith(
        "jaxrl-fast: error: ") and len(last) < 700, err
    assert all("warning: 2 members" in line for line in others), err
    assert contents(tmp_path) == before
    with pytest.raises(jf.ConfigError):
        jf.train(jf.PPO(), jf.make("CartPole-v1"), 256, out=out)
    assert contents(tmp_path) == before


@pytest.fixture
def runs(tmp_path):
    """A run, one whose seeds train in turn, a sweep, and a folder with a copy of a run's
    config.json."""
    named = {"name": "?", "settings": {}}
    config = json.dumps(
        {"format": 2, "algorithm": named, "environment": named, "run": {"total_steps": 1}})
    for folder, *others in (("single", "checkpoints/last/3"), ("turns", "seed-5"),
                            ("sweep", "parts/00"), ("copy", "x")):
        (tmp_path / folder / others[0]).mkdir(parents=True)
        (tmp_path / folder
         / ("sweep.json" if folder == "sweep" else "config.json")).write_text(config)
    (tmp_path / "link").symlink_to(tmp_path / "turns")
    return tmp_path


INSIDE = ["single/new", "single/checkpoints/new", "single/checkpoints/last/4", "turns/seed-9",
          "turns/seed-5/new",
    "link/seed-9",
          "sweep/parts/01", "sweep/new", "copy/../sweep/a/b"]  # fmt: skip


@pytest.mark.parametrize("out", INSIDE)
@pytest.mark.parametrize("command", [TRAIN, SWEEP], ids=["train", "sweep"])
def test_a_new_run_inside_another_run_is_refused(out, command, runs, run_cli):
    before, inside = contents(runs), Path(os.path.normpath(out))
    code, printed, err = run_cli(*command, "--out", out)
    last = err.splitlines()[-1]
    beside = inside.parts[0] if not out.startswith("link") else "link"
    assert (
        code == 2
        and printed == ""
        and "out must be a folder outside of other runs, such as " in last
    ), err
    assert (
        f"{runs / inside.name}, got '{inside}': {runs / beside} is that of a "
        f"{'sweep' if beside == 'sweep' else 'run'}" in last
    )
    for call in (jf.train, functools.partial(jf.sweep, grid={"algo.discount": [0.9, 0.99]})):
        with pytest.raises(jf.ConfigError, match="out must be a folder outside of other runs"):
            call(jf.PPO(), jf.make("CartPole-v1"), 256, out=out)
    assert contents(runs) == before


@pytest.mark.optuna
def test_a_search_inside_a_run_is_refused(runs):
    before, settings = contents(runs), dict(sample={"algo.discount": "uniform:0.9,0.99"}, trials=2,
                                            members=2)
    with pytest.raises(jf.ConfigError, match="out must be a folder outside of other runs"):
        tuning.tune(jf.PPO(), jf.make("CartPole-v1"), 256, out="single/new", **settings)
    assert contents(runs) == before


def test_a_run_beside_a_copy_of_a_config_is_accepted(runs):
    for out in ("copy/new", "copy/x/new", "new", "single-2"):
        check_outside(Path(out))
    # it begins
    refused = pytest.raises(jf.ConfigError, match="is that of a run")
    with folders.hold_lock("out", runs / "copy"), refused:
        check_outside(Path("copy/new"))


def test_a_writable_path_stays_as_typed(tmp_path):
    for path in ("runs/x", "/tmp/x", "x"):
        assert folders.folder_path("out", path) == Path(path)
    assert folders.folder_path("out", "new/../runs/x") == Path("runs/x")
    folders.check_writable("out", Path("runs/x"))
    assert list(tmp_path.iterdir()) == []


def test_a_second_process_is_refused_with_the_writers_name(other, run_cli):
    folder, process = other
    named = {"name": "?", "settings": {}}
    config = {"format": 2, "algorithm": named, "environment": named, "run": {"total_steps": 1}}
    (folder / "config.json").write_text(json.dumps(config))
    before = contents(folder)
    who = f"process {process.pid} on {os.uname().nodename}, since 20"
    for line in ([*TRAIN, "--out", str(folder)], ["train", "--resume", str(folder)]):
        code, printed, err = run_cli(*line)
        assert code == 2 and who in err and str(folder) in err and printed == "", err
    assert contents(folder) == before
    assert folders.holder(folder).startswith(who)


def test_a_killed_process_leaves_no_lock(other):
    folder, process = other
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / folders.LOCK).exists() and folders.holder(folder) is None
    # it was compiling: there is neither a row nor a checkpoint
    (folder / "config.json").write_text("{}")
    check_free(folder)
    with folders.hold_lock("out", folder):
        assert folders.holder(folder) == "this process"
    assert not (folder / folders.LOCK).exists()
    # a config.json alone may be anybody's
    with pytest.raises(jf.ConfigError, match="choose another, or remove this one"):
        check_free(folder)


@pytest.mark.parametrize("left",
                         ["checkpoints/last/3.orbax-checkpoint-tmp/state.orbax-checkpoint-tmp/d/0",
    "checkpoints/last/"])
def test_a_removed_run_is_not_recreated_by_its_saver(left, tmp_path):
    """The run can start again, as its last line says."""
    folder, file = tmp_path / "run", tmp_path / "run" / left
    (file if left.endswith("/") else file.parent).mkdir(parents=True)
    if not left.endswith("/"):
        file.write_text("")
    check_free(folder)
    RunDir.create(folder,
                  prepare(jf.PPO(), jf.make("CartPole-v1"), RunConfig(total_steps=256))).release()
    assert (folder / "config.json").is_file()


@pytest.mark.parametrize("files",
                         [["checkpoints/last/3/d"], ["checkpoints"],
                          ["checkpoints/last/3.orbax-checkpoint-tmp/d",
    "x"]])
def test_a_folder_with_other_files_is_refused(files, tmp_path):
    for name in files:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("")
    with pytest.raises(jf.ConfigError, match="holds another run or files"):
        check_free(tmp_path / "run")


def test_two_in_one_process(tmp_path):
    prepared = prepare(jf.PPO(), jf.make("CartPole-v1"), RunConfig(total_steps=256))
    first = RunDir.create(tmp_path / "run", prepared)
    with pytest.raises(jf.ConfigError, match="this process writes there"):
        RunDir.create(tmp_path / "run", prepared)
    with pytest.raises(jf.ConfigError, match="this process does"):
        jf.resume(tmp_path / "run")
    first.release()
    first.release()
    assert folders.holder(tmp_path / "run") is None and not (
        tmp_path / "run" / folders.LOCK).exists()


def test_without_file_locks_the_process_in_the_file_decides(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(folders.fcntl, "lockf", none)
    file, about = tmp_path / folders.LOCK, {"pid": os.getppid(), "host": os.uname().nodename,
                                            "since": "2026"}
    file.write_text(json.dumps(about))
    assert f"process {os.getppid()}" in folders.holder(tmp_path)
    file.write_text(json.dumps(about | {"host": "elsewhere"}))
    assert "elsewhere" in folders.holder(tmp_path)
    file.write_text(json.dumps(about | {"pid": 2**22 + 1}))  # above what Linux gives out
    assert folders.holder(tmp_path) is None


def test_a_device_or_a_pipe_is_not_replaced(tmp_path):
    """Nor a link to one: as root `os.replace` would put a file in the place of /dev/stdout."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="a device or a pipe"), folders.replacing(tmp_path / name):
            raise AssertionError("nothing may be written")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe"]
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch, run_cli):
    """A shell leaves `--out=~/x` as it is."""
    home = tmp_path / "home"
    (home / "run").mkdir(parents=True)
    (home / "run" / "config.json").write_text("{}")
    monkeypatch.setenv("HOME", str(home))
    for out in ("~/new", Path("~/new")):
        assert folders.folder_path("out", out) == home / "new"
    assert values.path("run", "~") == str(home) and values.path("run", "a/~") == "a/~"
    assert values.new_file("--out", "~/x.png") == str(home / "x.png")
    for call in (jf.load, jf.resume):
        with pytest.raises(jf.ConfigError, match=f"got '{home}/run/config.json'"):
            call("~/run")
    for line in (TRAIN, SWEEP):
        code, _, err = run_cli(*line, "--out=~/run")
        assert code == 2 and f"got '{home}/run'" in err
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("depth", range(4))
def test_an_interrupt_while_a_folder_is_probed_leaves_nothing(depth, tmp_path, monkeypatch):
    """After each folder that is made: of the run, of the probe, within it."""
    mkdir, made = Path.mkdir, []

    def interrupted(path, *arguments, **settings):
        mkdir(path, *arguments, **settings)
        made.append(path)
        if len(made) > depth:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt) if depth < 3 else contextlib.nullcontext():
        folders.check_writable("out", tmp_path / "run")
    left = list(tmp_path.rglob("*"))
    assert left == ([tmp_path / "run"] if depth == 0 else [])  # an empty folder is taken again


def test_the_probe_of_a_killed_process_is_no_run(tmp_path):
    (tmp_path / "run" / f"{folders.PROBE}1" / "x").mkdir(parents=True)
    check_empty(tmp_path / "run")
    (tmp_path / "run" / "notes").touch()
    with pytest.raises(ConfigError, match="a new or empty directory"):
        check_empty(tmp_path / "run")


def test_a_probe_of_the_same_process_number_is_anothers(tmp_path):
    """In a container most programs have the number 1."""
    other = tmp_path / f"{folders.PROBE}{os.getpid()}" / Path(*folders.DEEPEST)
    other.parent.mkdir(parents=True)
    other.touch()
    folders.check_writable("out", tmp_path)
    assert other.exists() and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_synced_is_left_for_the_same_command(tmp_path, monkeypatch):
    prepared = prepare(jf.PPO(), jf.make("CartPole-v1"), RunConfig(total_steps=256))

    def fails(path):
        if path.is_dir():  # the file has its name by then
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(folders, "sync", fails)
        with pytest.raises(ConfigError, match="Input/output error"):
            RunDir.create(tmp_path / "run", prepared)
    RunDir.create(tmp_path / "run", prepared).release()
