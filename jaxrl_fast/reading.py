"""One member of a run, out of its run directory."""

from __future__ import annotations

import dataclasses
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
    """(run, environment, config, state, rows, iterations, score) of one member; of the best its agent alone, and no
    iterations.

    Numbers of `run.algo` are Python's.
    """
    if not path.is_dir():
        raise ConfigError("run", str(path), "an existing run directory")
    algo, env, config, _ = configs.load(path, tuple(modules))
    checkpoints = Checkpoints(RunDir(path).checkpoints, read_only=True)
    try:
        found = next(((w, checkpoints.latest(w)) for w in order if checkpoints.latest(w) is not None), None)
        if found is None:
            raise ConfigError("run", str(path), f"a run with a checkpoint ({' or '.join(order)}); this has none")
        if member is not None:
            check_int("member", member, 0, config.members - 1)
        meta = checkpoints.meta(*found)
        if member is None:
            member = RunDir(path).best_member(meta.get("best_scores"))
        if member not in meta["lanes"]:
            raise ConfigError("member", member, f"one that this checkpoint holds: {', '.join(map(str, meta['lanes']))}")
        chosen = {name: values[member] for name, values in meta["settings"].items()}
        algo, env = configure(algo, env, config.settings_of(member) | chosen)
        best, lanes, bound = found[0] == "best", len(meta["lanes"]), algo.bind(env.spec)
        if best:  # the agent alone: the experience that it has learned from may be gone
            run, like = Run(env, bound, 1.0), jax.eval_shape(lambda: bound.init(jax.random.key(0)))
        else:
            run = build_run(algo, env, config)
            like = jax.eval_shape(lambda: iterate.init(run, jax.random.key(0)))
        if lanes > 1:
            like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((lanes, *x.shape), x.dtype), like)
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        state = checkpoints.restore(*found, abstract(like, here))
    finally:
        checkpoints.close()
    state = tree.take(state, meta["lanes"].index(member)) if lanes > 1 else state
    rows = meta["best_rows"] if best else meta["rows"]
    scores = meta.get("best_scores") if best else RunDir(path).scores()
    score = scores[member] if scores else None
    return dataclasses.replace(run, algo=bound), env, config, state, rows, meta.get("iterations"), score
