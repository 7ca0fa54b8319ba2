"""Failures of writing and reading checkpoints, as one line each."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxrl_fast.errors import ConfigError, UserError, WriteError, reason_of
from jaxrl_fast.files import folders

GONE = "the folder was moved, deleted or replaced while the run wrote there"


class DamagedError(ConfigError):
    """A checkpoint that cannot be read; lasting: its files have changed, so it stays unreadable."""

    def __init__(self, path: Path, why: str, lasting: bool = False):
        super().__init__("checkpoint", str(path),
                         f"a whole checkpoint that this run wrote; reading it failed: {why}")
        self.path, self.why, self.lasting = path, why, lasting


@contextlib.contextmanager
def writing(path: Path, made: folders.Identity | None,
            failed: Callable[[], None]) -> Iterator[None]:
    """Raise WriteError for orbax's errors of a full disk or missing folder, after `failed`.

    made: the folder's identity when orbax opened it: the saver's thread recreates a missing one.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        failed()
        gone = made is not None and folders.identity(path) != made
        raise WriteError(path, GONE if gone else error) from error
    except BaseException:  # Ctrl-C leaves orbax's work unfinished too
        failed()
        raise


@contextlib.contextmanager
def reading(path: Path, checked: bool = False,
            failed: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Raise DamagedError for errors about missing, torn or foreign files; checked: by checksums."""
    try:
        yield
    except (DamagedError, MemoryError):
        raise
    except Exception as error:  # orbax raises plain ones too
        failed()
        cause = error.__cause__ or error
        torn = checked and not isinstance(cause, OSError)
        lasting = torn or isinstance(cause, FileNotFoundError)
        raise DamagedError(path, error.valid if isinstance(error, ConfigError)
                           else reason_of(error), lasting) from error
    except BaseException:
        failed()
        raise


class Quiet:
    """Silences repeated errors of orbax's reads and writes in hooks of the process.

    After a failure the hooks stay: orbax's threads may report until Python ends.
    """

    def __init__(self):
        self.shown, self.active, self.failed = sys.unraisablehook, True, False
        sys.unraisablehook = self
        self.critical = lambda record: record.levelno >= logging.CRITICAL  # failures are raised too
        logging.getLogger("asyncio").addFilter(_shown)
        logging.getLogger("absl").addFilter(self.critical)

    def __call__(self, unraisable: Any) -> None:
        if not (self.active and _of_orbax(unraisable)):
            self.shown(unraisable)

    def note_failure(self) -> None:
        self.failed = True
        warnings.filterwarnings("ignore", r"coroutine 'async_serialize.*' was never awaited",
                                RuntimeWarning)

    def end(self) -> None:
        """Restore the hook from before, past other ended ones."""
        self.active = self.failed
        if not self.active:
            logging.getLogger("absl").removeFilter(self.critical)
        while isinstance(sys.unraisablehook, Quiet) and not sys.unraisablehook.active:
            sys.unraisablehook = sys.unraisablehook.shown
        if not isinstance(sys.unraisablehook, Quiet):
            logging.getLogger("asyncio").removeFilter(_shown)


def _of_orbax(unraisable: Any) -> bool:
    """Return whether an error comes from an abandoned read or write of orbax."""
    code = getattr(unraisable.object, "cr_code", None)  # of a coroutine
    late = isinstance(unraisable.exc_value, RuntimeError)
    late = late and str(unraisable.exc_value) == "Event loop is closed"
    return late or (code is not None and "orbax" in code.co_filename)


def _shown(record: logging.LogRecord) -> bool:
    """Return whether to keep a line of asyncio's log: not about orbax's other failed writes."""
    if "exception was never retrieved" not in record.getMessage():
        return True
    frames = traceback.walk_tb(record.exc_info[2]) if record.exc_info else ()
    if "orbax" in record.getMessage():
        return False
    return not any("orbax" in frame.f_code.co_filename for frame, _ in frames)
