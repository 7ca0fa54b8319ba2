"""Errors of a command: one line on stderr and an exit code, also without streams to write to."""

from __future__ import annotations

import errno
import os
import sys

from jaxrl_fast.cli.args import PROG
from jaxrl_fast.errors import UserError, brief, one_line

UNWRITABLE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF)


def report(error: BaseException) -> int:
    """Print one line for an error and return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        print(f"{PROG}: {str(error) or 'interrupted'}", file=sys.stderr)
        return getattr(error, "exit_code", 130)
    if isinstance(error, UserError):
        print(f"{PROG}: error: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    print(f"{PROG}: error: {_subject(error)}{brief(error)} (JAXRL_FAST_DEBUG=1 shows where)", file=sys.stderr)
    return 1


def _subject(error: BaseException) -> str:
    """Return what an error without a file's name is about: the working directory or the output."""
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
