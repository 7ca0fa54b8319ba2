"""Where environments come from: what a source is. `registry.SOURCES` has them by name."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from jaxrl_fast.envs.api import Env


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """A source of environments, a library or a package: functions of an environment's name.

    This is its protocol; `table` makes the usual one.

    Args:
        make: make(name, **settings) -> Env.
        settings: settings(name) -> {setting: default}; both raise ConfigError for a name that the source has not.
        prefix: how its names begin, "brax/"; that of a package whose entry point is NAME: "NAME/".
        names: the names that are known before the library is imported.
        family: for `jaxrl-fast list`, what else there is, where only the library knows its names.
        package: the module of the library, looked for before it is imported; "" for none.
        install: the command that installs it.
        on_host: whether its environments step on the host, outside of XLA.
        about: about(name) -> {setting: an object with `help` and `choices`}, for `--help`.
        modules: modules(name) -> modules that the name itself names, as "gym:MODULE:ID" does; making it imports them.
        known: known(name) -> whether a name without the prefix is one of its names; imports nothing.
        identity: identity(name) -> what the environment is made of; where it has changed, `make` makes it anew.
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
        return not self.package or bool(sys.modules.get(self.package)) or importlib.util.find_spec(self.package) is not None
