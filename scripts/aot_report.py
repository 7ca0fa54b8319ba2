"""What a program is on a TPU, compiled here without one: seconds, memory, collectives, host callbacks.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu ALLOW_MULTIPLE_LIBTPU_LOAD=1 python scripts/aot_report.py
    ... scripts/aot_report.py --algorithms ppo --topologies v6e:2x2 --members 64

The chunk of a population (one log row of it) for every algorithm and topology: members over all chips of the topology, by the
real TPU compiler. `collectives` must be none: no member talks to another.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

import bench_common  # noqa: F401  (this folder on the path)

import jaxrl_fast as jf
from jaxrl_fast import programs as made
from jaxrl_fast.grid import RunConfig, plan_grid
from jaxrl_fast.members import gather
from jaxrl_fast.population import Members, Population

ENVIRONMENTS = {"sac": "Pendulum-v1"}
COLLECTIVES = r"\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast)(?:-start)?\("
CALLBACKS = r"xla_python|host_callback|CallbackCustom|outfeed|infeed"


def chunk_for(devices, algo, env, members, steps=100_000, env_devices=1, **settings):
    """The compiled chunk of a population on these devices (of a topology, or real ones)."""
    import jax
    import jax.numpy as jnp

    mesh = None if env_devices == 1 else {"population": len(devices) // env_devices, "env": env_devices}
    config = RunConfig(total_steps=steps, seeds=members, mesh=mesh, **settings)
    found = gather(algo, env, config)
    population = Population(members, "vmap", tuple(devices), env_devices)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), found.run)
    program = made.Programs(Members(found.first, shapes, found.swept), plan_grid(found.first.algo, config), population, config)
    keys = jax.eval_shape(lambda: jax.vmap(jax.random.key)(jnp.arange(population.padded)))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=population.sharding)
    state = population.abstract_state(program._init.trace(program.run, keys).out_info)
    scalar = jax.ShapeDtypeStruct((), jnp.int32, sharding=population.replicated)
    began = time.perf_counter()
    lowered = program._chunk.trace(program.run, state, scalar, scalar).lower(lowering_platforms=(devices[0].platform,))
    traced = time.perf_counter()
    return lowered.compile(), traced - began, time.perf_counter() - traced


def report(compiled) -> dict:
    """Facts of a compiled program."""
    text = compiled.as_text()
    memory = compiled.memory_analysis()
    return {
        "modules": len(re.findall(r"^HloModule ", text, re.M)),
        "collectives": len(re.findall(COLLECTIVES, text)),
        "callbacks": len(re.findall(CALLBACKS, text)),
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
    }


def topology(name):
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["ppo", "dqn", "sac"])
    parser.add_argument("--topologies", nargs="+", default=["v5e:2x2", "v6e:2x2"])
    parser.add_argument("--members", type=int, default=64, help="seeds in all (default 64)")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args(argv)
    rows = []
    print(f"{'algorithm':12}{'topology':10}{'members':>8}{'trace':>8}{'compile':>9}{'arguments':>12}{'temporaries':>13}"
          f"{'modules':>9}{'collectives':>13}{'callbacks':>11}")  # fmt: skip
    for name in args.algorithms:
        env = jf.make(ENVIRONMENTS.get(name, "CartPole-v1"))
        for place in args.topologies:
            compiled, traced, seconds = chunk_for(topology(place), jf.preset(name, env.spec.name), env, args.members)
            row = {"algorithm": name, "topology": place, "members": args.members, "trace": traced, "compile": seconds}
            row |= report(compiled)
            rows.append(row)
            mib = lambda n: f"{n / 2**20:,.1f} MiB"
            cells = f"{name:12}{place:10}{args.members:>8}{traced:>7.1f}s{seconds:>8.1f}s{mib(row['arguments']):>12}"
            counts = f"{row['modules']:>9}{row['collectives']:>13}{row['callbacks']:>11}"
            print(f"{cells}{mib(row['temporaries']):>13}{counts}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
