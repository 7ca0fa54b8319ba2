"""The code that a run's files may name; reading them imports nothing unasked.

A path "module:name" may name this package, `LIBRARIES`, modules that this process has imported, and
modules that the user named (`--import`, `modules=`, a typed network or environment), but none of
Python's own. `look_up` passes through no module, so "mine:os.system" is refused too.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxrl_fast._moved import today
from jaxrl_fast.errors import ConfigError, UserError, brief, nearest

PACKAGE = __name__.partition(".")[0]
LIBRARIES = (PACKAGE, "jax", "flax", "optax", "gymnasium", "gymnax",
             "brax", "mujoco_playground", "ale_py", "numpy", "ml_dtypes")
# Where a library's functions may lie: activations, initializers, optimizers, schedules.
FUNCTIONS = (
    "jax.nn", "jax.numpy", "jax.lax", "jax.scipy", "jax._src.nn",
    "jax._src.numpy", "jax._src.lax", "jax._src.scipy",
    "flax.linen", "optax", f"{PACKAGE}.networks", f"{PACKAGE}.ops.optim",
)  # fmt: skip
# modules that reading a run may import
LOADED = (*LIBRARIES[1:], "envpool", "mujoco", "orbax", "ray")
FILES = ("load", "save", "savez", "fromfile")  # functions of jax.numpy that open files

named: list[str] = []  # modules that the user named, for started processes


def import_user_module(name: str, argument: str = "--import", trust: bool = True) -> ModuleType:
    """Import a module that the user named, from the working directory too.

    A module from there appends it to `sys.path`, for later imports and for started processes.
    trust: files may from now on name anything in it.
    """
    stem, here = _stem(name), os.getcwd()
    try:
        with _first_on_path(here):
            module = importlib.import_module(stem)
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and stem.startswith(error.name):
            raise ConfigError(argument, name, "a module that can be imported from here") from error
        raise ConfigError(argument, name, f"a module that imports; {brief(error)}") from error
    if trust and name not in named:
        named.append(name)
    file = getattr(module, "__file__", None)
    if file and Path(file).is_relative_to(here) and here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    return module


def check_known(modules: Iterable[str], argument: str, value: Any = None) -> None:
    """Raise ConfigError, with the flags to add, if a file (`value`) names unknown modules."""
    unknown = [module for module in dict.fromkeys(modules) if not is_known(_stem(module))]
    if not unknown:
        return
    given = value or (unknown[0] if len(unknown) == 1 else unknown)
    if any("__main__" in _stem(module).split(".") for module in unknown):
        raise ConfigError(argument, given,
                          "a module that is imported, not the program of a package")
    if any(_root(_stem(module)) in sys.stdlib_module_names for module in unknown):
        raise ConfigError(argument, given,
                          "a module of yours; Python's own modules hold no part of a run")
    flags = " ".join(f"--import {shlex.quote(module)}" for module in unknown)
    raise ConfigError(
        argument, given, "a module that is known here. A run's files are data and import nothing "
                         "unasked: where you trust it, "
        f"add {flags} (from Python: modules={unknown})",
    )  # fmt: skip


def is_known(module: str) -> bool:
    """Return whether a file may name objects of `module`."""
    root = _root(module)
    # importing a package's `__main__` runs it
    if root in sys.stdlib_module_names or "__main__" in module.split("."):
        return module == "__main__"
    return root in LIBRARIES or module in sys.modules or root in _named_roots()


def is_users(module: str) -> bool:
    """Return whether `module` is the user's: named, or imported and not installed."""
    root = _root(module)
    if root in LIBRARIES or not is_known(module):
        return False
    if root in _named_roots() or module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return bool(file) and not is_installed(file)


def is_installed(file: str | Path) -> bool:
    """Return whether a file lies where packages are installed, by Python, user or distribution."""
    places = {Path(file), Path(file).resolve()}
    named = any({"site-packages", "dist-packages"} & set(place.parts) for place in places)
    return named or any(place.is_relative_to(folder) for place in places
                        for folder in _installation())


@functools.cache
def _installation() -> tuple[str, ...]:
    own = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")]
    return (*own, *site.getsitepackages(), site.getusersitepackages())


def check_libraries(folder: Path | None = None) -> None:
    """Raise ConfigError for a library that comes from the working directory or a run's folder.

    Modules that the user named pass, and packages installed from deeper in the working directory.
    """
    here, run = Path.cwd().resolve(), folder.resolve() if folder else None
    first = next((i for i, entry in enumerate(sys.path) if entry and is_installed(entry)),
                 len(sys.path))
    ahead = {Path(entry or ".").resolve() for entry in sys.path[:first]}
    for root in LOADED:
        for package in () if root in _named_roots() else _places(root):
            parent = package.resolve().parent
            foreign = (parent == here or (parent.is_relative_to(here) and parent in ahead)
                       or (run and parent.is_relative_to(run)))
            if foreign and not is_installed(package):
                valid = (
                    f"the installed one, not {package}: move that away or, where you trust it, add "
                    f"--import {root}"
                )
                raise ConfigError("library", root, f"{valid} (from Python: modules={[root]})")


def _places(root: str) -> list[Path]:
    """Return the file or folders of a package, imported or found for import."""
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError, AttributeError):  # a module that was put there by hand
        return []
    found = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if spec and spec.has_location:
        return found or [Path(spec.origin)]
    return [folder for folder in found if next(folder.rglob("*.py"), None)]


def _named_roots() -> set[str]:
    return {_root(_stem(name)) for name in named}


def is_function(module: str, attribute: str) -> bool:
    """Return whether a setting may call "module:attribute": a library's function or a user's."""
    of_a_library = any(module == prefix or module.startswith(prefix + ".") for prefix in FUNCTIONS)
    return (of_a_library and attribute not in FILES) or is_users(module)


def look_up(path: Any, argument: str) -> tuple[Any, str]:
    """Return (the object of "module:name", the module that defines it); both modules are known."""
    if not isinstance(path, str) or not all(path.partition(":")):
        raise ConfigError(argument, path, 'a path "module:name"')
    name, _, attribute = path.partition(":")
    name = today(name)
    check_known([name], argument, path)
    try:
        found: Any = importlib.import_module(name)
    except Exception as error:
        raise ConfigError(argument, path,
                          f"a name of a module that imports; {brief(error)}") from error
    scope, parts = vars(found), attribute.split(".")
    for i, part in enumerate(parts):
        through_a_module = i > 0 and not isinstance(found, type)
        if part.startswith("__") or through_a_module or not hasattr(found, part):
            raise _absent(path, argument, scope)
        found = getattr(found, part)
    if isinstance(found, ModuleType):
        raise _absent(path, argument, scope)
    # An object's class says nothing of the object's origin.
    home = name
    if hasattr(found, "__qualname__") or hasattr(found, "__name__"):
        home = getattr(found, "__module__", None) or name
    check_known([home], argument, path)
    return found, home


def _absent(path: str, argument: str, scope: dict[str, Any]) -> ConfigError:
    name, _, attribute = path.partition(":")
    valid = f"a name in {name}{nearest(attribute, scope)}"
    if name == "__main__":  # --import cannot help
        own = "move it from your script or notebook to a module of its own, such as nets.py"
        valid = (f"a name of a module; this one is only where it was trained: {own}, and write "
                 f"'nets:{attribute}' into config.json")
    return ConfigError(argument, path, valid)


def _stem(name: str) -> str:
    """Return the import name of my_envs.py or my/envs.py."""
    return name.removesuffix(".py").replace("/", ".")


def _root(module: str) -> str:
    return module.partition(".")[0]


@contextlib.contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    if "" in sys.path or folder in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
