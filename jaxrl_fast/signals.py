"""Ctrl-C and SIGTERM: finish the chunk, save, say how to resume. A second one ends the process at once."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from typing import Any

from jaxrl_fast import hosts
from jaxrl_fast.errors import UserError


class Stopped(UserError, KeyboardInterrupt):
    """Ctrl-C or SIGTERM. Exit code 130 (SIGINT) or 143 (SIGTERM)."""

    def __init__(self, signum: int, where: str = ""):
        self.signum, self.exit_code = signum, 128 + signum
        super().__init__(f"stopped by {signal.Signals(signum).name} {where}")


class Interrupted(Stopped):
    """The run was asked to stop; everything up to the last chunk is saved."""

    def __init__(self, signum: int, path: Any, env_steps: int, command: str = "train"):
        self.env_steps = env_steps
        go_on = f"jaxrl-fast {command} --resume {shlex.quote(str(path))}{' --distributed' * hosts.several()}"
        how = f", saved; go on with: {go_on}" if path else "; nothing is saved without `out`"
        super().__init__(signum, f"at {env_steps:,} environment steps{how}")


AGAIN = 1.0  # seconds from which on another signal is one


class Signals:
    """A context in which the first SIGINT or SIGTERM is only noted, in `caught`.

    Those that come within a second of it are the same one: `timeout` signals a process, then its group with it in it.
    On several hosts SIGTERM is JAX's own: all stop after the same chunk, which `poll` tells. Ctrl-C becomes a SIGTERM.
    """

    def __init__(self):
        self.caught: int | None = None
        self._when = 0.0
        self._old: dict[int, Any] = {}

    def poll(self) -> None:
        """On several hosts: find out whether one of them was told to stop. Called once a chunk by all."""
        if hosts.preempted():
            self.caught = signal.SIGTERM

    def _note(self, signum: int, frame: Any) -> None:
        if hosts.several():
            self._restore()
            os.kill(os.getpid(), signal.SIGTERM)
        elif self.caught is None:
            self.caught, self._when = signum, time.monotonic()
        elif time.monotonic() - self._when > AGAIN:
            self._restore()
            signal.raise_signal(signum)

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT,) if hosts.several() else (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        self._restore()
