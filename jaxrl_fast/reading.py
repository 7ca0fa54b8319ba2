"""One member of a run, out of its run directory."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax

from jaxrl_fast import config as configs
from jaxrl_fast import iterate, tree
from jaxrl_fast.checkpoint import Checkpoints, abstract
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.iterate import Run
from jaxrl_fast.members import build_run, configure
from jaxrl_fast.rundir import RunDir


def read_member(path: Path, order: Sequence[str], member: int | None, modules: Sequence[str]) -> tuple:
    """Return (run, environment, config, state, rows, iterations, score) of one member.

    A best checkpoint holds the agent alone: its state is the agent, and iterations is None.

    Numbers of `run.algo` are Python's.
    """
    if not path.is_dir():
        raise ConfigError("run", str(path), "an existing run directory")
    algo, env, config, _ = configs.load(path, tuple(modules))
    if member is not None:
        check_int("member", member, 0, config.members - 1)
    with Checkpoints(RunDir(path).checkpoints, read_only=True) as checkpoints:
        found = checkpoints.read(order, lambda *one: _read_one(RunDir(path), checkpoints, one, algo, env, config, member))
    if found is None:
        raise ConfigError("run", str(path), f"a run with a checkpoint ({' or '.join(order)}); this has none")
    return found


def _read_one(rundir: RunDir, checkpoints: Checkpoints, one: tuple[str, int], algo, env, config, member) -> tuple:
    """What `read_member` returns, out of one checkpoint (kind, number)."""
    best, meta = one[0] == "best", checkpoints.meta(*one)
    if member is None:
        member = rundir.best_member(config.members, meta.get("best_scores"))
    if member not in meta["lanes"]:
        raise ConfigError("member", member, f"one that this checkpoint holds: {', '.join(map(str, meta['lanes']))}")
    chosen = {name: values[member] for name, values in meta["settings"].items()}
    algo, env = configure(algo, env, config.settings_of(member) | chosen)
    lanes, bound = len(meta["lanes"]), algo.bind(env.spec)
    if best:  # the agent alone: the experience that it has learned from may be gone
        run, like = Run(env, bound, 1.0), jax.eval_shape(lambda: bound.init(jax.random.key(0)))
    else:
        run = build_run(algo, env, config)
        like = jax.eval_shape(lambda: iterate.init(run, jax.random.key(0)))
    if lanes > 1:
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((lanes, *x.shape), x.dtype), like)
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    state = checkpoints.restore(*one, abstract(like, here))
    state = tree.take(state, meta["lanes"].index(member)) if lanes > 1 else state
    rows = meta["best_rows"] if best else meta["rows"]
    scores = meta.get("best_scores") if best else _scores(rundir)
    score = scores[member] if scores else None
    return dataclasses.replace(run, algo=bound), env, config, state, rows, meta.get("iterations"), score


def _scores(rundir: RunDir) -> list[float | None]:
    """How the members evaluated; a result.json that is damaged is a warning, for the agents can be read without it."""
    try:
        return rundir.scores()
    except ConfigError as error:
        warnings.warn(str(error), stacklevel=2)
        return []
