"""Compile programs for a TPU without one: seconds, memory, collectives, host callbacks.

    pip install -e '.[tpu]'
    JAX_PLATFORMS=cpu ALLOW_MULTIPLE_LIBTPU_LOAD=1 python scripts/aot_report.py
    ... scripts/aot_report.py --algorithms ppo --topologies v6e:2x2 --members 64
    JAX_PLATFORMS=cpu python scripts/aot_report.py --topologies cuda:4

The chunk of a population (one log row of it) for every algorithm and topology: members over all chips of the topology, by the
real TPU compiler. `collectives` must be none: no member talks to another. XLA compiles for CUDA only where there is a GPU, so
`cuda:N` is the program that it would get for N of them: what `shard_map` sends along the population, and callbacks, are in it
already (what XLA's partitioner adds along the env axis is not, nor its memory).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

import bench_common
import jax
import jax.numpy as jnp

import jaxrl_fast as jf
from jaxrl_fast.engine import programs as made
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import configurations, gather
from jaxrl_fast.engine.population import Members, Population
from jaxrl_fast.engine.prepared import Prepared

ENVIRONMENTS = {"sac": "Pendulum-v1"}
COLLECTIVES = r"\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast)(?:-start)?\("
LOWERED = r"stablehlo\.(all_reduce|all_gather|all_to_all|collective_permute|reduce_scatter|collective_broadcast)"
CALLBACKS = r"xla_python|xla_ffi_python|host_callback|CallbackCustom|outfeed|infeed"


def chunk_for(devices, algo, env, members, steps=100_000, env_devices=1, **settings):
    """The chunk of a population on these devices (of a topology, or real ones), and its arguments' shapes."""
    mesh = None if env_devices == 1 else {"population": len(devices) // env_devices, "env": env_devices}
    config = RunConfig(total_steps=steps, seeds=members, mesh=mesh, **settings)
    runs, grid = configurations(algo, env, config)
    found = gather(runs, config)
    population = Population(members, "vmap", tuple(devices), env_devices)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), found.run)
    program = made.Programs(Prepared(algo, env, config, Members(found.first, shapes, found.swept), grid, population))
    keys = jax.eval_shape(lambda: jax.vmap(jax.random.key)(jnp.arange(population.padded)))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=population.sharding)
    state = population.abstract_state(program._init.trace(program.run, keys).out_info)
    scalar = jax.ShapeDtypeStruct((), jnp.int32, sharding=population.replicated)
    return program._chunk, (program.run, state, scalar, scalar)


def lower(fn, args, platform):
    """Lowered for the platform of its devices."""
    return fn.trace(*args).lower(lowering_platforms=(platform,))


def report_cuda(fn, args) -> dict:
    """Facts of what XLA would get for CUDA, which is not compiled."""
    text = jax.export.export(fn, platforms=["cuda"])(*args).mlir_module()
    counts = {"modules": r"^module @", "collectives": LOWERED, "callbacks": CALLBACKS}
    return {name: len(re.findall(pattern, text, re.M)) for name, pattern in counts.items()}


def report(compiled) -> dict:
    """Facts of a compiled program; bytes are of one device."""
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
    """Devices of "v5e:2x2" and the like; for "cuda:4" four of the host's, which stand for them."""
    from jax.experimental import topologies

    if name.startswith("cuda:"):
        return jax.devices()[: int(name.removeprefix("cuda:"))]
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["ppo", "dqn", "sac"])
    parser.add_argument("--topologies", nargs="+", default=["v5e:2x2", "v6e:2x2"])
    parser.add_argument("--members", type=int, default=64, help="seeds in all (default 64)")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args(argv)
    places = {name: 0 if not name.startswith("cuda:") else int(name.removeprefix("cuda:")) for name in args.topologies}
    if max(places.values()):
        bench_common.prepare(host_devices=max(places.values()))
    rows = []
    print(f"{'algorithm':12}{'topology':10}{'members':>8}{'trace':>8}{'compile':>9}{'arguments':>12}{'temporaries':>13}"
          f"{'modules':>9}{'collectives':>13}{'callbacks':>11}")  # fmt: skip
    for name in args.algorithms:
        env = jf.make(ENVIRONMENTS.get(name, "CartPole-v1"))
        for place, cuda in places.items():
            row = {"algorithm": name, "topology": place, "members": args.members}
            program = chunk_for(topology(place), jf.preset(name, env.spec.name), env, args.members)
            began = time.perf_counter()
            if cuda:
                row |= report_cuda(*program) | {"trace": time.perf_counter() - began}
            else:
                lowered = lower(*program, "tpu")
                row["trace"] = time.perf_counter() - began
                compiled = lowered.compile()
                row |= {"compile": time.perf_counter() - began - row["trace"]} | report(compiled)
            rows.append(row)
            mib = lambda n: f"{n / 2**20:,.1f} MiB"
            seconds = f"{row['compile']:.1f}s" if "compile" in row else "-"
            sizes = [mib(row[k]) if k in row else "-" for k in ("arguments", "temporaries")]
            cells = f"{name:12}{place:10}{args.members:>8}{row['trace']:>7.1f}s{seconds:>9}{sizes[0]:>12}{sizes[1]:>13}"
            print(f"{cells}{row['modules']:>9}{row['collectives']:>13}{row['callbacks']:>11}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
