"""Run functions that may hang, in threads that a process can leave behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any


def aside(f: Callable[[], Any], then: Callable[[], None] = lambda: None,
          name: str = "environments") -> tuple[Future, threading.Thread]:
    """Run f() in a daemon thread, then `then()` -> (its future, the thread)."""
    future: Future = Future()

    def run():
        try:
            future.set_result(f())
        except BaseException as error:  # raised where the result is used
            future.set_exception(error)
        then()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return future, thread


def in_time(f: Callable[[], Any], seconds: float) -> Any:
    """Return f(), or raise TimeoutError after `seconds`; not for use during a module's import."""
    if any(getattr(getattr(m, "__spec__", None), "_initializing", False)
           for m in list(sys.modules.values())):
        return f()
    future, _ = aside(f)
    if not wait([future], seconds).done:
        raise TimeoutError
    return future.result()
