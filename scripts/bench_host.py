"""Environments stepped from the host, one call a step.

    python scripts/bench_host.py --json host.json

`to_gymnasium`: our CartPole as a `gymnasium.vector.VectorEnv` of 1,024 environments, beside
Gymnasium's own vectorized CartPole. `to_gymnasium_inline`: the same with JAX's asynchronous
dispatch on the CPU switched off. `single`: one environment, reset where it ends. `pong`,
`envpool_pong`, `cartpole`: environments on the host (32, 32, 8) by our actors, with a policy (one
hidden layer of --hidden units, so that the loop is measured and not the network) acting for each
step; the same without a policy; rollouts as one program that calls the package's own XLA interface;
and the raw vector with random actions. All of the first three get the same actions, drawn before.
`envpool_cartpole`: the same with 1,024 environments that cost next to nothing. `envpool_async`:
EnvPool's asynchronous mode (batch_size below num_envs) against pools that take turns, as our groups
do, a small policy acting for every batch; and both by our actors.
`ray`: one, two and four groups of actors on Gymnasium's LunarLander, in one thread of this process
and as processes of Ray's. "compile" is the first turn's time beyond a later one's; contestants
share programs. Runs on any device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import bench_common as bench
from _host_loops import NUM_STEPS, in_program, played, raw_vector, stepped, vector_actions

from jaxrl_fast.bench.race import Loop


def vectors(args: argparse.Namespace) -> dict[str, Any]:
    jf = bench.prepare()
    import gymnasium

    num_envs, steps = 1024, max(1, int(4_000 * args.scale))
    env = jf.make("CartPole-v1")
    makes = {
        "jaxrl_fast same_step": lambda: jf.to_gymnasium(env, num_envs),
        "jaxrl_fast same_step views": lambda: jf.to_gymnasium(env, num_envs, copy=False),
        "jaxrl_fast next_step": lambda: jf.to_gymnasium(env, num_envs, autoreset_mode="next_step"),
        "gymnasium next_step": lambda: gymnasium.make_vec("CartPole-v1", num_envs,
                                                          vectorization_mode="vector_entry_point"),
    }
    loops = [Loop(name, steps * num_envs, stepped(make, steps)) for name, make in makes.items()]
    return {"machine": bench.machine()} | bench.race(loops, args.turns)


def inline(args: argparse.Namespace) -> dict[str, Any]:
    bench.prepare()
    import jax

    # before the backend starts; not an environment variable
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return vectors(args) | {"notes": ["jax_cpu_enable_async_dispatch is False"]}


def single(args: argparse.Namespace) -> dict[str, Any]:
    jf = bench.prepare()
    import gymnasium
    import numpy as np

    steps = max(1, int(10_000 * args.scale))
    actions = np.random.default_rng(0).integers(0, 2, steps)

    def build(make):
        env = make()
        env.reset(seed=0)

        def play():
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

        return play

    makes = {
        "jaxrl_fast": lambda: jf.to_gymnasium(jf.make("CartPole-v1")),
        "gymnasium": lambda: gymnasium.make("CartPole-v1"),
    }
    loops = [Loop(name, steps, lambda make=make: build(make)) for name, make in makes.items()]
    return {"machine": bench.machine()} | bench.race(loops, args.turns)


def acted(
    args: argparse.Namespace, name: str, num_envs: int, steps: int,
    raw: Callable[[int], Callable[[], Any]]
) -> dict[str, Any]:  # fmt: skip
    """Our actors, one and two groups, and the package's environments in a program, against `raw`,
    which builds what takes `steps` steps of `num_envs`."""
    jf = bench.prepare()
    import numpy as np

    from jaxrl_fast.actors.threads import Actors

    rollouts, hidden = max(1, steps // NUM_STEPS), (args.hidden,)
    total = rollouts * NUM_STEPS * num_envs

    def vector():
        vector = jf.make(name).open(num_envs, 0)
        vector.reset()
        actions = (
            np.random.default_rng(0).integers(0, vector_actions(name),
                                              (64, num_envs)).astype(np.int32)
        )

        def play():
            for i in range(rollouts * NUM_STEPS):
                vector.send(actions[i % 64])
                vector.receive()

        return play

    build = lambda groups: played(Actors, name, num_envs, rollouts, groups, hidden)
    loops = [Loop(f"jaxrl_fast, {n} actor{'s' * (n > 1)}", total, lambda n=n: build(n))
             for n in (1, 2)]
    loops.append(Loop("jaxrl_fast, no policy", total, vector))
    inside = in_program(name, num_envs, NUM_STEPS, hidden) if name in PICTURES else None
    if inside is not None:
        several = lambda: [inside() for _ in range(rollouts)]
        loops.append(Loop("one program, its xla()", total, lambda: several))
    loops.append(Loop("raw vector", total, lambda: raw(rollouts * NUM_STEPS)))
    return {"machine": bench.machine()} | bench.race(loops, args.turns)


def scheduling(args: argparse.Namespace) -> dict[str, Any]:
    """Waiting of actors and learner for each other: EnvPool's pools of Pong, `batch` of them acted
    for at once, alone or in turns; and our actors."""
    bench.prepare()
    import envpool  # pyright: ignore[reportMissingImports]
    import jax
    import jax.numpy as jnp
    import numpy as np

    steps = max(1, int(8_192 * args.scale))
    weights = jax.random.normal(jax.random.key(0), (84, 6))

    @jax.jit
    def act(obs):
        return (
            jnp.argmax(obs.reshape(len(obs), 84, 84).mean(1) @ weights, axis=-1).astype(jnp.int32))

    def build(pools, num_envs, batch):
        made = [
            envpool.make_gymnasium(
                "Pong-v5", num_envs=num_envs, batch_size=batch, stack_num=1, seed=i
            ) for i in range(pools)
        ]
        for pool in made:
            pool.async_reset()

        def play():
            for _ in range(steps // (pools * batch)):
                for pool in made:
                    obs, *_, info = pool.recv()
                    pool.send(np.asarray(act(obs)), np.array(info["env_id"]))

        return play

    contests = {  # pools, environments of each, of which so many at once
        "16 of 32 as they come": (1, 32, 16),
        "2 pools of 16 in turns": (2, 16, 16),
        "16 of 48 as they come": (1, 48, 16),
        "3 pools of 16 in turns": (3, 16, 16),
        "1 pool of 32": (1, 32, 32),
    }
    taken = lambda pools, batch: steps // (pools * batch) * pools * batch
    loops = [Loop(name, taken(p, b), lambda p=p, n=n, b=b: build(p, n, b))
             for name, (p, n, b) in contests.items()]
    from jaxrl_fast.actors.threads import Actors

    rollouts = max(1, steps // (NUM_STEPS * 32))
    for name, groups, batch in (("batch_size 16 of 32", 1, 16), ("2 actors of 16", 2, 0),
                                ("1 actor of 32", 1, 0)):
        ours = lambda g=groups, b=batch: played(Actors, "envpool:Pong-v5", 32, rollouts, g,
                                                (args.hidden,), batch_size=b)
        loops.append(Loop(f"jaxrl_fast, {name}", rollouts * NUM_STEPS * 32, ours))
    return {"machine": bench.machine()} | bench.race(loops, args.turns)


def processes(args: argparse.Namespace) -> dict[str, Any]:
    bench.prepare()
    import ray  # pyright: ignore[reportMissingImports]

    from jaxrl_fast.actors.ray import RayActors
    from jaxrl_fast.actors.threads import Actors

    name, num_envs, rollouts = "gym:LunarLander-v3", 16, max(1, int(16 * args.scale))
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    kinds = {"threads": Actors, "Ray": RayActors}
    build = lambda kind, groups: played(kinds[kind], name, num_envs, rollouts, groups,
                                        (args.hidden,))
    loops = [
        Loop(f"{groups} of {kind}", rollouts * NUM_STEPS * num_envs,
             lambda k=kind, g=groups: build(k, g))
        for kind in kinds
        for groups in (1, 2, 4)
    ]
    found = {"machine": bench.machine()} | bench.race(loops, args.turns)
    ray.shutdown()
    return found


def hosted(name: str, num_envs: int, steps: int) -> Callable[[argparse.Namespace], dict[str, Any]]:
    return lambda args: acted(args, name, num_envs, max(1, int(steps * args.scale)),
                              raw_vector(name, num_envs))


PICTURES = ("ale:Pong", "envpool:Pong-v5")
ROWS = {
    "to_gymnasium": vectors, "to_gymnasium_inline": inline, "single": single,
    "pong": hosted("ale:Pong", 32, 256), "envpool_pong": hosted("envpool:Pong-v5", 32, 256),
    "cartpole": hosted("gym:CartPole-v1", 8, 4_096),
    "envpool_cartpole": hosted("envpool:CartPole-v1", 1_024, 512), "envpool_async": scheduling,
    "ray": processes,
}  # fmt: skip


def main(argv):
    parser = bench.parser(__doc__, ROWS)
    parser.add_argument("--hidden", type=int, default=4,
                        help="width of the policy's only hidden layer")
    return bench.main(parser.parse_args(argv), ROWS, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
