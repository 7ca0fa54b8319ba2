"""Refuse to measure on a busy device, with an unknown XLA flag, or without a cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from jaxrl_fast import runtime
from jaxrl_fast.doctor import software
from jaxrl_fast.doctor.child import start_without_unknown_flags, takes_flags, why_not_writable
from jaxrl_fast.doctor.facts import Backend, Machine
from jaxrl_fast.errors import ConfigError, expected

CARD_BUSY = 0.1  # utilization of a card by others


def check_idle(found: Machine, platform: str = "cpu") -> None:
    """Raise ConfigError if other processes used the device before JAX did."""
    state = busy(found, platform)
    if state:
        valid = "idle: measured speeds would be too low. --busy measures anyway"
        raise expected("the device", valid, state)


def busy(found: Machine, platform: str = "cpu") -> str:
    """Return how other processes use the device, "" if they do not."""
    cards = found.cards if platform == "gpu" else ()
    taken = [card for card in cards if card.utilization > CARD_BUSY]
    if taken:
        return f"{taken[0].name} {taken[0].utilization:.0%} busy"
    load = "" if found.load is None else f", load {found.load:.1f} on {found.all_cores} cores"
    share = f"busy ({found.share:.0%} of a core for a busy thread{load})"
    return share if found.busy else ""


def check_flags(
    started: Callable[[], bool] = runtime.backend_started,
    takes: Callable[[], bool] = takes_flags,
    without: Callable[[Mapping[str, str]], Backend] = start_without_unknown_flags,
) -> None:
    """Raise ConfigError for XLA_FLAGS over which XLA would end this process.

    Call it before JAX's backend starts. Milliseconds beside the import of jaxlib; a process is
    started only for flags that are refused, to name them.
    """
    if not runtime.has_own_flags() or started() or takes():
        return
    backend = without(os.environ)
    if refused := backend.unknown_flags:
        kept = software.remove_flags(runtime.xla_flags(), refused)
        line = f"export XLA_FLAGS='{kept}'" if kept else "unset XLA_FLAGS"
        valid = f"flags and values that this XLA knows: {line} goes on without"
        raise ConfigError("XLA_FLAGS", ", ".join(refused), valid)
    if not backend.platform:
        valid = f"flags or a file of flags ({backend.error}): unset XLA_FLAGS goes on without"
        raise ConfigError("XLA_FLAGS", os.environ["XLA_FLAGS"], valid)


def check_cache(folder: str | None) -> None:
    """Raise ConfigError for a compile cache folder that cannot be written; None: it is off."""
    reason = why_not_writable(folder) if folder else ""
    if reason:
        remedy = "JAXRL_FAST_CACHE names another, JAXRL_FAST_CACHE=off does without"
        valid = f"a folder that can be written ({reason}): {remedy}"
        raise ConfigError("compile cache", folder, valid)
