"""Text to values: one parser for each kind of value, for the command line and for settings that are written as text.

Digits are ASCII digits, lists have no empty entry, and a text that is none of its kind is a ConfigError with `name`.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Callable
from typing import Any

from jaxrl_fast.errors import ConfigError

_DIGITS = r"\d+(?:_\d+)*"
_INTEGER = re.compile(rf"[+-]?{_DIGITS}", re.ASCII)
_REAL = re.compile(
    rf"[+-]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
LONGEST = 400  # characters of a number; Python itself refuses integers of more than 4,300
_WORDS = {"none": None, "true": True, "false": False}
NAME_MAX = 255  # bytes of a file's name; a longer one below a folder that is not there would be noticed late
SEPARATORS = {",": "commas", ";": "semicolons"}
AXES = ("population", "env")


def integer(name: str, text: str) -> int:
    """500000, 500_000 or 5e5."""
    if len(text) <= LONGEST:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _REAL.fullmatch(text) and float(text).is_integer():
            return int(float(text))
    raise ConfigError(name, text, "an integer, such as 500000, 500_000 or 5e5")


def real(name: str, text: str) -> float:
    """0.001, 1e-3; inf and nan too, which a setting's own range refuses."""
    if len(text) > LONGEST or not _REAL.fullmatch(text):
        raise ConfigError(name, text, "a number, such as 0.001 or 1e-3")
    return float(text)


def number(name: str, text: str) -> int | float:
    """An integer where the text is one, else a float."""
    try:
        return integer(name, text)
    except ConfigError:
        return real(name, text)


def rate(name: str, text: str) -> float | str:
    """A number; the text of a schedule, which is a call or MODULE:NAME, as it is."""
    return text if "(" in text or ":" in text else real(name, text)


def literal(name: str, text: str) -> Any:
    """A number or another Python literal (none, true and false in any case), else the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return number(name, text)
    except ConfigError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def word(name: str, text: str) -> str:
    """A text that is not blank."""
    if not text.strip():
        raise ConfigError(name, text, "a name, not an empty text")
    return text


def path(name: str, text: str) -> str:
    """The path of a file or a folder, which may be new; the operating system is asked whether it can be."""
    if not text.strip():
        raise ConfigError(name, text, "the path of a file or a folder, not an empty text")
    if any(len(os.fsencode(part)) > NAME_MAX for part in text.split(os.sep)):
        raise ConfigError(name, text, f"a path whose names have at most {NAME_MAX} bytes each")
    try:
        os.lstat(text)
    except (FileNotFoundError, NotADirectoryError):
        pass  # whether it must be there, or can be made, is for the command to say
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(name, text, f"a path that this machine can hold and reach: {reason}") from error
    return text


def new_file(name: str, text: str) -> str:
    """The path of a file that is to be written."""
    path(name, text)
    if os.path.isdir(text):
        raise ConfigError(name, text, "the name of a file; this is a directory")
    above = os.path.dirname(os.path.abspath(text))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    try:
        with tempfile.TemporaryFile(dir=above):  # permissions alone do not tell: a read-only disk, /proc
            return text
    except OSError as error:
        raise ConfigError(name, text, f"a file that can be written; in {above} none can ({error.strerror})") from error


def pieces(name: str, text: str, separator: str = ",") -> list[str]:
    """What stands between the separators, spaces around it dropped; an empty piece is an error."""
    found = [piece.strip() for piece in text.split(separator)]
    if not all(found):
        raise ConfigError(name, text, f"values between the {SEPARATORS[separator]}, none of them empty")
    return found


def sequence(name: str, texts: tuple[str, ...], one: Callable[[str, str], Any], empty: bool = False) -> tuple:
    """Values in one text or several, each read by `one`; "none" is the empty tuple where there may be one."""
    if empty and [text.lower() for text in texts] == ["none"]:
        return ()
    return tuple(one(name, piece) for text in texts for piece in pieces(name, text))


def mesh(name: str, text: str) -> dict[str, int]:
    """population=4,env=2 -> {"population": 4, "env": 2}."""
    valid = "axes population and env with their sizes, such as population=4,env=2"
    found: dict[str, int] = {}
    for part in text.split(","):
        axis, _, size = part.strip().partition("=")
        if axis not in AXES or axis in found or not _INTEGER.fullmatch(size) or not 0 < integer(name, size) < 2**31:
            raise ConfigError(name, text, valid)
        found[axis] = int(size)
    return found


def devices(name: str, text: str) -> int | str:
    """A number of devices, or "all"."""
    if text.lower() == "all":
        return "all"
    if not _INTEGER.fullmatch(text) or not 0 < integer(name, text) < 2**31:
        raise ConfigError(name, text, "a number of devices from 1 on, or all")
    return int(text)


KINDS: dict[str, Callable[[str, Any], Any]] = {
    "int": integer,
    "float": real,
    "rate": rate,
    "number": number,
    "any": literal,
    "str": lambda name, text: text,
    "word": word,
    "path": path,
    "file": new_file,
    "mesh": mesh,
    "devices": devices,
    "ints": lambda name, texts: sequence(name, texts, integer, empty=True),
    "numbers": lambda name, texts: sequence(name, texts, number),
    "append": lambda name, texts: tuple(word(name, text) for text in texts),
}


def convert(name: str, kind: str, text: Any) -> Any:
    """The value of a text by its kind (of a tuple of texts: "ints", "numbers", "append"); ConfigError where it is none."""
    return KINDS[kind](name, text)
