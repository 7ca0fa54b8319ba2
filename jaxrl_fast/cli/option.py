"""One flag of the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxrl_fast.errors import check_choice, check_float, check_int
from jaxrl_fast.values import convert

ALL = "--help-all"
_METAVARS = {
    "int": "INT", "float": "FLOAT", "rate": "FLOAT", "str": "TEXT",
    "word": "TEXT", "ints": "INT INT...", "number": "NUMBER",
    "numbers": "NUMBER...", "any": "VALUE", "append": "TEXT", "path": "PATH",
    "file": "FILE", "picture": "FILE", "mesh": "AXES", "devices": "N|all",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Option:
    """One flag, `--name` or `--group.name`; `kind` is a name of `values.KINDS`, or "bool".

    limits: lowest and highest number. choices: the valid texts.
    """

    name: str
    kind: str
    default: Any = None
    help: str = ""
    hint: str = ""  # text about the default in the help; "": its value
    group: str = ""
    metavar: str = ""
    panel: str = ""  # panel of the help; a group has its own
    limits: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.group}.{self.name}" if self.group else self.name

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def shown_metavar(self) -> str:
        return self.metavar or choices_text(self.choices) or _METAVARS[self.kind]

    @property
    def shown_hint(self) -> str:
        return self.hint or f"default: {show(self.default)}"

    def value(self, text: Any) -> Any:
        """Return the value of a text (or texts). Raises ConfigError for a text outside its kind,
        choices or limits."""
        found = convert(self.flag, self.kind, text)
        if self.choices:
            check_choice(self.flag, found, self.choices)
        if self.limits:
            (check_int if self.kind == "int" else check_float)(self.flag, found, *self.limits)
        return found

    @property
    def off(self) -> str:
        """Return the switch that turns a bool off."""
        return "--" + (f"{self.group}." if self.group else "") + "no-" + self.name.replace("_", "-")


def choices_text(choices: Sequence[Any] | None) -> str:
    return "{" + ",".join(map(str, choices)) + "}" if choices else ""


def show(value: Any) -> str:
    """Return a default as typed on the command line."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(show, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
