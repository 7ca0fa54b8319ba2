"""Suggest the known environment nearest to an unknown name; only `is_registered` imports."""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
from collections.abc import Iterable

from jaxrl_fast.envs import sources
from jaxrl_fast.envs.atari.outcome_table import GAMES
from jaxrl_fast.envs.gymnax import loading

# Ids of packages that list theirs only when imported.
GYMNASIUM = tuple("gym:" + name for name in (
    "LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3",
    "CarRacing-v3", "Blackjack-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1",
    "Taxi-v4", "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5",
    "InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5",
    "Walker2d-v5",
))  # fmt: skip
ATARI = tuple("ale:" + "".join(map(str.capitalize, name.split("_"))) for name in GAMES)
OTHER_FORMS = "ale_py", "gymnasium.envs.phys2d", "gymnasium.envs.tabular"  # of named tasks
NEAR, SURE = 0.6, 0.85  # similarity for a guess, and for certainty
MOST = 3
_SUITE = "minatar|bsuite|misc"  # words of gymnax's names: Breakout-MinAtar


def task(name: str) -> str:
    """Return the task of a name: lower-case letters and digits, no source, version or suite."""
    bare = re.split(r"[:/]", name.strip())[-1].lower()
    bare = re.sub(r"(noframeskip|deterministic|-ram)?[-_]v\d+$", "", bare)
    bare = re.sub(rf"^({_SUITE})[-_ ](?=.)|(?<=.)[-_ ]({_SUITE})$", "", bare)
    return re.sub(r"[^a-z0-9]", "", bare)


def suite(name: str) -> str:
    """Return the word of a suite in a name, at its start or end: "minatar"; "" without one."""
    found = re.search(rf"(?<![a-z])({_SUITE})(?![a-z])", name.lower())
    return found[0] if found else ""


def is_registered(name: str) -> bool:
    """Return whether Gymnasium has the id of a name ("gym:Ant-v4"); imports it, if installed."""
    with contextlib.suppress(Exception):  # an installation may be broken
        import gymnasium

        found = gymnasium.registry.get(name.removeprefix("gym:"))
        return found is not None and not str(found.entry_point).startswith("ale_py")
    return False


def candidates(more: Iterable[str] = ()) -> list[str]:
    """Return the names of every source, each Gymnasium task once."""
    gymnasium = sys.modules.get("gymnasium")
    registered = [f"gym:{spec.id}" for spec in gymnasium.registry.values()
                  if not str(spec.entry_point).startswith(OTHER_FORMS)] if gymnasium else []
    standard = set(map(task, GYMNASIUM))
    own = [name for name in registered if task(name) not in standard]
    own += map("gymnax:".__add__, loading.registered())
    return list(dict.fromkeys([*sources.names(), *GYMNASIUM, *ATARI, *own, *more]))


def best(name: str, more: Iterable[str] = ()) -> tuple[list[str], float]:
    """Return the nearest names and their similarity (1: the same task)."""
    wanted, lower, known = task(name), name.strip().lower(), candidates(more)
    # Gymnasium's names of Atari games
    if re.search(r"(^|:)ale/|noframeskip|deterministic|-ram", lower):
        lower = f"ale:{wanted}"
    if re.match(r"gymnax[/_ -]", lower):  # gymnax has the tasks of all native names too
        own = [f"gymnax:{x}" for x in sources.names()
               if x not in sources.USER and not re.search("[:/]", x)]
        known = list(dict.fromkeys([*known, *own]))

    def near(a: str, b: str) -> float:
        return difflib.SequenceMatcher(None, a, b).ratio() if a and b else 0.0

    found = [((1.0 if task(x) == wanted
               else max(near(task(x), wanted) * 0.99, near(x.lower(), lower)) * 0.99),
              near(x.lower(), lower), x) for x in known]  # fmt: skip
    its = suite(name)
    found.sort(key=lambda row: (row[0], bool(its) and suite(row[2]) == its, row[1]), reverse=True)
    source, colon, _ = lower.partition(":")
    foreign = colon and not any(x.startswith(f"{source}:") for x in known)
    if not wanted or not found or found[0][0] < (SURE if foreign else NEAR):
        return [], 0.0
    top, same, first = found[0]
    if same == 1.0:  # except capitals
        return [first], 1.0
    return [x for score, _, x in found if score == top][: MOST if top == 1.0 else 1], top


def suggest(name: str, more: Iterable[str] = (), sure: bool = False) -> str:
    """Return `"; did you mean 'gym:LunarLander-v3'?"`, or ""; `sure`: only a very near name."""
    names, score = best(str(name), more)
    if not names or (sure and score < SURE):
        return ""
    return f"; did you mean {' or '.join(map(repr, names))}?"
