"""The rows of `gpu_report.py`: programs in turns with peers, seconds to a known score."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import _peers
import _populations as populations
from bench_common import Contestant, preset_run

from jaxrl_fast.bench import ours, pendulum, theirs

WHILE_TOO = (
    "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,DYNAMIC_SLICE_FUSION,WHILE"
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One row. `contestants(args, notes)` makes its programs; `flags`: XLA flags of the process
    that runs it."""

    contestants: Callable[[Any, list[str]], list[Contestant]]
    flags: str = ""
    turns: int = 3


@dataclasses.dataclass(frozen=True)
class Score:
    """Seconds from the start of the process to a mean training return of `wanted`, by preset."""

    algo: str
    env: str
    wanted: float
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    make: dict[str, Any] = dataclasses.field(default_factory=dict)
    limit: float = 75.0  # seconds after which the run is stopped


def library():
    import jaxrl_fast

    return jaxrl_fast


def of_iterations(config: dict, iterations: int) -> dict:
    """`config` over so many rollouts."""
    return config | {"TOTAL_TIMESTEPS": iterations * config["NUM_ENVS"] * config["NUM_STEPS"]}


def mine(algorithm: str, config: dict, tf32: bool) -> list[Contestant]:
    """Our program; `tf32`: and the same with TF32 products, which the peers use."""
    runs = [ours.run(library(), algorithm, config)]
    if tf32:
        runs.append(ours.run(library(), algorithm, config, "jaxrl_fast, tf32", precision="tf32"))
    return runs


def ppo(num_envs: int, iterations: int, num_steps: int = 128, peer: bool = True,
        base: dict = theirs.PPO_CARTPOLE, tf32: bool = False) -> Row:
    """PPO at PureJaxRL's settings with another number of environments."""
    config = of_iterations(base | {"NUM_ENVS": num_envs, "NUM_STEPS": num_steps}, iterations)

    def contestants(args, notes):
        both = mine("PPO", config, tf32)
        return both + (theirs.purejaxrl(args.purejaxrl, "ppo", config, notes) if peer else [])

    return Row(contestants)


def seeds(
    count: int, iterations: int, peer: bool = True, turns: int = 3, tf32: bool = False
) -> Row:
    """`count` agents of PPO CartPole in one program, each with four environments."""
    config = of_iterations(theirs.PPO_CARTPOLE, iterations)

    def contestants(args, notes):
        runs = mine("PPO", config, tf32)
        both = [populations.members(one, count, "vmap", one.name) for one in runs]
        if peer:
            alone = theirs.purejaxrl(args.purejaxrl, "ppo", config, notes)
            both += [populations.members(one, count, "vmap", "PureJaxRL") for one in alone]
        # scores of thousands of members one by one would take longer than the run
        return [dataclasses.replace(one, score=None) for one in both]

    return Row(contestants, turns=turns)


def dqn(args, notes):
    config = ours.scaled(theirs.DQN_CARTPOLE, 0.1)
    both = [ours.run(library(), "DQN", config),
            ours.run(library(), "DQN", config, "jaxrl_fast, prioritized", prioritized=True)]
    both += theirs.purejaxrl(args.purejaxrl, "dqn", config, notes)
    return both + theirs.rejax(args.rejax, "dqn", config, notes)


def dqn_breakout(args, notes):
    config = ours.scaled(_peers.REJAX_BREAKOUT, 0.01)
    return [ours.run(library(), "DQN", config), *theirs.rejax(args.rejax, "dqn", config, notes)]


def pqn(config: dict, program: str, iterations: int, tf32: bool = False):
    config = of_iterations(config, iterations)

    def contestants(args, notes):
        peer = theirs.purejaxql(args.purejaxql, program, config, notes)
        return mine("PQN", config, tf32) + peer

    return contestants


def preset(name: str, env: str, steps: int, make: dict[str, Any] | None = None, **settings: Any):
    """A preset of ours over `steps` environment steps, with nobody beside it."""

    def contestants(args, notes):
        jf = library()
        algo = jf.preset(name, env, **settings)
        build = lambda: jf.make_train(algo, jf.make(env, **(make or {})), total_steps=steps)
        return (
            [Contestant("jaxrl_fast", steps, build, theirs.typed_key,
                        lambda out: ours.final_return(out[1]), ours.env_steps)]
        )

    return contestants


def sac(args, notes):
    """SAC Pendulum at rejax's settings."""
    return pendulum.pendulum(library(), args.rejax, 5_000, notes)


SPEED: dict[str, Row] = {
    "ppo_4": ppo(4, 60),
    "ppo_2048": ppo(2048, 20, tf32=True),
    "ppo_65536": ppo(65_536, 4, tf32=True),
    "ppo_1048576": ppo(1_048_576, 3, num_steps=32, peer=False),
    "ppo_breakout": ppo(64, 10, base=_peers.PPO_MINATAR, tf32=True),
    "seeds_64": seeds(64, 40),
    "seeds_2048": seeds(2048, 40, tf32=True),
    "dqn_cartpole": Row(dqn),
    "dqn_breakout": Row(dqn_breakout),
    "pqn_cartpole": Row(pqn(theirs.PQN_CARTPOLE, "pqn_gymnax", 20)),
    "pqn_breakout": Row(pqn(_peers.PQN_MINATAR, "pqn_minatar", 20, tf32=True)),
    "sac_pendulum": Row(sac),
    "rainbow_breakout": Row(preset("rainbow", "Breakout-MinAtar", 10_000)),
    "agents_2048_whole": seeds(2048, 976, peer=False, turns=1),
    "dqn_breakout_128": Row(preset("dqn", "Breakout-MinAtar", 40_000)),
    "ant_4096": Row(
        preset("ppo", "brax/ant", 4096 * 8 * 20, {"backend": "spring"}, num_envs=4096, num_steps=8)
    ),
    "humanoid_4096": Row(preset(
        "ppo", "brax/humanoid", 4096 * 8 * 10, {"backend": "spring"}, num_envs=4096, num_steps=8)),
}
for name, flags in (("graphs_off", "--xla_gpu_enable_command_buffer="),
                    ("graphs_while", WHILE_TOO)):
    for row in ("ppo_4", "ppo_2048", "seeds_64", "dqn_cartpole", "pqn_breakout"):
        SPEED[f"{name}:{row}"] = dataclasses.replace(SPEED[row], flags=flags)

SCORES: dict[str, Score] = {
    "cartpole_475": Score("ppo", "CartPole-v1", 475.0),
    "pqn_breakout_20": Score("pqn", "Breakout-MinAtar", 20.0),
    "dqn_breakout_20": Score("dqn", "Breakout-MinAtar", 20.0, run={"total_steps": 2_000_000}),
    "ant_6000": Score(
        "ppo", "brax/ant", 6000.0, {"num_envs": 4096, "num_steps": 8}, {"total_steps": 50_000_000},
        {"backend": "spring"}
    ),
}


def reach(row: Score, began: float) -> dict[str, Any]:
    """Train by preset until the mean return of a log row is as wanted; seconds count from
    `began`."""
    jf = library()
    curve: list[tuple[float, int, float]] = []
    built = time.perf_counter()

    def watch(session, rows):
        seconds = time.perf_counter() - began
        for one in rows:
            curve.append(
                (round(seconds, 2), int(one.env_steps), float(one.metrics["episode_return"].mean()))
            )
        if curve[-1][2] >= row.wanted or seconds > row.limit:
            session.stop()

    algo = jf.preset(row.algo, row.env, **row.settings)
    env = jf.make(row.env, **row.make)
    run: dict[str, Any] = preset_run(row.algo, row.env) | row.run | {"eval_every": 0}
    session = jf.train(algo, env, **run, progress=False, hooks=[watch])
    reached = next((point for point in curve if point[2] >= row.wanted), None)
    return {
        "wanted": row.wanted,
        "seconds_to_score": reached and reached[0],
        "steps_to_score": reached and reached[1],
        "seconds_before_training": round(built - began, 2),
        "evaluation": float(session.eval_return.mean()) if session.eval_return is not None
        else None,
        "curve": curve[:: max(1, len(curve) // 50)] + curve[-1:],
    }
