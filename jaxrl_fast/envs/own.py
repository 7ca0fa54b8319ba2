"""A user's environment objects in our form, gymnax's or Gymnasium's.

An object gets a name for config.json and sweeps: "MODULE:NAME" of the code that made it. A class or
function that its module holds by name is found by it in every process that imports the module. Any
other object is known in this process alone, by a name with a `#`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from typing import Any

from jaxrl_fast import fields, imports
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.gymnax import objects as gymnax_objects
from jaxrl_fast.envs.host import gymnasium_objects
from jaxrl_fast.envs.host.gymnasium_adapter import is_simple
from jaxrl_fast.errors import ConfigError, UserError, brief, expected

VALID = (
    "a name such as 'CartPole-v1', or an environment of jaxrl_fast, gymnax or Gymnasium, given as "
    "an instance, its class or a function that makes it"
)
# name: an object that was handed over in this process, and `_read` of it then
_NAMED: dict[str, tuple[Any, dict[str, Any]]] = {}


@dataclasses.dataclass(frozen=True)
class Maker:
    """A function of settings that makes an environment, and their defaults."""

    make: Callable[..., Any]
    settings: dict[str, Any]


def is_foreign(value: Any) -> bool:
    """Return whether `value` is an environment or class of gymnax or Gymnasium."""
    return gymnax_objects.is_gymnax(value) or gymnasium_objects.is_gymnasium(value)


def name_of(source: Any) -> str:
    """Return an object's name; raises ConfigError unless it is or makes an environment."""
    if gymnasium_objects.is_vector(source):
        valid = "one environment, or a function that makes one: vectors are made of it"
        raise ConfigError("environment", type(source).__name__, valid)
    if is_other_class(source) or not (is_foreign(source) or callable(source)):
        raise ConfigError("environment", source, VALID)
    made_by = (source if inspect.isroutine(source) or isinstance(source, type)
               else type(getattr(source, "unwrapped", source)))
    name = f"{made_by.__module__}:{getattr(made_by, '__qualname__', made_by)}"
    source = _canonical(source, name)
    read = _read(source)
    known = next((name for name, (other, then) in _NAMED.items()
                  if _same(other, source) and _equal(then, read)), None)
    if known is not None:
        return known
    if source is not _attribute(name) or _object_of(name) is source:
        name = next(f"{name}#{n}" for n in itertools.count(1) if f"{name}#{n}" not in _NAMED)
    _NAMED[name] = source, read
    return name


def is_other_class(source: Any) -> bool:
    """Return whether `source` is a class of something other than environments."""
    return isinstance(source, type) and not (issubclass(source, Environment) or is_foreign(source))


def _object_of(name: str) -> Any:
    return _NAMED.get(name, (None, {}))[0]


def _read(source: Any, seen: list[Any] | None = None) -> dict[str, Any]:
    """Return the variables that a function and its helpers name now, such as a loop's.

    Plain values are texts and other collections copies, because they may change later.
    """
    seen = [] if seen is None else seen
    if not inspect.isfunction(source) or source in seen:
        return {}
    seen.append(source)
    try:
        variables = inspect.getclosurevars(source)
    except ValueError:  # one without a value yet, which the function's call will name
        return {}
    found: dict[str, Any] = {}
    for name, value in (variables.globals | variables.nonlocals).items():
        if inspect.isfunction(value) and value.__globals__ is source.__globals__:
            found[name] = value.__code__, value.__defaults__, _read(value, seen)
        elif _is_plain(value):
            found[name] = repr(value)
        else:
            found[name] = value.copy() if isinstance(value, (dict, list, set)) else value
    return found


def _is_plain(value: Any) -> bool:
    return is_simple(value) or (isinstance(value, dict) and all(map(_is_plain, value.values())))


def _canonical(source: Any, name: str) -> Any:
    """Return an instance's class if it makes an equal one without arguments."""
    there = _attribute(name)
    if isinstance(source, type) or there is not type(source):
        return source
    try:
        return there if _same(there(), source) else source
    except Exception:
        return source


def _same(a: Any, b: Any) -> bool:
    """Return whether two objects make the same environment: equal attributes or definitions."""
    if a is b or type(a) is not type(b) or isinstance(a, type):
        return a is b
    try:
        if inspect.isfunction(a):
            cells = lambda f: [cell.cell_contents for cell in f.__closure__ or ()]
            (one, other) = ((f.__code__, f.__defaults__, cells(f)) for f in (a, b))
            return one == other and a.__globals__ is b.__globals__
        return gymnax_objects.is_gymnax(a) and bool(vars(a) == vars(b))
    except Exception:  # arrays cannot be compared
        return False


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # arrays cannot be compared
        return False


def is_known(name: str) -> bool:
    """Return whether `name` names an object or an attribute of an imported module."""
    return name in _NAMED or _attribute(name) is not None


def find(name: str) -> Any:
    """Return the object of a name, or None; imports nothing.

    Raises ConfigError for an unknown module, and for anything but an environment or a user's
    function.
    """
    if name in _NAMED or "#" in name or not all(name.partition(":")):
        return _object_of(name)
    found, home = imports.look_up(name, "environment")
    ours = isinstance(found, type) and issubclass(found, Environment)
    if is_other_class(found) or not (
            ours or is_foreign(found) or (callable(found) and imports.is_users(home))):
        raise ConfigError("environment", name, "the path of an environment's class, or of a "
                                               "function of a module of yours")
    return found


def _attribute(name: str) -> Any:
    """Return the object "MODULE:NAME" of an imported module."""
    module, _, attribute = name.partition(":")
    return functools.reduce(lambda x, part: getattr(x, part, None),
                            attribute.split("."), sys.modules.get(module))


def maker(name: str, source: Any) -> Maker:
    """Return how to make a user's environment; source: registered or passed as `name`."""
    if is_other_class(source):
        raise ConfigError("environment", source, VALID)
    kind, label = _kind(source, name)
    label = label if ":" in name else name
    if kind == "gymnasium":
        instance = gymnasium_objects.is_gymnasium(source) and not isinstance(source, type)
        create = _copies(source, label) if instance else source
        return Maker(functools.partial(gymnasium_objects.adapt, create, label),
                     gymnasium_objects.defaults(create))
    if kind == "gymnax":
        return _gymnax(label, source)
    _check_call(name, source)
    return Maker(source, parameters(source))


def _check_call(name: str, source: Any) -> None:
    """Raise ConfigError for a class or function with a parameter that has no default."""
    try:
        inspect.signature(source).bind()
    except TypeError as error:
        raise ConfigError("environment", name, "one that can be made without arguments "
                          f"({error}): give the others by a lambda") from error
    except ValueError:  # without a signature, as some of C
        pass


def _kind(source: Any, name: str) -> tuple[str, str]:
    """Return ("gymnax", "gymnasium" or "" for ours, its name), by a call without arguments."""
    if not is_foreign(source):
        return _made(source, name) if _is_asked(source) else ("", "")
    if gymnasium_objects.is_gymnasium(source):
        return "gymnasium", gymnasium_objects.label(source)
    return "gymnax", (source if isinstance(source, type) else type(source)).__name__


def _is_asked(source: Any) -> bool:
    """Return whether `source` may make another library's environment: only if one is imported."""
    if isinstance(source, type) or not {"gymnasium", "gymnax"} & set(sys.modules):
        return False
    try:
        inspect.signature(source).bind()
        return True
    except (TypeError, ValueError):
        return False


@functools.cache  # a function whose variables changed has another name
def _made(source: Any, name: str) -> tuple[str, str]:
    try:
        env = source()
    except UserError:
        raise
    except Exception as error:
        raise expected("environment", "a function that makes one",
                       f"one that fails with {brief(error)}") from error
    found = _kind(env, name) if is_foreign(env) else ("", "")
    if found[0] == "gymnasium":
        env.close()
    return found


_copies = functools.cache(gymnasium_objects.Copies)


def _gymnax(label: str, source: Any) -> Maker:
    """Return the maker of a gymnax environment: constructor parameters and its own are settings."""
    if not isinstance(source, type) and gymnax_objects.is_gymnax(source):
        return Maker(functools.partial(gymnax_objects.adapt, source, label),
                     gymnax_objects.defaults(source, label))
    own = parameters(source)

    def make(**settings: Any) -> Environment:
        env = gymnax_objects.construct(source, {k: v for k, v in settings.items() if k in own})
        others = {k: v for k, v in settings.items() if k not in own}
        return gymnax_objects.adapt(env, label, **others)

    return Maker(make, gymnax_objects.defaults(gymnax_objects.construct(source, {}), label) | own)


def parameters(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings of a class or function: fields or parameters with defaults."""
    found = fields.defaults_of(factory)
    if dataclasses.is_dataclass(factory):
        known = [f for f in dataclasses.fields(factory) if f.init]
        found = {f.name: f.default for f in known if f.default is not dataclasses.MISSING}
    return {key: found[key] for key in fields.offered(found)}  # `make` takes `name` itself
