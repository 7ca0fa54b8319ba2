"""Networks of flax.nnx and Equinox as torsos, each inside a linen module.

A class or function that makes a network gets its own key for every member and torso, as a linen
module does. An object brings its initial parameters, equal for all of them.

    flax.nnx   `net(obs)` of a batch; made by f(rngs=nnx.Rngs(...))
    Equinox    `net(obs)` of one observation, by `jax.vmap`; made by f(key=...); any callable pytree

Parameters are the `nnx.Param`s, or a pytree's floating arrays. Everything else is constant, and a
call that changes it is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import fields
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Dict, Space

ACCEPTED = (
    "'auto', 'mlp', 'cnn', a flax.linen.Module, a network of flax.nnx or Equinox, or the class or "
    "function that makes one of `rngs` (nnx) or of `key` (Equinox)"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """An object that is compared by identity and that linen treats as opaque."""

    value: Any

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}>"


class Foreign(nn.Module):
    """source: a `Held` network, or its maker.  is_nnx: else a pytree.  space: of one frame."""

    source: Held | Callable[..., Any]
    is_nnx: bool
    space: Space | None = None

    @nn.compact
    def __call__(self, obs: Any) -> jax.Array:
        template = _template(self.source, self.is_nnx)
        params = self.param("net", lambda key: template.init(self.source, key))
        net = lambda obs: template.apply(params, obs)
        for _ in range(0 if self.is_nnx else self._batch_axes(obs)):
            net = jax.vmap(net)
        out = net(obs)
        if not isinstance(out, jax.Array):
            raise ConfigError("network", type(out).__name__,
                              "one that returns features, an array [B, F]")
        return out

    def _batch_axes(self, obs: Any) -> int:
        space = self.space
        while isinstance(space, Dict):
            name, space = space.items[0]
            obs = obs[name]
        return jnp.ndim(obs) - len(space.shape)


def as_network(name: str, value: Any) -> Any:
    """Return a `network` setting as a name or linen module; raises ConfigError for others."""
    if isinstance(value, (str, nn.Module)):
        return value
    if isinstance(value, type) and issubclass(value, nn.Module):
        try:
            return value()
        except TypeError as error:
            valid = f"a class whose fields have defaults, or an object of it: {error}"
            raise ConfigError(name, value.__name__, valid) from error
    nnx = sys.modules.get("flax.nnx")  # imported if any nnx module exists
    if nnx is not None and isinstance(value, nnx.Module):
        return Foreign(Held(value), True)
    if not inspect.isroutine(value) and not isinstance(value, (type, functools.partial)):
        if not callable(value) or not any(map(_is_parameter, jax.tree.leaves(value))):
            raise ConfigError(name, value, ACCEPTED)
        return Foreign(Held(value), False)
    made = value
    while isinstance(made, functools.partial):
        made = made.func
    # of a class those of its `__init__`, which nnx hides
    taken = fields.parameters(made.__init__ if isinstance(made, type) else made)
    for needed, is_nnx in (("rngs", True), ("key", False)):
        if needed in taken:
            return Foreign(value, is_nnx)
    raise ConfigError(name, value, ACCEPTED)


def _is_parameter(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


@dataclasses.dataclass(frozen=True)
class _Template:
    """One network taken apart: the names of its parameters, and everything else."""

    names: tuple[str, ...]
    build: Callable[[list[Any]], Any]  # parameters -> network
    take: Callable[[Any], list[Any]]  # network -> parameters
    constants: Callable[[Any], list[Any]]  # network -> arrays that a call must not change
    make: Callable[[Any, jax.Array], Any]  # (source, key) -> network

    def init(self, source: Any, key: jax.Array) -> dict[str, jax.Array]:
        net = source.value if isinstance(source, Held) else self.make(source, key)
        return dict(zip(self.names, map(jnp.asarray, self.take(net)), strict=True))

    def apply(self, params: dict[str, jax.Array], obs: Any) -> Any:
        net = self.build([params[name] for name in self.names])
        before = self.constants(net)
        out = net(obs)
        if any(x is not y for x, y in zip(before, self.constants(net), strict=True)):
            raise ConfigError("network", type(net).__name__,
                              "a function of the observation alone; this one changes its own state "
                              "in a call: use `net.eval()` if it has it")
        return out


@functools.lru_cache(maxsize=64)
def _template(source: Any, is_nnx: bool) -> _Template:
    with jax.core.eval_context():  # it outlives its trace
        return (_of_nnx if is_nnx else _of_pytree)(source)


def _of_nnx(source: Any) -> _Template:
    from flax import nnx

    make = lambda source, key: source(rngs=nnx.Rngs(key))
    net = source.value if isinstance(source, Held) else make(source, jax.random.key(0))
    if not isinstance(net, nnx.Module):
        raise ConfigError("network", type(net).__name__,
                          "a function of `rngs` that returns a flax.nnx module")
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    kept, rest_structure = jax.tree.flatten(rest)
    structure = jax.tree.structure(params)

    def build(leaves):  # new variables: a call may write to them
        return nnx.merge(graph, structure.unflatten(leaves), rest_structure.unflatten(kept))

    take = lambda net: jax.tree.leaves(nnx.split(net, nnx.Param, ...)[1])
    constants = lambda net: jax.tree.leaves(nnx.split(net, nnx.Param, ...)[2])
    return _Template(_names(params), build, take, constants, make)


def _of_pytree(source: Any) -> _Template:
    make = lambda source, key: source(key=key)
    net = source.value if isinstance(source, Held) else make(source, jax.random.key(0))
    leaves, structure = jax.tree.flatten(net)
    learned = [_is_parameter(leaf) for leaf in leaves]
    if not callable(net) or not any(learned):
        raise ConfigError("network", type(net).__name__,
                          "a function of `key` that returns a network, a pytree to be called")

    def build(params):
        given = iter(params)
        return structure.unflatten([next(given) if mine else leaf
                                    for leaf, mine in zip(leaves, learned, strict=True)])

    take = lambda net: [leaf for leaf, mine in zip(jax.tree.leaves(net), learned, strict=True)
                        if mine]
    names = tuple(name for name, mine in zip(_names(net), learned, strict=True) if mine)
    return _Template(names, build, take, lambda net: [], make)


def _names(tree: Any) -> tuple[str, ...]:
    """Return `layers.0.weight` of every leaf."""
    paths = [path for path, _ in jax.tree.leaves_with_path(tree)]
    return tuple(jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
                 for path in paths)
