"""Ctrl-C and SIGTERM: finish the chunk, save, say how to resume. A second one ends the process at once."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from typing import Any

from jaxrl_fast import hosts
from jaxrl_fast.errors import UserError


class Interrupted(UserError, KeyboardInterrupt):
    """The run was asked to stop; everything up to the last chunk is saved. Exit code 130 (SIGINT) or 143 (SIGTERM)."""

    def __init__(self, signum: int, path: Any, env_steps: int, command: str = "train"):
        self.signum, self.env_steps = signum, env_steps
        self.exit_code = 128 + signum
        go_on = f"jaxrl-fast {command} --resume {shlex.quote(str(path))}{' --distributed' * hosts.several()}"
        how = f", saved; go on with: {go_on}" if path else "; nothing is saved without `out`"
        super().__init__(f"stopped by {signal.Signals(signum).name} at {env_steps:,} environment steps{how}")


class Signals:
    """A context in which the first SIGINT or SIGTERM is only noted, in `caught`.

    On several hosts SIGTERM is JAX's own: all stop after the same chunk, which `poll` tells. Ctrl-C becomes a SIGTERM.
    """

    def __init__(self):
        self.caught: int | None = None
        self._old: dict[int, Any] = {}

    def poll(self) -> None:
        """On several hosts: find out whether one of them was told to stop. Called once a chunk by all."""
        if hosts.preempted():
            self.caught = signal.SIGTERM

    def _note(self, signum: int, frame: Any) -> None:
        self._restore()
        if hosts.several():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self.caught = signum

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
