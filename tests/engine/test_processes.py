"""Two processes as one run: what they compute and write is what one process with as many devices
does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from helpers import fresh
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import distributed

CLI = "import sys; from jaxrl_fast.cli import main; sys.exit(main(sys.argv[1:]))"
ONE_DEVICE, TWO_DEVICES = (f"--xla_force_host_platform_device_count={n}" for n in (1, 2))
RUNS = """
import sys
import jax, numpy as np
import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast import distributed
from jaxrl_fast.cli import main

out, cases, *line = sys.argv[1:]
if line:  # joins the other process, and is refused
    assert main(line) == 2
assert len(jax.devices()) == 2
RATES = {"algo.learning_rate": [1e-3, 3e-3, 1e-2, 3e-2]}


def members():
    found = tools.train("ppo", f"{out}/members", seeds=3, total_steps=320)
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(found.state)} == {2}

def searched():
    found = tools.train("es", f"{out}/searched", seeds=3, total_steps=320)
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(found.state)} == {2}

def divided():
    tools.train("dqn", f"{out}/divided", total_steps=136, log_every=8, eval_every=0,
                mesh={"env": 2})

def pbt():
    selection = jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, every=320)
    tools.train("ppo", f"{out}/pbt", population=RATES, selection=selection, total_steps=640)

def halved():
    found = tools.train("ppo", f"{out}/halved", population=RATES, selection=jf.Halving(1))
    assert len(found.lanes) == 2, found.lanes

def swept():
    found = jf.sweep(tools.algorithm("ppo"), tools.environment(), 256,
                     grid={"algo.num_envs": [4, 8]}, seeds=2,
                     out=f"{out}/swept", eval_episodes=4)
    assert np.isfinite(found.final).all()

for case in cases.split():
    globals()[case]()
if distributed.is_first():
    print("first")
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def forked(code: str, *args: str, given) -> list[fresh.Process]:
    """`together` of processes that have imported JAX."""
    address = f"127.0.0.1:{free_port()}"
    env = tools.subprocess_environment(XLA_FLAGS=ONE_DEVICE)
    return [fresh.Process(code, *args, *given(address, i), environment=env) for i in range(2)]


def together(code: str, *args: str, given=lambda address, i: (address, str(i)),
             **more: str) -> list[subprocess.Popen]:
    """Two processes of one run, each with a device of its own."""
    address = f"127.0.0.1:{free_port()}"
    env = tools.subprocess_environment(XLA_FLAGS=ONE_DEVICE, **more)
    return [
        subprocess.Popen([sys.executable, "-c", code, *args, *given(address, i)], cwd=tools.TESTS,
                         env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in range(2)
    ]  # fmt: skip


def ends(processes: list[subprocess.Popen], timeout: float = 300) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each; none is left behind."""
    try:
        found = [p.communicate(timeout=timeout) for p in processes]
    finally:
        for p in processes:
            p.kill()
    return [(p.returncode, *map(ours, texts)) for p, texts in zip(processes, found, strict=True)]


def ours(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if "[Gloo]" not in line)


FLAGS = lambda address, i: ("--distributed", "--coordinator", address, "--processes", "2",
                            "--process", str(i))
TINY = ("--log-every", "64", "--eval-every", "320", "--eval-episodes", "4", "--algo.num-envs", "4",
        "--algo.num-steps", "8", "--algo.num-minibatches", "2", "--algo.hidden", "8")  # fmt: skip
TRAIN = ("train", "ppo", "CartPole-v1", "--no-preset", "--seeds", "2", *TINY, "--total-steps")


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """cases -> (folder, ends) of two processes, which first are given settings that differ."""
    done = {}

    def get(cases):
        if cases not in done:
            out = tmp_path_factory.mktemp("joined")
            line = (*TRAIN, "1280", "--out", str(out / "run"), "--algo.learning-rate")
            given = lambda address, i: (*line, ("1e-3", "2e-3")[i], *FLAGS(address, i))
            two = [p.wait(280) for p in forked(RUNS, str(out / "two"), cases, given=given)]
            done[cases] = out, [(p.returncode, ours(p.stdout), ours(p.stderr)) for p in two]
        return done[cases]

    return get


@pytest.mark.parametrize("cases", family(
    ["searched", "members", pytest.param("divided pbt halved swept", marks=pytest.mark.slow)], 1))
def test_two_processes_equal_one_with_two_devices(cases, joined, tmp_path):
    """Members, padding, a member divided over processes, both selections and a sweep: logs, results
    and files."""
    out, two = joined(cases)
    assert [code for code, *_ in two] == [0, 0], two[0][2][-2000:] + two[1][2][-2000:]
    assert [out.splitlines()[-1:] for _, out, _ in two] == [["first"], []]  # one logs
    env = tools.subprocess_environment(XLA_FLAGS=TWO_DEVICES)
    one = fresh.python(RUNS, tmp_path / "one", cases, timeout=280, environment=env)
    assert one.returncode == 0, one.stderr[-3000:]
    for name in cases.replace("swept", "swept/parts/00 swept/parts/01").split():
        a, b = out / "two" / name, tmp_path / "one" / name
        assert tools.logged(a) == tools.logged(b), name
        results = [{k: v for k, v in tools.read(x / "result.json").items() if "second" not in k}
                   for x in (a, b)]
        assert results[0] == results[1], name
        assert sorted(p.name for p in a.iterdir()) == sorted(p.name for p in b.iterdir())
    if "swept" in cases:
        assert (
            (out / "two/swept/table.csv").read_text()
            == (tmp_path / "one/swept/table.csv").read_text()
        )


@pytest.mark.slow
def test_sigterm_to_one_stops_all_and_resume_goes_on(tmp_path):
    out = tmp_path / "run"
    processes = together(CLI, *TRAIN, "400000", "--out", str(out), "--chunk-seconds", "0.01",
                         given=FLAGS)
    began = time.monotonic()
    while not (out / "metrics.jsonl").exists() and time.monotonic() - began < 120:
        time.sleep(0.1)
    processes[1].send_signal(signal.SIGTERM)
    stopped = ends(processes)
    assert [code for code, *_ in stopped] == [143, 143], stopped
    assert "go on with: jaxrl-fast train --resume" in stopped[0][2]
    rows = tools.logged(out)
    steps = str(rows[-1]["env_steps"] + 640)
    whole = ends(together(CLI, "train", "--resume", str(out), "--total-steps", steps, given=FLAGS))
    assert [code for code, *_ in whole] == [0, 0], whole
    assert "return " in whole[0][1] and not whole[1][1]  # one prints
    assert tools.logged(out)[: len(rows)] == rows
    unbroken = (
        ends(together(
            CLI, *TRAIN, steps, "--out", str(tmp_path / "b"), "--horizon", "400000", given=FLAGS))
    )
    assert [code for code, *_ in unbroken] == [0, 0], unbroken
    assert tools.logged(tmp_path / "b") == tools.logged(out)


@pytest.mark.slow  # it takes JAX's heartbeats 100 seconds
def test_the_death_of_one_ends_the_other(tmp_path):
    """A process that waits for one that was killed ends too, rather than hang, and says so."""
    out = tmp_path / "run"
    processes = together(CLI, *TRAIN, "4000000", "--out", str(out), given=FLAGS)
    began = time.monotonic()
    while not (out / "metrics.jsonl").exists() and time.monotonic() - began < 120:
        time.sleep(0.1)
    processes[1].kill()
    found = ends(processes, 200)
    assert found[1][0] == -signal.SIGKILL and found[0][0] not in (0, -signal.SIGKILL)


def test_processes_that_differ_are_refused_by_all(joined):
    """By the command line; the processes of the test before."""
    out, found = joined("searched")
    for code, _, error in found:
        assert (
            code == 0 and "learning_rate: 0.002 and 0.001 in process 1 and process 0'" in error
        ), error
    assert not (out / "run").exists()


@pytest.mark.matrix("test_processes_that_differ_are_refused_by_all")
def test_an_error_of_the_first_ends_all(tmp_path):
    (tmp_path / "file").write_text("")
    found = ends(together(CLI, *TRAIN, "1280", "--out", str(tmp_path), given=FLAGS))
    for code, _, error in found:
        assert code == 2 and "a new or empty directory" in error, error
    assert os.listdir(tmp_path) == ["file"]


def test_bad_input(run_cli):
    with pytest.raises(
        ValueError, match="processes must be given, got None: coordinator, processes and process"
    ):
        distributed.start("127.0.0.1:1", None, 0)
    with pytest.raises(ValueError, match="process must be from 0 to 1, below processes = 2, got 2"):
        distributed.start("127.0.0.1:1", 2, 2)
    code, _, err = run_cli("train", "ppo", "CartPole-v1", "--processes", "2")
    assert code == 2 and "--processes must be left out without --distributed, got 2" in err


def test_alone_everything_is_plain():
    assert not distributed.several() and distributed.is_first() and not distributed.preempted()
    assert distributed.tell({"a": [1]}) == {"a": [1]} and distributed.on_first(lambda: 3) == 3
    distributed.check_same("config", 1)


def test_different_settings_are_named():
    a = {"run": {"seed": 1, "mesh": None}, "configurations": [{"x": 1}, {"x": 2}]}
    b = {"run": {"seed": 0, "mesh": None}, "configurations": [{"x": 1}, {"x": 2}]}
    assert distributed.difference(a, b) == "run.seed: 1 and 0"
    assert (
        distributed.difference(a, a | {"configurations": [{"x": 1}, {"x": 3}]})
        == "configurations.1.x: 2 and 3"
    )
    assert distributed.difference({"x": [1]}, {"x": [1, 2]}) == "x: [1] and [1, 2]"
