"""Load the peers that have no package, PureJaxRL, rejax and purejaxql, from a checkout.

None is a dependency of ours and none of their code is here. Their packages must be there: flax,
optax, chex, distrax, gymnax, and flashbax for PureJaxRL's DQN.

The peers run as they are, on today's jax and gymnax, by shims that touch nothing inside their
training programs:

- `gymnax.make` gives back the five values of gymnax before 1.0. `info` is cut to what it held then:
  PureJaxRL returns `info` of every step of the run, and gymnax 1.0's terminal observations in it
  would cost the peer time unfairly.
- `wandb`, `brax`, `navix`, `hydra`, `omegaconf` and `safetensors`, which they import and these
  programs never use, are empty during the import.
- `jax.tree_map`, removed from jax, is `jax.tree.map`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any


class PeerAbsent(Exception):
    """The peer cannot be measured here; the message says why."""


class LegacyEnv:
    """A gymnax environment with the API of gymnax before 1.0; `keep`: names of its info."""

    def __init__(self, env, params, keep=("discount",)):
        self._env, self._params, self._keep = env, params, keep

    def __getattr__(self, name):
        # copy and pickle probe an empty instance
        if name.startswith("__") or name in ("_env", "_params", "_keep"):
            raise AttributeError(name)
        return getattr(self._env, name)

    def __deepcopy__(self, memo):
        return self  # jit holds environments static, by identity

    def reset(self, key, params=None):
        return self._env.reset(key, self._params if params is None else params)

    def step(self, key, state, action, params=None):
        out = self._env.step(key, state, action, self._params if params is None else params)
        if len(out) == 5:
            return out
        obs, state, reward, terminated, truncated, info = out
        info = {name: value for name, value in info.items() if name in self._keep}
        return obs, state, reward, terminated | truncated, info

    def observation_space(self, params=None):
        return self._env.observation_space(self._params if params is None else params)

    def action_space(self, params=None):
        return self._env.action_space(self._params if params is None else params)


def legacy_make(name, **kwargs):
    """`gymnax.make` with the old step."""
    import gymnax

    env, params = gymnax.make(name, **kwargs)
    return LegacyEnv(env, params), params


class _Overlay(types.ModuleType):
    """A module with some names of its own and the rest of another."""

    def __init__(self, module, **names):
        super().__init__(module.__name__)
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class _Stub(types.ModuleType):
    """A module in which every name exists and is useless."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@contextlib.contextmanager
def _modules(**names):
    """Put modules into sys.modules for the length of an import; `__` in a name is a dot."""
    names = {name.replace("__", "."): module for name, module in names.items()}
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _load(name, path, package=False) -> Any:
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)] if package else None
    )
    assert spec is not None and spec.loader is not None  # as every .py file has them
    module = importlib.util.module_from_spec(spec)
    if package:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _checkout(peer, path, folders, file):
    """The folder that holds `file`: the path given, or one of `folders` below it."""
    if not path:
        raise PeerAbsent(f"{peer}: no checkout given (--{peer} DIR or {peer.upper()}=DIR)")
    root = Path(path).expanduser().resolve()
    for folder in (root, *(root / folder for folder in folders)):
        if (folder / file).exists():
            return folder
    raise PeerAbsent(f"{peer}: {file} is not in {root} or its {', '.join(folders)}")


def purejaxrl(path, program="ppo"):
    """Return `make_train` of PureJaxRL's `ppo`, `dqn` or `ppo_continuous_action`.

    `make_train(config)` gives `key -> {"runner_state", "metrics"}`; pass counts in `config` as
    integers. The continuous program takes brax's environments, or gymnax's.
    """
    source = _checkout("purejaxrl", path, ("purejaxrl",), f"{program}.py")
    physics = ("brax", "brax__envs", "brax__envs__wrappers", "brax__envs__wrappers__training")
    names = ("wandb", "navix", *(() if program == "ppo_continuous_action" else physics))
    stubs = {name: _Stub(name.replace("__", ".")) for name in names}
    try:
        import gymnax
        import gymnax.wrappers.purerl  # so that the real one is put back
        import jax

        with _modules(**stubs):
            wrappers = _load("_purejaxrl_wrappers", source / "wrappers.py")
            with _modules(wrappers=wrappers, gymnax__wrappers__purerl=wrappers):
                module = _load(f"_purejaxrl_{program}", source / f"{program}.py")
    except ImportError as error:
        raise PeerAbsent(f"purejaxrl: {error}") from error
    module.gymnax = _Overlay(gymnax, make=legacy_make)
    module.jax = _Overlay(jax, tree_map=jax.tree.map)
    if program == "ppo_continuous_action":
        module.BraxGymnaxWrapper = _any_of(wrappers.BraxGymnaxWrapper)
    return module.make_train


def _any_of(wrapper):
    """Return a function that makes gymnax's environment of a name, else `wrapper`'s."""
    import gymnax

    return lambda name: legacy_make(name)[0] if name in gymnax.registered_envs else wrapper(name)


def rejax(path):
    """Return the package `rejax`, its environments made by the old `gymnax.make`."""
    source = _checkout("rejax", path, ("src/rejax",), "algos/dqn.py")
    try:
        importlib.import_module("gymnax")
        with _modules(**{name: _Stub(name) for name in ("navix", "brax")}):
            package = _load("rejax", source / "__init__.py", package=True)
    except ImportError as error:
        raise PeerAbsent(f"rejax: {error}") from error
    compat: Any = importlib.import_module("rejax.compat")
    compat._gymnax_make = legacy_make
    return package


LOGGED = ("discount", "returned_episode_returns", "returned_episode_lengths", "returned_episode")


def purejaxql(path, program="pqn_gymnax"):
    """Return `make_train` of purejaxql's `pqn_gymnax` (an MLP) or `pqn_minatar` (a CNN).

    `make_train(config)` gives `key -> {"runner_state", "metrics"}`; keys have JAX's old form.
    """
    source = _checkout("purejaxql", path, ("purejaxql",), f"{program}.py")
    names = ("wandb", "omegaconf", "safetensors", "safetensors__flax")
    stubs = {name: _Stub(name.replace("__", ".")) for name in names}
    # `main` decorates a function without callers
    hydra = _Overlay(_Stub("hydra"), main=lambda **_: lambda fn: fn)
    try:
        import gymnax
        from gymnax.wrappers.purerl import LogWrapper

        with _modules(hydra=hydra, **stubs):
            module = _load(f"_purejaxql_{program}", source / f"{program}.py")
    except ImportError as error:
        raise PeerAbsent(f"purejaxql: {error}") from error
    module.gymnax = gymnax
    # the outermost of its wrappers
    module.LogWrapper = lambda env: LegacyEnv(LogWrapper(env), None, LOGGED)
    return module.make_train
