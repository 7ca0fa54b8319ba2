"""SIGTERM and Ctrl-C at the command line, in a process of its own: the chunk ends, it is saved, and the run goes on."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time

import loop_tools as tools
import pytest

from jaxrl_fast import config as configs
from jaxrl_fast.signals import Interrupted, Signals

ARGUMENTS = [
    "train", "ppo", "CartPole-v1", "--total-steps", "5e7", "--log-every", "1024", "--eval-every", "0", "--chunk-seconds", "0.1",
    "--no-tensorboard", "--algo.num-envs", "4", "--algo.num-steps", "32", "--algo.hidden", "8", "--algo.num-epochs", "1",
    "--eval-episodes", "4", "--env.max-steps-in-episode", "30",
]  # fmt: skip


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_run_goes_on(signum, code, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "jaxrl_fast", *ARGUMENTS, "--out", str(run)], cwd=tmp_path, text=True,
        env=tools.subprocess_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while not (run / "metrics.jsonl").exists() or len((run / "metrics.jsonl").read_text().splitlines()) < 3:
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


def test_the_second_signal_is_python_s_own():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.caught == signal.SIGINT
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_are_put_back():
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with Signals() as signals:
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before and signals.caught is None


def test_an_interrupt_without_a_run_directory():
    """Nothing is saved there, and what was caught is still a KeyboardInterrupt for whoever called."""
    hook = lambda session, rows: signal.raise_signal(signal.SIGINT) if session.rows == 3 else None
    with pytest.raises(Interrupted, match="stopped by SIGINT at 192 environment steps") as error:
        tools.train("ppo", hooks=[hook], chunk_seconds=1e-9, eval_every=0)
    assert error.value.exit_code == 130 and isinstance(error.value, KeyboardInterrupt)
    assert str(error.value).endswith("nothing is saved without `out`")
