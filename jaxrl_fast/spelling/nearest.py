"""The nearest known name for an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from jaxrl_fast.spelling.synonyms import ALGORITHMS, SETTINGS

SYNONYMS = SETTINGS | ALGORITHMS


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `"; did you mean 'CartPole-v1'?"`, or "" without a near name."""
    found = closest(name, names)
    return f"; did you mean {found!r}?" if found else ""


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is nearest, or None without a near one.

    cutoff: least similarity, of difflib.

    The words of flags are compared without their groups: --algo.a is not near --algo.b.
    """
    names, group = list(names), _group(name)
    same = [n for n in names if group and _group(n) == group] or names
    words = {_bare(known): known for known in reversed(same)}  # the first of equal words
    close = difflib.get_close_matches(_bare(name), words, n=1, cutoff=cutoff)
    return synonym(name, same) or synonym(name, names) or (words[close[0]] if close else None)


def meant(name: str, names: Iterable[str], others: Iterable[str]) -> str | None:
    """Return the name in `names` that `name` means; None if `others` has a near one."""
    found = synonym(name, names)
    return found if found or closest(name, others) else closest(name, names, cutoff=0.88)


def synonym(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that equals `name` or has it as a synonym, or None."""
    theirs = _bare(name)
    return next((known for known in names
                 if theirs in (_bare(known), *SYNONYMS.get(_bare(known), ()))), None)


def _group(name: Any) -> str:
    return str(name).lower().rpartition(".")[0]


def _bare(name: Any) -> str:
    """Return the word in a name or a flag such as --algo.num-envs, in the form of `SYNONYMS`."""
    return str(name).lower().rpartition(".")[2].lstrip("-").replace("-", "_")
