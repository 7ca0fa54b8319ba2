"""Sources of environments: the protocol of a source, and all sources by name."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.registry import Registry

Factory = Callable[..., Environment]


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
        known: known(name) -> whether the source has this name, without its prefix; imports nothing.
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
        prefixed = bool(self.prefix) and name.startswith(self.prefix)
        return prefixed or name in self.names or self.known(name)

    def installed(self) -> bool:
        """Return whether the library can be imported; does not import it."""
        if not self.package or sys.modules.get(self.package):
            return True
        return importlib.util.find_spec(self.package) is not None


def _check(name: str, source: Any) -> None:
    if not isinstance(source, Source):
        raise ConfigError("environment source", type(source).__name__, "a jaxrl_fast.envs.Source")
    bad = [x for x in (source.prefix, *source.names) if not x.startswith(f"{name}/")]
    if bad:
        raise ConfigError("prefix", bad[0],
                          f"{name}/, as its entry point, at the start of all its names")


_ENVS = "jaxrl_fast.envs"
SOURCES: Registry[Source] = Registry("environment source", "jaxrl_fast.environments", {
    "native": f"{_ENVS}.native.source:SOURCE",
    "gymnax": f"{_ENVS}.gymnax.source:SOURCE",
    "brax": f"{_ENVS}.physics.brax_adapter:SOURCE",
    "playground": f"{_ENVS}.physics.playground_adapter:SOURCE",
    "gym": f"{_ENVS}.host.gymnasium_adapter:SOURCE",
    "envpool": f"{_ENVS}.host.envpool_adapter:SOURCE",
    "ale": f"{_ENVS}.host.ale_adapter:SOURCE",
    "atari": f"{_ENVS}.atari.source:SOURCE",
    "probe": f"{_ENVS}.probes.source:SOURCE",
}, _check)  # fmt: skip
USER: dict[str, Factory | str] = {}  # what `jf.register` was given, in this process


def names() -> list[str]:
    """Return every name that is known before the library behind it is imported."""
    return [*(name for _, source in SOURCES.items() for name in source.names), *USER]
