"""Members that are lost: what is no longer finite is named, marked, and left out of what comes after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.logs.rows import Measured
from jaxrl_fast.runs.session import Session


def not_finite(s: Session, measured: Sequence[Measured], finite: Any) -> tuple[list[Measured], str | None]:
    """Return the rows without values of lost members, and the first metric, step and member that is not finite.

    The message is None where the run can go on: with `on_nan = "mark"` such a member is noted in `s.lost` and has no
    values from there on, and only the last one to be lost is a message.

    Args:
        finite: whether each lane's agent is; None where nothing has been learned.
    """
    said, found, stop = [], [], s.config.on_nan == "stop"
    for row in measured:
        said += [lose(s, member, row.env_steps, what) for member, what in row.faults]
        found.append(row if stop else row.without(s.lost))
    if finite is not None:
        for member in np.flatnonzero(~s.by_member(s.population.members(finite), True)):
            said.append(lose(s, int(member), measured[-1].env_steps, "agent parameters or priorities are not finite"))
    return found, said[0] if said and (stop or not s.live) else None


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

