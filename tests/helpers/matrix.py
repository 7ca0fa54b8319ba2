"""Products of a property and the members of a family: a part of the rows runs by default.

The rule. A property that many algorithms, environments, memories or documents share is one
parametrized test. The default run, which README's command starts, holds a row for each code path of
the package that the property touches; the other rows have the mark `matrix`. The commit chooses one
share of these rows, which `.ci/run` runs: `--matrix-share K/N`. A whole test has the mark only with
the name of the nearest default test, of the same property on a shorter path:
`@pytest.mark.matrix("test_members_are_the_single_runs")`.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# The algorithm that stands for all that derive from a base class, in every property whose code does
# not depend on the algorithm: rollouts in order, replay, and replay with two networks in the loop.
# `es` and `apg` have a `learn` of their own.
REPRESENTATIVES = {
    "PolicyGradient": ("ppo",),
    "ValueBased": ("dqn",),
    "ActorCritics": ("sac",),
    "PolicySearch": ("es", "apg"),
}
# Native environments with discrete and with continuous actions, one of Gymnax, and probes for the
# other spaces.
ENVIRONMENTS = ("CartPole-v1", "Pendulum-v1", "Catch-bsuite", "probe/dict", "probe/masked",
                "probe/multi-discrete")
ALGORITHMS = tuple(name for names in REPRESENTATIVES.values() for name in names)


def family(
    rows: Iterable[Any], first: Collection[Any] | int | Callable[..., bool] = ALGORITHMS
) -> list[Any]:
    """Rows for `pytest.mark.parametrize`: all but the first ones have the mark `matrix`.

    Args:
        rows: Values, tuples of values or `pytest.param`; a row that has marks keeps only those.
        first: The rows of the default run: their first values or ids; how many they are; or a
            function of a row's values.
    """
    rows = [row if isinstance(row, type(pytest.param())) else
            pytest.param(*row) if isinstance(row, tuple) else pytest.param(row) for row in rows]
    if isinstance(first, int):
        default = set(range(first))
    elif callable(first):
        default = {i for i, row in enumerate(rows) if first(*row.values)}
    else:
        known = lambda row: any(x in first for x in (row.id, row.values[0]) if _plain(x))
        default = {i for i, row in enumerate(rows) if known(row)}
    if not default:
        raise ValueError(f"no row of the default run: {first} in {rows}")
    return [row if i in default or row.marks else row._replace(marks=[pytest.mark.matrix])
            for i, row in enumerate(rows)]


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | type)


def other_marks(config: pytest.Config) -> set[str]:
    """Return the marks whose tests need an extra, or long, and stay out of both runs."""
    options = config.getini("addopts")
    return set(re.findall(r"not (\w+)", options[options.index("-m") + 1])) - {"matrix"}


def drop_marks(items: Iterable[pytest.Item], others: Collection[str]) -> None:
    """Take the mark `matrix` from rows that stay out of both runs, so that `-m matrix` has none."""
    for item in items:
        if any(mark.name in others for mark in item.iter_markers()):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "matrix"]


def share(text: str) -> tuple[int, int]:
    """Return (3, 8) for "3/8", the third of eight shares."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"must be K/N with 1 <= K <= N, got {text!r}")
    return int(found[1]), int(found[2])


def in_share(nodeid: str, part: int, parts: int) -> bool:
    """Say whether a row belongs to the share `part` of `parts`, by a hash of its test's name."""
    return zlib.crc32(nodeid.encode()) % parts == part - 1


def keep_share(items: list[pytest.Item], part: int, parts: int) -> list[pytest.Item]:
    """Take the rows of the other shares out of `items` and return them; other tests stay."""
    kept, other = [], []
    for item in items:
        row = any(mark.name == "matrix" for mark in item.iter_markers())
        (kept if not row or in_share(item.nodeid, part, parts) else other).append(item)
    items[:] = kept
    return other


def complaints(items: Iterable[pytest.Item], others: Collection[str]) -> list[str]:
    """Say where items break the rule.

    Args:
        items: Those of whole files; a name in another file is judged where that is collected too.
        others: Of `other_marks`.
    """
    functions: dict[str, list[set[str]]] = defaultdict(list)
    named, found = defaultdict(set), []
    for item in items:
        function = re.sub(r"\[.*", "", item.nodeid, flags=re.S)
        marks = {mark.name for mark in item.iter_markers()}
        functions[function].append(marks)
        if "matrix" in marks and marks & set(others):
            found.append(f"{item.nodeid} has the marks matrix and {sorted(marks & set(others))}")
        named[function] |= {name for mark in item.iter_markers("matrix") for name in mark.args}
    files = {function.partition("::")[0] for function in functions}
    judged = lambda file: file in files or not (ROOT / file).exists()
    left = {name for name, rows in functions.items()
            if any(not marks & {"matrix", *others} for marks in rows)}
    for function, rows in functions.items():
        if function in left or not any("matrix" in marks for marks in rows):
            continue
        file = function.partition("::")[0]
        same = sorted(name if "::" in name else f"{file}::{name}" for name in named[function])
        if not same:
            found.append(f"{function} has no row in the default run")
        found += [f"{function} names {name}, which is not in the default run"
                  for name in same if name not in left and judged(name.partition("::")[0])]
    return found
