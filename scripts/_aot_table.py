"""The programs whose launches are watched, ours and the peers'."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import _peers
from _aot_programs import Work
from bench_common import Contestant, preset_run

import jaxrl_fast as jf
from jaxrl_fast.bench import ours, pendulum, theirs
from jaxrl_fast.bench.peers import PeerAbsent

Peers = Callable[[argparse.Namespace, list[str]], list[Contestant]]


@dataclasses.dataclass(frozen=True)
class Row:
    """One program. `wanted`: most launches, as a share of those of the best peer, or of `than`."""

    what: str
    work: Callable[[], Work]
    kind: str = "run"
    peers: Peers = lambda args, notes: []
    iterations: int = 1  # of a peer's run: steps of one environment, over those of a rollout
    wanted: float | None = None
    than: str | None = None  # another row of ours


def _scaled(config: dict, iterations: int) -> dict:
    return config | {
        "TOTAL_TIMESTEPS": iterations * config["NUM_ENVS"] * config.get("NUM_STEPS", 1)
    }


def _at(name: str, config: dict, **settings: Any) -> Callable[[], Work]:
    """Our algorithm at a peer's settings."""
    table = {"PPO": ours.ppo_settings, "DQN": ours.dqn_settings, "PQN": ours.pqn_settings}
    wrappers = {"reward_scale": config["REW_SCALE"]} if config.get("REW_SCALE", 1) != 1 else {}

    def work():
        algo = getattr(jf, name)(**table[name](config) | settings)
        return Work(algo, jf.make(config["ENV_NAME"], **wrappers), config["TOTAL_TIMESTEPS"])

    return work


def _preset(algo: str, env: str) -> Callable[[], Work]:
    def work():
        steps = preset_run(algo, env)["total_steps"]
        return Work(jf.preset(algo, env), jf.make(env), steps)

    return work


def _times(work: Callable[[], Work], seeds: int) -> Callable[[], Work]:
    return lambda: work()._replace(seeds=seeds)


ITERATIONS = 1000  # of PPO and PQN: ten to a log row
PPO_4, PPO_2048 = (_scaled(theirs.PPO_CARTPOLE | {"NUM_ENVS": n}, ITERATIONS) for n in (4, 2048))
PPO_BREAKOUT = _scaled(_peers.PPO_MINATAR, ITERATIONS)
PQN_CARTPOLE, PQN_BREAKOUT = (
    _scaled(x, ITERATIONS) for x in (theirs.PQN_CARTPOLE, _peers.PQN_MINATAR)
)
DQN_CARTPOLE, DQN_BREAKOUT = theirs.DQN_CARTPOLE, _peers.REJAX_BREAKOUT
PENDULUM_STEPS = pendulum.REJAX_SAC["total_timesteps"]
ANT = _peers.PPO_ANT | {"TOTAL_TIMESTEPS": ITERATIONS * 20_480}


def _ppo(config: dict, rejax: bool = False) -> Peers:
    def peers(args, notes):
        found = theirs.purejaxrl(args.purejaxrl, "ppo", config, notes)
        return found + (theirs.rejax(args.rejax, "ppo", config, notes) if rejax else [])

    return peers


def _dqn(args, notes):
    found = theirs.purejaxrl(args.purejaxrl, "dqn", DQN_CARTPOLE, notes)
    return found + theirs.rejax(args.rejax, "dqn", DQN_CARTPOLE, notes)


def _dqn_breakout(args, notes):
    return theirs.rejax(args.rejax, "dqn", DQN_BREAKOUT, notes)


def _pqn(config: dict, program: str) -> Peers:
    return lambda args, notes: theirs.purejaxql(args.purejaxql, program, config, notes)


def _sac_peer(args, notes):
    return pendulum.pendulum(jf, args.rejax, PENDULUM_STEPS, notes)[1:]


def _td3_peer(args, notes):
    settings = _peers.REJAX_TD3
    return pendulum.rejax_pendulum(args.rejax, "td3", settings, PENDULUM_STEPS, notes)


def _ant_peer(args, notes):
    return theirs.purejaxrl(args.purejaxrl, "ppo_continuous_action", ANT, notes)


def _sac_work() -> Work:
    return Work(pendulum.sac(jf), jf.make("Pendulum-v1"), PENDULUM_STEPS)


def _td3_work() -> Work:
    return Work(_peers.td3(jf), jf.make("Pendulum-v1"), PENDULUM_STEPS)


def _ant_work() -> Work:
    settings = ours.ppo_settings(ANT) | {
        "hidden": (256, 256),
        "normalize_observations": True,
        "normalize_reward": True,
    }
    return Work(
        jf.PPO(**settings), jf.make("brax/ant", backend="positional"), ANT["TOTAL_TIMESTEPS"]
    )


TABLE: dict[str, Row] = {
    "ppo_4": Row(
        "PPO CartPole, 4 environments",
        _at("PPO", PPO_4),
        peers=_ppo(PPO_4, True),
        iterations=ITERATIONS,
        wanted=0.30,
    ),
    "ppo_2048": Row(
        "PPO CartPole, 2,048 environments",
        _at("PPO", PPO_2048),
        peers=_ppo(PPO_2048),
        iterations=ITERATIONS,
        wanted=0.30,
    ),
    "ppo_64_seeds": Row(
        "PPO CartPole, 64 agents",
        _times(_at("PPO", PPO_4), 64),
        peers=_ppo(PPO_4),
        iterations=ITERATIONS,
        wanted=0.30,
    ),
    "ppo_breakout": Row(
        "PPO Breakout-MinAtar, 64 environments",
        _at("PPO", PPO_BREAKOUT),
        peers=_ppo(PPO_BREAKOUT),
        iterations=ITERATIONS,
        wanted=0.35,
    ),
    "pqn_cartpole": Row(
        "PQN CartPole, 32 environments",
        _at("PQN", PQN_CARTPOLE),
        peers=_pqn(PQN_CARTPOLE, "pqn_gymnax"),
        iterations=ITERATIONS,
        wanted=0.45,
    ),
    "pqn_breakout": Row(
        "PQN Breakout-MinAtar, 128 environments",
        _at("PQN", PQN_BREAKOUT),
        peers=_pqn(PQN_BREAKOUT, "pqn_minatar"),
        iterations=ITERATIONS,
        wanted=0.45,
    ),
    "dqn_cartpole": Row(
        "DQN CartPole, 10 environments",
        _at("DQN", DQN_CARTPOLE),
        peers=_dqn,
        iterations=DQN_CARTPOLE["TOTAL_TIMESTEPS"] // 10,
        wanted=0.45,
    ),
    "dqn_breakout": Row(
        "DQN Breakout-MinAtar, an update a step",
        _at("DQN", DQN_BREAKOUT),
        peers=_dqn_breakout,
        iterations=DQN_BREAKOUT["TOTAL_TIMESTEPS"],
        wanted=0.45,
    ),
    "dqn_prioritized": Row(
        "DQN CartPole, prioritized",
        _at("DQN", DQN_CARTPOLE, prioritized=True),
        wanted=1.2,
        than="dqn_cartpole",
    ),
    "sac": Row(
        "SAC Pendulum, an update a step",
        _sac_work,
        peers=_sac_peer,
        iterations=PENDULUM_STEPS,
        wanted=0.45,
    ),
    "td3": Row(
        "TD3 Pendulum, an update a step",
        _td3_work,
        peers=_td3_peer,
        iterations=PENDULUM_STEPS,
        wanted=0.45,
    ),
    "ppo_ant": Row(
        "PPO brax ant, 2,048 environments",
        _ant_work,
        peers=_ant_peer,
        iterations=ITERATIONS,
        wanted=0.80,
    ),
    "c51": Row("C51 CartPole, preset", _preset("c51", "CartPole-v1")),
    "qr_dqn": Row("QR-DQN CartPole, preset", _preset("qr_dqn", "CartPole-v1")),
    "rainbow": Row("Rainbow CartPole, preset", _preset("rainbow", "CartPole-v1")),
    "impala": Row("IMPALA CartPole, preset", _preset("impala", "CartPole-v1")),
    "a2c": Row("A2C CartPole, preset", _preset("a2c", "CartPole-v1")),
    "tqc": Row("TQC Pendulum, preset", _preset("tqc", "Pendulum-v1")),
    "crossq": Row("CrossQ Pendulum, preset", _preset("crossq", "Pendulum-v1")),
    "es": Row("ES CartPole, preset", _preset("es", "CartPole-v1")),
    "apg": Row("APG Pendulum, preset", _preset("apg", "Pendulum-v1")),
    "ppo_chunk": Row(
        "PPO CartPole, chunk of 64 agents, preset",
        _times(_preset("ppo", "CartPole-v1"), 64),
        "chunk",
    ),
    "dqn_chunk": Row(
        "DQN CartPole, chunk of 64 agents, preset",
        _times(_preset("dqn", "CartPole-v1"), 64),
        "chunk",
    ),
    "ppo_evaluation": Row("PPO CartPole, evaluation", _preset("ppo", "CartPole-v1"), "evaluation"),
}


def peers_of(row: Row, args: argparse.Namespace, notes: list[str]) -> list[Contestant]:
    """Return the peers' programs of a row whose checkouts are there."""
    try:
        return row.peers(args, notes)
    except PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
        return []
