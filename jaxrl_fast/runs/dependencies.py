"""Replaceable dependencies of a run: programs, signals, filming."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Context, Programs
from jaxrl_fast.runs.signals import Signals
from jaxrl_fast.runs.videos import FILMING, Filming


class Dependencies(NamedTuple):
    """Replaceable dependencies of a run.

    programs: None: those of the environment's backend.
    """

    programs: Callable[[Prepared, Context], Programs] | None = None
    signals: Callable[[], Signals] = Signals
    filming: Filming = FILMING


DEPENDENCIES = Dependencies()
