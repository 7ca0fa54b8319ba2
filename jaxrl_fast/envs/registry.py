"""Names to environments. `make` caches: the same arguments give the same object, so nothing is traced twice."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrl_fast import signatures
from jaxrl_fast.envs import own, suggest, wrappers
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.gymnax import loading
from jaxrl_fast.envs.host import ale_adapter, envpool_adapter, gymnasium_adapter
from jaxrl_fast.envs.host import api as host
from jaxrl_fast.envs.physics import brax_adapter, playground_adapter
from jaxrl_fast.errors import ConfigError, nearest
from jaxrl_fast.fields import check_settings

Factory = Callable[..., Env]

_ENVS = "jaxrl_fast.envs"
# name -> "module:factory"; resolved when asked for, so that listing and importing this module import nothing.
_NATIVE: dict[str, str] = {
    "CartPole-v1": f"{_ENVS}.native.cartpole:CartPole",
    "Acrobot-v1": f"{_ENVS}.native.acrobot:Acrobot",
    "MountainCar-v0": f"{_ENVS}.native.mountain_car:MountainCar",
    "MountainCarContinuous-v0": f"{_ENVS}.native.mountain_car:MountainCarContinuous",
    "Pendulum-v1": f"{_ENVS}.native.pendulum:Pendulum",
    "Breakout-MinAtar": f"{_ENVS}.native.breakout:Breakout",
}
_PROBES: dict[str, str] = {
    "probe/constant-reward": f"{_ENVS}.probes.control:ConstantReward",
    "probe/reward-at-end": f"{_ENVS}.probes.control:RewardAtEnd",
    "probe/two-step-credit": f"{_ENVS}.probes.control:TwoStepCredit",
    "probe/action-reward": f"{_ENVS}.probes.control:ActionReward",
    "probe/truncated-only": f"{_ENVS}.probes.control:TruncatedOnly",
    "probe/reward-at-cut": f"{_ENVS}.probes.control:RewardAtCut",
    "probe/named-action": f"{_ENVS}.probes.control:NamedAction",
    "probe/continuous": f"{_ENVS}.probes.spaces:Continuous",
    "probe/multi-discrete": f"{_ENVS}.probes.spaces:MultiDiscreteAction",
    "probe/masked": f"{_ENVS}.probes.spaces:Masked",
    "probe/dict": f"{_ENVS}.probes.spaces:DictObservation",
}
_GYMNAX: tuple[str, ...] = (
    "Asterix-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar",
    "Catch-bsuite", "DeepSea-bsuite", "MemoryChain-bsuite", "UmbrellaChain-bsuite", "DiscountingChain-bsuite",
    "SimpleBandit-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc", "BernoulliBandit-misc",
    "GaussianBandit-misc", "Reacher-misc", "Swimmer-misc", "Pong-misc", "FrozenLake-misc",
)  # fmt: skip
_USER: dict[str, Factory | str] = {}
# Modules that import their package when an environment of it is made.
_ADAPTERS = {
    adapter.PREFIX: adapter
    for adapter in (brax_adapter, playground_adapter, gymnasium_adapter, envpool_adapter, ale_adapter)
}
_PREFIX = "gymnax:"


class Listed(NamedTuple):
    """One row of `list_environments()`."""

    source: str  # "native", "gymnax", "brax", "playground", "probe" or "user"
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
    """Make `factory(**settings) -> Env`, or a path "module:attribute", known as `name`.

    For `make` and the command line.

    Its settings are the fields of the dataclass, or the parameters of the function, that have defaults. It may make an
    environment of gymnax's or Gymnasium's instead, and be an instance of one. One definition
    may come twice: a notebook's cell that runs again, or a script that is imported by its name as well.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError("name", name, "a non-empty string")
    taken = (*_ADAPTERS, _PREFIX)
    if name.startswith(taken):
        raise ConfigError("name", name, f"a name that does not begin with {', '.join(taken)}")
    if not (callable(factory) or own.is_foreign(factory) or (isinstance(factory, str) and factory.count(":") == 1)):
        valid = 'an environment of gymnax or Gymnasium, a function or class that makes an environment, or "module:attribute"'
        raise ConfigError("factory", factory, valid)
    if name in _names() and not (name in _USER and _same(_USER[name], factory)):
        raise ConfigError("name", name, "a name that is not taken")
    if callable(factory):
        _check_names(name, factory)
    _USER[name] = factory


def _same(a: Factory | str, b: Factory | str) -> bool:
    """Whether two factories are one definition."""
    names = {getattr(x, "__qualname__", x) for x in (a, b)}
    modules = {getattr(x, "__module__", None) for x in (a, b)}
    return a == b or (len(names) == 1 and (len(modules) == 1 or "__main__" in modules))


def _check_names(name: str, factory: Factory) -> None:
    """Refuse a setting that would never arrive, because `make` gives it to a wrapper."""
    for parameter in signatures.parameters(factory):
        if parameter in wrappers.COMMON:
            raise ConfigError("environment", name, f"one without a setting {parameter!r}, which `make` itself takes: rename it")


def list_environments() -> dict[str, Listed]:
    """Return every environment that `make` knows by name; import none of them."""
    gymnax = loading.installed()
    rows = {name: Listed("native", True) for name in _NATIVE}
    rows |= {name: Listed("gymnax", gymnax, loading.INSTALL) for name in _GYMNAX}
    for prefix, adapter in _ADAPTERS.items():
        here = adapter.installed()
        rows |= {name: Listed(prefix.rstrip("/"), here, adapter.INSTALL) for name in adapter.NAMES}
    rows |= {name: Listed("probe", True) for name in _PROBES}
    return Listing(rows | {name: Listed("user", True) for name in _USER})


def list_families() -> dict[str, Listed]:
    """What else `make` takes, by a description: environments of packages that alone know their names."""
    found = [a for a in _ADAPTERS.values() if hasattr(a, "FAMILY")]
    return {a.FAMILY: Listed(a.PREFIX.rstrip(":"), a.installed(), a.INSTALL) for a in found}


def settings_of(name: str) -> dict[str, Any]:
    """The settings of `make(name, ...)` with their defaults, those that every environment takes included."""
    source = _source(name)
    _check_names(name, source)
    return {**wrappers.COMMON, **_maker(name, source).settings}


def about_settings(name: str) -> dict[str, Any]:
    """What an adapter says of the settings of `name`, each with `help` and `choices`; nothing where it says nothing."""
    adapter = next((a for prefix, a in _ADAPTERS.items() if name.startswith(prefix)), None)
    return adapter.about(name) if hasattr(adapter, "about") else {}


def modules_of(name: str) -> tuple[str, ...]:
    """The modules that making `name` imports because it names them."""
    adapter = next((a for prefix, a in _ADAPTERS.items() if isinstance(name, str) and name.startswith(prefix)), None)
    return adapter.modules_of(name) if hasattr(adapter, "modules_of") else ()


def make(name: Any, **settings: Any) -> Env:
    """Return the environment called `name`, or an environment object in our form.

    `name`: native, a probe, one of gymnax, brax, Gymnasium, EnvPool or ALE, or one that a user registered.

    Instead of a name: an environment of gymnax's or Gymnasium's, its class, or a function that makes an environment.
    `gymnax:NAME` forces gymnax's original where a native environment has the same name. Every environment also takes
    `action_repeat`, `sticky_actions`, `stack`, `reward_scale`, `reward_clip` and `time_limit` (`envs.wrappers`).
    The same arguments give the same object.
    """
    if isinstance(name, Env):
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
            return _cached(name, _source(name), tuple(sorted((k, type(v), v) for k, v in frozen.items())))
    except TypeError as error:
        if "unhashable" not in str(error) and "hash" not in str(error):
            raise
        return _build(name, frozen)  # an array among the settings (a sweep): it cannot be a key of the cache


def check_known(name: str) -> None:
    """ConfigError for a name that is none of any source's, and very near to one; no environment is imported."""
    listed = name in _names() or own.is_known(name) or loading.knows(name.removeprefix(_PREFIX))
    tasks = {suggest.task(known) for known in suggest.candidates()}
    if not listed and suggest.task(name) not in tasks and suggest.suggest(name, sure=True):
        raise ConfigError("environment", name, f"a known environment (`jaxrl-fast list`){suggest.suggest(name)}")


@functools.cache
def _cached(name: str, source: Any, items: tuple[tuple[str, type, Any], ...]) -> Env:
    return _build(name, {k: v for k, _, v in items})


def _build(name: str, settings: dict[str, Any]) -> Env:
    usual = settings_of(name)
    common = {k: settings.get(k, usual[k]) for k in wrappers.COMMON}
    env = _maker(name, _source(name)).make(**{k: v for k, v in settings.items() if k not in wrappers.COMMON})
    if not isinstance(env, Env):
        raise ConfigError("environment", name, f"one whose factory returns a jaxrl_fast Env, not {type(env).__name__}")
    if dataclasses.is_dataclass(env):
        check_settings(env, "env.")
    env = wrap(env, **common)
    env.__dict__[_ORIGIN] = name, dict(settings)  # for config.json; no field, so that it takes no part in traces and comparisons
    return env


def wrap(env: Env, **common: Any) -> Env:
    """An environment of ours inside the wrappers whose settings (`wrappers.COMMON`) are given; itself where none is."""
    for key, value in common.items():
        if key not in wrappers.COMMON:
            valid = f"one of {', '.join(wrappers.COMMON)}; {env.spec.name} is made already, with its own settings"
            raise ConfigError(f"env.{key}", value, f"{valid}{nearest(key, wrappers.COMMON)}")
    if common and isinstance(env, host.HostEnv):
        common = {name: getattr(env, name, usual) for name, usual in wrappers.COMMON.items()} | common
        env = host.wrap(env, **common)
    elif common:
        env = wrappers.wrap(env, **common)
    if common:
        _ = env.spec  # a spec that cannot be (a stack of dicts) is an error here, not in the middle of a trace
    return env


_ORIGIN = "_made_from"  # attribute of an environment that `make` has built


def describe(env: Env) -> tuple[str, dict[str, Any]] | None:
    """Return the (name, settings) that `make` built this very object from; None for one that was built by hand."""
    return env.__dict__.get(_ORIGIN)


def name_of(env: Env) -> str:
    """What a run calls this environment: the name that `make` was given, else its spec's."""
    origin = describe(env)
    return origin[0] if origin else env.spec.name


def _names() -> list[str]:
    return [*_NATIVE, *_PROBES, *_GYMNAX, *(name for a in _ADAPTERS.values() for name in a.NAMES), *_USER]


suggest.listed_by(_names)


class _Adapted(NamedTuple):
    """An environment of an adapter's module."""

    adapter: types.ModuleType
    name: str


def _source(name: str) -> Any:
    """What makes `name`: an adapter's function, a class, a function, a user's object; a ConfigError where there is none."""
    if not isinstance(name, str):
        raise ConfigError("environment", name, "a name such as 'CartPole-v1'")
    for prefix, adapter in _ADAPTERS.items():
        if name.startswith(prefix):
            if not adapter.installed():
                raise ConfigError("environment", name, f"one whose package is installed: {adapter.INSTALL}")
            return _Adapted(adapter, name)
    entry = _USER.get(name) or _NATIVE.get(name) or _PROBES.get(name)
    if entry is None:
        if name in _GYMNAX or name.startswith(_PREFIX) or name == "MNISTBandit-bsuite" or loading.knows(name):
            return _gymnax(name)
        entry = own.find(name) if own.is_known(name) or not suggest.suggest(name, sure=True) else None
    if entry is None:
        raise ConfigError("environment", name, f"a known environment (`jaxrl-fast list`){suggest.suggest(name)}")
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
    return entry


def _gymnax(name: str) -> Any:
    """An environment of gymnax's own, or one that its user has registered there."""
    if not loading.installed():
        raise ConfigError("environment", name, f"one whose package is installed: {loading.INSTALL}")
    from jaxrl_fast.envs.gymnax import adapter as gymnax_adapter

    bare = name.removeprefix(_PREFIX)
    if loading.knows(bare):
        return loading.gymnax().registration._registry[bare]
    return _Adapted(gymnax_adapter, bare)


def _maker(name: str, source: Any) -> own.Maker:
    if isinstance(source, _Adapted):
        return own.Maker(functools.partial(source.adapter.make, source.name), source.adapter.defaults(source.name))
    if name in _NATIVE or name in _PROBES:
        return own.Maker(source, own.parameters(source))
    return own.maker(name, source)
