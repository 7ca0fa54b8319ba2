"""`config.json`: every resolved setting of a run, enough to repeat it, and its decoding."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import imports
from jaxrl_fast.algorithms import ALGORITHMS, algorithm_class
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import build_algorithm
from jaxrl_fast.engine.config import RunConfig, check_names
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, check_choice, first_line
from jaxrl_fast.files import folders, forms
from jaxrl_fast.runs import config_values as values

FORMAT = 2
# keys of a run
OWN = ("format", "algorithm", "environment", "run", "resolved", "device", "products", "versions")
BEFORE_THE_SETTING = {"precision": "tf32"}  # JAX's own choice on a GPU, which older runs had


def encode_algorithm(algo: Algorithm) -> dict[str, Any]:
    fields = [f for f in dataclasses.fields(algo) if f.name != "spec"
              and not values.comes_with_its_class(algo, f)]
    settings = {f.name: values.encode(getattr(algo, f.name), f.name) for f in fields}
    cls = type(algo)
    # found by name, wherever it is
    known = algo.name in ALGORITHMS and algorithm_class(algo.name) is cls
    path = values.path_of(cls) if known else values.class_path(cls, "algorithm")
    return {"name": algo.name, "class": path, "settings": settings}


def decode_algorithm(entry: dict[str, Any]) -> Algorithm:
    cls, settings = _trained_class(entry), values.decode_settings(entry["settings"], "algo")
    with values.reading("algorithm", entry):
        return build_algorithm(cls, BEFORE_THE_SETTING | settings)


def _trained_class(entry: dict[str, Any]) -> type:
    """Return the registered class, or the class that the file names."""
    written = entry.get("class")
    if written is None or entry["name"] in ALGORITHMS:
        known = algorithm_class(entry["name"])
        moved = written == f"__main__:{known.__qualname__}"
        moved = moved and not known.__module__.startswith("jaxrl_fast.")
        # moved: from a user's script to a module
        if moved or written in (None, values.path_of(known)):
            return known
    cls, _ = imports.look_up(written, "algorithm")
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ConfigError("algorithm", written, "a subclass of jaxrl_fast.Algorithm")
    return cls


def encode_environment(env: Environment) -> dict[str, Any]:
    origin = registry.describe(env)
    if origin is not None:
        return {"name": origin[0],
                "settings": {k: values.encode(v, f"env.{k}") for k, v in origin[1].items()}}
    return {"name": env.spec.name, "object": values.encode(env, "environment")}


def decode_environment(entry: dict[str, Any]) -> Environment:
    if "object" in entry:
        with values.reading("environment", entry):
            env = values.decode(entry["object"], "environment")
        if not isinstance(env, Environment):
            raise ConfigError("environment", type(env).__name__, "a jaxrl_fast Env")
        return env
    imports.check_known(registry.modules_of(entry["name"]), "environment")
    with values.reading("environment", entry):
        settings = values.decode_settings(entry["settings"], "env")
        return registry.make(entry["name"], **settings)


def check_about(about: Any) -> None:
    """Raise ConfigError for keys that config.json cannot hold beside its own."""
    wanted = "a dict of texts to JSON values"
    if not isinstance(about, Mapping) or not all(isinstance(key, str) for key in about):
        raise ConfigError("about", about, wanted)
    for key in OWN:
        if key in about:
            raise ConfigError("about", key,
                              f"keys other than {', '.join(OWN)}: the run writes these")
    try:
        json.dumps(dict(about), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError("about", about, f"{wanted}; {first_line(error)}") from error


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically and sync it: a reader, or a crash, finds the old or the new one."""
    with folders.replacing(path) as temporary:
        temporary.write_text(text, "utf-8", "backslashreplace")
        folders.sync(temporary)
    folders.sync(path.parent)


def read_config(path: str | Path) -> dict[str, Any]:
    """Return the config.json of a run directory (or the file itself), checked."""
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError("config", str(file), "an existing config.json of a run")
    content = forms.read_json(file, "config", "a config.json of jaxrl_fast", forms.CONFIG)
    if content["format"] != FORMAT:
        raise ConfigError("config", str(file),
                          f"a config.json of format {FORMAT}; this file has {content['format']!r}")
    return content


SELECTIONS = {name: f"{imports.PACKAGE}.sweeps.selection:{cls}"
              for name, cls in {"pbt": "PBT", "halving": "Halving"}.items()}


def encode_run(config: RunConfig) -> dict[str, Any]:
    content = dataclasses.asdict(config)
    if config.selection is not None:
        check_choice("selection.kind", config.selection.kind, SELECTIONS)
        content["selection"] = {"kind": config.selection.kind, **content["selection"]}
    return content


def _decode_selection(content: dict[str, Any]) -> Any:
    check_choice("selection.kind", content.get("kind"), SELECTIONS)
    cls, _ = imports.look_up(SELECTIONS[content["kind"]], "selection")
    settings = {k: v for k, v in content.items() if k != "kind"}
    check_names(cls.__dataclass_fields__, settings, "selection.")
    return cls(**settings)


def decode_run(entry: dict[str, Any]) -> RunConfig:
    check_names(RunConfig.__dataclass_fields__, entry, "run.")
    selection = entry.get("selection")
    if not isinstance(selection, (dict, type(None))):
        raise ConfigError("run.selection", selection, "the settings of PBT or of Halving, or None")
    with values.reading("run", entry):
        own = {"selection": _decode_selection(selection)} if selection else {}
        return RunConfig(**entry | own)


def load(path: str | Path,
         modules: Sequence[str] = ()) -> tuple[Algorithm, Environment, RunConfig, dict[str, Any]]:
    """Load a config.json -> (algorithm, environment, run settings, content).

    Imports `modules`, not modules that the file names. Raises ConfigError for content of no run.
    """
    if isinstance(modules, str):
        raise ConfigError("modules", modules, f"a list of names, such as [{modules!r}]")
    content, path = read_config(path), Path(path)
    for module in modules:
        imports.import_user_module(module)
    file = path / "config.json" if path.is_dir() else path
    with within(file), values.reading("config", str(file)):
        return *decode(content, file.absolute().parent), content


@contextlib.contextmanager
def within(file: Path) -> Iterator[None]:
    """Add the file to a ConfigError."""
    try:
        yield
    except ConfigError as error:
        if str(file) not in str(error):
            error.args = (f"{error} (in {file})",)
        raise


def decode(content: dict[str, Any],
           folder: Path | None = None) -> tuple[Algorithm, Environment, RunConfig]:
    """Decode the content of `describe`; `folder`, its file's, must hold no library."""
    imports.check_libraries(folder)
    needed = content.get("imports", ())
    if not isinstance(needed, (list, tuple)) or not all(isinstance(m, str) for m in needed):
        raise ConfigError("imports", needed, "a list of module names")
    imports.check_known(needed, "imports")
    algo, env = decode_algorithm(content["algorithm"]), decode_environment(content["environment"])
    return algo, env, decode_run(content["run"])
