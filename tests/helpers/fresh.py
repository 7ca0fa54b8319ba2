"""Processes that have imported the library and JAX alone: forks of one that imports them once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
SERVER = """
import json, os, sys, traceback
import jaxrl_fast
import jax

for line in sys.stdin:
    code, arguments, folder, files = json.loads(line)
    child = os.fork()  # JAX's backend has not started
    if not child:
        os.chdir(folder)
        for number, file in enumerate((os.devnull, *files)):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
        sys.argv, status = ["-c", *arguments], 0
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# as it is when tests are collected: no test has changed it
ENVIRONMENT = dict(os.environ)
_servers: list[subprocess.Popen] = []


class Ended(NamedTuple):
    """How a process ended."""

    returncode: int
    stdout: str
    stderr: str


def python(code: str, *arguments: Any, folder: Path = TESTS) -> Ended:
    """Run code in a process that has imported `jaxrl_fast` and `jax` alone, in a folder."""
    if not _servers:
        _servers.append(subprocess.Popen(
            [sys.executable, "-c", SERVER], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE))  # fmt: skip
    (server,) = _servers
    with tempfile.TemporaryDirectory() as said:
        files = [Path(said) / name for name in ("out", "err")]
        request = code, list(map(str, arguments)), str(folder), list(map(str, files))
        print(json.dumps(request), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return Ended(status, *(file.read_text() for file in files))


def check(code: str, *arguments: Any) -> None:
    """Run code as `python` does; an error of it fails the test."""
    ended = python(code, *arguments)
    assert not ended.returncode, ended.stderr
