"""Errors that name the argument, its value and the valid values.

The command line prints the message of a `UserError` and exits with its `exit_code`; from Python it
is a `ValueError` (or a `RuntimeError` for a failed run).
"""

from __future__ import annotations

import contextlib
import copyreg
import errno
import functools
import importlib
import json
import math
import os
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LONGEST = 300  # characters of a value in a message
_KNOWN = (
    errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES,
    errno.EPERM, errno.ENOTDIR, errno.ENOENT, errno.EIO,
)  # fmt: skip
_MARKS = re.compile(  # a quoted text, a bracket, the end of a clause
    r"""(?<!\w)'[^']*'(?!\w)|(?<!\w)"[^"]*"|`[^`]*`|[\[({]|[\])}]|(?:[:;]|(?<!\.)\.)(?= )"""
)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `"; did you mean 'CartPole-v1'?"`, or "" without a near name."""
    from jaxrl_fast.spelling.nearest import nearest as find  # a run without errors needs no table

    return find(name, names)


def sentence(name: str, wanted: str, got: str) -> str:
    """Return `NAME must be WANTED, got GOT`, with the reason or remedy of `wanted` at the end.

    WANTED ends at the first colon, semicolon or full stop outside of quotes and brackets.
    """
    depth, end = 0, len(wanted)
    for mark in _MARKS.finditer(wanted):
        if mark[0] in "[({":
            depth += 1
        elif mark[0] in "])}":
            depth = max(0, depth - 1)
        elif mark[0] in ":;." and depth == 0:
            end = mark.start()
            break
    return f"{name} must be {wanted[:end]}, got {got}{wanted[end:]}"


class OwnLines:
    """Mixin of exceptions: pools of processes pass them on, and notebooks show them in short."""

    def __reduce__(self) -> tuple:
        """Pickle the message and plain values; other values go."""
        plain = {name: _plain(value) for name, value in vars(self).items()}
        return copyreg.__newobj__, (type(self), *self.args), plain

    def __copy__(self) -> OwnLines:
        """Return a copy with all values; a deep copy keeps what a pickle does."""
        error = type(self).__new__(type(self), *self.args)
        vars(error).update(vars(self))
        return error

    def _render_traceback_(self) -> list[str]:
        """Return the user's own lines and the message, in lines that a notebook shows whole.

        IPython calls this method. IPython's traceback takes seconds during compilation, and VS Code
        asks to restart the kernel ten seconds after an interrupt.
        """
        if debugging():
            return "".join(traceback.format_exception(self)).splitlines()
        shown = [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]
        if self.__cause__ is not None:
            shown.append("JAXRL_FAST_DEBUG=1 shows the traceback")
        wrap = functools.partial(textwrap.wrap, width=100, break_on_hyphens=False,
                                 break_long_words=False)  # paths and commands stay whole
        return [*_lines_of_user(self), *(line for text in shown for line in wrap(text))]


def _plain(value: Any) -> Any:
    """Return a path or what JSON can hold, else None."""
    if isinstance(value, Path):
        return value
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        json.dumps(value)
        return value
    return None


class UserError(OwnLines, Exception):
    """An error that the user can fix; the command line exits with `exit_code`."""

    exit_code = 2


def _lines_of_user(error: BaseException) -> list[str]:
    """Return the first and the last line of the traceback in the user's cells and files."""
    homes = str(Path(__file__).parent), sysconfig.get_path("stdlib")
    library = lambda file: (file.startswith(homes)
                            or {"site-packages", "dist-packages"} & set(Path(file).parts))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if frame.line and not library(frame.filename)]
    place = lambda frame: (f"{frame.filename}:{frame.lineno}" if Path(frame.filename).is_file()
                           else f"line {frame.lineno}")  # of a cell
    return list(dict.fromkeys(f"{place(frame)}: {frame.line}"
                              for frame in [*frames[:1], *frames[-1:]]))


class ConfigError(UserError, ValueError):
    """A bad argument: `NAME must be EXPECTED, got VALUE: REASON`; `valid` is EXPECTED: REASON."""

    def __init__(self, argument: str, value: Any, valid: str):
        self.argument, self.value, self.valid = argument, value, valid
        try:
            shown = repr(value)
        except Exception:  # lists beyond Python's limit, a failing `__repr__`
            shown = f"<{type(value).__name__}>"
        shown = " ".join(shown.split()) if "\n" in shown else shown  # an array of several rows
        shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 20]}...{shown[-10:]}"
        super().__init__(sentence(argument, valid, shown))


def expected(name: str, wanted: str, got: str) -> ConfigError:
    """Return the error about a value that is no argument's, such as an observation."""
    got = " ".join(got.split()) if "\n" in got else got
    error = ConfigError(name, got, wanted)
    error.args = (sentence(name, wanted, got),)
    return error


class MissingExtraError(UserError, ImportError):
    """An optional package is not installed; the message holds the pip line."""

    def __init__(self, what: str, extra: str):
        super().__init__(f"{what} needs the extra [{extra}]: pip install 'jaxrl_fast[{extra}]'")


def import_optional(module: str, what: str, extra: str, name: str) -> Any:
    """Import a module of an optional package; raises MissingExtraError without its `name`."""
    try:
        found = importlib.import_module(module)
        if not hasattr(found, name):  # a folder, such as the `wandb` that offline runs leave
            raise ImportError(f"{module} has no {name}")
    except ImportError as error:
        raise MissingExtraError(what, extra) from error
    return found


class RunError(UserError, RuntimeError):
    """A run that started correctly and failed."""

    exit_code = 1


class WriteError(RunError):
    """A file could not be written; the message names it and the reason."""

    def __init__(self, path: Any, error: BaseException | str):
        super().__init__(f"cannot write {path}: "
                         f"{error if isinstance(error, str) else reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return the operating system's words for an error, else its first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text, known = str(error).lower(), map(os.strerror, _KNOWN)
    return next((words for words in known if words.lower() in text), None) or first_line(error)


class SubstituteWarning(UserWarning):
    """Something else was read in place of a damaged file, such as an older checkpoint."""


@contextlib.contextmanager
def writing(path: Any) -> Iterator[None]:
    """Raise WriteError for every OSError in the block."""
    try:
        yield
    except OSError as error:
        raise WriteError(path, error) from error


class NonFiniteError(RunError):
    """A metric or a parameter became NaN or infinite."""

    exit_code = 3
    run: Any = None  # the run that it ended, as `jf.train` returns it


def brief(error: BaseException, line: int = 0) -> str:
    """Return another library's error as its kind and first line; line: -1 for a late cause."""
    kind, text = type(error).__name__, _lines(error)[line][:LONGEST]
    return kind if text == kind else f"{kind}: {text}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind."""
    return _lines(error)[0][:LONGEST]


def _lines(error: BaseException) -> list[str]:
    found = [line.strip() for line in str(error).splitlines() if line.strip()]
    return found or [type(error).__name__]


def one_line(text: str) -> str:
    """Return a message in one line without colours; JAXRL_FAST_DEBUG=1 shows the rest."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    if len(text) <= 3 * LONGEST:
        return text
    return f"{text[: 3 * LONGEST]}... (JAXRL_FAST_DEBUG=1 shows the rest)"


def debugging() -> bool:
    """Return whether JAXRL_FAST_DEBUG asks for tracebacks."""
    return os.environ.get("JAXRL_FAST_DEBUG", "0") not in ("", "0")


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    choices = list(choices)
    if value not in choices:
        raise ConfigError(argument, value,
                          f"one of {', '.join(map(repr, choices))}{nearest(value, choices)}")


def check_int(argument: str, value: Any, low: int = 1, high: int = 2**31 - 1) -> None:
    """Raise ConfigError unless `value` is an int in [low, high]; NumPy integers pass."""
    import numpy as np

    if isinstance(value, bool) or not isinstance(value,
                                                 (int, np.integer)) or not low <= value <= high:
        raise ConfigError(argument, value, f"an integer from {low} to {high}")


def check_seed(argument: str, value: Any, bits: int = 32) -> None:
    """Raise ConfigError unless `value` is an unsigned integer of `bits` bits."""
    check_int(argument, value, 0, 2**bits - 1)


def is_number(value: Any) -> bool:
    """Return whether `value` is one concrete number: not traced, not a batch."""
    import numpy as np

    return isinstance(value, (int, float, np.floating, np.integer))


def check_not_zero(argument: str, value: Any) -> None:
    """Raise ConfigError for zero in float32, which would leave nothing to learn."""
    if is_number(value) and float32(value) == 0:
        raise ConfigError(argument, value, "other than zero: there would be nothing to learn")


def float32(value: float) -> float:
    """Return a number in float32: too large is infinite, below the smallest normal is zero."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        near = float(np.float32(value))
    return 0.0 if abs(near) < float(np.finfo(np.float32).tiny) else near


def check_float(
    argument: str, value: Any, low: float = -math.inf, high: float = math.inf,
    open_low: bool = False, open_high: bool = False,
) -> None:  # fmt: skip
    """Raise ConfigError unless `value` is a finite number in [low, high], in float32 too.

    A number that float32 takes for 0 is refused too. `open_low` and `open_high` exclude an end.
    Traced or batched leaves of a sweep pass.
    """
    if isinstance(value, (bool, str)) or not (is_number(value) or hasattr(value, "dtype")):
        raise ConfigError(argument, value, "a number")
    if not is_number(value):
        return

    def inside(value: float, low: float, high: float) -> bool:
        above = low < value if open_low else low <= value
        return math.isfinite(value) and above and (value < high if open_high else value <= high)

    exact, lost = inside(value, low, high), value != 0 and float32(value) == 0
    if exact and lost and inside(0.0, low, high):
        raise ConfigError(argument, value, "0, or at least 1.2e-38 in size; in float32 this is 0")
    if not exact or not inside(*map(float32, (value, low, high))):
        left = "(" if open_low or low == -math.inf else "["
        right = ")" if open_high or high == math.inf else "]"
        where = f"; in float32 this is {float32(value):g}" if exact else ""
        raise ConfigError(argument, value,
                          f"a finite number in {left}{low:g}, {high:g}{right}{where}")
