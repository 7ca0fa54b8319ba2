"""Measure continuous control: brax steps, PPO and SAC against brax, rejax and SBX.

    python scripts/bench_control.py --rejax ~/rejax --json control.json
    python scripts/bench_control.py --rows step_ant sac_pendulum --turns 3
    python scripts/bench_control.py --rows sac_sbx --sbx-python ~/sbx/bin/python  # with PyTorch

Rows: `step_NAME` steps 128 environments with our resets and with brax's, 100 steps a rollout, and
    `step_one_NAME` with
rollouts of one step, as off-policy algorithms have them, `step_many_NAME` 2,048 of them, 20 steps;
`ppo_inverted_pendulum` and `ppo_ant` are brax's PPO at its settings; `sac_pendulum` is rejax's SAC
at its settings; `sac_sbx` counts updates a second of 256-256 networks and batches of 256 on
Pendulum-v1; `first_step` compiles PPO on ant and takes one iteration, as one program and as a run.
brax's trainers are loops on the host: its numbers are its own reports (`training/sps`), compile
left out. Runs on any device.

`learn_NAME` trains PPO on brax's NAME (spring): our preset, brax's trainer at its numbers and
widths, and at those of brax's notebook, `--seeds` times `--total-steps` each, and compares their
last evaluations. `resets_NAME` does so with our
preset and three ways to begin an episode: a pool, a reset in every step, brax's cached state. These
    rows take hours on a
CPU (give them `--timeout`), and run only when they are named.
"""

from __future__ import annotations

import copy
import statistics
import sys
import tempfile
import time
import warnings
from typing import Any

import _peers
import bench_common as bench
from _brax import (
    ANT,
    LENGTH,
    PENDULUM,
    brax_trainer,
    in_its_names,
    iteration_steps,
    our_ppo,
    shrunk,
)
from _sac import sac_pendulum, sac_sbx
from bench_common import Contestant

warnings.filterwarnings("ignore", module="brax|mujoco")

MANY = ("ant", "halfcheetah", "humanoid", "hopper", "inverted_pendulum")

# Stepping
# --------------------------------------------------------------------------------------------------


def step(args, name, rollout, envs=128, steps=100):
    """Random actions in one scan of rollouts; brax's wrapper puts a cached first state back."""
    jf = bench.prepare()
    import jax
    import jax.numpy as jnp

    notes, contestants = [f"{envs} environments, {rollout} steps a rollout"], []

    def ours_with(resets):
        env = jf.make(f"brax/{name}", backend="spring", resets=resets)
        algo = jf.PPO(num_envs=envs).bind(env.spec)
        from jaxrl_fast.engine.rollout import collect, draw, init
        from jaxrl_fast.types import Clock

        clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))

        def run(key):
            keys = jax.random.split(key, 3)
            agent = algo.init(keys[0])

            def iteration(actor, key):
                noise = draw(env, algo, jax.random.split(key), rollout, envs, jnp.int32(0))
                actor, trajectory = collect(env, algo, agent, actor, noise, clock, "random")
                return actor, (trajectory.steps.reward, trajectory.steps.next_obs)

            actor = init(env, algo, keys[1], envs)
            return jax.lax.scan(iteration, actor, jax.random.split(keys[2], steps // rollout))[1]

        return run

    def brax_wrapper():
        from brax import envs as brax_envs

        env = brax_envs.training.wrap(brax_envs.get_environment(name, backend="spring"),
                                      episode_length=LENGTH)

        def run(key):
            keys = jax.random.split(key, envs + 1)
            actions = jax.random.uniform(keys[-1], (steps, envs, env.action_size), minval=-1.0)

            def one(state, action):
                state = env.step(state, action)
                return state, (state.reward, state.obs)

            return jax.lax.scan(one, env.reset(keys[:-1]), actions)[1]

        return run

    raw = lambda turn: (jax.random.PRNGKey(turn),)
    for resets in ("pool", "every_step"):
        contestants.append(
            Contestant(f"jaxrl_fast, {resets}", envs * steps, lambda r=resets: ours_with(r), raw))
    contestants.append(Contestant("brax, cached first state", envs * steps, brax_wrapper, raw))
    return {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.turns)


# PPO against brax
# --------------------------------------------------------------------------------------------------


def brax_ppo(name, config, iterations):
    """Steps a second that brax's trainer reports for the fastest of four epochs: the first ones
    compile."""
    from brax import envs as brax_envs

    ppo, speeds = brax_trainer(), []

    def progress(_, metrics):
        if "training/sps" in metrics:
            speeds.append(float(metrics["training/sps"]))

    ppo.train(
        brax_envs.get_environment(name, backend="spring"),
        num_timesteps=4 * iterations * iteration_steps(config),
        episode_length=LENGTH, num_evals=5, num_eval_envs=8, max_devices_per_host=1,
        progress_fn=progress, **config,
    )  # fmt: skip
    return max(speeds)


def our_speed(jf, name, config, iterations):
    """Steps a second of our program after its first run."""
    import jax

    algo, steps = our_ppo(jf, config), iterations * iteration_steps(config)
    train = jax.jit(
        jf.make_train(algo, jf.make(f"brax/{name}", backend="spring"), total_steps=steps))
    program = train.lower(jax.random.key(0)).compile()

    def run(turn):
        began = time.perf_counter()
        jax.block_until_ready(program(jax.random.key(turn)))
        return steps / (time.perf_counter() - began)

    run(0)
    return run


def ppo(args, name, config, iterations):
    """Run in turns; every turn of brax compiles again, which its own number leaves out."""
    jf = bench.prepare()
    config = shrunk(config, args.scale)
    mine = our_speed(jf, name, config, iterations)
    speeds = {"jaxrl_fast": [], "brax": []}
    for turn in range(args.turns):
        for who in ("jaxrl_fast", "brax") if turn % 2 == 0 else ("brax", "jaxrl_fast"):
            speeds[who].append(mine(turn) if who == "jaxrl_fast"
                               else brax_ppo(name, config, iterations))
            bench.say(
                f"    turn {turn + 1}/{args.turns}  {who:<12} {speeds[who][-1]:>12,.0f} steps/s")
    ratios = [a / b for a, b in zip(speeds["jaxrl_fast"], speeds["brax"], strict=True)]
    bench.say(f"  speed of jaxrl_fast / brax: {statistics.median(ratios):.2f} "
              f"({' '.join(f'{x:.2f}' for x in ratios)})")
    notes = []
    notes += [f"num_envs {config['num_envs']}, batch_size {config['batch_size']}, {iterations} "
              f"iterations a turn"]
    return {"machine": bench.machine(), "notes": notes, "speeds": speeds,
            "ratio": statistics.median(ratios)}


# What is learned
# --------------------------------------------------------------------------------------------------

LEARN = ("inverted_pendulum", "reacher", "hopper", "halfcheetah", "walker2d", "ant")


def scored(scores):
    return {"mean": statistics.fmean(scores), "interval": bench.interval(scores), "scores": scores}


def shown(row):
    return (
        f"{row['mean']:.1f} ± {row['interval']:.1f} ({' '.join(f'{s:.0f}' for s in row['scores'])})"
    )


def brax_score(name, config, steps, seed, episodes):
    """Mean return of deterministic episodes after so many steps (whole training steps, at least
    one)."""
    from brax import envs as brax_envs

    _, _, metrics = brax_trainer().train(
        brax_envs.get_environment(name, backend="spring"), num_timesteps=steps,
        episode_length=LENGTH, num_evals=1,
        num_eval_envs=episodes, deterministic_eval=True, max_devices_per_host=1, seed=seed,
        **config,
    )  # fmt: skip
    return float(metrics["eval/episode_reward"])


def learn(args, name):
    """Seed by seed; a seed's score is its last evaluation. brax's trainer compiles for each, so
    compiled programs are kept."""
    with tempfile.TemporaryDirectory() as cache:
        return learn_beside(args, name,
                            bench.prepare(host_devices=min(args.seeds, bench.cores()), cache=cache))


def learn_beside(args, name, jf):
    algo, steps, episodes = jf.preset("ppo", f"brax/{name}"), args.total_steps, args.eval_episodes
    env = jf.make(f"brax/{name}", backend="spring")
    run = jf.train(algo, env, steps, seeds=args.seeds, eval_every=0, eval_episodes=episodes)
    scores = {"jaxrl_fast, its preset": [float(x) for x in run.eval_return]}
    bench.say(f"    {scores}")
    rivals: dict[str, dict[str, Any]] = {
        "brax, our settings and sizes of networks": in_its_names(algo)}
    if steps >= 10 * iteration_steps(PENDULUM):  # of its notebook's large batches, ten at least
        rivals["brax, its notebook's settings"] = ANT if name == "ant" else PENDULUM
    for who, config in rivals.items():
        scores[who] = []
        for seed in range(args.seeds):
            scores[who].append(brax_score(name, config, steps, seed, episodes))
            bench.say(f"    {who}, seed {seed}: {scores[who][-1]:.1f}")
    rows = {who: scored(x) for who, x in scores.items()}
    for who, x in rows.items():
        bench.say(f"  {name}, {steps:,} steps, {who}: {shown(x)}")
    notes = [f"{steps:,} steps, {args.seeds} seeds, {episodes} episodes each"]
    return {"machine": bench.machine(), "notes": notes, "scores": rows}


def cached(env):
    """`env`, every copy of which begins each episode in the state that was drawn for it at first,
    as brax's wrapper has it."""
    import jax

    from jaxrl_fast.envs.resets import Frozen, Resets

    class Cached(Resets):
        def draw(self, env, key, num_steps, num_envs, t):
            frozen = Frozen(env.init(jax.random.key(7), num_envs))
            return frozen.draw(env, key, num_steps, num_envs, t)

    env = copy.copy(env)
    env.resets = Cached()
    return env


def resets(args, name):
    """Learning under the three ways to begin an episode: PPO's preset; evaluations begin in fresh
    states for all."""
    jf = bench.prepare(host_devices=min(args.seeds, bench.cores()))
    ways = {how: jf.make(f"brax/{name}", backend="spring", resets=how)
            for how in ("pool", "every_step")}
    ways["brax's cached state"] = cached(ways["pool"])
    rows = {}
    for how, env in ways.items():
        settings = {"seeds": args.seeds, "eval_every": 0, "eval_episodes": args.eval_episodes}
        run = jf.train(jf.preset("ppo", f"brax/{name}"), env, args.total_steps, **settings)
        rows[how] = scored([float(x) for x in run.eval_return]) | {
            "steps_per_second": run.steps_per_second}
        bench.say(f"  {name}, {args.total_steps:,} steps, {how}: {shown(rows[how])}; "
                  f"{run.steps_per_second:,.0f} steps/s")
    return {"machine": bench.machine(),
            "notes": [f"{args.seeds} seeds, {args.eval_episodes} episodes each"], "scores": rows}


# Start
# --------------------------------------------------------------------------------------------------


def first_step(args):
    """Seconds from a made environment to the end of the first iteration of PPO on ant, compiled
    without any cache."""
    jf = bench.prepare()
    import jax
    from brax.envs import get_environment

    config = shrunk(ANT, min(args.scale, 1 / 32))  # the program is the same, its iteration short
    steps = iteration_steps(config)

    def program(env):
        jax.block_until_ready(
            jax.jit(jf.make_train(our_ppo(jf, config), env, total_steps=steps))(jax.random.key(0)))

    def whole_run(env):  # as by the command line: further programs, and what stands around them
        first = []

        def note(session, rows):
            if not first:
                first.append(time.perf_counter())

        jf.train(our_ppo(jf, config), env, 2 * steps, log_every=steps, eval_every=0,
                 eval_episodes=8, hooks=[note])
        return first[0]

    def brax(env):
        brax_trainer().train(env, num_timesteps=steps, episode_length=LENGTH, num_evals=1,
                             max_devices_per_host=1,
                  run_evals=False, **config)  # fmt: skip

    contestants = {"jaxrl_fast": program, "jaxrl_fast, train": whole_run, "brax": brax}
    times = {who: [] for who in contestants}
    for turn in range(args.turns + 1):
        for who, run in contestants.items():
            jax.clear_caches()
            env = get_environment("ant", backend="spring") if who == "brax" else jf.make(
                "brax/ant", backend="spring")
            began = time.perf_counter()
            ended = run(env) or time.perf_counter()
            bench.say(f"    {f'turn {turn}/{args.turns}' if turn else 'unmeasured':<12} {who:<18} "
                      f"{ended - began:.1f} s")
            if turn:  # the first one pays for imports
                times[who].append(ended - began)
    ratios = {}
    for who in ("jaxrl_fast", "jaxrl_fast, train"):
        turns = [a / b for a, b in zip(times[who], times["brax"], strict=True)]
        ratios[f"{who} / brax"] = {"median": statistics.median(turns), "turns": turns}
        bench.say(f"  time of {who} / brax: {statistics.median(turns):.2f} "
                  f"({' '.join(f'{x:.2f}' for x in turns)})")
    return {"machine": bench.machine(), "notes": [], "times": times, "ratios_of_time": ratios}


ROWS = {
    "step_ant": lambda args: step(args, "ant", 100),
    "step_inverted_pendulum": lambda args: step(args, "inverted_pendulum", 100),
    "step_one_ant": lambda args: step(args, "ant", 1),
    "step_one_inverted_pendulum": lambda args: step(args, "inverted_pendulum", 1),
    **{f"step_many_{name}": lambda args, name=name: step(args, name, 20, 2048, 20)
       for name in MANY},
    "ppo_inverted_pendulum": lambda args: ppo(args, "inverted_pendulum", PENDULUM, 3),
    "ppo_ant": lambda args: ppo(args, "ant", ANT, 1),
    "sac_pendulum": sac_pendulum,
    "sac_sbx": sac_sbx,
    "first_step": first_step,
} | {f"learn_{name}": lambda args, name=name: learn(args, name) for name in LEARN}
ROWS |= {f"resets_{name}": lambda args, name=name: resets(args, name) for name in LEARN}


def main(argv):
    parser = bench.parser(__doc__, ROWS, turns=3)
    _peers.add_arguments(parser, "rejax")
    parser.add_argument("--sbx-python", help="the Python of an environment that has sbx-rl")
    parser.add_argument("--seeds", type=int, default=5,
                        help="of the rows learn_NAME and resets_NAME (default 5)")
    parser.add_argument("--total-steps", type=lambda x: int(float(x)), default=3_000_000,
                        help="of theirs (default 3e6)")
    parser.add_argument("--eval-episodes", type=int, default=128,
                        help="deterministic episodes of each of theirs (default 128)")
    parser.set_defaults(rows=[name for name in ROWS if not name.startswith(("learn_", "resets_"))])
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
