"""gymnax as a source: its own environments, and a user's that are registered in it."""

from __future__ import annotations

import functools
from typing import Any

from jaxrl_fast.envs import own
from jaxrl_fast.envs.gymnax import adapter, loading
from jaxrl_fast.envs.sources import Source

PREFIX = "gymnax:"  # forces gymnax's original instead of a native environment of the same name


def _find_registered(name: str) -> Any:
    """Return the object that a user registered in gymnax as `name`, or None."""
    bare = name.removeprefix(PREFIX)
    return loading.gymnax().registration._registry[bare] if loading.knows(bare) else None


def _maker(name: str) -> own.Maker:
    users, bare = _find_registered(name), name.removeprefix(PREFIX)
    if users:
        return own.maker(name, users)
    return own.Maker(functools.partial(adapter.make, bare), adapter.defaults(bare))


SOURCE = Source(
    make=lambda name, **settings: _maker(name).make(**settings),
    settings=lambda name: _maker(name).settings, prefix=PREFIX, names=adapter.NAMES,
    package="gymnax", install=loading.INSTALL, identity=_find_registered,
    known=lambda name: name in adapter.LEFT_OUT or loading.knows(name),
)  # fmt: skip
