"""Reading one member from a run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.members import build_run, configure, in_turn, one_at_a_time
from jaxrl_fast.engine.placement import found_devices
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, SubstituteWarning, check_int, expected
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.arrays import abstract
from jaxrl_fast.runs.checkpoints.errors import DamagedError
from jaxrl_fast.runs.checkpoints.settings import BYTES, KEY, check_settings, settings_of
from jaxrl_fast.runs.checkpoints.store import KINDS, Checkpoints
from jaxrl_fast.runs.rundir import RunDir, run_path, seed_folder


def read_member(path: str | Path, order: Sequence[str], member: int | None,
                modules: Sequence[str]) -> tuple:
    """Return (run, environment, config, state, rows, iterations, score) of one member.

    A best checkpoint holds only the agent: it is the state, and iterations is None.
    """
    path = run_path("run", path)
    algo, env, config, _ = configs.load(path, modules)
    found_devices()
    if member is not None:
        check_int("member", member, 0, config.members - 1)
    if in_turn(env, config):
        seed = config.seed + _seed_of(path, order, config, member)
        one = one_at_a_time(env, config, seed - config.seed)
        check_seed(seed_folder(path, seed), algo, env, one, modules)
        return read_member(seed_folder(path, seed), order, 0, modules)
    with Checkpoints(RunDir(path).checkpoints, read_only=True) as checkpoints:
        read = lambda *one: _read_one(RunDir(path), checkpoints, one, algo, env, config, member)
        found = checkpoints.read(order, read)
    if found is None:
        raise ConfigError("run", str(path),
                          f"a run with a checkpoint ({' or '.join(order)}); this has none")
    return found


def check_seed(folder: Path, algo: Algorithm, env: Environment,
               wanted_config: RunConfig, modules: Sequence[str] = ()) -> None:
    """Raise ConfigError unless `folder` holds the run of one seed, with these settings.

    wanted_config: the seed's, by the config.json of the run that it is a part of.
    """
    its_algo, its_env, config, _ = configs.load(folder, modules)
    seed = wanted_config.seed
    pairs = {
        "algorithm": (configs.encode_algorithm(its_algo), configs.encode_algorithm(algo)),
        "environment": (configs.encode_environment(its_env), configs.encode_environment(env)),
    }
    remedy = f"move {folder.name} elsewhere, or make the two agree"
    for name, (own, wanted) in pairs.items():
        if own != wanted:
            at, found, valid = _difference(name, own, wanted)
            raise expected(f"{at} of {folder}", f"{valid!r}, as in the run it is a part of",
                           f"{found!r}; {remedy}")
    if (config.seed, config.seeds) != (seed, 1):
        raise expected(f"seed of {folder}", str(seed),
                       f"{config.seed} with seeds = {config.seeds}; {remedy}")
    written = settings_of_folder(folder, its_algo, its_env, config)
    check_settings(folder.parent / "config.json", folder, written, algo, env, wanted_config)


def settings_of_folder(folder: Path, algo: Algorithm, env: Environment,
                       config: RunConfig) -> dict[str, Any]:
    """Return the settings of a run as its checkpoints' metadata has them.

    algo, env, config: by its config.json, which does not tell how its networks scale bytes.
    """
    found = settings_of(algo, env, config)
    with Checkpoints(RunDir(folder).checkpoints, read_only=True) as checkpoints:
        for which in KINDS if BYTES in found else ():
            for number in checkpoints.numbers(which)[:1]:
                with contextlib.suppress(DamagedError):
                    if BYTES not in checkpoints.meta(which, number).get(KEY, {}):
                        found.pop(BYTES, None)
    return {KEY: found}


def _difference(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Return (name, value, other value) of the first difference of two JSON values."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return name, one, other
    differs = next(key for key in {**other, **one} if key not in one
                   or key not in other or one[key] != other[key])
    return _difference(f"{name}.{differs}", one.get(differs), other.get(differs))


def _seed_of(path: Path, order: Sequence[str], config: RunConfig, member: int | None) -> int:
    """Return the seed to read among those that take turns; None: the best evaluated."""
    folders = [seed_folder(path, seed) for seed in config.member_seeds()]
    here = [i for i, folder in enumerate(folders)
            if any((folder / "checkpoints" / kind).is_dir() for kind in order)]
    if not here:
        raise ConfigError("run", str(path), f"a run with a checkpoint ({' or '.join(order)}); no "
                                            "seed of this one has any")
    if member is not None and member not in here:
        raise ConfigError("member", member,
                          f"one that has a checkpoint ({', '.join(map(str, here))})")

    def score(i: int) -> float:
        # without it another seed is the best
        result = _result(RunDir(folders[i]), SubstituteWarning)
        found = (result.get("best_eval_return") if order[0] == "best"
                 else next(iter(result.get("eval_return", ())), None))
        return found if isinstance(found, (int, float)) else -math.inf

    return max(here, key=score) if member is None else member


def read_meta(checkpoints: Checkpoints, which: str, number: int, algo: Algorithm, env: Environment,
              config: RunConfig) -> dict[str, Any]:
    """Return a checkpoint's metadata. Raises ConfigError if config.json has been edited."""
    file, folder = checkpoints.folder.parent / "config.json", checkpoints.folder / which
    check = lambda meta: check_settings(file, folder / str(number), meta, algo, env, config)
    try:
        meta = checkpoints.meta(which, number, config.members)
    except DamagedError:  # or another number of members, which `check` names
        with contextlib.suppress(DamagedError):
            check(checkpoints.meta(which, number))
        raise
    check(meta)
    return meta


def _read_one(rundir: RunDir, checkpoints: Checkpoints, one: tuple[str, int],
              algo, env, config, member) -> tuple:
    best, meta = one[0] == "best", read_meta(checkpoints, *one, algo, env, config)
    if member is None:
        member = rundir.best_member(config.members, meta.get("best_scores"))
    if member not in meta["lanes"]:
        raise ConfigError("member", member,
                          f"one that this checkpoint holds ({', '.join(map(str, meta['lanes']))})")
    chosen = {name: values[member] for name, values in meta["settings"].items()}
    algo, env = configure(algo, env, config.settings_of(member) | chosen)
    lanes, bound = len(meta["lanes"]), algo.bind(env.spec)
    if best:  # the agent alone: its experience may be gone
        run, like = Run(env, bound, 1.0), jax.eval_shape(_agent, bound, jax.random.key(0))
    else:
        run = build_run(algo, env, config)
        like = jax.eval_shape(iteration.init, run, jax.random.key(0))
    if lanes > 1:
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((lanes, *x.shape), x.dtype), like)
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    state = checkpoints.restore(*one, abstract(like, here))
    state = tree.take(state, meta["lanes"].index(member)) if lanes > 1 else state
    rows = meta["best_rows"] if best else meta["rows"]
    scores = meta.get("best_scores") if best else _result(rundir).get("eval_return")
    score = scores[member] if scores and member < len(scores) else None
    run = dataclasses.replace(run, algo=bound)
    return run, env, config, state, rows, meta.get("iterations"), score


def _agent(algo: Algorithm, key: jax.Array) -> Any:
    return algo.init(key)


def _result(rundir: RunDir, category: type[Warning] = UserWarning) -> dict[str, Any]:
    """Return result.json, empty without one; warn of a damaged one, which agents do not need."""
    try:
        return rundir.result() if (rundir.path / "result.json").is_file() else {}
    except ConfigError as error:
        warnings.warn(str(error), category, stacklevel=2)
        return {}
