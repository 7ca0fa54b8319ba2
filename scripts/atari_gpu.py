"""Measure the Atari emulator on a GPU, or estimate it without one.

    python scripts/atari_gpu.py --out atari.jsonl                  # on a card, under ten minutes
    python scripts/atari_gpu.py --estimate --out estimate.jsonl    # with [cuda12] and nvdisasm

On a card: frames compared with ALE, raw frames a second of the kernel and of the plain program,
steps with preprocessing, and the seconds of PPO and PQN to 18 points in Pong. No row begins after
`--minutes`. An estimate compiles the kernel for an H100, and plays recorded lanes of each game
through its machine code; `pip install nvidia-cuda-nvdisasm` brings the disassembler.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _aot_targets as targets

if "--estimate" in sys.argv:
    targets.prepare()  # before JAX starts

import _aot_compile
import _atari_estimate as estimate
import _atari_sass as sass
import _atari_traces as traces
import _gpu_rows as rows
import jax
import jax.numpy as jnp

import jaxrl_fast as jf
from jaxrl_fast.envs.atari import controls, kernel, machine, memory
from jaxrl_fast.testing import check_atari

LANES = (256, 1024, 4096, 16_384, 65_536)
WITH_PICTURES = (1024, 16_384)  # environments that step with preprocessing
PLAIN = 4096
GAMES = (
    "pong", "breakout", "space_invaders", "freeway", "seaquest", "beam_rider", "qbert", "ms_pacman",
    "asterix", "enduro", "alien", "boxing", "road_runner", "frostbite", "kangaroo", "hero",
    "montezuma_revenge", "riverraid", "assault", "demon_attack",
)  # fmt: skip
_WARM = 60  # random frames that part the lanes
_FRAMES, _PLAIN_FRAMES, _STEPS, _TURNS = 20, 2, 5, 3
SEEDS, WANTED, LIMIT, HORIZON = (0, 1, 2), 18.0, 75.0, 8_000_000
# The presets are for 16 environments of a CPU; with so many, a start that nobody has tuned yet.
AGENTS = {
    "ppo": dict(num_envs=4096, num_steps=16, num_minibatches=64),
    "pqn": dict(num_envs=4096, num_steps=16, num_minibatches=64),
}
PICTURES = dict(img_height=42, img_width=42)


@functools.partial(jax.jit, static_argnames=("frames", "plain"))
def play(m: Any, c: Any, rom: Any, key: jax.Array, frames: int, plain: bool = False) -> Any:
    """Return machines and controllers after frames of random actions."""

    def frame(carry: tuple, key: jax.Array) -> tuple:
        m, c = carry
        c, inputs = controls.press(c, jax.random.randint(key, m.done.shape, 0, controls.ACTIONS))
        on = m.bad == 0
        if plain:
            return (machine.run(machine.begin(m, on), inputs, memory.of_arrays(rom)), c), None
        return (machine.frame(m, inputs, rom, on), c), None

    return jax.lax.scan(frame, (m, c), jax.random.split(key, frames))[0]


def timed(call: Any, turns: int = _TURNS) -> list[float]:
    """Return the seconds of `turns` calls, after one that compiles."""
    jax.block_until_ready(call(0))
    found = []
    for turn in range(1, turns + 1):
        began = time.perf_counter()
        jax.block_until_ready(call(turn))
        found.append(time.perf_counter() - began)
    return found


def raw(env: Any, lanes: int, frames: int, plain: bool = False) -> dict[str, Any]:
    """Measure frames a second of `lanes` machines without their pictures."""
    starts = jax.tree.map(jnp.asarray, env.console.starts)
    rom = jax.tree.map(jnp.asarray, env.console.rom)
    at = jax.random.randint(jax.random.key(0), (lanes,), 0, starts.frames.shape[0])
    m, c = jax.tree.map(lambda x: x[at], (starts.machine, starts.controls))
    if not plain:
        m, c = play(m, c, rom, jax.random.key(1), _WARM)
    seconds = timed(lambda turn: play(m, c, rom, jax.random.key(turn), frames, plain))
    bad = int(play(m, c, rom, jax.random.key(0), frames, plain)[0].bad.max())
    rate = lanes * frames / statistics.median(seconds)
    return {"frames_a_second": rate, "seconds": seconds, "bad": bad}


def with_pictures(env: Any, lanes: int, steps: int) -> dict[str, Any]:
    """Measure frames a second of `lanes` environments: `frameskip` frames and a picture a step."""
    state, _ = jax.jit(type(env).init, static_argnums=2)(env, jax.random.key(0), lanes)

    @jax.jit
    def run(env: Any, state: Any, key: jax.Array) -> Any:
        noise = env.draw(key, steps, lanes, jnp.int32(0))

        def step(state: Any, t: jax.Array) -> tuple:
            action = jax.random.randint(jax.random.fold_in(key, t), (lanes,), 0, env.num_actions)
            state, obs, outcome = env.step(noise.at(t), state, action)
            return state, (obs[0], outcome.reward)

        return jax.lax.scan(step, state, jnp.arange(steps))

    seconds = timed(lambda turn: run(env, state, jax.random.key(turn)))
    rate = lanes * steps * env.frameskip / statistics.median(seconds)
    return {"frames_a_second": rate, "seconds": seconds}


def compared(frames: int) -> dict[str, Any]:
    """Compare three games with ALE on this device."""
    report = check_atari(("Pong", "Breakout", "Seaquest"), (0, 1), frames, strict=False)
    return {"compared": report.compared, "equal": report.equal, "difference": report.difference}


def to_18(algo: str, seed: int) -> dict[str, Any]:
    """Train on Pong until log rows show 18 points; its curve has seconds, steps and returns."""
    run = {"seed": seed, "total_steps": HORIZON}
    row = rows.Score(algo, "atari:Pong", WANTED, AGENTS[algo], run, PICTURES, LIMIT)
    return rows.reach(row, time.perf_counter())


def measurements(args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Return names and calls of a card's rows, the most wanted first."""
    env = jf.make("atari:Pong", on_cpu=True)
    yield "equal to ALE", lambda: compared(args.frames)
    for lanes in args.lanes:
        yield f"kernel, {lanes:,} lanes", lambda n=lanes: raw(env, n, args.frames)
    for lanes in (n for n in args.lanes if n in WITH_PICTURES):
        yield f"steps with pictures, {lanes:,}", lambda n=lanes: with_pictures(env, n, _STEPS)
    if not args.learn:
        return
    for seed in SEEDS:
        for algo in AGENTS:
            yield f"{algo} to {WANTED:g}, seed {seed}", lambda a=algo, s=seed: to_18(a, s)
    yield f"plain, {PLAIN:,} lanes", lambda: raw(env, PLAIN, _PLAIN_FRAMES, plain=True)


def estimates(args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Return names and calls of the rows without a card."""
    target = targets.parse("h100")
    with tempfile.TemporaryDirectory() as folder:
        facts, ptx = sass.build(PLAIN, target, args.keep or Path(folder))
        cubin = Path(folder) / "kernel.cubin"
        built = sass.assemble(ptx, cubin)
        code = sass.disassemble(cubin)
    launches = facts["launches"]
    yield "kernel", lambda: built | {"launches": launches}
    step = sass.step(jf.make("atari:Pong", on_cpu=True), PLAIN, target)
    yield "step", lambda: {"launches": _aot_compile.compiled(step, target, args.keep)["launches"]}
    cases = {name: (case, sass.parts(code, case.latencies)) for name, case in estimate.CASES.items()}
    yield "parts", lambda: {n: p._asdict() for n, p in cases["expected"][1].items()}
    for game in args.games:
        yield game, lambda g=game: of_game(g, cases, built["registers"], launches, args.lanes)


def of_game(
    game: str, cases: dict[str, Any], registers: int, launches: int, lanes: tuple[int, ...]
) -> dict[str, Any]:
    """Return a game's turns and its frames a second, low, expected and high."""
    frames = traces.record(game, kernel.WARP)
    turns = {own: traces.mean(frames, own) for own in sorted(set(map(kernel.lanes_of, lanes)))}
    rates: dict[str, dict[str, float]] = {}
    for n in lanes:
        rates[str(n)] = {}
        for name, (case, parts) in cases.items():
            cost = estimate.warp(turns[kernel.lanes_of(n)], case, parts)
            rate = estimate.frames_a_second(n, cost, case, registers, launches)
            rates[str(n)][name] = round(rate)
    return {"turns": {n: t._asdict() for n, t in turns.items()}, "frames_a_second": rates}


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--estimate", action="store_true", help="compile for an H100 instead")
    parser.add_argument("--out", type=Path, help="JSON Lines file to append rows to")
    parser.add_argument("--minutes", type=float, default=7.0, help="no row begins later (7)")
    parser.add_argument("--lanes", nargs="+", type=int, default=LANES, help="machines at a time")
    parser.add_argument("--frames", type=int, default=_FRAMES, help=f"of a measurement ({_FRAMES})")
    parser.add_argument("--no-learning", dest="learn", action="store_false", help="speed alone")
    parser.add_argument("--games", nargs="+", default=GAMES, help="of an estimate")
    parser.add_argument("--keep", type=Path, help="folder of compiled programs, for an estimate")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    args = parsed(argv)
    until, failed = time.time() + 60 * args.minutes, 0
    for name, call in (estimates if args.estimate else measurements)(args):
        if not args.estimate and time.time() > until:
            print(f"no time for {name}", flush=True)
            continue
        try:
            found = call()
        except Exception as error:  # a row that fails is a result
            found, failed = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}, failed + 1
        device = "H100, estimated" if args.estimate else jax.devices()[0].device_kind
        row = {"row": name, "device": device} | found
        print(json.dumps(row), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
