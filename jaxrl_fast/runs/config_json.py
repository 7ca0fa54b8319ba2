"""`config.json`: every resolved setting of a run, enough to repeat it; and the way back from the file to objects."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxrl_fast import imports
from jaxrl_fast.algorithms import ALGORITHMS, algorithm_class
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import NAMED, build_algorithm, function_of
from jaxrl_fast.engine.config import RunConfig, check_names
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, UserError, brief, check_choice
from jaxrl_fast.files import folders, forms
from jaxrl_fast.networks import Foreign, as_network
from jaxrl_fast.networks.foreign import Held
from jaxrl_fast.ops.optimizer_settings import Schedule

FORMAT = 2


def _encode(value: Any, name: str = "settings") -> Any:
    """`value` as JSON; `name` is what errors call it."""
    if isinstance(value, Schedule):
        return _encode(value.source, name)
    if isinstance(value, Foreign):
        return {"network": _network_path(value.source, name)}
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
    """Like `_path`, for a class that a load must find again."""
    if "<locals>" in cls.__qualname__:
        raise ConfigError(name, cls.__qualname__, "a class of a module; one inside a function is not found by a load")
    return _path(cls)


def _import_path(value: Any, name: str) -> str:
    """ "module:name" of a function or class."""
    attribute = getattr(value, "__qualname__", "")
    public = ("jax.nn", "jax.numpy", "optax", "optax.contrib")  # first, the others move
    for module in (*public, getattr(value, "__module__", None)):
        found = functools.reduce(lambda x, part: getattr(x, part, None), attribute.split("."), sys.modules.get(module))
        if found is value:
            return f"{module}:{attribute}"
    raise ConfigError(name, value, "a function or class that its module knows by name; no lambda, none in a function")


def _network_path(source: Any, name: str) -> str:
    """ "module:name" of what makes a network, or of the network itself."""
    found = source.value if isinstance(source, Held) else source
    if hasattr(found, "__qualname__"):
        return _import_path(found, name)
    for module, content in list(sys.modules.items()):
        attribute = next((key for key, value in list(vars(content).items()) if value is found), None) if content else None
        if attribute is not None and (module == "__main__" or imports.is_users(module)):
            return f"{module}:{attribute}"
    raise ConfigError(
        name, f"<{type(found).__name__}>", "a class or a function of a module, or an object that a module of yours holds by "
        "name, such as nets.net: config.json cannot hold arrays. Without `out` any object can be trained",
    )  # fmt: skip


def _decode(value: Any, name: str = "settings") -> Any:
    """The value that `_encode` wrote; ConfigError for a class or function that a file may not name."""
    if isinstance(value, list):
        return tuple(_decode(v, name) for v in value)
    if not isinstance(value, dict):
        return value
    if "class" in value:
        cls = _setting_class(value["class"], name)
        found = cls(**{k: _decode(v, f"{name}.{k}") for k, v in value["fields"].items()})
        imports.check_known(getattr(found, "imports", ()), name)
        return found
    if "import" in value:
        return function_of(value["import"], name)
    if "network" in value:
        return as_network(name, function_of(value["network"], name))
    if "float" in value:
        return float(value["float"])
    return value


def _decode_settings(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    """`_decode` of each; ConfigError, with its name, for one that is none that `_encode` writes."""
    found = {}
    for key, value in settings.items():
        with reading(f"{prefix}.{key}", value):
            found[key] = _decode(value, f"{prefix}.{key}")
    return found


@contextlib.contextmanager
def reading(name: str, value: Any) -> Iterator[None]:
    """ConfigError for whatever Python or a library says of a value that somebody else has written."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise ConfigError(name, value, f"a value that a run has written; reading it failed: {brief(error)}") from error


def _setting_class(path: str, name: str) -> type:
    """The dataclass "module:name", of a kind that settings are: ours, an environment, a network, or the user's own."""
    from flax import linen

    found, home = imports.look_up(path, name)
    parts = ("envs", "memory", "networks", "ops.optimizer_settings", "spaces", "types")
    ours = any(home.startswith(f"{imports.PACKAGE}.{part}") for part in parts)
    kinds = (Algorithm, Env, linen.Module)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ConfigError(name, path, "a dataclass")
    if not (ours or issubclass(found, kinds) or imports.is_users(home)):
        kinds = f"an environment, a flax.linen.Module, or of a module of yours, which {NAMED}"
        raise ConfigError(name, path, f"a class of settings: {kinds}")
    return found


def encode_algorithm(algo: Algorithm) -> dict[str, Any]:
    fields = [f for f in dataclasses.fields(algo) if f.name != "spec" and not _comes_with_its_class(algo, f)]
    settings = {f.name: _encode(getattr(algo, f.name), f.name) for f in fields}
    cls = type(algo)
    known = algo.name in ALGORITHMS and algorithm_class(algo.name) is cls  # found by its name, wherever it is
    path = _path(cls) if known else _class_path(cls, "algorithm")
    return {"name": algo.name, "class": path, "settings": settings}


def decode_algorithm(entry: dict[str, Any]) -> Algorithm:
    cls, settings = _trained_class(entry), _decode_settings(entry["settings"], "algo")
    with reading("algorithm", entry):
        return build_algorithm(cls, settings)


def _trained_class(entry: dict[str, Any]) -> type:
    """The registered class, unless the file says that another one of this name was trained."""
    written = entry.get("class")
    if written is None or entry["name"] in ALGORITHMS:
        known = algorithm_class(entry["name"])
        moved = written == f"__main__:{known.__qualname__}" and not known.__module__.startswith("jaxrl_fast.")
        if moved or written in (None, _path(known)):  # moved: from a user's script to a module
            return known
    cls, _ = imports.look_up(written, "algorithm")
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ConfigError("algorithm", written, "a subclass of jaxrl_fast.Algorithm")
    return cls


def encode_environment(env: Env) -> dict[str, Any]:
    origin = registry.describe(env)
    if origin is not None:
        return {"name": origin[0], "settings": {k: _encode(v, f"env.{k}") for k, v in origin[1].items()}}
    return {"name": env.spec.name, "object": _encode(env, "environment")}


def decode_environment(entry: dict[str, Any]) -> Env:
    if "object" in entry:
        with reading("environment", entry):
            env = _decode(entry["object"], "environment")
        if not isinstance(env, Env):
            raise ConfigError("environment", type(env).__name__, "a jaxrl_fast Env")
        return env
    imports.check_known(registry.modules_of(entry["name"]), "environment")
    settings = _decode_settings(entry["settings"], "env")
    with reading("environment", entry):
        return registry.make(entry["name"], **settings)


def write_json(path: Path, content: Any) -> None:
    """Strict JSON, by `write_text`."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """A file, replaced atomically: a reader sees the old one or the new one."""
    with folders.replacing(path) as temporary:
        temporary.write_text(text, "utf-8", "backslashreplace")


def read_config(path: str | Path) -> dict[str, Any]:
    """config.json of a run directory (or the file itself), checked for being one of ours."""
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError("config", str(file), "an existing config.json of a run")
    content = forms.read_json(file, "config", "a config.json of jaxrl_fast", forms.CONFIG)
    if content["format"] != FORMAT:
        raise ConfigError("config", str(file), f"format {FORMAT}; this file has {content['format']!r}")
    return content


SELECTIONS = {name: f"{imports.PACKAGE}.sweeps.selection:{cls}" for name, cls in {"pbt": "PBT", "halving": "Halving"}.items()}


def encode_run(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a run as config.json holds them."""
    content = dataclasses.asdict(config)
    if config.selection is not None:
        check_choice("selection.kind", config.selection.kind, SELECTIONS)
        content["selection"] = {"kind": config.selection.kind, **content["selection"]}
    return content


def _decode_selection(content: dict[str, Any]) -> Any:
    """The PBT or Halving that `encode_run` wrote. Raises ConfigError for another kind, and for a setting that it has not."""
    check_choice("selection.kind", content.get("kind"), SELECTIONS)
    cls, _ = imports.look_up(SELECTIONS[content["kind"]], "selection")
    settings = {k: v for k, v in content.items() if k != "kind"}
    check_names(cls.__dataclass_fields__, settings, "selection.")
    return cls(**settings)


def decode_run(entry: dict[str, Any]) -> RunConfig:
    check_names(RunConfig.__dataclass_fields__, entry, "run.")
    if not isinstance(entry.get("selection"), (dict, type(None))):
        raise ConfigError("run.selection", entry["selection"], "the settings of PBT or of Halving, or None")
    with reading("run", entry):
        chosen = {"selection": _decode_selection(entry["selection"])} if entry.get("selection") else {}
        return RunConfig(**entry | chosen)


def load(path: str | Path, modules: tuple[str, ...] = ()) -> tuple[Algorithm, Env, RunConfig, dict[str, Any]]:
    """(algorithm, environment, run settings, whole file) of a config.json; imports `modules`, and nothing that it names.

    Raises ConfigError with the setting and the file where it does not hold what a run writes.
    """
    content, path = read_config(path), Path(path)
    for module in modules:
        imports.import_user_module(module)
    file = path / "config.json" if path.is_dir() else path
    with within(file), reading("config", str(file)):
        return *decode(content, (), file.absolute().parent), content


@contextlib.contextmanager
def within(file: Path) -> Iterator[None]:
    """Say in a ConfigError which file it is about."""
    try:
        yield
    except ConfigError as error:
        if str(file) not in str(error):
            error.args = (f"{error} (in {file})",)
        raise


def decode(
    content: dict[str, Any], modules: Iterable[str] = (), folder: Path | None = None
) -> tuple[Algorithm, Env, RunConfig]:  # fmt: skip
    """(algorithm, environment, run settings) of what `describe` wrote. modules: of the user, imported first.

    folder: where it was found; no library may be in it.
    """
    for module in modules:
        imports.import_user_module(module)
    imports.check_libraries(folder)
    needed = content.get("imports", ())
    if not isinstance(needed, (list, tuple)) or not all(isinstance(m, str) for m in needed):
        raise ConfigError("imports", needed, "a list of module names")
    imports.check_known(needed, "imports")
    return decode_algorithm(content["algorithm"]), decode_environment(content["environment"]), decode_run(content["run"])
