"""`config.json`: every resolved setting of a run, enough to repeat it; and the way back from the file to objects."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from pathlib import Path
from typing import Any

from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, UserError, nearest
from jaxrl_fast.grid import RunConfig

FORMAT = 1


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # a flax module or another frozen dataclass
        fields = {
            f.name: _encode(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.init and f.name not in ("parent", "name", "spec") and f.metadata.get("config", True)
        }
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", "fields": fields}
    if isinstance(value, (tuple, list)):
        return [_encode(v) for v in value]
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"float": repr(value)}
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return _encode(value.item())
    raise ConfigError("settings", value, "a value that can be written to config.json (number, string, tuple, dataclass)")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if isinstance(value, dict) and "class" in value:
        module, _, name = value["class"].partition(":")
        try:
            cls = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError("class", value["class"], "importable: pass --import its module") from error
        if not dataclasses.is_dataclass(cls):
            raise ConfigError("class", value["class"], "a dataclass")
        return cls(**{k: _decode(v) for k, v in value["fields"].items()})
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value


def encode_algorithm(algo: Algorithm) -> dict[str, Any]:
    settings = _encode(dataclasses.replace(algo, spec=None))["fields"]
    return {"name": algo.name, "class": f"{type(algo).__module__}:{type(algo).__qualname__}", "settings": settings}


def decode_algorithm(entry: dict[str, Any]) -> Algorithm:
    try:
        cls = algorithm_class(entry["name"])
    except ConfigError:
        if "class" not in entry:
            raise
        return _decode({"class": entry["class"], "fields": entry["settings"]})
    return build_algorithm(cls, {k: _decode(v) for k, v in entry["settings"].items()})


def build_algorithm(cls: type, settings: dict[str, Any]) -> Algorithm:
    """An algorithm from named settings; an unknown name is an error with the nearest one."""
    names = [f.name for f in dataclasses.fields(cls) if f.name != "spec"]
    for key, value in settings.items():
        if key not in names:
            raise ConfigError(f"algo.{key}", value, f"{cls.name} has no such setting{nearest(key, names)}")
    return cls(**settings)


def encode_environment(env: Env) -> dict[str, Any]:
    origin = registry.describe(env)
    if origin is not None:
        return {"name": origin[0], "settings": {k: _encode(v) for k, v in origin[1].items()}}
    return {"name": env.spec.name, "object": _encode(env)}


def decode_environment(entry: dict[str, Any]) -> Env:
    if "object" in entry:
        return _decode(entry["object"])
    return registry.make(entry["name"], **{k: _decode(v) for k, v in entry["settings"].items()})


def write_json(path: Path, content: Any) -> None:
    """Strict JSON, replaced atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    os.replace(temporary, path)


def read_config(path: str | Path) -> dict[str, Any]:
    """config.json of a run directory (or the file itself), checked for being one of ours."""
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError("config", str(file), "an existing config.json of a run")
    try:
        content = json.loads(file.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigError("config", str(file), f"a JSON file; it is damaged ({error})") from error
    keys = ("format", "algorithm", "environment", "run")
    if not isinstance(content, dict) or any(k not in content for k in keys):
        raise ConfigError("config", str(file), f"a config.json of jaxrl_fast, with {', '.join(keys)}")
    if content["format"] != FORMAT:
        raise ConfigError("config", str(file), f"format {FORMAT}; this file has {content['format']!r}")
    return content


def decode_run(entry: dict[str, Any]) -> RunConfig:
    names = [f.name for f in dataclasses.fields(RunConfig)]
    for key, value in entry.items():
        if key not in names:
            raise ConfigError(f"run.{key}", value, f"one of {', '.join(names)}{nearest(key, names)}")
    return RunConfig(**entry)


def load(path: str | Path, modules: tuple[str, ...] = ()) -> tuple[Algorithm, Env, RunConfig, dict[str, Any]]:
    """(algorithm, environment, run settings, whole file) of a config.json; imports the modules it names first."""
    content = read_config(path)
    imports = content.get("imports", ())
    if not isinstance(imports, (list, tuple)) or not all(isinstance(m, str) for m in imports):
        raise ConfigError("imports", imports, "a list of module names")
    for module in (*imports, *modules):
        import_user_module(module)
    try:
        algo = decode_algorithm(content["algorithm"])
        env = decode_environment(content["environment"])
        run = decode_run(content["run"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError("config", str(path), f"a whole config.json; this one is damaged ({error!r})") from error
    return algo, env, run, content


def import_user_module(name: str) -> None:
    """Import a user's module (their environments, algorithms, networks), the working directory included."""
    import sys

    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    stem = name.removesuffix(".py").replace("/", ".")
    try:
        importlib.import_module(stem)
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and stem.startswith(error.name):
            raise ConfigError("--import", name, "a module that can be imported from here") from error
        raise ConfigError("--import", name, f"a module that imports; {type(error).__name__}: {error}") from error
