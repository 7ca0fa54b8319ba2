"""Flags of the command line, built when algorithm and environment are known.

`read_flags` finds the text of every flag and `Option.value` makes it a value; `cli.help` lays out
the help.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli.commands import COMMANDS
from jaxrl_fast.cli.option import ALL, Option
from jaxrl_fast.errors import ConfigError, expected, nearest
from jaxrl_fast.values import path

HELP_FLAGS = ("-h", "--help", ALL)
SEVERAL = ("ints", "numbers")  # kinds of several texts after one flag


PROG = "jaxrl-fast"
IMPORT = Option("import", "append", help="module of yours to import first",
                metavar="MODULE", hint="repeatable")
AGENT = (  # flags that choose an agent of a run
    Option("which", "str", "auto", "checkpoint; auto: the best, else the last",
           choices=("auto", "best", "last")),
    Option("member", "int", None, "member of a population",
           hint="default: the one that evaluated best"),
    IMPORT,
)
BUSY = Option("busy", "bool", False, "measure although other processes use the device")
START = (
    Option("out", "path", help="run directory to write, new or empty", metavar="DIR",
           hint="default: runs/ALGO-ENV-sSEED-N"),
    Option("config", "path", help="repeat this run, other flags override",
           metavar="FILE", hint="config.json or a run"),
    Option("resume", "path", help="resume this run or sweep; its flags: --resume RUN --help",
           metavar="RUN", hint="default: a new one"),
    Option("preset", "bool", True, "take the tuned settings of this algorithm and environment"),
    IMPORT,
)
OUTPUT = (
    Option("log", "append", metavar="KIND:TARGET", hint="repeatable",
           help="one more log: jsonl:PATH, csv:PATH, tensorboard[:DIR], wandb[:PROJECT], "
                "mlflow[:URI], trackio[:PROJECT], or a package's"),
    Option("tensorboard", "bool", True, "write TensorBoard events", panel="logging"),
    Option("wandb", "word", help="the same as --log wandb:PROJECT",
           metavar="[PROJECT]", hint="default: off", panel="logging"),
)
DISTRIBUTED = tuple(dataclasses.replace(option, panel="processes") for option in (
    Option("distributed", "bool", False,
           "run as one of several processes, on a TPU pod, under Slurm or elsewhere"),
    Option("coordinator", "word", help="address of the first process",
           metavar="HOST:PORT", hint="default: found by JAX"),
    Option("processes", "int", help="number of processes", hint="default: found by JAX"),
    Option("process", "int", help="index of this process, from 0", hint="default: found by JAX"),
))  # fmt: skip


def read_arguments(command: str, about: str, argv: Sequence[str],
                   more: Sequence[Option] = ()) -> tuple[list[str], dict[str, Any]]:
    """Return (words, given flags) of a command's line; more: flags beside the command's own.

    Raises ConfigError for a missing word, a word too many or a bad flag.
    """
    known = COMMANDS[command]
    required, _, optional = known.takes.partition("[")  # RUN [RUN ...]
    wanted, options = required.split(), [*known.options, *more]
    words, flags = positionals(argv, len(argv), options)
    given = parse(f"{PROG} {command} {known.takes}".strip(), about, options, flags)
    most = len(argv) if "..." in optional else len(wanted) + bool(optional)
    typed = f"{PROG} {command} {known.tries[0]}".partition(" --")[0]
    if len(words) < len(wanted):
        name = wanted[len(words)]
        twice = " at least twice" if wanted.count(name) > 1 else ""
        found = " ".join(words) if twice and words else "none"
        raise expected(name, f"given{twice}: {typed}", found)
    if len(words) > most:
        raise ConfigError("argument", words[most], f"a flag or its value: {typed}")
    return words, given


def load_agent(run: str, given: dict[str, Any]) -> Any:
    """Return the `Agent` that the flags of `AGENT` choose in a run directory."""
    runtime.enable_compile_cache()
    from jaxrl_fast.runs.load import load

    return load(path("run", run), given.get("which", "auto"), given.get("member"),
                given.get("import", ()))


def parse(prog: str, description: str, options: Sequence[Option],
          argv: Sequence[str]) -> dict[str, Any]:
    """Return {option.key: value} of the given flags; prints and exits for `--help`."""
    texts = read_flags(prog, options, argv)
    if any(token in HELP_FLAGS for token in argv):
        from jaxrl_fast.cli.help import first_screen, show_all

        if ALL in argv:
            show_all(prog, description, options)
        print(first_screen(prog, description, options))
        raise SystemExit(0)
    given = {}
    for option in options:
        if option.kind != "bool" and option.key in texts:
            given[option.key] = option.value(texts[option.key])
        elif texts.get(option.key, option.default) != option.default:
            given[option.key] = texts[option.key]
    return given


def read_flags(prog: str, options: Sequence[Option], argv: Sequence[str]) -> dict[str, Any]:
    """Return {option.key: text, tuple of texts, or switch state} of the given flags."""
    flags = {o.flag: (o, True) for o in options}
    flags |= {o.off: (o, False) for o in options if o.kind == "bool"}
    found: dict[str, Any] = {}
    asks_help = any(token in HELP_FLAGS for token in argv)
    tokens = collections.deque(argv)
    while tokens:
        token = tokens.popleft()
        flag, equals, text = token.partition("=")
        flag = flag.replace("_", "-")
        if not is_flag(token):
            raise ConfigError("argument", token, f"a flag or its value; all flags: {prog} {ALL}")
        if token in HELP_FLAGS:
            continue
        if flag not in flags:
            raise _unknown(prog, token, [*flags, *HELP_FLAGS])
        option, on = flags[flag]
        if option.kind == "bool":
            if equals:
                raise ConfigError(flag, text, f"without a value: {option.flag} switches it on, "
                                              f"{option.off} off")
            found[option.key] = on
            continue
        texts = [text] if equals else []
        more = lambda: tokens and not is_flag(tokens[0])
        while not equals and more() and (option.kind in SEVERAL or not texts):
            texts.append(tokens.popleft())
        if not texts and asks_help:
            continue
        if not texts:
            valid = f"given a value: {flag} {option.shown_metavar}; all flags: {prog} {ALL}"
            raise expected(flag, valid, "none")
        if option.kind == "append":
            found[option.key] = (*found.get(option.key, ()), *texts)
        else:
            found[option.key] = tuple(texts) if option.kind in SEVERAL else texts[0]
    return found


class UnknownFlag(ConfigError):
    """A flag that the command `prog` does not take; `known`: the flags that it takes."""

    def __init__(self, prog: str, token: str, known: Sequence[str], hint: str | None = None):
        self.prog, self.flag, self.known = prog, token.partition("=")[0].replace("_", "-"), known
        hint = nearest(self.flag, known) if hint is None else hint
        super().__init__("flag", token, f"one of those in `{prog} {ALL}`{hint}")


def _unknown(prog: str, token: str, known: Sequence[str]) -> ConfigError:
    """Return the error for an unknown flag, with the nearest one."""
    flag = token.partition("=")[0].replace("_", "-")
    # --algo.discount
    inner = [k for k in known if k.partition(".")[2] and k.partition(".")[2] == flag.lstrip("-")]
    if inner:
        return ConfigError("flag", token,
                           f"one of those in `{prog} {ALL}`; did you mean {inner[0]!r}?")
    return UnknownFlag(prog, token, known)


def is_flag(token: str) -> bool:
    """Return whether a token is a flag; a negative number is not."""
    if not token.startswith("-") or token == "-":
        return False
    try:
        float(token)
    except ValueError:
        return True
    return False


def positionals(argv: Sequence[str], limit: int,
                options: Iterable[Option] = ()) -> tuple[list[str], list[str]]:
    """Return (up to `limit` positional arguments before `--algo.` and `--env.`, the rest).

    options: flags of kind "bool" among them take no value.
    """
    found: list[str] = []
    rest: list[str] = []
    alone = {*HELP_FLAGS, *(option.flag for option in options if option.kind == "bool")}
    value = False  # whether the next token is a flag's value
    for i, token in enumerate(argv):
        if token.startswith(("--algo.", "--env.")):
            return found, rest + list(argv[i:])
        if is_flag(token):
            value = "=" not in token and token not in alone and not token.startswith("--no-")
            rest.append(token)
        elif value or len(found) == limit:
            value = False
            rest.append(token)
        else:
            found.append(token)
    return found, rest


def has_flag(argv: Sequence[str], flag: str) -> bool:
    return any(token.partition("=")[0] == flag for token in argv)


def peek(argv: Sequence[str], flag: str) -> list[str]:
    """Return the values of a flag before the command line is parsed."""
    after = [v for f, v in itertools.pairwise(argv) if f == flag and not is_flag(v)]
    return after + [a.partition("=")[2] for a in argv if a.startswith(flag + "=")]


def drop_replaced(flags: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return flags without those that `others` give anew, in either form, and their values."""
    bare = lambda token: token.partition("=")[0].replace("--no-", "--", 1)
    names, kept, skips = {bare(token) for token in others if is_flag(token)}, [], False
    for token in flags:
        skips = bare(token) in names if is_flag(token) else skips
        kept += [] if skips else [token]
    return kept
