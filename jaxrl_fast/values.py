"""Parse text to values, one parser a kind, for the command line and text settings.

Parsers raise ConfigError, with `name`, for other text.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from jaxrl_fast.errors import ConfigError

_DIGITS = r"\d+(?:_\d+)*"
_INTEGER = re.compile(rf"[+-]?{_DIGITS}", re.ASCII)
_REAL = re.compile(
    rf"[+-]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE
)
LONGEST = 400  # characters of a number; Python refuses integers of more than 4,300
_WORDS = {"none": None, "true": True, "false": False}
NAME_MAX = 255  # bytes of a file's name
OF_A_RUN = ("config.json", "metrics.jsonl", "result.json", "sweep.json", "best.json")
SEPARATORS = {",": "commas", ";": "semicolons"}
PICTURES = (".png", ".svg", ".pdf")
AXES = ("population", "env")


def integer(name: str, text: str) -> int:
    """Parse 500000, 500_000 or 5e5."""
    if len(text) <= LONGEST:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _REAL.fullmatch(text) and _float(name, text).is_integer():
            return int(float(text))
    raise ConfigError(name, text, "an integer, such as 500000, 500_000 or 5e5")


def real(name: str, text: str) -> float:
    """Parse 0.001 or 1e-3; inf and nan too, which a setting's range refuses."""
    if len(text) > LONGEST or not _REAL.fullmatch(text):
        raise ConfigError(name, text, "a number, such as 0.001 or 1e-3")
    return _float(name, text)


def _float(name: str, text: str) -> float:
    """Return a number. Raises ConfigError for one that is 0 as a float, and not as written."""
    value = float(text)
    if not value and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ConfigError(name, text, "0, or at least 1e-323, as far as a float reaches")
    return value


def number(name: str, text: str) -> int | float:
    """Parse an integer if the text is one, else a float."""
    try:
        return integer(name, text)
    except ConfigError:
        return real(name, text)


def rate(name: str, text: str) -> float | str:
    """Parse a number; keep the text of a schedule (a call or MODULE:NAME)."""
    return text if "(" in text or ":" in text else real(name, text)


def literal(name: str, text: str) -> Any:
    """Parse a Python literal (none, true, false in any case), else keep the text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _REAL.fullmatch(text):  # Python reads 1e-400 as 0
        return number(name, text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def word(name: str, text: str) -> str:
    """Return a text that is not blank."""
    if not text.strip():
        raise ConfigError(name, text, "a name, not an empty text")
    return text


@contextlib.contextmanager
def naming_path(argument: str) -> Iterator[None]:
    """Name the argument that holds a path in ConfigErrors about the `path` of a function."""
    try:
        yield
    except ConfigError as error:
        if error.argument != "path":
            raise
        raise ConfigError(argument, error.value, error.valid) from None


def expand_home(path: str | os.PathLike) -> str:
    """Return the text of a path, with ~ as the home folder: a shell leaves `--out=~/x` as it is."""
    text = os.fspath(path)
    return os.path.expanduser(text) if text.startswith("~") and "\0" not in text else text


def path(name: str, text: str) -> str:
    """Return the path of a file or folder that may be new, if the system can hold it; ~ is home."""
    if not text.strip():
        raise ConfigError(name, text, "the path of a file or a folder, not an empty text")
    text = expand_home(text)
    if any(len(os.fsencode(part)) > NAME_MAX for part in text.split(os.sep)):
        raise ConfigError(name, text, f"a path whose names have at most {NAME_MAX} bytes each")
    try:
        os.lstat(text)
    except (FileNotFoundError, NotADirectoryError):
        return text  # the command decides whether it must exist
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(name, text,
                          f"a path that this machine can hold and reach: {reason}") from error
    return text


def new_file(name: str, text: str) -> str:
    """Return the path of a file to write, none of a run's own."""
    text = path(name, text)
    if os.path.isdir(text):
        raise ConfigError(name, text, "the name of a file; this is a directory")
    if os.path.exists(text) and not os.path.isfile(text):
        raise ConfigError(name, text, "the name of a file; this is a device or a pipe, which the "
                                      "file would replace")
    if _is_of_a_run(os.path.realpath(text)):
        raise ConfigError(name, text, "another file: a run, or a sweep, is read from this one")
    above = os.path.dirname(os.path.abspath(text))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    try:
        with tempfile.TemporaryFile(dir=above):  # permissions do not tell: a read-only disk, /proc
            return text
    except OSError as error:
        raise ConfigError(name, text, f"a file that can be written; in {above} none can "
                                      f"({error.strerror})") from error


def new_picture(name: str, text: str) -> str:
    """Return the path of a picture to write; without an ending it becomes a PNG."""
    if os.path.splitext(text)[1].lower() not in ("", *PICTURES):
        raise ConfigError(name, text, f"a file that ends in {', '.join(PICTURES)}")
    return new_file(name, text)


def _is_of_a_run(file: str) -> bool:
    folder, name = os.path.split(file)
    holds_a_run = any(os.path.isfile(os.path.join(folder, own))
                      for own in ("config.json", "sweep.json"))
    within = (name in OF_A_RUN and holds_a_run) or "checkpoints" in folder.split(os.sep)
    return within and os.path.isfile(file)


def pieces(name: str, text: str, separator: str = ",") -> list[str]:
    """Split at the separators and strip spaces; an empty piece is an error."""
    found = [piece.strip() for piece in text.split(separator)]
    if not all(found):
        raise ConfigError(name, text,
                          f"values between the {SEPARATORS[separator]}, none of them empty")
    return found


def sequence(name: str, texts: tuple[str, ...], one: Callable[[str, str], Any],
             empty: bool = False) -> tuple:
    """Parse each of one or several texts by `one`; "none" is () if `empty`."""
    if empty and [text.lower() for text in texts] == ["none"]:
        return ()
    return tuple(one(name, piece) for text in texts for piece in pieces(name, text))


def mesh(name: str, text: str) -> dict[str, int]:
    """Parse population=4,env=2 -> {"population": 4, "env": 2}."""
    valid = "axes population and env with their sizes, such as population=4,env=2"
    found: dict[str, int] = {}
    for part in text.split(","):
        axis, _, size = part.strip().partition("=")
        fits = _INTEGER.fullmatch(size) and 0 < integer(name, size) < 2**31
        if axis not in AXES or axis in found or not fits:
            raise ConfigError(name, text, valid)
        found[axis] = int(size)
    return found


def devices(name: str, text: str) -> int | str:
    """Parse a number of devices, or "all"."""
    if text.lower() == "all":
        return "all"
    if not _INTEGER.fullmatch(text) or not 0 < integer(name, text) < 2**31:
        raise ConfigError(name, text, "a number of devices from 1 on, or all")
    return int(text)


KINDS: dict[str, Callable[[str, Any], Any]] = {
    "int": integer, "float": real, "rate": rate, "number": number, "any": literal,
    "str": lambda name, text: text, "word": word, "path": path, "file": new_file,
    "picture": new_picture, "mesh": mesh, "devices": devices,
    "ints": lambda name, texts: sequence(name, texts, integer, empty=True),
    "numbers": lambda name, texts: sequence(name, texts, number),
    "append": lambda name, texts: tuple(word(name, text) for text in texts),
}  # fmt: skip


def convert(name: str, kind: str, text: Any) -> Any:
    """Parse a text by its kind (a tuple of texts: "ints", "numbers", "append")."""
    return KINDS[kind](name, text)
