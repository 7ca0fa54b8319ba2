"""Names to environments. `make` caches: the same arguments give the same object, so nothing is traced twice."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import jax

from jaxrl_fast.envs import own, suggest, wrappers
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.tables import check_parameters, table
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.fields import check_settings
from jaxrl_fast.registry import Registry, same_definition

Factory = Callable[..., Environment]


def _check(name: str, source: Any) -> None:
    if not isinstance(source, Source):
        raise ConfigError("environment source", type(source).__name__, "a jaxrl_fast.envs.Source")
    bad = [x for x in (source.prefix, *source.names) if not x.startswith(f"{name}/")]
    if bad:
        raise ConfigError("prefix", bad[0], f"{name}/, as its entry point, at the begin of all its names")


_ENVS = "jaxrl_fast.envs"
SOURCES: Registry[Source] = Registry("environment source", "jaxrl_fast.environments", {
    "native": f"{_ENVS}.native.source:SOURCE",
    "gymnax": f"{_ENVS}.gymnax.source:SOURCE",
    "brax": f"{_ENVS}.physics.brax_adapter:SOURCE",
    "playground": f"{_ENVS}.physics.playground_adapter:SOURCE",
    "gym": f"{_ENVS}.host.gymnasium_adapter:SOURCE",
    "envpool": f"{_ENVS}.host.envpool_adapter:SOURCE",
    "ale": f"{_ENVS}.host.ale_adapter:SOURCE",
    "probe": f"{_ENVS}.probes.source:SOURCE",
}, _check)  # fmt: skip
ADDED: dict[str, Factory | str] = {}  # what `register` was given


class Listed(NamedTuple):
    """One row of `list_environments()`."""

    source: str  # a name of `SOURCES`, or "user"
    installed: bool
    install: str = ""  # the pip line of what is not part of us


class Listing(dict[str, Listed]):
    """Names and their rows; its short form names a few of each source."""

    def __repr__(self) -> str:
        lines = [f"<{len(self)} environments>"]
        for source in dict.fromkeys(row.source for row in self.values()):
            names = [name for name, row in self.items() if row.source == source]
            more = f", ... {len(names) - 4} more" if len(names) > 4 else ""
            lines.append(f"  {source}: {', '.join(names[:4])}{more}")
        return "\n".join(lines)


def register(name: str, factory: Factory | str) -> None:
    """Make `factory(**settings) -> Environment`, or a path "module:attribute", known as `name`.

    For `make` and the command line.

    Its settings are the fields of the dataclass, or the parameters of the function, that have defaults. It may make an
    environment of gymnax's or Gymnasium's instead, and be an instance of one. One definition
    may come twice: a notebook's cell that runs again, or a script that is imported by its name as well.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError("name", name, "a non-empty string")
    ours = [SOURCES.get(key) for key in SOURCES.ours]
    taken = tuple(source.prefix for source in ours if source.prefix)
    if name.startswith(taken):
        raise ConfigError("name", name, f"a name that does not begin with {', '.join(taken)}")
    if not (callable(factory) or own.is_foreign(factory) or (isinstance(factory, str) and factory.count(":") == 1)):
        valid = 'an environment of gymnax or Gymnasium, a function or class that makes an environment, or "module:attribute"'
        raise ConfigError("factory", factory, valid)
    if any(name in source.names for source in ours) or not same_definition(ADDED.get(name, factory), factory):
        raise ConfigError("name", name, "a name that is not taken")
    if callable(factory):
        check_parameters(name, factory)
    ADDED[name] = factory


def list_environments() -> dict[str, Listed]:
    """Return every environment that `make` knows by name; imports none of the libraries.

    Packages that add sources are imported.
    """
    rows: dict[str, Listed] = {}
    for key, source in (*SOURCES.items(), ("user", _users())):
        row = Listed(key, source.installed(), source.install)
        for name in source.names:
            rows.setdefault(name, row)  # a native environment goes before gymnax's of its name
    return Listing(rows)


def list_families() -> dict[str, Listed]:
    """Return a description of what else `make` takes: names that only their libraries know."""
    found = {source.family: (key, source) for key, source in SOURCES.items() if source.family}
    return {family: Listed(key, source.installed(), source.install) for family, (key, source) in found.items()}


def settings_of(name: str) -> dict[str, Any]:
    """Return {setting: default} of `make(name, ...)`, with those that every environment takes."""
    return {**wrappers.COMMON, **_source(name).settings(name)}


def about_settings(name: str) -> dict[str, Any]:
    """Return {setting: an object with `help` and `choices`} of what the source says of `name`."""
    return dict(_source(name).about(name))


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules that making `name` imports because it names them."""
    source = next((source for source in _sources(name) if source.owns(name)), None)
    return source.modules(name) if source else ()


def on_host(name: str) -> bool:
    """Return whether environments of the source of `name` step on the host; imports none."""
    return any(source.on_host and source.owns(name) for source in _sources(name))


def make(name: Any, **settings: Any) -> Any:
    """Return the environment called `name`, or an environment object in our form.

    `name`: native, a probe, one of gymnax, brax, Gymnasium, EnvPool or ALE, or one that a user registered.

    Instead of a name: an environment of gymnax's or Gymnasium's, its class, or a function that makes an environment.
    `gymnax:NAME` forces gymnax's original where a native environment has the same name. Every environment also takes
    `action_repeat`, `sticky_actions`, `stack`, `reward_scale`, `reward_clip` and `time_limit` (`envs.wrappers`).
    The same arguments give the same object.

    Returns:
        An `Env`, which steps on the device, or a `HostEnv` (`gym:`, `ale:`, `envpool:`, Gymnasium's objects).
    """
    if isinstance(name, Environment):
        return wrap(name, **settings)
    with jax.core.eval_context():  # within a trace too: adapters look at their arrays
        name = name if isinstance(name, str) else own.name_of(name)
        known = settings_of(name)
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(f"env.{key}", value, f"a setting of {name} ({', '.join(known)}){nearest(key, known)}")
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    try:
        with jax.core.eval_context():  # what is cached outlives the trace that it was made in
            return _cached(name, _source(name).identity(name), tuple(sorted((k, type(v), v) for k, v in frozen.items())))
    except TypeError as error:
        if "unhashable" not in str(error) and "hash" not in str(error):
            raise
        return _build(name, frozen)  # an array among the settings (a sweep): it cannot be a key of the cache


def check_known(name: str) -> None:
    """ConfigError for a name that is none of any source's, and very near to one; no environment is imported."""
    listed = any(name in source.names or source.known(name.removeprefix(source.prefix)) for source in _sources(name))
    tasks = {suggest.task(known) for known in suggest.candidates()}
    if not listed and suggest.task(name) not in tasks and suggest.suggest(name, sure=True):
        raise ConfigError("environment", name, f"a known environment (`jaxrl-fast list`){suggest.suggest(name)}")


@functools.cache
def _cached(name: str, identity: Hashable, items: tuple[tuple[str, type, Any], ...]) -> Environment:
    return _build(name, {k: v for k, _, v in items})


def _build(name: str, settings: dict[str, Any]) -> Environment:
    usual = settings_of(name)
    common = {k: settings.get(k, usual[k]) for k in wrappers.COMMON}
    env = _source(name).make(name, **{k: v for k, v in settings.items() if k not in wrappers.COMMON})
    if not isinstance(env, Environment):
        raise ConfigError("environment", name, f"one whose factory returns a jaxrl_fast Env, not {type(env).__name__}")
    if dataclasses.is_dataclass(env):
        check_settings(env, "env.")
    env = wrap(env, **common)
    env.__dict__[_ORIGIN] = name, dict(settings)  # for config.json; no field, so that it takes no part in traces and comparisons
    return env


def wrap(env: Environment, **common: Any) -> Environment:
    """An environment of ours inside the wrappers whose settings (`wrappers.COMMON`) are given; itself where none is."""
    for key, value in common.items():
        if key not in wrappers.COMMON:
            valid = f"one of {', '.join(wrappers.COMMON)}; {env.spec.name} is made already, with its own settings"
            raise ConfigError(f"env.{key}", value, f"{valid}{nearest(key, wrappers.COMMON)}")
    if common:
        env = wrappers.wrap(env, **common)
        _ = env.spec  # a spec that cannot be (a stack of dicts) is an error here, not in the middle of a trace
    return env


_ORIGIN = "_made_from"  # attribute of an environment that `make` has built


def describe(env: Environment) -> tuple[str, dict[str, Any]] | None:
    """Return the (name, settings) that `make` built this very object from; None for one that was built by hand."""
    return env.__dict__.get(_ORIGIN)


def name_of(env: Environment) -> str:
    """What a run calls this environment: the name that `make` was given, else its spec's."""
    origin = describe(env)
    return origin[0] if origin else env.spec.name


suggest.listed_by(lambda: list(list_environments()))


def _users() -> Source:
    """The user's own: what is registered, and objects under the names that they have got."""
    return dataclasses.replace(table("", ADDED, own.find), known=own.is_known)


def _sources(name: Any) -> Iterator[Source]:
    """Yield the sources that may have `name`. Of packages, only the one that it names is imported."""
    yield from map(SOURCES.get, SOURCES.ours)
    yield _users()
    key, slash, _ = str(name).partition("/")
    if slash and key not in SOURCES.ours and key in SOURCES:
        yield SOURCES.get(key)


def _source(name: str) -> Source:
    """Return the source of `name`. Raises ConfigError without one, and without its library."""
    if not isinstance(name, str):
        raise ConfigError("environment", name, "a name such as 'CartPole-v1'")
    found = next((source for source in _sources(name) if source.owns(name)), None)
    if found is None and not suggest.suggest(name, sure=True) and own.find(name) is not None:
        found = _users()
    if found is None:
        raise ConfigError("environment", name, f"a known environment (`jaxrl-fast list`){suggest.suggest(name)}")
    if not found.installed():
        raise ConfigError("environment", name, f"one whose package is installed: {found.install}")
    return found
