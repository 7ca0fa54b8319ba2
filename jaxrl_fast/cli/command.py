"""The command `jaxrl-fast`: bad input ends in one line, exit code 2 and nothing written.

Other exit codes: 1 a failed run, 3 a value that is not finite, 130 and 143 Ctrl-C and SIGTERM. A
command that does not train also ends with 2 if it has read another checkpoint than the asked one.
JAXRL_FAST_DEBUG=1 shows the traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import imports, runtime
from jaxrl_fast.cli import args, failures, overview
from jaxrl_fast.cli.args import IMPORT, PROG, Option
from jaxrl_fast.cli.before_jax import SAME_BITS, join, spread
from jaxrl_fast.errors import (
    ConfigError,
    SubstituteWarning,
    UserError,
    debugging,
    expected,
    nearest,
    one_line,
)
from jaxrl_fast.values import path

TRAINERS = ("train", "sweep", "ladder")  # a resume goes on from any whole checkpoint
# no flag of XLA's ends them
NO_BACKEND = ("list", "new", "completion", "plot", "compare", "doctor")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; a user's errors are one line on stderr."""
    failures.open_streams()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        with _plain_warnings() as shown:
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
        waits = not isinstance(error, UserError) and processes and processes.several()
        if waits or (argv is None and programs and programs.compiling()):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code


@contextlib.contextmanager
def _plain_warnings() -> Iterator[set[type[Warning]]]:
    """Show warnings for the user as one line each, others not at all; yields their categories."""
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

    with warnings.catch_warnings():
        warnings.showwarning = show
        # the reason of an exit code, even with PYTHONWARNINGS=ignore
        warnings.simplefilter("always", SubstituteWarning)
        yield shown


def _dispatch(argv: list[str]) -> None:
    commands: dict[str, Callable[[list[str]], None]] = {
        "train": _train, "sweep": _sweep, "compare": _of("runs", "compare"),
        "plan": _about_run("plan", "plan", "print_plan"),
        "compile": _about_run("compile", "ahead", "compile_ahead"),
        "forecast": _about_run("forecast", "forecast", "tell"),
        "tune-speed": _about_run("tune-speed", "tune_speed", "tune"),
        "eval": _of("runs", "evaluate"), "plot": _of("runs", "plot"),
        "experience": _of("experience", "keep"),
        "list": _of("list", "show"), "doctor": _of("doctor", "examine"), "profile": _profile,
        "bench": _of("bench", "compare"), "ladder": _of("ladder.command", "ladder"),
        "report": _of("report", "report"),
        "export": _of("export", "export"), "push": _of("push", "push"),
        "new": _of("new", "new"), "completion": _of("completion", "completion"),
    }  # fmt: skip
    if not argv or argv[0] in (*args.HELP_FLAGS, "help"):
        overview.show()
    elif argv[0] in ("-V", "--version"):
        from jaxrl_fast import __version__

        found = runtime.versions()
        print(f"{PROG} {__version__} (jax {found.get('jax')}, python {found['python']})")
    elif argv[0] in commands:
        if runtime.has_own_flags() and argv[0] not in NO_BACKEND and not {
            *argv
        } & {*args.HELP_FLAGS}:
            from jaxrl_fast.doctor.ready import check_flags

            check_flags()
        try:
            commands[argv[0]](argv[1:])
        except args.UnknownFlag as error:
            from jaxrl_fast.cli.other_flags import with_command

            raise with_command(error) from None
    else:
        raise ConfigError("command", argv[0],
                          f"one of {', '.join(commands)}{nearest(argv[0], commands)}")


PLACE = ("devices", "mesh")  # where a run is resumed


@runtime.starting()
def _train(argv: list[str]) -> None:
    from jaxrl_fast.runs.config_json import read_config

    argv = _wandb_project(argv)
    join(argv, read_config)
    if args.has_flag(argv, "--resume"):
        return _resume(argv)
    from jaxrl_fast.cli.train import new_run

    new_run(*describe(argv, "train", ("--tensorboard", "--distributed"),
                      (*args.OUTPUT, *args.DISTRIBUTED)))


def _sweep(argv: list[str]) -> None:
    from jaxrl_fast.cli import sweep as cli_sweep
    from jaxrl_fast.cli.train import again

    join(argv, lambda folder: cli_sweep.read_folder(folder).get("base", {}))
    cores = runtime.cpu_count()  # a sweep has members for all cores
    if args.has_flag(argv, "--resume"):
        folder = Option("resume", "path", help="folder of the sweep",
                        metavar="DIR", hint="required")
        options = [folder, *again(*PLACE), IMPORT, *args.DISTRIBUTED]
        given = args.parse(f"{PROG} sweep --resume", "Resume a sweep.", options, argv)
        spread(argv, cli_sweep.read_folder(given["resume"]).get("base"), cores)
        return cli_sweep.resume(given["resume"], given.get("import", ()),
                                {name: given[name] for name in PLACE if name in given})
    switches, leave = ("--distributed", *cli_sweep.SWITCHES), ("resume", "config", "horizon")
    cli_sweep.new_sweep(*describe(argv, "sweep", switches, (*cli_sweep.OPTIONS, *args.DISTRIBUTED),
                                  leave, cores))


def _about_run(command: str, module: str, name: str) -> Callable[[list[str]], None]:
    """Return a command about the run that `train` would start, of a file with OPTIONS."""

    def act(argv: list[str]) -> None:
        found = importlib.import_module(f"jaxrl_fast.cli.{module}")
        switches = [option.flag for option in found.OPTIONS if option.kind == "bool"]
        getattr(found, name)(*describe(argv, command, switches, found.OPTIONS,
                                       leave=("out", "resume")))

    return act


def _profile(argv: list[str]) -> None:
    from jaxrl_fast.cli.profile import profile

    profile(argv, describe)


def _of(module: str, name: str) -> Callable[[list[str]], None]:
    """Return a command of another file, imported when called."""
    return lambda argv: getattr(importlib.import_module(f"jaxrl_fast.cli.{module}"), name)(argv)


def describe(
    argv: list[str], command: str, switches: Sequence[str], more: Sequence[Option],
    leave=(), members: int | None = None
) -> tuple:
    """Return the plan of a command line for a new run, and its given flags."""
    from jaxrl_fast.cli.train import describe_train
    from jaxrl_fast.runs import config_json as configs

    names, flags = args.positionals(argv, 2, ("--preset", SAME_BITS[0], *switches))
    file = args.peek(argv, "--config")
    if not file and args.has_flag(argv, "--config"):
        raise expected("--config", "the config.json of a run, or its run directory", "no value")
    content = configs.read_config(path("--config", file[-1])) if file else None
    spread(argv, content, members, names[1:])
    for module in args.peek(argv, "--import"):
        imports.import_user_module(module)
    plan = describe_train(names, flags, file[-1] if file else None, command)
    options = [o for o in plan.options if o.name not in leave or o.group]
    return plan, args.parse(plan.prog, plan.description, [*options, IMPORT, *more], flags)


def _resume(argv: list[str]) -> None:
    from jaxrl_fast.cli.output import logs_of, print_end, sinks_of
    from jaxrl_fast.cli.train import again
    from jaxrl_fast.runs import config_json as configs
    from jaxrl_fast.runs.load import HOST, resume_run
    from jaxrl_fast.runs.train import Around

    changed = ("total_steps", "horizon", *PLACE, *HOST)
    folder = Option("resume", "path", help="run directory to resume",
                    metavar="RUN", hint="required")
    options = [folder, *again(*changed), IMPORT, *args.OUTPUT, *args.DISTRIBUTED]
    prog, what = f"{PROG} train --resume", " ".join(["--resume", *args.peek(argv, "--resume")[-1:]])
    names, argv = args.positionals(argv, len(argv), ("--tensorboard", "--distributed"))
    if names:
        valid = f"left out: {what} resumes the run with its own settings"
        raise ConfigError("ALGO ENV", " ".join(names), valid)
    given = args.parse(prog, "Resume a run, bit for bit as if it had never stopped.", options, argv)
    run = Path(given["resume"])
    if not run.is_dir():
        raise ConfigError("--resume", str(run), "an existing run directory")
    content = configs.read_config(run)
    spread(argv, content)
    texts, tensorboard = logs_of(given)
    sinks = sinks_of(texts, run, content, content["run"].get("seeds", 1), resumed=True)
    settings = {name: given[name] for name in changed if name in given}
    around = Around(sinks=sinks, tensorboard=tensorboard, progress=True)
    print_end(resume_run(run, around, "--resume", modules=given.get("import", ()), **settings))


def _wandb_project(argv: list[str]) -> list[str]:
    """Return the flags with the project jaxrl_fast for a bare `--wandb`."""
    alone = [i for i, a in enumerate(argv) if a == "--wandb"
             and (i + 1 == len(argv) or argv[i + 1].startswith("-"))]
    return ["--wandb=jaxrl_fast" if i in alone else a for i, a in enumerate(argv)]
