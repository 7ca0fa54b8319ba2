"""Measure the Atari emulator on a GPU.

    python scripts/atari_gpu.py --out atari.jsonl

Frames of every game compared with ALE, raw frames a second of the kernel and of the plain program,
steps with preprocessing, and the seconds of PPO and PQN to 18 points in Pong: on one card in under
ten minutes. No row begins after `--minutes`. Programs compile in threads while games are compared;
nothing else runs beside a measurement.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxrl_fast as jf
from jaxrl_fast.envs.atari import controls, games, machine
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.runtime import cpu_count
from jaxrl_fast.testing import check_atari

LANES = (131_072, 65_536, 16_384, 4096, 1024, 512, 256)
WITH_PICTURES = (4096, 16_384)  # environments that step with preprocessing
PLAIN = 4096
_WARM = 40  # random frames that part the lanes
_SKIP = 4  # frames of a launch
_FRAMES, _PLAIN_FRAMES, _STEPS, _TURNS = 20, 2, 5, 3
_COMPARED = 300  # frames of each game
SEEDS, WANTED, LIMIT, HORIZON = (0, 1, 2), 18.0, 150.0, 2_000_000
# The presets are for 16 or 32 environments of a CPU; these keep their updates a step.
AGENTS = {
    "ppo": dict(num_envs=1024, num_steps=16, num_minibatches=64),
    "pqn": dict(num_envs=1024, num_steps=16, num_minibatches=64),
}
# ALE does not load four; with Pitfall II all lanes would play in a program with its chip.
NOT_PLAYED = ("combat", "joust", "maze_craze", "warlords", "pitfall2")
PICTURES = dict(img_height=42, img_width=42)


@functools.partial(jax.jit, static_argnames=("frames", "plain"))
def play(m: Any, c: Any, rom: Any, key: jax.Array, frames: int, plain: bool = False) -> Any:
    """Return machines and controllers after frames of random actions, `_SKIP` frames a launch."""
    skip, advance = min(frames, _SKIP), machine.play if plain else machine.frames

    def step(carry: tuple, key: jax.Array) -> tuple:
        m, c = carry
        actions = jax.random.randint(key, (skip, *m.done.shape), 0, controls.ACTIONS)
        c, inputs = jax.lax.scan(controls.press, c, actions)
        return (advance(m, inputs, rom).machine, c), None

    return jax.lax.scan(step, (m, c), jax.random.split(key, frames // skip))[0]


def timed(call: Any, turns: int = _TURNS) -> list[float]:
    """Return the seconds of `turns` calls, after one that compiles."""
    jax.block_until_ready(call(0))
    found = []
    for turn in range(1, turns + 1):
        began = time.perf_counter()
        jax.block_until_ready(call(turn))
        found.append(time.perf_counter() - began)
    return found


def begun(env: Any, lanes: int) -> tuple[Any, Any, Any]:
    """Return machines and controllers at random starts, and the joined tables."""
    starts = jax.tree.map(jnp.asarray, env.console.starts)
    at = jax.random.randint(jax.random.key(0), (lanes,), 0, starts.frames.shape[0])
    m, c = jax.tree.map(lambda x: x[at], (starts.machine, starts.controls))
    return m, c, jax.tree.map(jnp.asarray, env.console.rom)


def compile_raw(env: Any, lanes: int, frames: int) -> None:
    """Put `raw`'s program into the compile cache."""
    like = jax.eval_shape(lambda: (*begun(env, lanes), jax.random.key(0)))
    play.lower(*like, frames).compile()


def raw(env: Any, lanes: int, frames: int, plain: bool = False) -> dict[str, Any]:
    """Measure frames a second of `lanes` machines without their pictures."""
    m, c, rom = begun(env, lanes)
    for turn in range(0 if plain else _WARM // frames):
        m, c = play(m, c, rom, jax.random.key(turn), frames)
    seconds = timed(lambda turn: play(m, c, rom, jax.random.key(turn), frames, plain))
    bad = int(play(m, c, rom, jax.random.key(0), frames, plain)[0].bad.max())
    rate = lanes * frames / statistics.median(seconds)
    return {"frames_a_second": rate, "seconds": seconds, "bad": bad}


@functools.partial(jax.jit, static_argnames="steps")
def step(env: Any, state: Any, key: jax.Array, steps: int) -> Any:
    """Return the environments after steps of random actions, and their observations."""
    lanes = state.lives.shape[0]
    noise = env.draw(key, steps, lanes, jnp.int32(0))

    def one(state: Any, t: jax.Array) -> tuple:
        action = jax.random.randint(jax.random.fold_in(key, t), (lanes,), 0, env.num_actions)
        state, obs, outcome = env.step(noise.at(t), state, action)
        return state, (obs[0], outcome.reward)

    return jax.lax.scan(one, state, jnp.arange(steps))


def compile_step(env: Any, lanes: int, steps: int) -> None:
    """Put `with_pictures`' program into the compile cache."""
    state = jax.eval_shape(lambda: env.init(jax.random.key(0), lanes)[0])
    step.lower(env, state, jax.eval_shape(lambda: jax.random.key(0)), steps).compile()


def with_pictures(env: Any, lanes: int, steps: int) -> dict[str, Any]:
    """Measure frames a second of `lanes` environments: `frameskip` frames and a picture a step."""
    state, _ = jax.jit(type(env).init, static_argnums=2)(env, jax.random.key(0), lanes)
    seconds = timed(lambda turn: step(env, state, jax.random.key(turn), steps))
    rate = lanes * steps * env.frameskip / statistics.median(seconds)
    return {"frames_a_second": rate, "seconds": seconds}


def every_game() -> list[str]:
    """Return the games of ale-py that this emulator plays."""
    from ale_py import roms

    def plays(name: str) -> bool:
        try:
            return bool(games.rom_path(name)) and name not in NOT_PLAYED
        except ConfigError:
            return False

    return [name for name in roms.get_all_rom_ids() if plays(name)]


def compared(frames: int) -> dict[str, Any]:
    """Compare every game with ALE on this device."""
    began = time.perf_counter()
    report = check_atari(every_game(), (0,), frames, strict=False)
    found = {name: sum(getattr(report, name).values()) for name in ("compared", "equal")}
    found |= {"games": len(report.compared), "difference": report.difference}
    return found | {"seconds": round(time.perf_counter() - began, 1)}


class Ended(Exception):
    """A run that has been watched for long enough: its whole games at the end are not played."""


def to_18(algo: str, seed: int, limit: float = LIMIT) -> dict[str, Any]:
    """Train on Pong until a log row shows 18 points, or the first row after `limit` seconds.

    The curve has seconds, steps and returns; its seconds include what the cache does not spare.
    """
    began, curve = time.perf_counter(), []

    def watch(_: Any, rows: list[Any]) -> None:
        seconds = round(time.perf_counter() - began, 1)
        curve.extend((seconds, row.env_steps, row.metrics["episode_return"].item()) for row in rows)
        if curve[-1][2] >= WANTED or seconds > limit:
            raise Ended

    try:
        agent = jf.preset(algo, "atari:Pong", **AGENTS[algo])
        env = jf.make("atari:Pong", **PICTURES)
        jf.train(agent, env, HORIZON, seed=seed, eval_every=0, progress=False, hooks=[watch])
    except Ended:
        pass
    return {"reached": curve[-1][2] >= WANTED, "curve": curve}


def measurements(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Return names and calls of the rows, the most wanted first."""
    env = jf.make("atari:Pong", on_cpu=True)
    pictured = [n for n in args.lanes if n in WITH_PICTURES]
    with concurrent.futures.ThreadPoolExecutor(max(1, cpu_count() - 1)) as pool:
        made: list[concurrent.futures.Future[Any]]
        made = [pool.submit(compile_raw, env, n, args.frames) for n in args.lanes]
        made += [pool.submit(compile_step, env, n, _STEPS) for n in pictured]
        made += [pool.submit(to_18, algo, SEEDS[0], 0.0) for algo in AGENTS if args.learn]
        yield "equal to ALE", lambda: compared(args.compared)
        concurrent.futures.wait(made)
    for lanes in args.lanes:
        yield f"kernel, {lanes:,} lanes", lambda n=lanes: raw(env, n, args.frames)
    for lanes in pictured:
        yield f"steps with pictures, {lanes:,}", lambda n=lanes: with_pictures(env, n, _STEPS)
    for seed in SEEDS if args.learn else ():
        for algo in AGENTS:
            yield f"{algo} to {WANTED:g}, seed {seed}", lambda a=algo, s=seed: to_18(a, s)
    yield f"plain, {PLAIN:,} lanes", lambda: raw(env, PLAIN, _PLAIN_FRAMES, plain=True)


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="JSON Lines file to append rows to")
    parser.add_argument("--minutes", type=float, default=7.0, help="no row begins later (7)")
    parser.add_argument("--lanes", nargs="+", type=int, default=LANES, help="machines at a time")
    parser.add_argument("--frames", type=int, default=_FRAMES, help=f"of a measurement ({_FRAMES})")
    parser.add_argument(
        "--compared", type=int, default=_COMPARED, help=f"frames of each game ({_COMPARED})"
    )
    parser.add_argument("--no-learning", dest="learn", action="store_false", help="speed alone")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    args = parsed(argv)
    until, failed = time.time() + 60 * args.minutes, 0
    for name, call in measurements(args):
        if time.time() > until:
            print(f"no time for {name}", flush=True)
            continue
        try:
            found = call()
        except Exception as error:  # a row that fails is a result
            found, failed = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}, failed + 1
        row = {"row": name, "device": jax.devices()[0].device_kind} | found
        print(json.dumps(row), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
