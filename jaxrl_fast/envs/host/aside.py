"""Functions that may hang, in threads of their own: the caller that waits for one can stop waiting."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any


def aside(f: Callable[[], Any], then: Callable[[], None] = lambda: None) -> tuple[Future, threading.Thread]:
    """f() in a thread of its own, for which the end of this process does not wait; `then` it does that."""
    future: Future = Future()

    def run():
        try:
            future.set_result(f())
        except BaseException as error:  # raised where the result is asked for
            future.set_exception(error)
        then()

    thread = threading.Thread(target=run, name="environments", daemon=True)
    thread.start()
    return future, thread


def in_time(f: Callable[[], Any], seconds: float) -> Any:
    """f(); TimeoutError where it takes longer. Not of a module at its import: any other thread would wait for that."""
    if any(getattr(getattr(m, "__spec__", None), "_initializing", False) for m in list(sys.modules.values())):
        return f()
    future, _ = aside(f)
    if not wait([future], seconds).done:
        raise TimeoutError
    return future.result()
