"""Measure the gain of a suggestion, in turns with the settings without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager

from jaxrl_fast.errors import UserError, one_line
from jaxrl_fast.profiling.advice import Suggestion
from jaxrl_fast.profiling.timing import TimedRun, take_turns

ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Trial:
    """A tried suggestion: steps/s without and with it, in the turn of the median ratio.

    gain: that ratio, None if the suggestion was refused; refused: why.
    """

    suggestion: Suggestion
    before: float = 0.0
    after: float = 0.0
    gain: float | None = None
    refused: str = ""

    @property
    def text(self) -> str:
        """Return the result in words."""
        if not self.suggestion.timed:
            return (f"at most {self.suggestion.bound:.1f} times, not measured: single calls do not "
                    "show it")
        if self.gain is None:
            return f"refused ({self.refused})"
        return f"{self.gain:.2f} times, measured ({self.before:,.0f} to {self.after:,.0f} steps/s)"


def try_suggestion(
    suggestion: Suggestion, base: TimedRun, opened: Callable[[], AbstractContextManager[TimedRun]],
    seconds: float,
) -> Trial:  # fmt: skip
    """Run a suggestion for about `seconds`, and `base` as long, in `ROUNDS` turns.

    opened: the run with the suggestion.
    """
    if not suggestion.timed:
        return Trial(suggestion)
    try:
        with opened() as other:
            rate = lambda run: lambda: run.timing(seconds / ROUNDS).steps_per_second
            rounds = list(take_turns(rate(base), rate(other), ROUNDS))
    except UserError as error:
        return Trial(suggestion, refused=one_line(str(error)))
    before, after = sorted(rounds, key=lambda rates: rates[1] / rates[0])[ROUNDS // 2]
    return Trial(suggestion, before, after, after / before)
