"""sweep.json, the settings and parts of a sweep: read, checked and decoded."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import imports
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.files import forms
from jaxrl_fast.runs import config_json as configs

FORMAT = 1


def read_json(file: Path) -> dict[str, Any]:
    """Return sweep.json, checked."""
    remedy = "Each part below parts/ is a run directory that can be read by itself"
    content = forms.read_json(file, "sweep", "a sweep.json of jaxrl_fast", forms.SWEEP, remedy)
    if content["format"] != FORMAT:
        raise ConfigError("sweep", str(file), f"a sweep.json of format {FORMAT}")
    run = content["base"]["run"]
    if not (0 <= run["seed"] < 2**32 and 1 <= run["seeds"] <= 1_000_000):
        raise ConfigError("sweep", str(file), "one with seed from 0 to 4294967295 and seeds from 1 to 1000000")
    count = len(content["configurations"])
    if len({tuple(sorted(c)) for c in content["configurations"]}) > 1:
        raise ConfigError("sweep", str(file), "one whose configurations have the same settings")
    for index, part in enumerate(content["parts"]):
        if not part["configurations"] or not all(0 <= c < count for c in part["configurations"]):
            raise ConfigError("sweep", str(file), f"one whose part {index} has some of its {count} configurations")
        own = range(run["seed"], run["seed"] + run["seeds"])
        if part["seed"] not in own or part["seeds"] < 1 or part["seed"] + part["seeds"] > own.stop:
            raise ConfigError("sweep", str(file), f"one whose part {index} has seeds of the sweep, {own.start} to {own.stop - 1}")
    return content


def read_folder(path: str | Path, argument: str = "--resume") -> dict[str, Any]:
    """Return the sweep.json of a folder to resume; argument: its name in errors."""
    file = Path(path) / "sweep.json"
    if not file.is_file():
        raise ConfigError(argument, str(path), "the folder of a sweep, with its sweep.json")
    return read_json(file)


def decode_base(
    content: dict[str, Any], modules: Sequence[str] = (), folder: Path | None = None
) -> tuple[Algorithm, Environment, RunConfig, dict[str, Any]]:  # fmt: skip
    """Return the base: algorithm, environment, run, and the other keys of its config.json."""
    base = content["base"]
    for module in modules:
        imports.import_user_module(module)
    with configs.within(folder / "sweep.json") if folder else contextlib.nullcontext():
        found = configs.decode(base, folder)
    return *found, {k: base[k] for k in ("preset", "imports") if k in base}


def part_folder(out: Path, index: int) -> Path:
    return out / "parts" / f"{index:02d}"
