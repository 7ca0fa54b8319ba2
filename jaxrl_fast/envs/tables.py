"""Sources of named environments, each made by a class or function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl_fast import fields
from jaxrl_fast.envs import own, wrappers
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.registry import import_object


def table(prefix: str, factories: Mapping[str, Any],
          find: Callable[[str], Any] = lambda name: None) -> Source:
    """Return the source of named environments.

    Args:
        prefix: the start of the names; "" if they have none in common.
        factories: {name: a class or function, or its path "module:attribute"}; fields or parameters
            with defaults are the settings.
        find: find(name) -> the maker of an environment that is not in `factories`, or None.
    """

    def factory(name: str) -> Any:
        found = import_object(factories[name]) if name in factories else find(name)
        if found is None:
            raise ConfigError("environment", name,
                              "a known environment (`jaxrl-fast list "
                              f"environments`){suggest(name, factories)}")
        check_parameters(name, found)
        return found

    return Source(
        make=lambda name, **settings: own.maker(name, factory(name)).make(**settings),
        settings=lambda name: own.maker(name, factory(name)).settings,
        about=lambda name: fields.about(factory(name)),
        prefix=prefix,
        names=factories,
        identity=factory,
    )


def check_parameters(name: str, factory: Callable[..., Any]) -> None:
    """Raise ConfigError for a setting with the name of a wrapper's, which `make` takes."""
    of_base = ({field.name for field in dataclasses.fields(HostEnv)}
               if isinstance(factory, type) and issubclass(factory, HostEnv) else ())
    for parameter in fields.parameters(factory):
        if parameter in wrappers.COMMON and parameter not in of_base:
            raise ConfigError("environment", name, f"one without a setting {parameter!r}, which "
                                                   "`make` itself takes: rename it")
