"""Ctrl-C and SIGTERM: finish the chunk, save, say how to resume. A second one ends the process at once."""

from __future__ import annotations

import signal
import threading
from typing import Any

from jaxrl_fast.errors import UserError


class Interrupted(UserError, KeyboardInterrupt):
    """The run was asked to stop; everything up to the last chunk is saved. Exit code 130 (SIGINT) or 143 (SIGTERM)."""

    def __init__(self, signum: int, path: Any, env_steps: int):
        self.exit_code = 128 + signum
        how = f", saved; go on with: jaxrl-fast train --resume {path}" if path else "; nothing is saved without `out`"
        super().__init__(f"stopped by {signal.Signals(signum).name} at {env_steps:,} environment steps{how}")


class Signals:
    """A context in which the first SIGINT or SIGTERM is only noted, in `caught`."""

    def __init__(self):
        self.caught: int | None = None
        self._old: dict[int, Any] = {}

    def _note(self, signum: int, frame: Any) -> None:
        self.caught = signum
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.caught is None:
            for number, handler in self._old.items():
                signal.signal(number, handler)
