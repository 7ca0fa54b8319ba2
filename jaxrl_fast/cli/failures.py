"""Errors of a command: one line on stderr and an exit code, also with closed streams."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from jaxrl_fast.cli.args import PROG
from jaxrl_fast.errors import UserError, brief, one_line

UNWRITABLE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF)


def report(error: BaseException) -> int:
    """Print one line for an error and return its exit code, even if stderr is full."""
    text, code = f"error: {_subject(error)}{brief(error)} (JAXRL_FAST_DEBUG=1 shows where)", 1
    if isinstance(error, KeyboardInterrupt):
        text, code = str(error) or "interrupted", getattr(error, "exit_code", 130)
    elif isinstance(error, UserError):
        text, code = f"error: {one_line(str(error))}", error.exit_code
    with contextlib.suppress(OSError, ValueError):
        print(f"{PROG}: {text}", file=sys.stderr, flush=True)
    return code


def _subject(error: BaseException) -> str:
    """Return the subject of an error without a file's name: working directory or output."""
    if not isinstance(error, OSError) or error.filename is not None:
        return ""
    try:
        os.getcwd()
    except OSError:
        return "the working directory is gone, change to another: "
    return "cannot write to stdout or stderr: " if error.errno in UNWRITABLE else ""


def open_streams() -> None:
    """Open the streams that the caller closed (`>&-`), because libraries write to them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
