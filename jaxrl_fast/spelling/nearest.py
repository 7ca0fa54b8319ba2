"""The nearest known name for an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from jaxrl_fast.spelling.synonyms import ALGORITHMS, SETTINGS

SYNONYMS = SETTINGS | ALGORITHMS


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `"; did you mean 'CartPole-v1'?"`, or "" without a near name."""
    lower, theirs = {str(n).lower(): n for n in names}, _bare(name)
    hits = [n for n in lower if theirs in SYNONYMS.get(_bare(n), ())]
    hits = hits or difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.55)
    return f"; did you mean {lower[hits[0]]!r}?" if hits else ""


def _bare(name: Any) -> str:
    """Return the word in a name or a flag such as --algo.num-envs, in the form of `SYNONYMS`."""
    return str(name).lower().rpartition(".")[2].lstrip("-").replace("-", "_")
