"""Build programs to compile ahead of time: runs, iterations, chunks, evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from _aot_targets import Target
from bench_common import Contestant

import jaxrl_fast as jf
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine import programs as made
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import plan_grid
from jaxrl_fast.engine.members import configurations, gather
from jaxrl_fast.engine.population import Members, Population
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, check_choice
from jaxrl_fast.ops import lowering


class Program(NamedTuple):
    """A jitted function with its arguments' shapes, laid over a target's devices."""

    fn: Any
    args: tuple
    iterations: int | None  # of its training loop; None: it has none, all of it counts once


class Work(NamedTuple):
    """Our programs to compile."""

    algo: Algorithm
    env: Env
    steps: int = 500_000  # environment steps of a member
    seeds: int = 1
    env_devices: int = 1  # devices of one member


Devices = Sequence[Any]


def run(work: Work, devices: Devices) -> Program:
    """`make_train`, vmapped over keys for several seeds."""
    train = jf.make_train(work.algo, work.env, total_steps=work.steps)
    grid = plan_grid(work.algo.bind(work.env.spec), RunConfig(total_steps=work.steps))
    return _of_keys(train, jax.random.key, work.seeds, devices, grid.rows * grid.row)


def one_iteration(work: Work, devices: Devices) -> Program:
    """A rollout and its updates, as the body of every training program has them."""
    programs, state = _programs(work, _one(work, "iteration", devices))
    count = lambda run, state, t: iteration.iterations(run, state, t, 1, True)
    fn = programs.population.lift(count, swept=programs.prepared.members.swept)
    return Program(jax.jit(fn, donate_argnums=1), (programs.run, state, _scalar(programs)), None)


def chunk(work: Work, devices: Devices) -> Program:
    """The program that `jf.train` calls: log rows of a population. One row is counted."""
    programs, state = _programs(work, devices)
    return Program(
        programs._chunk, (programs.run, state, *[_scalar(programs)] * 2), programs.grid.row
    )


def evaluation(work: Work, devices: Devices) -> Program:
    """The evaluation of a population, 128 episodes a member."""
    programs, state = _programs(work, devices)
    return Program(
        programs._evaluate, (programs.run, (state.agent, state.key), _scalar(programs)), None
    )


KINDS: dict[str, Callable[[Work, Devices], Program]] = {
    "run": run, "iteration": one_iteration, "chunk": chunk, "evaluation": evaluation,
}  # fmt: skip


def build(kind: str, work: Work, target: Target) -> Program:
    """Return a program of ours for a target. Raises ConfigError for what cannot be built."""
    check_choice("what", kind, KINDS)
    with lowering.known(target.platform):
        return KINDS[kind](work, target.devices())


def peer(contestant: Contestant, seeds: int, iterations: int, target: Target) -> Program:
    """Return a peer's program, vmapped over keys for several seeds."""
    key = lambda turn: contestant.args(turn)[0]
    return _of_keys(contestant.build(), key, seeds, target.devices(), iterations)


def _of_keys(
    train: Callable, key: Callable, seeds: int, devices: Devices, iterations: int
) -> Program:
    keys = jax.eval_shape(lambda: key(0) if seeds == 1 else jax.vmap(key)(jnp.arange(seeds)))
    where = jax.sharding.SingleDeviceSharding(_one(None, "run", devices)[0])
    fn = train if seeds == 1 else jax.vmap(train)
    return Program(
        jax.jit(fn), (jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=where),), iterations
    )


def _one(_: Any, kind: str, devices: Devices) -> Devices:
    if len(devices) > 1:
        wanted = "chunk or evaluation on several devices: only populations are laid over them"
        raise ConfigError("what", kind, wanted)
    return devices


def _programs(work: Work, devices: Devices) -> tuple[made.Programs, Any]:
    """Return the programs of a population on `devices`, and the shapes of its state."""
    mesh = (
        None
        if work.env_devices == 1
        else {"population": len(devices) // work.env_devices, "env": work.env_devices}
    )
    config = RunConfig(total_steps=work.steps, seeds=work.seeds, mesh=mesh)
    runs, grid = configurations(work.algo, work.env, config)
    found = gather(runs, config)
    population = Population(work.seeds, "vmap", tuple(devices), work.env_devices)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), found.run)
    members = Members(found.first, shapes, found.swept)
    programs = made.Programs(Prepared(work.algo, work.env, config, members, grid, population))
    key = jax.random.key if work.seeds == 1 else jax.vmap(jax.random.key)  # one member has no axis
    keys = jax.eval_shape(
        key, jax.ShapeDtypeStruct((population.padded,) * (work.seeds > 1), jnp.uint32)
    )
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=population.sharding)
    return programs, population.abstract_state(programs._init.trace(programs.run, keys).out_info)


def _scalar(programs: made.Programs) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), jnp.int32, sharding=programs.population.replicated)
