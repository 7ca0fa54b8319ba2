"""Flags of the command line: built when the algorithm and the environment are known, read by tyro.

tyro sees every value as text and does layout, help and syntax; `convert` turns the text into a value, so that a bad
one gets the same short message as everywhere else (`ConfigError`).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from jaxrl_fast.errors import ConfigError, UserError, nearest
from jaxrl_fast.fields import type_name

_UNSET = "\0"  # stands for "not given" in what tyro returns
_METAVARS = {
    "int": "INT", "float": "FLOAT", "rate": "FLOAT", "str": "TEXT", "ints": "INT INT...", "number": "NUMBER",
    "numbers": "NUMBER...", "any": "VALUE", "append": "TEXT",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Option:
    """One flag: `--name`, or `--group.name`. `kind` is a key of _METAVARS, or "bool" for a pair of switches."""

    name: str
    kind: str
    default: Any = None
    help: str = ""
    hint: str = ""  # what the help says of the default; empty: its value
    group: str = ""
    metavar: str = ""

    @property
    def key(self) -> str:
        return f"{self.group}.{self.name}" if self.group else self.name

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def off(self) -> str:
        """The switch that turns a bool off."""
        return "--" + (f"{self.group}." if self.group else "") + "no-" + self.name.replace("_", "-")


PROG = "jaxrl-fast"
IMPORT = Option("import", "append", help="module of yours to import first", metavar="MODULE", hint="repeatable")


def parse(prog: str, description: str, options: Sequence[Option], argv: Sequence[str]) -> dict[str, Any]:
    """{option.key: value} of the flags that are given; prints and exits for `--help`."""
    import tyro

    _check_flags(prog, options, argv)
    names = {o.key: f"option_{i}" for i, o in enumerate(options)}  # a flag's name need not be an identifier
    fields = [_field(names[o.key], o) for o in options if not o.group]
    for group in dict.fromkeys(o.group for o in options if o.group):
        part = dataclasses.make_dataclass(group, [_field(names[o.key], o) for o in options if o.group == group])
        fields.append((group, part, dataclasses.field(default_factory=part)))
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            found = tyro.cli(
                dataclasses.make_dataclass("Options", fields), prog=prog, description=description, args=argv, config=()
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise UserError(f"{_message(errors.getvalue())}; all flags: {prog} --help") from None
    given = {}
    for option in options:
        value = getattr(getattr(found, option.group) if option.group else found, names[option.key])
        if option.kind == "bool":
            if value != option.default:
                given[option.key] = value
        elif value not in (_UNSET, (_UNSET,), ()) or (option.kind == "ints" and value == ()):
            given[option.key] = convert(option.flag, option.kind, value)
    return given


def _field(name: str, option: Option) -> tuple[str, Any, Any]:
    import tyro

    kinds = {"bool": bool, "ints": tuple[str, ...], "numbers": tuple[str, ...]}
    kind: Any = kinds.get(option.kind, str)
    default: Any = option.default if kind is bool else _UNSET if kind is str else (_UNSET,)
    if option.kind == "append":
        kind, default = tyro.conf.UseAppendAction[tuple[str, ...]], ()
    arg = tyro.conf.arg(
        name=option.name.replace("_", "-"),
        help=option.help or None,
        metavar=None if option.kind == "bool" else option.metavar or _METAVARS[option.kind],
        help_behavior_hint=f"({option.hint or f'default: {show(option.default)}'})",
    )
    return name, Annotated[kind, arg], dataclasses.field(default=default)


def _check_flags(prog: str, options: Sequence[Option], argv: Iterable[str]) -> None:
    """Refuse unknown flags, with the nearest one."""
    known = [o.flag for o in options] + [o.off for o in options if o.kind == "bool"] + ["--help", "-h"]
    for token in argv:
        flag = token.partition("=")[0].replace("_", "-")
        if is_flag(token) and flag not in known:
            # "--discount" for "--algo.discount"
            inner = [k for k in known if k.partition(".")[2] and k.partition(".")[2] == flag.lstrip("-")]
            near = f"; did you mean {inner[0]!r}?" if inner else nearest(flag, known)
            raise ConfigError("flag", token, f"one of those in `{prog} --help`{near}")


def is_flag(token: str) -> bool:
    """Whether a token is a flag; a negative number is not."""
    if not token.startswith("-") or token == "-":
        return False
    try:
        float(token)
    except ValueError:
        return True
    return False


def positionals(argv: Sequence[str], limit: int, switches: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(up to `limit` arguments that are no flag's value, the rest); none is looked for behind `--algo.` or `--env.`."""
    found: list[str] = []
    rest: list[str] = []
    alone = {"-h", "--help", *switches}
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


def peek(argv: Sequence[str], flag: str) -> list[str]:
    """The values given for a flag, before the command line is parsed."""
    after = [v for f, v in itertools.pairwise(argv) if f == flag and not is_flag(v)]
    return after + [a.partition("=")[2] for a in argv if a.startswith(flag + "=")]


def _message(box: str) -> str:
    """The sentence inside tyro's box: what stands before its last rule, which points to the help."""
    parts: list[list[str]] = [[]]
    for line in box.splitlines():
        text = re.sub(r"\x1b\[[0-9;]*m", "", line).strip(" │|")
        if text and not text.strip("─-"):
            parts.append([])
        elif text and text[0] not in "╭╰┌└":
            parts[-1].append(text)
    return " ".join(parts[max(len(parts) - 2, 0)]).rstrip(".") or "the command line cannot be read"


def convert(flag: str, kind: str, text: Any) -> Any:
    """The value of a flag's text (a tuple of texts for the kinds of several values)."""
    if kind == "ints" and [piece.lower() for piece in text] == ["none"]:  # as `show` writes it
        return ()
    if kind == "ints":
        return tuple(_int(flag, part) for piece in text for part in piece.split(",") if part)
    if kind == "numbers":
        return tuple(_number(flag, part) for piece in text for part in piece.split(",") if part)
    return {"int": _int, "float": _float, "rate": _rate, "number": _number, "any": _any}.get(kind, lambda _, t: t)(flag, text)


def _int(flag: str, text: str) -> int:
    """500000, 500_000 or 5e5."""
    for read in (int, float):
        try:
            value = read(text)
        except ValueError:
            continue
        if math.isfinite(value) and value == int(value):
            return int(value)
    raise ConfigError(flag, text, "an integer, such as 500000, 500_000 or 5e5")


def _float(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(flag, text, "a number, such as 0.001 or 1e-3") from None


def _rate(flag: str, text: str) -> Any:
    """A number; the text of a schedule, which is a call or MODULE:NAME, as it is."""
    return text if "(" in text or ":" in text else _float(flag, text)


def _number(flag: str, text: str) -> int | float:
    try:
        return _int(flag, text)
    except ConfigError:
        return _float(flag, text)


def _any(flag: str, text: str) -> Any:
    """A Python literal (none, true and false in any case), else the text itself."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return _number(flag, text)
    except ConfigError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def show(value: Any) -> str:
    """A default as it would be typed."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(show, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def kind_of_field(field: dataclasses.Field) -> str:
    """The kind of a settings field, by its annotation."""
    name = type_name(field)
    choices = field.metadata.get("choices")
    if choices is not None:
        return "str" if all(isinstance(c, str) for c in choices) else "any"
    if field.metadata.get("convert") is not None:
        return "rate" if name == "float" else "any"
    if name in ("int", "float", "bool"):
        return "any" if name == "bool" and not isinstance(field.default, bool) else name
    if name.startswith("tuple[int"):
        return "ints"
    parts = name.replace(" ", "").split("|")
    return "str" if "str" in parts and "None" not in parts else "any"


def kind_of_value(value: Any) -> str:
    """The kind of an environment's setting, by its default."""
    for cls, kind in ((bool, "bool"), (int, "number"), (float, "float"), (str, "str")):
        if isinstance(value, cls):
            return kind
    if isinstance(value, tuple) and value and all(type(v) in (int, float) for v in value):
        return "numbers"
    return "any"


def parse_mesh(text: Any) -> Any:
    """population=4,env=2 -> {"population": 4, "env": 2}; what is no text is passed on."""
    if not isinstance(text, str):
        return text
    found = {}
    for part in text.split(","):
        name, equals, size = part.strip().partition("=")
        if not equals or name not in ("population", "env") or name in found or not size.isdigit():
            raise ConfigError("--mesh", text, "axes population and env with their sizes, such as population=4,env=2")
        found[name] = int(size)
    return found


def parse_devices(value: Any) -> Any:
    if isinstance(value, str):
        if not value.isdigit() and value.lower() != "all":
            raise ConfigError("--devices", value, "a number of devices, or all")
        return int(value) if value.isdigit() else None
    return value


def parse_place(given: dict[str, Any]) -> dict[str, Any]:
    """Where a run goes on, as `--devices` and `--mesh` say; None: as before."""
    devices = given.get("devices")
    return {"devices": devices if devices is None else parse_devices(devices) or "all", "mesh": parse_mesh(given.get("mesh"))}
