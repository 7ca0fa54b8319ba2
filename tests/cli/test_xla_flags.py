"""A command whose backend XLA would end over XLA_FLAGS is refused; the others do not look at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

KNOWN = "--xla_cpu_enable_fast_math=false"
REFUSED = [  # command, XLA_FLAGS, what it is told
    ("train ppo CartPole-v1", f"{KNOWN} --xla_no_such_flag=true",
     "flags and values that this XLA knows, got '--xla_no_such_flag': "
     f"export XLA_FLAGS='{KNOWN}"),
    ("train --resume none", "--xla_no_such_flag", "got '--xla_no_such_flag'"),
    ("sweep ppo CartPole-v1 --grid gamma=0.9,0.99", "--xla_gpu_autotune_level=abc",
     "got '--xla_gpu_autotune_level'"),
    ("report none", "--xla_no_such_flag=true", "got '--xla_no_such_flag'"),
    ("eval none", "/no/such/file", "a file of flags (Could not open file"),
]
WITHOUT_BACKEND = ["list", "train ppo CartPole-v1 --help"]
FORK = """
import json, os, runpy, sys
import flax, jax, optax  # what takes long; this package reads XLA_FLAGS when it is imported

codes = []
for i, (line, flags) in enumerate(json.loads(sys.argv[1])):
    child = os.fork()  # JAX's backend has not started
    if not child:
        os.environ["XLA_FLAGS"] = flags
        os.mkdir(f"{i}"), os.chdir(f"{i}")
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"../{i}.{name}", os.O_CREAT | os.O_WRONLY), stream)
        sys.argv = ["jaxrl_fast", *line.split()]
        runpy.run_module("jaxrl_fast", run_name="__main__")
        sys.exit("the command did not end")
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    files: list[Path]


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> dict[tuple[str, str], Ended]:
    """What `python -m jaxrl_fast` came to by command and flags, in folders and processes of their
    own that one process with JAX has forked."""
    folder = tmp_path_factory.mktemp("flags")
    cases = [(line, flags) for line, flags, _ in REFUSED]
    cases += [(line, "--xla_no_such_flag=true") for line in WITHOUT_BACKEND] + [("eval none", KNOWN)]
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", FORK, json.dumps(cases)], env=env, cwd=folder,
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = {}
    for i, (case, code) in enumerate(zip(cases, json.loads(done.stdout), strict=True)):
        texts = [(folder / f"{i}.{name}").read_text() for name in ("out", "err")]
        found[case] = Ended(code, *texts, list((folder / f"{i}").iterdir()))
    return found


@pytest.mark.parametrize(("line", "flags", "told"), REFUSED)
def test_flags_that_end_xla_are_refused_in_one_line(line, flags, told, ended):
    done = ended[line, flags]
    assert done.code == 2, done.err
    assert done.err.startswith("jaxrl-fast: error: XLA_FLAGS must be ") and told in done.err
    assert done.err.count("\n") == 1 and not done.files


@pytest.mark.parametrize("line", WITHOUT_BACKEND)
def test_commands_without_a_backend_work_with_any_flags(line, ended):
    done = ended[line, "--xla_no_such_flag=true"]
    assert done.code == 0 and done.out and not done.err


def test_known_flags_pass_to_the_command_that_they_are_for(ended):
    done = ended["eval none", KNOWN]
    assert done.code == 2 and "run must be an existing run directory" in done.err
