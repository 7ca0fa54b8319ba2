"""Sources of environments and their protocol; `registry.SOURCES` holds them by name."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from jaxrl_fast.envs.api import Env


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """A source of environments, such as a library: functions of an environment's name.

    This is the protocol; `table` makes the usual source.

    Args:
        make: make(name, **settings) -> Env.
        settings: settings(name) -> {setting: default}; both raise ConfigError for an unknown name.
        prefix: the start of its names, "brax/"; of a package with the entry point NAME: "NAME/".
        names: the names known before the library is imported.
        family: for `jaxrl-fast list`: names that only the library knows.
        package: the library's module, looked for before its import; "" for none.
        install: the command that installs it.
        on_host: whether its environments step on the host, outside of XLA.
        about: about(name) -> {setting: an object with `help` and `choices`}, for `--help`.
        modules: modules(name) -> modules in a name such as "gym:MODULE:ID", imported by `make`.
        known: known(name) -> whether it has a name without the prefix; imports nothing.
        identity: identity(name) -> the environment's definition; a change makes `make` rebuild.
    """

    make: Callable[..., Env]
    settings: Callable[[str], dict[str, Any]]
    prefix: str = ""
    names: Iterable[str] = ()
    family: str = ""
    package: str = ""
    install: str = ""
    on_host: bool = False
    about: Callable[[str], Mapping[str, Any]] = lambda name: {}
    modules: Callable[[str], tuple[str, ...]] = lambda name: ()
    known: Callable[[str], bool] = lambda name: False
    identity: Callable[[str], Hashable] = lambda name: None

    def owns(self, name: str) -> bool:
        """Return whether a name is one of this source's, or looks like one; imports nothing."""
        return bool(self.prefix and name.startswith(self.prefix)) or name in self.names or self.known(name)

    def installed(self) -> bool:
        """Return whether the library can be imported; does not import it."""
        return not self.package or self.package in sys.modules or importlib.util.find_spec(self.package) is not None
