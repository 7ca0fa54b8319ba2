"""The settings that a checkpoint was trained with, beside it; config.json must still say them.

Settings that a resume may change, and those of speed, logs and places, are left out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, float32
from jaxrl_fast.networks.layers import has_bytes_in_vectors
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.config_values import encode

KEY = "settings_of_config"  # in a checkpoint's metadata; older versions lack it
# of the run, beside its selection and the groups in which it samples
RUN = ("seed", "seeds", "population", "eval_mode", "ahead", "experience_fraction", "experience_id")
PATHS = ("class", "import", "network")  # keys of encoded objects whose value is "module:name"
LONGEST = 400  # characters of a value; longer ones are written as a digest
MOST = 4  # differences in an error
BYTES = "bytes_in_vectors"  # their scale; absent in older checkpoints, which had another


class Difference(NamedTuple):
    name: str  # as a flag: "algo.activation", "env.gravity", "seed"
    written: Any  # encoded, as in config.json; None: not there
    now: Any


def settings_of(algo: Algorithm, env: Environment, config: RunConfig) -> dict[str, Any]:
    """Return {flag: encoded value} of the settings that decide a run's numbers."""
    algorithm, environment = configs.encode_algorithm(algo), configs.encode_environment(env)
    run = configs.encode_run(config)
    found = {"algorithm": {"class": algorithm["class"]}}
    found |= _flat("algo", algorithm["settings"])
    if "object" in environment:
        found["environment"] = {"class": environment["object"]["class"]}
        found |= _flat("env", environment["object"]["fields"])
    else:
        found["environment"] = environment["name"]
        found |= _flat("env", environment["settings"])
    found |= {name: run[name] for name in RUN} | {"groups": config.sampling_groups}
    selection = dict(run["selection"] or {"kind": None})
    found |= {"selection": selection.pop("kind"), **_flat("selection", selection)}
    if has_bytes_in_vectors(env.spec.observation):
        found[BYTES] = "fraction and logarithm"
    return {name: _short(value) for name, value in found.items()}


def _flat(prefix: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x for key, value in settings.items()
            for name, x in _flat_value(f"{prefix}.{key}", value)}


def _flat_value(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects by their own names."""
    if isinstance(value, dict) and value.keys() == {"class", "fields"}:
        yield name, {"class": value["class"]}
        yield from _flat(name, value["fields"]).items()
    else:
        yield name, value


def _short(value: Any) -> Any:
    text = json.dumps(_normal(value))
    if len(text) <= LONGEST:
        return json.loads(json.dumps(value))  # a tuple is a list
    return {"digest": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}


def _normal(value: Any) -> Any:
    """Return an encoded value in one form for all values that `_same` takes for one setting."""
    if isinstance(value, dict):
        return {key: _place(x) if key in PATHS else _normal(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(x) for x in value]
    if not isinstance(value, float):
        return value
    near = float32(value)
    return int(near) if near.is_integer() else float(str(np.float32(near)))


def check_settings(
    file: Path, checkpoint: Path, written: Mapping[str, Any], algo: Algorithm, env: Environment,
    config: RunConfig,
) -> None:  # fmt: skip
    """Raise ConfigError if config.json (`file`) says other settings than the checkpoint's.

    written: the checkpoint's metadata. Those of older versions have no settings and pass. Raises
    for those whose observations hold vectors of bytes: their scale has changed.
    """
    if BYTES not in written.get(KEY, {}) and has_bytes_in_vectors(env.spec.observation):
        raise ConfigError(
            "checkpoint", str(checkpoint), "one that jaxrl_fast wrote on or after 2026-11-28: "
            "older versions scale vectors of bytes differently. Train the run again")
    if KEY not in written:
        return
    found = differences(written[KEY], algo, env, config)
    if found:
        told = [_told(x) for x in found[:MOST]]
        more = [f"{len(found) - MOST} more differ"] if len(found) > MOST else []
        raise ConfigError(
            "config", str(file),
            f"the file that {_within(file.parent, checkpoint)} was trained with: "
            f"{', '.join([*told, *more])}. Put the "
            f"old values back. Then {_remedy(file, checkpoint)}",
        )  # fmt: skip


def _within(folder: Path, path: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _told(x: Difference) -> str:
    if x.name != "groups":
        return f"{x.name} is {_shown(x.now)} there and was {_shown(x.written)} in training"
    count = lambda n: f"{n} group{'s' * (n != 1)}"  # the file may hold none of its own, but a mesh
    return f"it samples in {count(x.now)} (mesh, groups) and in training in {count(x.written)}"


def _remedy(file: Path, checkpoint: Path) -> str:
    """Return how to begin a run with other settings."""
    if file.name != "config.json":
        return "a new sweep, in another folder, takes other settings"
    start = "" if checkpoint.is_file() else " --start-from RUN"  # an exported policy is no run
    return ("a new run takes other settings as flags: `jaxrl-fast train --config "
            f"RUN/{file.name} FLAGS{start}`")


def differences(written: Mapping[str, Any], algo: Algorithm, env: Environment,
                config: RunConfig) -> list[Difference]:
    """Return the settings that differ; those that only a newer version writes do not."""
    now, usual = settings_of(algo, env, config), functools.cache(lambda: _usual(env))
    found = []
    for name in dict.fromkeys([*written, *now]):
        if name in written and name in now:
            pair = written[name], now[name]
        elif name in written:
            pair = written[name], usual().get(name)
        elif name in usual():  # config.json holds those that `make` was given
            pair = usual()[name], now[name]
        else:
            continue
        if not (_same_name if name == "environment" else _same)(*pair):
            found.append(Difference(name, *pair))
    return found


def _usual(env: Environment) -> dict[str, Any]:
    """Return the settings' defaults of an environment of `make`."""
    origin, found = registry.describe(env), {}
    for name, value in registry.settings_of(origin[0]).items() if origin else ():
        with contextlib.suppress(ConfigError):  # a default that no file can hold
            found |= _flat("env", {name: encode(value, name)})
    return {name: _short(value) for name, value in found.items()}


def _same(written: Any, now: Any) -> bool:
    """Return whether two encoded values are one setting; a module may have moved."""
    if isinstance(written, dict) and isinstance(now, dict):
        return all(key in now and (_same_path if key in PATHS else _same)(value, now[key])
                   for key, value in written.items())
    if isinstance(written, list) and isinstance(now, list):
        return len(written) == len(now) and all(map(_same, written, now))
    if isinstance(written, float) and isinstance(now, float):
        return float32(written) == float32(now)  # programs compute with these
    return written == now and isinstance(written, bool) == isinstance(now, bool)


def _same_path(written: Any, now: Any) -> bool:
    return _place(written) == _place(now)


def _place(path: Any) -> list[str]:
    """Return what stays of "module:name" if a user's module moves or is renamed: the name."""
    home, _, name = str(path).partition(":")
    ours = home.partition(".")[0] == "jaxrl_fast"
    return ["jaxrl_fast" * ours, name]


def _same_name(written: Any, now: Any) -> bool:
    """Return whether two environments are one: names, or classes or functions by their paths."""
    if isinstance(written, str) and isinstance(now, str):
        paths = registry.is_path(written) and registry.is_path(now)
        return written == now or (paths and _same_path(written, now))
    return _same(written, now)


def _shown(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        (kind, text), = value.items()
        return "another value" if kind == "digest" else str(text)
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:50]}...{text[-7:]}"
