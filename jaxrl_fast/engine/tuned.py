"""Settings that `jaxrl-fast tune-speed` found, kept beside the compile cache by program and device.

They change speed, not numbers. A new run takes those that its user left alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import distributed, runtime
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.errors import ConfigError, writing
from jaxrl_fast.files import folders

SEARCHED = ("unroll", "devices")
FOLDER = "tuned"  # in the compile cache's
_NAMELESS = re.compile(r" at 0x[0-9a-f]+|<lambda>|<locals>")


@dataclasses.dataclass(frozen=True)
class Tuned:
    """settings: {name: value} that differ from the defaults. speed: times the defaults'."""

    settings: Mapping[str, Any]
    speed: float
    date: str = dataclasses.field(default_factory=lambda: time.strftime("%Y-%m-%d"))

    def __str__(self) -> str:
        chosen = ", ".join(f"{name} = {value}" for name, value in self.settings.items())
        return f"{chosen}: {self.speed:.2f} times as fast (tune-speed, {self.date})"


def name_of(prepared: Prepared) -> str:
    """Return the name of a run's program and devices, whatever its `SEARCHED` settings and length.

    Raises ConfigError for settings without a name, such as lambdas.
    """
    run, config = prepared.members.first, prepared.config
    leaves, structure = jax.tree.flatten(dataclasses.replace(run, unroll=None))
    static = str(structure)
    if found := _NAMELESS.search(static):
        valid = "given by values or named functions: others have no name to keep a result under"
        raise ConfigError("settings", static[max(0, found.start() - 40) : found.end()], valid)
    first, *more = jax.devices()
    many = runtime.cpu_count() if first.platform == "cpu" else 1 + len(more)
    shapes = [(jnp.shape(x), str(jnp.result_type(x))) for x in leaves]
    known = [run.algo.name, prepared.env.spec.name, static, shapes, config.members, config.batching,
             config.mesh, first.device_kind, many, runtime.versions().get("jaxlib")]  # fmt: skip
    return hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()[:20]


def file_of(prepared: Prepared) -> Path | None:
    """Return the file of a run's program, None without a compile cache."""
    folder = runtime.enable_compile_cache()
    return None if folder is None else Path(folder) / FOLDER / f"{name_of(prepared)}.json"


def keep(prepared: Prepared, found: Tuned) -> Path:
    """Write what was found -> its file.

    Raises:
        ConfigError: the compile cache is off, or the run has no name.
        WriteError: the file cannot be written.
    """
    file = file_of(prepared)
    if file is None:
        valid = "a folder or unset: tune-speed keeps its result beside the compile cache"
        raise ConfigError("JAXRL_FAST_CACHE", "off", valid)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with folders.replacing(file) as temporary:
            Path(temporary).write_text(json.dumps(dataclasses.asdict(found), indent=1) + "\n")
    return file


def find(prepared: Prepared) -> Tuned | None:
    """Return what is kept for a run's program here; None if nothing is, or it cannot be read."""
    try:
        file = file_of(prepared)
        content = json.loads(file.read_text()) if file else None
        known = set(content["settings"]) <= set(SEARCHED) if content else False
        return Tuned(**content) if known else None
    except (OSError, ValueError, TypeError, KeyError, ConfigError):
        return None


def taken(prepared: Prepared) -> tuple[Prepared, Tuned | None]:
    """Return a new run with the kept settings in place of its defaults, and what was taken.

    Several processes take nothing: their folders may differ.
    """
    config = prepared.config
    found = find(prepared) if config.tuned and not distributed.several() else None
    free = lambda name: getattr(config, name) == getattr(RunConfig, name)
    chosen = {k: v for k, v in found.settings.items() if free(k)} if found else {}
    if not chosen or chosen != dict(found.settings):  # measured together
        return prepared, None
    config = dataclasses.replace(config, **chosen)
    return prepare(prepared.algo, prepared.env, config, prepared.about), found


def forget(prepared: Prepared) -> None:
    """Remove what is kept for a run's program."""
    file = file_of(prepared)
    if file is not None:
        with writing(file):
            file.unlink(missing_ok=True)
