"""A command whose backend XLA would end over XLA_FLAGS is refused; the others do not look at it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helpers.matrix import family
from jaxrl_fast.doctor import ready
from jaxrl_fast.errors import ConfigError

KNOWN = "--xla_cpu_enable_fast_math=false"


def ended(line: str, flags: str, folder) -> subprocess.CompletedProcess:
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "jaxrl_fast", *line.split()]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("line", "flags", "told"),
    family([
        ("train ppo CartPole-v1", f"{KNOWN} --xla_no_such_flag=true",
         "flags and values that this XLA knows, got '--xla_no_such_flag': "
         f"export XLA_FLAGS='{KNOWN}"),
        ("sweep ppo CartPole-v1 --grid gamma=0.9,0.99", "--xla_gpu_autotune_level=abc",
         "got '--xla_gpu_autotune_level'"),
        ("eval none", "/no/such/file", "a file of flags (Could not open file"),
    ], lambda line, flags, told: not line.startswith("sweep")),
)  # fmt: skip
def test_flags_that_end_xla_are_refused_in_one_line(line, flags, told, tmp_path):
    done = ended(line, flags, tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("jaxrl-fast: error: XLA_FLAGS must be ") and told in done.stderr
    assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("line", "code"), [
    ("train --resume none", 2), ("report none", 2), ("plan ppo CartPole-v1", 2),
    ("list", 0), ("train ppo CartPole-v1 --help", 0),
])  # fmt: skip
def test_only_commands_with_a_backend_check_the_flags(line, code, run_cli, monkeypatch):
    def refuse():
        raise ConfigError("XLA_FLAGS", "these", "others")

    monkeypatch.setattr(ready, "check_flags", refuse)
    found, _, err = run_cli(*line.split())
    assert found == code and ("XLA_FLAGS must be others, got 'these'" in err) == (code == 2)


@pytest.mark.matrix("test_known_flags_pass_to_the_command")
def test_a_command_without_a_backend_works_with_any_flags(tmp_path):
    done = ended("list", "--xla_no_such_flag=true", tmp_path)
    assert done.returncode == 0 and not done.stderr


def test_known_flags_pass_to_the_command(tmp_path):
    done = ended("eval none", KNOWN, tmp_path)
    assert done.returncode == 2 and "run must be an existing run directory" in done.stderr


def test_jax_logs_nothing_after_the_check(tmp_path):
    program = "from jaxrl_fast.doctor import child; child.takes_flags(); import jax; jax.devices()"
    env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", program], env=env | {"JAX_PLATFORMS": "cpu"},
                          cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr
