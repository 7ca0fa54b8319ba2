"""What a run works with: its programs, its signals, its drawing. Tests give others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Context, Programs
from jaxrl_fast.runs.signals import Signals
from jaxrl_fast.runs.videos import DRAWING, Drawing


class Means(NamedTuple):
    """What a run works with. programs: None: those of its environment's backend."""

    programs: Callable[[Prepared, Context], Programs] | None = None
    signals: Callable[[], Signals] = Signals
    drawing: Drawing = DRAWING


MEANS = Means()
