"""A registry: names of objects of one kind, including entry points of installed packages."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jaxrl_fast.errors import ConfigError, brief, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects of one kind by name: ours, a program's, and those of installed packages.

    A package adds an object by an entry point of `group` (docs/extending.md), imported on use.

    Args:
        kind: what an object is, for errors: "algorithm".
        group: group of the entry points: "jaxrl_fast.algorithms".
        ours: {name: object, or its path "module:attribute", imported when it is used}.
        check: check(name, object) raises ConfigError for an object of another kind; not for ours.
    """

    def __init__(self, kind: str, group: str, ours: Mapping[str, T | str],
                 check: Callable[[str, Any], None]):
        self.kind, self.group, self.ours, self.check = kind, group, ours, check
        self.added: dict[str, T] = {}
        self.loaded: dict[str, T] = {}  # of packages
        self.said: set[str] = set()  # warnings

    def add(self, name: str, value: T) -> None:
        """Add an object to this process; the same definition may be added twice.

        Raises ConfigError for an object of another kind, and for a name that is taken.
        """
        self.check(name, value)
        known = self.added.get(name, self.ours.get(name))
        if known is not None and not same_definition(known, value):
            raise ConfigError("name", name, f"a name that is not taken by another {self.kind}")
        if name not in self.ours:
            self.added[name] = value

    def names(self) -> list[str]:
        """Return every name; imports none of the packages."""
        return list(dict.fromkeys([*self.ours, *self.added, *self.packages()]))

    def __contains__(self, name: Any) -> bool:
        known = any(name in found for found in (self.ours, self.added, self.loaded))
        return known or name in self.packages()

    def get(self, name: str) -> T:
        """Return the object of a name; raises ConfigError if it is unknown or fails to load."""
        for found in (self.added, self.ours, self.loaded):
            if name in found:
                return import_object(found[name])
        entry = self.packages().get(name)
        if entry is None:
            raise ConfigError(self.kind, name,
                              f"one of {', '.join(self.names())}{nearest(name, self.names())}")
        try:
            value = entry.load()
            self.check(name, value)
        except (Exception, SystemExit) as error:
            reason = error.valid if isinstance(error, ConfigError) else brief(error)
            raise ConfigError(self.kind, name,
                              f"one that loads; {_origin(entry)} does not: {reason}") from error
        self.loaded[name] = value
        return value

    def items(self) -> Iterator[tuple[str, T]]:
        """Yield every name with its object; a failing entry point is left out with a warning."""
        for name in self.names():
            try:
                value = self.get(name)
            except ConfigError as error:
                if name in self.ours:
                    raise
                self._leave_out(str(error))
            else:
                yield name, value

    def packages(self) -> dict[str, EntryPoint]:
        """Return the group's entry points; one with a name of ours is left out with a warning."""
        from importlib import metadata  # slow to import

        found: dict[str, EntryPoint] = {}
        for entry in metadata.entry_points(group=self.group):
            if entry.name in self.ours:
                self._leave_out(f"{self.kind} {entry.name!r} of {_origin(entry)}, a name that is "
                                "taken")
            elif entry.name in found and found[entry.name].value != entry.value:
                self._leave_out(f"{self.kind} {entry.name!r} of {_origin(entry)}, which "
                                f"{_origin(found[entry.name])} has too")
            else:
                found.setdefault(entry.name, entry)
        return found

    def _leave_out(self, text: str) -> None:
        """Warn of a left-out entry point, once in a process."""
        if text not in self.said:
            self.said.add(text)
            warnings.warn(f"left out: {text}", stacklevel=3)


def same_definition(a: Any, b: Any) -> bool:
    """Return whether two objects are one class or function, by object, path or script."""
    (home_a, name_a), (home_b, name_b) = map(_place, (a, b))
    return a == b or (name_a == name_b and (home_a == home_b or "__main__" in (home_a, home_b)))


def _place(value: Any) -> tuple[Any, Any]:
    """Return (module, name) of a class, a function or a path; any other object is its own name."""
    if isinstance(value, str):
        module, _, name = value.partition(":")
        return module, name
    return getattr(value, "__module__", None), getattr(value, "__qualname__", value)


def import_object(value: Any) -> Any:
    """Return the object behind a path "module:attribute"; any other object unchanged."""
    if not isinstance(value, str):
        return value
    module, _, attribute = value.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _origin(entry: EntryPoint) -> str:
    return f"{entry.value} of the package {entry.dist.name if entry.dist else '?'}"
