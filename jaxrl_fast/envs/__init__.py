"""Environments: protocol (`api`), names (`registry`), wrappers, a folder for each source.

`resets` holds the strategies of resets, `sources` lists the sources. No environment knows an
algorithm.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "api": "Drawing Env", "base": "Environment", "host.api": "HostEnv", "single": "SingleEnv",
    "registry": "make register list_environments settings_of", "sources": "Source",
    "tables": "table",
    "wrappers": "Wrapper ActionRepeat StickyActions RewardScale RewardClip TimeLimit FrameStack",
    "resets": "EveryStep OnEnd Pool Frozen", "probes.control": "Known",
}  # fmt: skip
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'jaxrl_fast.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jaxrl_fast.envs.{_NAMES[name]}"), name)
