"""The comparisons of `jaxrl-fast bench`: one task each, by us and by each installed peer."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxrl_fast.bench import ours, pendulum, replay, stepping, theirs, updates
from jaxrl_fast.bench.race import Contestant, Loop
from jaxrl_fast.errors import brief

PIP = {"flashbax": "flashbax", "brax": "brax", "gymnasium": "gymnasium", "envpool": "envpool",
       "sbx": "sbx-rl", "stable_baselines3": "stable-baselines3"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Options:
    """Checkouts of peers that are no packages, by name, and the part of the steps that is taken."""

    paths: dict[str, str | None]
    scale: float = 1.0

    def scaled(self, count: int, least: int = 1) -> int:
        return max(least, int(count * self.scale))


Notes = list[str]  # why a peer is not there


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison. make(options, notes) -> contestants, ours first; unit: of their steps."""

    what: str
    make: Callable[[Options, Notes], Sequence[Contestant | Loop]]
    unit: str = "steps/s"


def library() -> Any:
    import jaxrl_fast

    return jaxrl_fast


def try_make(module: str, notes: Notes, make: Callable[[], Any]) -> list[Any]:
    """Return [make()], or [] and a note with the remedy if a package is not there or fails."""
    if importlib.util.find_spec(module) is None:
        notes.append(f"{module} is not installed: pip install {PIP[module]}")
        return []
    try:
        return [make()]
    except Exception as error:  # another library's, of any kind
        notes.append(f"{module} does not run here: {brief(error)}")
        return []


def training(name: str, settings: dict[str, Any]) -> Callable[[Options, Notes], list[Contestant]]:
    """Return the row of a training, of peers with PureJaxRL's settings."""

    def make(options: Options, notes: Notes) -> list[Contestant]:
        config = ours.scaled(settings, 0.2 * options.scale)
        return [
            ours.run(library(), name.upper(), config),
            *theirs.purejaxrl(options.paths["purejaxrl"], name, config, notes),
            *theirs.rejax(options.paths["rejax"], name, config, notes),
        ]

    return make


def pqn(options: Options, notes: Notes) -> list[Contestant]:
    config = ours.scaled(theirs.PQN_CARTPOLE, 0.2 * options.scale)
    peer = theirs.purejaxql(options.paths["purejaxql"], "pqn_gymnax", config, notes)
    return [ours.run(library(), "PQN", config), *peer]


def sac(options: Options, notes: Notes) -> list[Contestant]:
    steps = options.scaled(3_000, 500)
    return pendulum.pendulum(library(), options.paths["rejax"], steps, notes)


def sac_updates(options: Options, notes: Notes) -> list[Contestant | Loop]:
    count, jf = options.scaled(1_000, 100), library()
    return [
        updates.ours(jf, count),
        *(
            one
            for name, module in (("SBX", "sbx"), ("SB3", "stable_baselines3"))
            for one in try_make(module, notes, partial(updates.peer, name, module, count))
        ),
    ]


def memory(name: str) -> Callable[[Options, Notes], list[Contestant]]:
    def make(options: Options, notes: Notes) -> list[Contestant]:
        work = replay.WORKS[name]
        count = options.scaled(work.iterations // 4, replay.BLOCK) // replay.BLOCK * replay.BLOCK
        part = lambda who, parts: replay.contestant(who, work, count, parts)[0]
        peer = lambda: part("flashbax", replay.flashbax(work))
        return [part("jaxrl_fast", replay.ours(work)), *try_make("flashbax", notes, peer)]

    return make


def cartpole(options: Options, notes: Notes) -> list[Contestant]:
    steps = options.scaled(2_000, 100)
    return [stepping.ours("CartPole-v1", 1024, steps), stepping.gymnax("CartPole-v1", 1024, steps)]


def physics(options: Options, notes: Notes) -> list[Contestant]:
    name, envs, steps = "inverted_pendulum", 128, options.scaled(400, 100)
    mine = lambda: stepping.ours(f"brax/{name}", envs, steps, backend="spring")
    peer = lambda: stepping.brax(name, envs, steps)
    if importlib.util.find_spec("brax") is None:
        return try_make("brax", notes, peer)
    return [mine(), *try_make("brax", notes, peer)]


def host(options: Options, notes: Notes) -> list[Loop]:
    envs, steps = 1024, options.scaled(500, 20)
    found = try_make("gymnasium", notes, lambda: stepping.gymnasium(envs, steps))
    mine = [stepping.exported(envs, steps)] if found else []  # our export needs the package
    return [*mine, *found, *try_make("envpool", notes, lambda: stepping.envpool(envs, steps))]


ROWS = {
    "ppo_cartpole": Row("PPO CartPole, 4 environments", training("ppo", theirs.PPO_CARTPOLE)),
    "dqn_cartpole": Row("DQN CartPole, 10 environments", training("dqn", theirs.DQN_CARTPOLE)),
    "pqn_cartpole": Row("PQN CartPole, 32 environments", pqn),
    "sac_pendulum": Row("SAC Pendulum, an update a step", sac),
    "sac_updates": Row("SAC Pendulum, 256 x 256 units", sac_updates, "updates/s"),
    "replay_uniform": Row("uniform replay, batches of 256",
                          memory("small_uniform"), "samples/s"),
    "replay_prioritized": Row("prioritized replay, batches of 256",
                              memory("small_prioritized"), "samples/s"),
    "step_cartpole": Row("1,024 CartPoles, in a program", cartpole),
    "step_brax": Row("128 brax pendulums (spring)", physics),
    "host_cartpole": Row("1,024 CartPoles, from the host", host),
}  # fmt: skip
