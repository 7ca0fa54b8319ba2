"""safetensors: parameters and statistics beside a config.json, for `jf.load`."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrl_fast import runtime, tree
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.errors import ConfigError, check_choice, first_line, import_optional
from jaxrl_fast.files import forms
from jaxrl_fast.files.checksums import checksum
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.checkpoints.settings import KEY, check_settings, settings_of
from jaxrl_fast.runs.description import device_name
from jaxrl_fast.runs.start_from import Given, fit_start, read_start

if TYPE_CHECKING:
    from jaxrl_fast.runs.agent import Agent

FILE = "policy.safetensors"
FOLDER = (FILE, "config.json")  # the files of an exported folder
# the key "exported"
EXPORTED = {"iteration": int, "score": (int, float, type(None)), "checksum?": [(int, str)]}


def _library() -> Any:
    import_optional("safetensors.numpy", "a policy in safetensors", "safetensors", "save_file")
    return sys.modules["safetensors"]


def export(agent: Agent, path: Path) -> None:
    """Write policy.safetensors, config.json. Raises ConfigError for an agent without `params`."""
    library, given = _library(), read_start(agent)
    fit_start(given, agent.algo)  # a load must be able to make the agent of it
    arrays = {jax.tree_util.keystr(where): np.asarray(x)
              for where, x in jax.tree.leaves_with_path(given)}
    alone = {"population": None, "selection": None, "seeds": 1, "experience": None,
             "start_from": None, "experience_id": None}
    alone |= {"experience_fraction": RunConfig.experience_fraction}
    path.mkdir(parents=True, exist_ok=True)
    algo, config = tree.as_numbers(agent.algo), dataclasses.replace(agent.config, **alone)
    about = {"format": "jaxrl_fast", KEY: json.dumps(settings_of(algo, agent.env, config))}
    # its own save_file would make a file that no other user can read
    (path / FILE).write_bytes(library.numpy.save(arrays, metadata=about))
    score = agent.score if _finite(agent.score) else None
    content = {
        "format": configs.FORMAT,
        "algorithm": configs.encode_algorithm(algo),
        "environment": configs.encode_environment(agent.env),
        "run": configs.encode_run(config),
        "device": device_name(),
        "versions": runtime.versions(),
        "exported": {"iteration": agent.iteration, "score": score,
                     "checksum": checksum(path / FILE)},
    }
    configs.write_json(path / "config.json", content)


def _finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def is_exported(path: Path) -> bool:
    return (path / FILE).is_file()


def load(path: Path, which: str, member: int | None, modules: Sequence[str]) -> tuple[Any, ...]:
    """Return the arguments of `Agent` from an exported folder; runs no code of the file."""
    check_choice("which", which, ("auto",))
    if member not in (None, 0):
        raise ConfigError("member", member, "None: an exported policy is one member's")
    algo, env, config, content = configs.load(path, modules)
    about = content.get("exported")
    wrong = forms.misfit(about, EXPORTED, "exported")
    if wrong:
        raise ConfigError("config", str(path / "config.json"),
                          f"that of an exported policy; in this file {wrong}")
    try:
        arrays = _library().numpy.load_file(path / FILE)
        with _library().safe_open(path / FILE, "np") as file:
            written = file.metadata() or {}
        written = {KEY: json.loads(written[KEY])} if KEY in written else {}
        if KEY in written and not isinstance(written[KEY], dict):
            raise ValueError(f"{KEY} in its header is no JSON object")
    except (_library().SafetensorError, ValueError) as error:
        raise ConfigError("run", str(path / FILE),
                          f"a whole file of safetensors: {first_line(error)}") from error
    check_settings(path / "config.json", path / FILE, written, algo, env, config)
    algo = algo.bind(env.spec)
    like = jax.eval_shape(lambda: algo.init(jax.random.key(0)))
    parts = {part: {name.removeprefix(f".{part}"): x for name, x in arrays.items()
                    if name.startswith(f".{part}")}
             for part in Given._fields}  # fmt: skip
    given = Given(*(_tree(parts[part], getattr(like, part, ()), str(path / FILE))
                    for part in Given._fields))
    given = fit_start(given, algo)
    if about.get("checksum", (found := checksum(path / FILE))) != found:  # older exports have none
        raise ConfigError("run", str(path / FILE),
                          "the file that was exported; its checksum differs")
    agent = algo.begin(*jax.tree.map(jax.numpy.asarray, given))
    return algo, env, config, agent, about["iteration"], about["score"]


def _tree(found: dict[str, np.ndarray], like: Any, file: str) -> Any:
    """Return arrays by path as a tree like `like`. Raises ConfigError for other names."""
    names = [jax.tree_util.keystr(where) for where, _ in jax.tree.leaves_with_path(like)]
    if set(names) != set(found):
        differs = sorted(set(names) ^ set(found))[0]
        what = "missing" if differs in names else "of no layer"
        raise ConfigError("run", file,
                          f"a file with the parameters of its config.json; {differs} is {what}")
    return jax.tree.unflatten(jax.tree.structure(like), [found[name] for name in names])


