"""Ctrl-C, SIGTERM and SIGHUP: finish the chunk and save; a second one ends the process at once."""

from __future__ import annotations

import builtins
import contextlib
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxrl_fast import distributed
from jaxrl_fast.errors import OwnLines


class Stopped(OwnLines, KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP. Exit code 130 (SIGINT), 143 (SIGTERM) or 129 (SIGHUP).

    Not an `Exception`: it also ends a script that catches `Exception` around each run.
    """

    def __init__(self, signum: int, where: str = ""):
        self.signum, self.exit_code = signum, 128 + signum
        super().__init__(f"stopped by {signal.Signals(signum).name} {where}")


class Interrupted(Stopped):
    """A run stopped on request; its checkpoint and `run.resume` continue from the last chunk."""

    def __init__(self, signum: int, path: Any, env_steps: int, command: str = "train",
                 run: Any = None, seed: int | None = None):
        self.env_steps, self.path, self.run = env_steps, path, run
        of = "" if seed is None else f" of seed {seed}"
        go_on = (f"jaxrl-fast {command} --resume "
                 f"{shlex.quote(str(path))}{' --distributed' * distributed.several()}")
        if command == "sweep" and is_interactive():
            go_on += f" (from Python: the same call with out={str(path)!r})"
        how = f", saved; go on with: {go_on}" if path else "; nothing is saved without `out`"
        super().__init__(signum, f"at {env_steps:,} environment steps{of}{how}")

    @classmethod
    def of(cls, run: Any, signum: int) -> Interrupted:
        """Return the error of a run of one program, with the iterations of an unfinished row."""
        return cls(signum, run.out and run.out.path, run.progress.iterations * run.grid.steps,
                   run=run)


def run_so_far(call: Callable[[], Any]) -> Any:
    """Return `call()`; after Ctrl-C at a prompt or in a notebook, the run so far."""
    try:
        return call()
    except Interrupted as stop:
        if stop.signum != signal.SIGINT or stop.run is None or not is_interactive():
            raise
        saved = f", saved in {stop.path}" if stop.path else ""
        print(f"stopped at {stop.env_steps:,} environment steps{saved}; `resume()` of the run goes "
              "on")  # to stdout: notebooks show stderr as an error
        return stop.run


def is_interactive() -> bool:
    """Return whether Python runs typed input, by line or cell."""
    return hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


AGAIN = 1.0  # a later signal counts as another one


class Signals:
    """A context that notes the first SIGINT, SIGTERM or SIGHUP; `at_once` raises Stopped.

    A closing terminal sends SIGHUP. Under `nohup` it stays ignored.

    Signals within a second are one: `timeout` signals a process, then its group with it. With
    several processes SIGTERM is JAX's: all stop after the same chunk (`poll`), and Ctrl-C becomes a
    SIGTERM. An inner context takes over. A context can be entered again, with nothing caught.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self.now, self.caught = now, None
        self._when = 0.0
        self._where: str | None = None  # text of the error within `at_once`
        self._old: dict[int, Any] = {}

    def poll(self) -> None:
        """Ask whether one of several processes was told to stop; all call it once a chunk."""
        if distributed.preempted():
            self.caught = signal.SIGTERM

    @contextlib.contextmanager
    def at_once(self, where: str) -> Iterator[None]:
        """End this block at a signal: it has nothing to save. where: "while compiling"."""
        if self.caught is not None:
            raise Stopped(self.caught, where)
        self._where, shown = where, sys.unraisablehook

        def repeat(unraisable: Any) -> None:
            if not isinstance(unraisable.exc_value, Stopped):
                return shown(unraisable)
            self.caught, main = None, threading.main_thread().ident
            later = threading.Timer(0.01, signal.pthread_kill, (main, unraisable.exc_value.signum))
            later.daemon = True
            later.start()

        # Python drops what is raised in destructors and while it collects garbage
        sys.unraisablehook = repeat
        try:
            yield
        finally:
            self._where = None
            if sys.unraisablehook is repeat:
                sys.unraisablehook = shown

    def _note(self, signum: int, frame: Any) -> None:
        if distributed.several():
            self._restore()
            os.kill(os.getpid(), signal.SIGTERM)
        elif self.caught is None:
            self.caught, self._when = signum, self.now()
            if self._where is not None:
                raise Stopped(signum, self._where)
        elif self.now() - self._when > AGAIN:
            self._restore()
            signal.raise_signal(signum)

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def __enter__(self) -> Signals:
        self.caught = None
        if threading.current_thread() is threading.main_thread():
            outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
            if isinstance(outer, Signals):
                outer._where = None  # before the handlers change, so every signal finds one
            also = () if distributed.several() else (signal.SIGTERM, signal.SIGHUP)
            for number in (signal.SIGINT, *also):
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._old[number] = signal.signal(number, self._note)
            if isinstance(outer, Signals) and self.caught is None:
                self.caught, self._when = outer.caught, outer._when
        return self

    def __exit__(self, *_: Any) -> None:
        self._restore()
