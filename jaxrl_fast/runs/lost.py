"""Members that are lost: what is no longer finite is named, marked, and left out of what comes after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.logs.sinks import Row
from jaxrl_fast.runs.rows import Made
from jaxrl_fast.runs.session import Session


def not_finite(s: Session, made: Sequence[Made], finite: Any) -> str | None:
    """Name the first metric, step and member that is not finite; None where the run can go on.

    finite: whether each lane's agent is, None where nothing has been learned. With `on_nan = "mark"` such a member is
    noted in `s.lost` and has no values from there on, and only the last one to be lost is a message.
    """
    said, stop = [], s.config.on_nan == "stop"
    for row, faults in made:
        said += [lose(s, member, row.env_steps, what) for member, what in faults]
        if not stop:
            hide_lost(s, row)
    if finite is not None:
        for member in np.flatnonzero(~s.by_member(s.population.members(finite), True)):
            said.append(lose(s, int(member), made[-1].row.env_steps, "agent parameters or priorities are not finite"))
    return said[0] if said and (stop or not s.live) else None


def lose(s: Session, member: int, env_steps: int, what: str) -> str:
    """Mark a member as lost, where the run goes on without it, and return what is said of it."""
    if s.config.on_nan == "mark" and member not in s.lost:
        s.lost[member] = {"env_steps": env_steps, "reason": what}
    return f"{what} {place(s, member, env_steps)}"


def place(s: Session, member: int, env_steps: int) -> str:
    return f"at {env_steps:,} environment steps in member {member} ({s.config.label(member)})"


def warn_of(s: Session, senseless: dict[int, str], env_steps: int) -> None:
    """Say which members have diverged, though all their numbers are finite; the run goes on."""
    if senseless and distributed.is_first():
        (member, what), *others = senseless.items()
        more = f" (and members {', '.join(str(m) for m, _ in others)})" if others else ""
        warnings.warn(
            f"{what} {place(s, member, env_steps)}{more}: training has diverged, though no number is NaN; "
            "a lower learning_rate may help",
            stacklevel=2,
        )


def hide_lost(s: Session, row: Row) -> None:
    """Take the values of members that are lost out of a row."""
    for member in s.lost:
        for values in row.metrics.values():
            values[member] = np.nan
