"""gymnax as a source: its own environments, and a user's that are registered in it."""

from __future__ import annotations

from typing import Any

from jaxrl_fast.envs import own
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.gymnax import adapter, loading
from jaxrl_fast.envs.sources import Source

PREFIX = "gymnax:"  # forces gymnax's original instead of a native environment of the same name


def _registered(name: str) -> Any:
    """Return what a user registered in gymnax as `name`, or None."""
    bare = name.removeprefix(PREFIX)
    return loading.gymnax().registration._registry[bare] if loading.knows(bare) else None


def _make(name: str, **settings: Any) -> Env:
    users = _registered(name)
    return own.maker(name, users).make(**settings) if users else adapter.make(name.removeprefix(PREFIX), **settings)


def _settings(name: str) -> dict[str, Any]:
    users = _registered(name)
    return own.maker(name, users).settings if users else adapter.defaults(name.removeprefix(PREFIX))


SOURCE = Source(
    make=_make, settings=_settings, prefix=PREFIX, names=adapter.NAMES, package="gymnax", install=loading.INSTALL,
    known=lambda name: name in adapter.LEFT_OUT or loading.knows(name), identity=_registered,
)  # fmt: skip
