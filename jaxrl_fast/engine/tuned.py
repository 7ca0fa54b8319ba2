"""Settings that change speed and not learning, and the choices of `jaxrl-fast tune-speed`.

`SAME` keep the numbers where XLA does; `OTHER` draw otherwise, from the same distribution. What was
found is kept beside the compile cache by program and device. A new run takes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast import distributed, runtime
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import configure
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import ConfigError, writing
from jaxrl_fast.files import folders
from jaxrl_fast.memory.rollout import SORTED, RolloutMemory

FOLDER = "tuned"  # in the compile cache's
_NAMELESS = re.compile(r" at 0x[0-9a-f]+|<lambda>|<locals>")


def _unrolls(run: Prepared) -> list[int]:
    steps = run.bound.num_steps if backend_of(run.env).one_program and not run.config.offline else 1
    own = [1] * (run.population.devices[0].platform == "gpu")  # elsewhere 1 is the default
    return [n for n in (*own, 2, 4, 8, 16) if steps > 1 and steps % n == 0]


def _layouts(run: Prepared) -> list[str]:
    several = run.population.size > 1 and not run.config.mesh
    return [mode for mode in ("map", "vmap") if mode != run.population.mode] if several else []


def _fewer_devices(run: Prepared) -> list[int]:
    several = run.population.size > 1 and not run.config.mesh
    return [n for n in (1, 2, 4, 8, 16) if n < len(run.population.devices)] if several else []


def _fewer_threads(run: Prepared) -> list[int]:
    own = "num_threads" in _environment(run)[1]
    return [n for n in (1, 2, 4, 8, 16) if n < runtime.cpu_count()] if own else []


def _shuffles(run: Prepared) -> list[str]:
    memory = run.bound.memory()
    if not isinstance(memory, RolloutMemory) or memory.num_minibatches == 1:
        return []
    swaps = run.population.devices[0].platform == "gpu" and memory.items > SORTED
    return ["sort" if swaps else "swap"]


def _actors(run: Prepared) -> list[int]:
    on_host = not backend_of(run.env).one_program and not run.config.offline
    return [n for n in (2, 4, 8) if on_host and run.bound.num_envs % n == 0]


Choices = Mapping[str, Callable[[Prepared], Sequence[Any]]]
# {setting: the values to try beside the default}
SAME: Choices = {
    "unroll": _unrolls,
    "batching": _layouts,
    "devices": _fewer_devices,
    "parallel_loops": lambda run: [False] * (run.population.platform == "cpu"),
    "chunk_seconds": lambda run: (
        [4 * RunConfig.chunk_seconds] if backend_of(run.env).one_program else []
    ),
    "donate": lambda run: [False],
    "env.vectorization": lambda run: (
        ["async"] if _environment(run)[1].get("vectorization") == "sync" else []
    ),
    "env.num_threads": _fewer_threads,
}
OTHER: Choices = {"algo.shuffle": _shuffles, "actors": _actors}
CHOICES = {**SAME, **OTHER}


def _environment(run: Prepared) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the settings that the environment was given, and those that it has by default."""
    origin = registry.describe(run.env)
    return (origin[1], registry.settings_of(origin[0])) if origin else ({}, {})


def find_user_choices(run: Prepared) -> dict[str, Any]:
    """Return {name: value} of the `CHOICES` that the user has made."""
    own = {f"env.{name}": value for name, value in _environment(run)[0].items()}
    own |= _changed_fields(run.config, "") | _changed_fields(run.algo, "algo.")
    return {name: value for name, value in own.items() if name in CHOICES}


def _changed_fields(settings: Any, part: str) -> dict[str, Any]:
    """Return {part and name: value} of a dataclass's fields that differ from their defaults."""
    values = ((f, getattr(settings, f.name)) for f in dataclasses.fields(settings))
    return {part + f.name: v for f, v in values if part + f.name in CHOICES and v != f.default}


def choices(run: Prepared, other_numbers: bool = False) -> dict[str, Sequence[Any]]:
    """Return {setting: values to try} beside the run's own; a setting without any is left out."""
    made = find_user_choices(run)
    tables = CHOICES if other_numbers else SAME
    found = {name: values(run) for name, values in tables.items() if name not in made}
    return {name: values for name, values in found.items() if values}


def with_settings(run: Prepared, settings: Mapping[str, Any]) -> Prepared:
    """Return the run with other `CHOICES`. Raises ConfigError if they do not fit."""
    parts = {name: value for name, value in settings.items() if "." in name}
    algo, env = configure(run.algo, run.env, parts)
    of_run = {name: value for name, value in settings.items() if name not in parts}
    return prepare(algo, env, dataclasses.replace(run.config, **of_run), run.about)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """settings: {name: value} that differ from the defaults. speed: times the defaults'."""

    settings: Mapping[str, Any]
    speed: float
    same_numbers: bool = True
    date: str = dataclasses.field(default_factory=lambda: time.strftime("%Y-%m-%d"))

    def __str__(self) -> str:
        kind = "" if self.same_numbers else ", other numbers"
        fast = f"{self.speed:.2f} times as fast{kind}"
        return f"{describe_settings(self.settings)}: {fast} (tune-speed, {self.date})"


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as text: `unroll = 4, devices = 1`."""
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


def name_of(prepared: Prepared) -> str:
    """Return the name of a run's program and devices, whatever its length.

    Raises ConfigError for settings without a name, such as lambdas.
    """
    run, config = prepared.members.first, prepared.config
    leaves, structure = jax.tree.flatten(run)
    static = str(structure)
    if found := _NAMELESS.search(static):
        valid = "given by values or named functions: others have no name to keep a result under"
        raise ConfigError("settings", static[max(0, found.start() - 40) : found.end()], valid)
    first, *more = jax.devices()
    many = runtime.cpu_count() if first.platform == "cpu" else 1 + len(more)
    shapes = [(jnp.shape(x), str(jnp.result_type(x))) for x in leaves]
    made = find_user_choices(prepared) | {"chunk_seconds": None}  # no part of the program
    known = [run.algo.name, prepared.env.spec.name, static, shapes, config.members, made,
             config.mesh, first.device_kind, many, runtime.versions().get("jaxlib")]  # fmt: skip
    return hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()[:20]


def file_of(prepared: Prepared) -> Path | None:
    """Return the file of a run's program, None without a compile cache."""
    folder = runtime.enable_compile_cache()
    return None if folder is None else Path(folder) / FOLDER / f"{name_of(prepared)}.json"


def keep(prepared: Prepared, found: Tuned) -> Path:
    """Write the choices -> their file.

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
    """Return the choices kept for a run's program here, or None if none can be read."""
    try:
        file = file_of(prepared)
        content = json.loads(file.read_text()) if file else None
        known = set(content["settings"]) <= set(CHOICES) if content else False
        return Tuned(**content | {"speed": float(content["speed"])}) if known else None
    except (OSError, ValueError, TypeError, KeyError, ConfigError):
        return None


def add_tuned(prepared: Prepared) -> tuple[Prepared, Tuned | None]:
    """Return a new run with the kept choices in place of its defaults, and these choices.

    Several processes take nothing: their folders may differ.
    """
    wanted = prepared.config.tuned and not distributed.several()
    found = find(prepared) if wanted else None
    made = find_user_choices(prepared)
    settings = {k: v for k, v in found.settings.items() if k not in made} if found else {}
    if found is None or not settings:
        return prepared, None
    try:
        return with_settings(prepared, settings), dataclasses.replace(found, settings=settings)
    except ConfigError:  # this process has started JAX with fewer devices
        return prepared, None


def forget(prepared: Prepared) -> None:
    """Remove the choices kept for a run's program."""
    file = file_of(prepared)
    if file is not None:
        with writing(file):
            file.unlink(missing_ok=True)
