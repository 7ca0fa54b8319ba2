"""Names to environments; `make` caches, so equal arguments give the same object."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Hashable, Iterator
from typing import Any, Literal, NamedTuple, Unpack, overload

import jax

from jaxrl_fast.envs import keywords as kw
from jaxrl_fast.envs import own, sources, suggest, wrappers
from jaxrl_fast.envs.base import ORIGIN, Environment, describe
from jaxrl_fast.envs.sources import SOURCES, Factory, Source
from jaxrl_fast.envs.tables import check_parameters, table
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.fields import check_settings
from jaxrl_fast.registry import same_definition


class Listed(NamedTuple):
    """One row of `list_environments()`."""

    source: str  # a name of `SOURCES`, or "user"
    installed: bool
    install: str = ""  # the pip line of an optional package


class Listing(dict[str, Listed]):
    """Names and their rows; the short form names a few of each source."""

    def __repr__(self) -> str:
        lines = [f"<{len(self)} environments>"]
        for source in dict.fromkeys(row.source for row in self.values()):
            names = [name for name, row in self.items() if row.source == source]
            more = f", ... {len(names) - 4} more" if len(names) > 4 else ""
            lines.append(f"  {source}: {', '.join(names[:4])}{more}")
        return "\n".join(lines)


def register(name: str, factory: Factory | str) -> None:
    """Register `factory(**settings) -> Environment`, or its path "module:attribute", as `name`.

    For `make` and the command line. Its settings are the dataclass's fields, or the function's
    parameters, with defaults. It may make an environment of gymnax or Gymnasium, or be an instance
    of one. The same definition may be registered twice, as in a notebook.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError("name", name, "a non-empty string")
    ours = [SOURCES.get(key) for key in SOURCES.ours]
    taken = tuple(source.prefix for source in ours if source.prefix)
    if name.startswith(taken):
        raise ConfigError("name", name, f"a name that does not begin with {', '.join(taken)}")
    if own.is_other_class(factory) or not (
            callable(factory) or own.is_foreign(factory)
            or (isinstance(factory, str) and factory.count(":") == 1)):
        raise ConfigError("factory", factory,
                          'an environment of gymnax or Gymnasium, the class of an environment, a '
                          'function that makes one, or "module:attribute"')
    if any(name in source.names
           for source in ours) or not same_definition(sources.USER.get(name, factory), factory):
        raise ConfigError("name", name, "a name that is not taken")
    if callable(factory):
        check_parameters(name, factory)
    sources.USER[name] = factory


def list_environments() -> dict[str, Listed]:
    """Return every environment that `make` knows by name; imports packages with sources only."""
    rows: dict[str, Listed] = {}
    for key, source in (*SOURCES.items(), ("user", _users())):
        row = Listed(key, source.installed(), source.install)
        for name in source.names:
            rows.setdefault(name, row)  # native environments precede gymnax's of the same name
    return Listing(rows)


def list_families() -> dict[str, Listed]:
    """Return descriptions of names that only their libraries know."""
    found = [(key, source) for key, source in SOURCES.items() if source.family]
    return {x.family: Listed(key, x.installed(), x.install) for key, x in found}


def settings_of(name: str) -> dict[str, Any]:
    """Return {setting: default} of `make(name, ...)`, common settings included."""
    return {**wrappers.COMMON, **_source(name).settings(name)}


def about_settings(name: str) -> dict[str, Any]:
    """Return {setting: an object with `help` and `choices`} from the source of `name`."""
    return dict(_source(name).about(name))


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules in `name` that making it imports."""
    source = _owner(name)
    return source.modules(name) if source else ()


def on_host(name: str) -> bool:
    """Return whether environments of the source of `name` step on the host, without making one."""
    source = _owner(name)
    return source is not None and source.on_host


@overload
def make(name: Literal["CartPole-v1"], **settings: Unpack[kw.CartPoleSettings]) -> Any: ...
@overload
def make(name: Literal["Acrobot-v1"], **settings: Unpack[kw.AcrobotSettings]) -> Any: ...
@overload
def make(name: Literal["MountainCar-v0"], **settings: Unpack[kw.MountainCarSettings]) -> Any: ...
@overload
def make(name: Literal["MountainCarContinuous-v0"],
         **settings: Unpack[kw.MountainCarContinuousSettings]) -> Any: ...
@overload
def make(name: Literal["Pendulum-v1"], **settings: Unpack[kw.PendulumSettings]) -> Any: ...
@overload
def make(name: Literal["Breakout-MinAtar"], **settings: Unpack[kw.BreakoutSettings]) -> Any: ...
@overload
def make(name: Any, **settings: Any) -> Any: ...
def make(name: Any, **settings: Any) -> Any:
    """Return the environment called `name`, or an environment object in our form.

    Args:
        name: A name of `list_environments` or `register` (`gymnax:NAME` makes gymnax's original of
            a native one); or an environment of gymnax or Gymnasium, its class, or a function that
            makes an environment.
        settings: The environment's own, and `action_repeat`, `sticky_actions`, `stack`,
            `reward_scale`, `reward_clip` and `time_limit` (`envs.wrappers`).

    Returns:
        An `Env`, which steps on the device, or a `HostEnv` (`gym:`, `ale:`, `envpool:`, Gymnasium's
        objects). Equal arguments give the same object.
    """
    if isinstance(name, Environment):
        return wrap(name, **settings)
    with jax.core.eval_context():  # within a trace too: adapters read their arrays
        name = name if isinstance(name, str) else own.name_of(name)
        known = settings_of(name)
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(f"env.{key}", value,
                              f"a setting of {name} ({', '.join(known)}){nearest(key, known)}")
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    items = tuple((k, type(frozen[k]), frozen[k]) for k in sorted(frozen))
    identity = _source(name).identity(name)
    try:
        hash((identity, items))
    except TypeError:
        return _build(name, frozen)  # an array among the settings (a sweep) is no cache key
    with jax.core.eval_context():  # the cache outlives the trace
        return _make_cached(name, identity, items)


def check_known(name: str) -> None:
    """Raise ConfigError for an unknown name very near to a known one; makes no environment.

    A name without its source passes ("LunarLander-v3", as `env.spec.name`), and one with a module.
    """
    listed = any(name in source.names or source.known(name.removeprefix(source.prefix))
                 for source in _sources(name))
    bare = {known.rpartition(":")[2] for known in suggest.candidates()}
    passes = listed or name.rpartition(":")[2] in bare or name.count(":") > 1
    hint = "" if passes else suggest.suggest(name, sure=True)
    if hint and not suggest.is_registered(name):
        raise ConfigError("environment", name,
                          f"a known environment (`jaxrl-fast list environments`){hint}")


@functools.cache
def _make_cached(name: str, identity: Hashable,
                 items: tuple[tuple[str, type, Any], ...]) -> Environment:
    return _build(name, {k: v for k, _, v in items})


def _build(name: str, settings: dict[str, Any]) -> Environment:
    usual = settings_of(name)
    common = {k: settings.get(k, usual[k]) for k in wrappers.COMMON}
    own = {k: v for k, v in settings.items() if k not in wrappers.COMMON}
    env = _source(name).make(name, **own)
    if not isinstance(env, Environment):
        raise ConfigError("environment", name,
                          f"one whose factory returns a jaxrl_fast Env, not {type(env).__name__}")
    if dataclasses.is_dataclass(env):
        check_settings(env, "env.")
    env = wrap(env, **common)
    if ORIGIN in env.__dict__:  # a factory may return the one `make("CartPole-v1")` of this process
        env = copy.copy(env)
    # for config.json; no field, so traces and comparisons ignore it
    env.__dict__[ORIGIN] = name, dict(settings)
    return env


def wrap(env: Environment, **common: Any) -> Environment:
    """Return an environment in the wrappers of the given settings (`wrappers.COMMON`), if any."""
    for key, value in common.items():
        if key not in wrappers.COMMON:
            valid = (
                f"one of {', '.join(wrappers.COMMON)}; {env.spec.name} is made already, with its "
                "own settings"
            )
            raise ConfigError(f"env.{key}", value, f"{valid}{nearest(key, wrappers.COMMON)}")
    if common:
        env = wrappers.wrap(env, **common)
        _ = env.spec  # an impossible spec (a stack of dicts) fails here, not within a trace
    return env


def is_path(name: str) -> bool:
    """Return whether `name` is "module:name" of a user's class or function, not registered."""
    ours = map(SOURCES.get, SOURCES.ours)
    return ":" in name and name not in sources.USER and not any(x.owns(name) for x in ours)


def name_of(env: Environment) -> str:
    """Return a run's name of the environment: `make`'s name, else its spec's."""
    origin = describe(env)
    return origin[0] if origin else env.spec.name


def _users() -> Source:
    """Return the user's own source: registered names, and named objects."""
    return dataclasses.replace(table("", sources.USER, own.find), known=own.is_known)


def _sources(name: Any) -> Iterator[Source]:
    """Yield the sources that may have `name`; imports only the package that it names."""
    yield from map(SOURCES.get, SOURCES.ours)
    yield _users()
    key, slash, _ = str(name).partition("/")
    if slash and key not in SOURCES.ours and key in SOURCES:
        yield SOURCES.get(key)


def _owner(name: str) -> Source | None:
    """Return the first source that has `name`, or None; imports those before it."""
    return next((source for source in _sources(name) if source.owns(name)), None)


def _source(name: str) -> Source:
    """Return the source of `name`; raises ConfigError without one or without its library."""
    if not isinstance(name, str):
        raise ConfigError("environment", name, "a name such as 'CartPole-v1'")
    found = _owner(name)
    if found is None and not suggest.suggest(name, sure=True) and own.find(name) is not None:
        found = _users()
    if found is None:
        valid = f"a known environment (`jaxrl-fast list environments`){suggest.suggest(name)}"
        raise ConfigError("environment", name, valid)
    if not found.installed():
        raise ConfigError("environment", name, f"one whose package is installed: {found.install}")
    return found
