"""Lost members: values that are not finite are named, marked and left out afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.logs.rows import Measured
from jaxrl_fast.runs.result import Result


def not_finite(run: Result, measured: Sequence[Measured], finite: Any) -> tuple[list[Measured], str | None]:
    """Return the rows without lost members' values, and a message on the first loss.

    The message names metric, step and member. It is None if the run can go on: with `on_nan =
    "mark"`, members enter `run.lost`, and only the last loss is a message.

    Args:
        finite: whether each lane's agent is; None before any training.
    """
    said, found, stop = [], [], run.config.on_nan == "stop"
    for row in measured:
        said += [lose(run, member, row.env_steps, what) for member, what in row.faults]
        found.append(row if stop else row.without(run.lost))
    if finite is not None:
        for member in np.flatnonzero(~run.lanes.by_member(run.population.members(finite), True)):
            said.append(lose(run, int(member), measured[-1].env_steps, "agent parameters or priorities are not finite"))
    return found, said[0] if said and (stop or not run.live) else None


def lose(run: Result, member: int, env_steps: int, what: str) -> str:
    """Mark a member as lost if the run goes on without it, and return the message."""
    if run.config.on_nan == "mark" and member not in run.lost:
        run.lost[member] = {"env_steps": env_steps, "reason": what}
    return f"{what} {_place(run.config, member, env_steps)}"


def _place(config: RunConfig, member: int, env_steps: int) -> str:
    return f"at {env_steps:,} environment steps in member {member} ({config.label(member)})"


def warn_of(config: RunConfig, senseless: dict[int, str], env_steps: int) -> None:
    """Warn of members that have diverged with finite values; the run goes on."""
    if senseless and distributed.is_first():
        (member, what), *others = senseless.items()
        more = f" (and members {', '.join(str(m) for m, _ in others)})" if others else ""
        warnings.warn(
            f"{what} {_place(config, member, env_steps)}{more}: training has diverged, though no number is NaN; "
            "a lower learning_rate may help",
            stacklevel=2,
        )
