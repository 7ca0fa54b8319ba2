"""The command `jaxrl-fast`: bad input ends in one line, exit code 2 and nothing written.

Other exit codes: 1 a failed run, 3 a value that is not finite, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
A command that does not train also ends with 2 if it has read another checkpoint than the asked one.
JAXRL_FAST_DEBUG=1 shows the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli import args, failures, help
from jaxrl_fast.cli.args import PROG
from jaxrl_fast.cli.commands import COMMANDS
from jaxrl_fast.errors import (
    ConfigError,
    OwnLines,
    SubstituteWarning,
    debugging,
    nearest,
    one_line,
)

TRAINERS = ("train", "sweep", "ladder")  # a resume goes on from any whole checkpoint


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; a user's errors are one line on stderr."""
    failures.open_streams()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        with _plain_warnings(to_the_end=argv is None) as shown:
            _dispatch(words)
            sys.stdout.flush()
        return 2 if SubstituteWarning in shown and words[0] not in TRAINERS else 0
    except SystemExit as end:  # tyro, after it printed a help text
        if isinstance(end.code, str):  # other libraries end a program with a text
            print(f"{PROG}: error: {one_line(end.code)}", file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:  # `jaxrl-fast list | head`
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (Exception, KeyboardInterrupt) as error:
        if debugging():
            raise
        code = failures.report(error)
        processes, programs = (sys.modules.get(f"jaxrl_fast.{name}")
                               for name in ("distributed", "engine.programs"))
        # JAX's exit handler waits minutes for the other processes, and XLA compiles to the end.
        waits = not isinstance(error, OwnLines) and processes and processes.several()
        if waits or (argv is None and programs and programs.compiling()):
            _leave(code)
        return code


def _leave(code: int) -> None:
    """End the process without its exit handlers, which may wait for minutes."""
    if "multiprocessing.util" in sys.modules:  # else a tracker lists semaphores after our line
        with contextlib.suppress(Exception):
            sys.modules["multiprocessing.util"]._run_finalizers(0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def _plain_warnings(to_the_end: bool) -> Iterator[set[type[Warning]]]:
    """Show warnings for the user as one line each, others not at all; yields their categories.

    to_the_end: until the process ends. A failed write leaves coroutines of orbax, and Python warns
    of these when it collects them, maybe after our last line.
    """
    said, shown = set[str](), set[type[Warning]]()

    def show(message: Any, category: type[Warning], *_: Any) -> None:
        text = str(message)
        if "persistent compilation cache" in text:  # JAX warns of it for every program
            folder, reason = runtime.enable_compile_cache(), text.rpartition(": ")[2]
            text = (
                f"the compile cache {folder} is damaged or full ({reason}): programs compile anew "
                "until it is removed"
            )
            if text in said:
                return
            said.add(text)
        if issubclass(category, UserWarning):
            shown.add(category)
            print(f"{PROG}: warning: {text if debugging() else one_line(text)}", file=sys.stderr)

    with contextlib.nullcontext() if to_the_end else warnings.catch_warnings():
        warnings.showwarning = show
        # the reason of an exit code, even with PYTHONWARNINGS=ignore
        warnings.simplefilter("always", SubstituteWarning)
        yield shown


def _dispatch(words: list[str]) -> None:
    name, argv = (words[0], words[1:]) if words else ("help", [])
    if name in (*args.HELP_FLAGS, "help"):
        print(help.overview(PROG))
    elif name in ("-V", "--version"):
        from jaxrl_fast import __version__

        found = runtime.versions()
        print(f"{PROG} {__version__} (jax {found.get('jax')}, python {found['python']})")
    elif name in COMMANDS:
        asks_help = any(flag in args.HELP_FLAGS for flag in argv)
        if runtime.has_own_flags() and COMMANDS[name].backend and not asks_help:
            from jaxrl_fast.doctor.ready import check_flags

            check_flags()
        try:
            _call(name, argv)
        except args.UnknownFlag as error:
            from jaxrl_fast.cli.other_flags import with_command

            raise with_command(error) from None
    else:
        valid = f"one of {', '.join(COMMANDS)}{nearest(name, COMMANDS)}"
        raise ConfigError("command", name, valid)


def _call(name: str, argv: list[str]) -> None:
    command = COMMANDS[name]
    with runtime.pause_gc():  # the attribute imports the file
        function = command.function
    if not command.plans:
        return function(argv)
    from jaxrl_fast.cli.train import read_plan

    function(*read_plan(argv, name))
