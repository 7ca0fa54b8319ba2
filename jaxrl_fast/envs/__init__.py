"""Environments: protocol (`api`), names (`registry`), wrappers, a folder for each source."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Drawing": "api",
    "Env": "api",
    "Environment": "base",
    "HostEnv": "host.api",
    "SingleEnv": "single",
    "make": "registry",
    "register": "registry",
    "list_environments": "registry",
    "settings_of": "registry",
    "Source": "sources",
    "table": "tables",
    "Wrapper": "wrappers",
    "ActionRepeat": "wrappers",
    "StickyActions": "wrappers",
    "RewardScale": "wrappers",
    "RewardClip": "wrappers",
    "TimeLimit": "wrappers",
    "FrameStack": "wrappers",
    "EveryStep": "resets",
    "OnEnd": "resets",
    "Pool": "resets",
    "Frozen": "resets",
    "Known": "probes.control",
}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'jaxrl_fast.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jaxrl_fast.envs.{_NAMES[name]}"), name)
