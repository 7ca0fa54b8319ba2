"""Processes that have imported the library and JAX alone: forks of one that imports them once."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
SERVER = """
import json, os, sys
import jaxrl_fast
import jax

for line in sys.stdin:
    request = json.loads(line)
    if isinstance(request, int):
        print(os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]), flush=True)
        continue
    child = os.fork()  # JAX's backend has not started
    if not child:
        break
    print(child, flush=True)
else:
    sys.exit()
code, arguments, folder, files, environment = request
os.chdir(folder)
for number, file in enumerate((os.devnull, *files)):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
if environment is not None:
    os.environ.clear()
    os.environ.update(environment)
    jaxrl_fast._runtime.prepare_xla()
sys.argv = ["-c", *arguments]
exec(code, {"__name__": "__main__"})
"""
# as it is when tests are collected: no test has changed it
ENVIRONMENT = dict(os.environ)
_servers: list[subprocess.Popen] = []


class Ended(NamedTuple):
    """How a process ended."""

    returncode: int
    stdout: str
    stderr: str


def _ask(request: Any, timeout: float) -> int | None:
    """Return the server's answer; None after `timeout` seconds without one.

    A request is the number of a process whose end is awaited, or what a new process runs.
    """
    if not _servers:
        _servers.append(subprocess.Popen(
            [sys.executable, "-c", SERVER], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE))  # fmt: skip
    (server,) = _servers
    print(json.dumps(request), file=server.stdin, flush=True)
    answers, _, _ = select.select([server.stdout], [], [], timeout)
    return int(server.stdout.readline()) if answers else None


class Process:
    """Code in a process of its own.

    Args:
        environment: Variables; None: those of the server. JAX has read its own at its import, XLA
            reads XLA_FLAGS when the backend starts.
    """

    def __init__(self, code: str, *arguments: Any, folder: Path = TESTS,
                 environment: Mapping[str, str] | None = None):
        self._said = tempfile.TemporaryDirectory()
        self._code = code
        self._files = [Path(self._said.name) / name for name in ("out", "err")]
        request = [code, list(map(str, arguments)), str(folder), list(map(str, self._files)),
                   environment and dict(environment)]
        pid = _ask(request, 60)  # the server imports before its first answer
        if pid is None:
            _servers.pop().kill()
            raise subprocess.TimeoutExpired("import jaxrl_fast, jax", 60)
        self.pid = pid

    def wait(self, timeout: float) -> Ended:
        """Return how the process ended.

        Raises:
            subprocess.TimeoutExpired: It runs longer than `timeout` seconds; it is killed.
        """
        with self._said:
            status = _ask(self.pid, timeout)
            if status is None:
                os.kill(self.pid, signal.SIGKILL)
                _servers[0].stdout.readline()
                texts = [file.read_bytes() for file in self._files]
                raise subprocess.TimeoutExpired(self._code, timeout, *texts)
            return Ended(status, *(file.read_text() for file in self._files))


def python(code: str, *arguments: Any, folder: Path = TESTS, timeout: float = 60,
           environment: Mapping[str, str] | None = None) -> Ended:
    """Run code in a process that has imported `jaxrl_fast` and `jax` alone, in a folder.

    Raises:
        subprocess.TimeoutExpired: It runs longer than `timeout` seconds; it is killed.
    """
    return Process(code, *arguments, folder=folder, environment=environment).wait(timeout)


def check(code: str, *arguments: Any) -> None:
    """Run code as `python` does; an error of it fails the test."""
    ended = python(code, *arguments)
    assert not ended.returncode, ended.stderr
