"""`config.json`: every resolved setting of a run, enough to repeat it; and the way back from the file to objects."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxrl_fast.algorithms import algorithm_class, list_algorithms
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, UserError, nearest
from jaxrl_fast.fields import type_name
from jaxrl_fast.grid import RunConfig

FORMAT = 2


def _encode(value: Any, name: str = "settings") -> Any:
    """`value` as JSON; `name` is what errors call it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # a flax module or another frozen dataclass
        fields = {
            f.name: _encode(getattr(value, f.name), f"{name}.{f.name}")
            for f in dataclasses.fields(value)
            if f.init and not _comes_with_its_class(value, f)
        }
        return {"class": _class_path(type(value), name), "fields": fields}
    if isinstance(value, (tuple, list)):
        return [_encode(v, name) for v in value]
    if callable(value):
        return {"import": _import_path(value, name)}
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"float": repr(value)}
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return _encode(value.item(), name)
    raise ConfigError(name, value, "a value that can be written to config.json (number, string, tuple, dataclass)")


def _comes_with_its_class(value: Any, field: dataclasses.Field) -> bool:
    """Fields that are not written: flax's own two, and a function or dtype that is the class's default."""
    from flax import linen  # here, because it is slow to import

    own = isinstance(value, linen.Module) and field.name in ("parent", "name")
    return own or (callable(field.default) and getattr(value, field.name) is field.default)


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _class_path(cls: type, name: str) -> str:
    """Like `_path`, for a class that `_look_up` must find again."""
    if "<locals>" in cls.__qualname__:
        raise ConfigError(name, cls.__qualname__, "a class of a module; one inside a function is not found by a load")
    return _path(cls)


def _import_path(value: Any, name: str) -> str:
    """ "module:name" of a function or class."""
    attribute = getattr(value, "__qualname__", "")
    for module in ("jax.nn", "jax.numpy", getattr(value, "__module__", None)):  # public names first, the others move
        found = functools.reduce(lambda x, part: getattr(x, part, None), attribute.split("."), sys.modules.get(module))
        if found is value:
            return f"{module}:{attribute}"
    raise ConfigError(name, value, "a function or class that its module knows by name; no lambda, none in a function")


def _look_up(path: str, argument: str) -> Any:
    """What `_class_path` or `_import_path` named; its module is imported, from the working directory too."""
    name, _, attribute = path.partition(":")
    module = import_user_module(name, argument)
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        valid = f"a name in {name}{nearest(attribute, vars(module))}"
        if name == "__main__":  # --import cannot help
            own = "move it from your script or notebook to a module of its own, such as nets.py"
            valid = f"found only where it was trained: {own}, and write 'nets:{attribute}' into config.json"
        raise ConfigError(argument, path, valid) from None


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if isinstance(value, dict) and "class" in value:
        cls = _look_up(value["class"], "class")
        if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
            raise ConfigError("class", value["class"], "a dataclass")
        return cls(**{k: _decode(v) for k, v in value["fields"].items()})
    if isinstance(value, dict) and "import" in value:
        return _look_up(value["import"], "import")
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value


def algorithm_settings(algo: Algorithm) -> dict[str, Any]:
    """{field: value} of what a user sets: all fields but `spec`, which `bind` fills in."""
    return {f.name: getattr(algo, f.name) for f in dataclasses.fields(algo) if f.name != "spec"}


def encode_algorithm(algo: Algorithm) -> dict[str, Any]:
    fields = [f for f in dataclasses.fields(algo) if f.name != "spec" and not _comes_with_its_class(algo, f)]
    settings = {f.name: _encode(getattr(algo, f.name), f.name) for f in fields}
    cls = type(algo)
    known = algo.name in list_algorithms() and algorithm_class(algo.name) is cls  # found by its name, wherever it is
    path = _path(cls) if known else _class_path(cls, "algorithm")
    return {"name": algo.name, "class": path, "settings": settings}


def decode_algorithm(entry: dict[str, Any]) -> Algorithm:
    return build_algorithm(_trained_class(entry), {k: _decode(v) for k, v in entry["settings"].items()})


def _trained_class(entry: dict[str, Any]) -> type:
    """The registered class, unless the file says that another one of this name was trained."""
    written = entry.get("class")
    if written is None or entry["name"] in list_algorithms():
        known = algorithm_class(entry["name"])
        moved = written == f"__main__:{known.__qualname__}" and not known.__module__.startswith("jaxrl_fast.")
        if moved or written in (None, _path(known)):  # moved: from a user's script to a module
            return known
    cls = _look_up(written, "algorithm")
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ConfigError("algorithm", written, "a subclass of jaxrl_fast.Algorithm")
    return cls


def build_algorithm(cls: type, settings: dict[str, Any]) -> Algorithm:
    """An algorithm from named settings; an unknown name is an error with the nearest one.

    Where a flax module is due, "module:Class" is the user's own.
    """
    fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "spec"}
    for key, value in settings.items():
        if key not in fields:
            raise ConfigError(f"algo.{key}", value, f"{cls.name} has no such setting{nearest(key, fields)}")
        if isinstance(value, str) and ":" in value and "Module" in type_name(fields[key]):
            settings = settings | {key: _user_network(value, f"algo.{key}")}
    return cls(**settings)


def _user_network(path: str, argument: str) -> Any:
    """The flax module behind "module:name": a class, made with its defaults, or an object."""
    from flax import linen

    found = _look_up(path, argument)
    if isinstance(found, type) and issubclass(found, linen.Module):
        try:
            return found()
        except TypeError as error:
            raise ConfigError(argument, path, f"a class whose fields have defaults ({error})") from error
    if not isinstance(found, linen.Module):
        raise ConfigError(argument, path, "a flax.linen.Module class")
    return found


def encode_environment(env: Env) -> dict[str, Any]:
    origin = registry.describe(env)
    if origin is not None:
        return {"name": origin[0], "settings": {k: _encode(v, f"env.{k}") for k, v in origin[1].items()}}
    return {"name": env.spec.name, "object": _encode(env, "environment")}


def decode_environment(entry: dict[str, Any]) -> Env:
    if "object" in entry:
        return _decode(entry["object"])
    return registry.make(entry["name"], **{k: _decode(v) for k, v in entry["settings"].items()})


def write_json(path: Path, content: Any) -> None:
    """Strict JSON, by `write_text`."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """A file, replaced atomically: a reader sees the old one or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
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


imported: list[str] = []  # modules of the user, for processes that are to know what this one knows


def import_user_module(name: str, argument: str = "--import") -> ModuleType:
    """Import a user's module (their environments, algorithms, networks), the working directory included."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    stem = name.removesuffix(".py").replace("/", ".")
    try:
        module = importlib.import_module(stem)
        if name not in imported:
            imported.append(name)
        return module
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and stem.startswith(error.name):
            raise ConfigError(argument, name, "a module that can be imported from here") from error
        raise ConfigError(argument, name, f"a module that imports; {type(error).__name__}: {error}") from error
