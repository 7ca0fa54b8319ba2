"""Processes of `helpers.fresh`: what they start with, how they end, and when they are killed."""

from __future__ import annotations

import subprocess

import pytest

from helpers import fresh


def test_a_process_beyond_its_time_is_killed_and_the_next_one_runs():
    with pytest.raises(subprocess.TimeoutExpired) as late:
        fresh.python("print('begun', flush=True); import time; time.sleep(600)", timeout=0.5)
    assert late.value.stdout in (b"begun\n", b"")
    assert fresh.python("print(1)") == (0, "1\n", "")


def test_ends_and_arguments():
    ended = fresh.python("import sys; print(sys.argv[1:]); sys.exit(3)", "a", 2)
    assert ended == (3, "['a', '2']\n", "")
    ended = fresh.python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.returncode == -9
    ended = fresh.python("1 / 0")
    assert ended.returncode == 1 and "ZeroDivisionError" in ended.stderr
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        fresh.check("1 / 0")


def test_two_processes_at_once_with_environments_of_their_own():
    """XLA reads its flags when the backend starts; the flag of the package stays."""
    code = "import os, jax; print(len(jax.devices()), os.environ['XLA_FLAGS'].split()[0])"
    flag = "--xla_force_host_platform_device_count={}".format
    both = [fresh.Process(code, environment=fresh.ENVIRONMENT | {"XLA_FLAGS": flag(n)})
            for n in (2, 3)]
    assert [p.wait(60) for p in both] == [(0, f"{n} {flag(n)}\n", "") for n in (2, 3)]
