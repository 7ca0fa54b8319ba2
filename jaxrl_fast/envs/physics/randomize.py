"""Domain randomisation: leaves of a physical model that each environment draws at resets.

As text, `"geom_friction=0.5:1.5, actuator.gear=0.8:1.2"` multiplies leaves by uniform factors, one
an environment and leaf (all gears of a body grow together). From Python, any function `(key, model,
t) -> model` of one environment; `t` is the iteration.

Leaf names and their use depend on the backend (`_OTHERS`); a leaf without effect is refused.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs.tracing import depends_on_inputs
from jaxrl_fast.errors import ConfigError, check_int, first_line, float32, nearest
from jaxrl_fast.values import real

_FORM = (
    "text like 'geom_friction=0.5:1.5, actuator.gear=0.8:1.2', or from Python a function (key, "
    "model, t) -> model"
)
_OTHERS = (  # all of them: geom_friction; mjx and Playground: also actuator_gainprm
    "mjx: body_mass, dof_damping, opt.gravity; generalized: link.inertia.mass, dof.damping, "
    "gravity; spring, positional: actuator.gear, link.constraint_vel_damping, gravity"
)


@dataclasses.dataclass(frozen=True)
class Factors:
    """(key, model, t) -> the model with its leaves `paths` times factors in [low, high].

    Over the first `warmup` iterations the range grows from 1 to its width: a curriculum.
    """

    paths: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    warmup: int = 0

    def __call__(self, key: jax.Array, model: Any, t: jax.Array) -> Any:
        share = jnp.minimum(t / self.warmup, 1.0) if self.warmup else 1.0
        drawn = random.uniform(key, (len(self.paths),), np.float32(self.low), np.float32(self.high))
        factors = 1.0 + share * (drawn - 1.0)
        places = list(_paths(model))
        leaves, structure = jax.tree.flatten(model)
        for path, factor in zip(self.paths, factors, strict=True):
            i = places.index(path)
            leaves[i] = leaves[i] * factor
        return jax.tree.unflatten(structure, leaves)


def _paths(model: Any) -> dict[str, Any]:
    """Return {dotted name: leaf}, in the order of the leaves."""
    found = jax.tree_util.tree_leaves_with_path(model)
    return {".".join(str(getattr(k, "name", getattr(k, "key", k))) for k in path): leaf
            for path, leaf in found}


def parse(value: Any, warmup: int, model: Any) -> Callable[[jax.Array, Any, jax.Array], Any] | None:
    """Return `randomize` and `randomize_warmup` as a function, or None."""
    check_int("env.randomize_warmup", warmup, low=0)
    if callable(value) or value == "":
        if warmup:
            valid = "0 without env.randomize"
            if callable(value):
                valid = "0 with a function, which gets t itself"
            raise ConfigError("env.randomize_warmup", warmup, valid)
        return value or None
    if not isinstance(value, str):
        raise ConfigError("env.randomize", value, _FORM)
    known = {name: x for name, x in _paths(model).items() if np.size(x)
             and np.asarray(x).dtype.kind in "fi"}
    ranges: dict[str, tuple[float, float]] = {}
    for part in value.split(","):
        path, _, limits = (x.strip() for x in part.partition("="))
        try:
            low, high = (real("env.randomize", x.strip()) for x in limits.split(":"))
        except ValueError:
            raise ConfigError("env.randomize", value, _FORM) from None
        if not path or not -np.inf < low <= high < np.inf:
            raise ConfigError("env.randomize", value,
                              f"{_FORM}; the lower of two finite numbers first")
        if path in ranges:
            raise ConfigError("env.randomize", value,
                              f"text with each leaf once; {path} comes twice")
        if path not in known:
            raise ConfigError("env.randomize", path, _unknown(path, known))
        if not np.any(known[path]):
            raise ConfigError("env.randomize", path,
                              "a leaf that is not 0 in this model: factors would change nothing")
        last = path.rpartition(".")[2]
        divides = path.endswith("inertia.i") or any(word in last for word in ("mass", "inertia"))
        if float32(low) <= 0 and divides:
            raise ConfigError("env.randomize", value,
                              f"factors above 0 for {path}, a divisor of forces")
        if low < 0 and any(word in last for word in ("damping", "friction")):
            raise ConfigError("env.randomize", value, f"factors of at least 0 for {path}")
        ranges[path] = low, high
    return Factors(tuple(ranges), *zip(*ranges.values(), strict=True), int(warmup))


def _unknown(path: str, known: dict[str, Any]) -> str:
    last = path.rpartition(".")[2]
    alike = [name for name in known if last and last in name][:6]
    which = f"; there are {', '.join(alike)}" if alike else nearest(path, known)
    return f"the name of a leaf of the physical model, such as {', '.join(list(known)[:3])}{which}"


class Randomizer:
    """A function (key, model, t) -> model, split into drawn leaves and their way back."""

    def __init__(self, model: Any, function: Callable, trial: Callable,
                 inert: Callable[[Any], dict[str, str]]):
        """Split `function`.

        trial(model, raw key): some physics with `model`; inert: see `PhysicsEnv.inert`.
        """
        key, t = jax.random.key(0), jnp.int32(0)
        self._structure = jax.tree.structure(model)
        try:
            inspect.signature(function).bind(key, model, t)
        except TypeError as error:
            raise ConfigError("env.randomize", function,
                              f"a function (key, model, t) -> model: {error}") from None
        new = function(key, model, t)
        shapes = lambda tree: [np.shape(x) for x in jax.tree.leaves(tree)]
        if jax.tree.structure(new) != self._structure or shapes(new) != shapes(model):
            raise ConfigError("env.randomize", function,
                              "a function that returns the model that it was given, changed, its "
                              "leaves of the same shapes")
        closed = jax.make_jaxpr(lambda key, t: jax.tree.leaves(function(key, model, t)))(key, t)
        drawn = depends_on_inputs(closed.jaxpr)
        if not any(drawn):
            raise ConfigError("env.randomize", function,
                              "a function whose result depends on the key")
        self._function, self._model = function, model
        self._places = [i for i, is_drawn in enumerate(drawn) if is_drawn]
        self._leaves = jax.tree.leaves(new)
        self._check(trial, inert(jax.tree.unflatten(self._structure, self._leaves)))

    def draw(self, key: jax.Array, t: jax.Array) -> list[jax.Array]:
        """Draw the leaves of one environment."""
        leaves = jax.tree.leaves(self._function(key, self._model, t))
        return [jnp.asarray(leaves[i]) for i in self._places]

    def put(self, varied: list[jax.Array]) -> Any:
        """Return the model with these drawn leaves."""
        leaves = list(self._leaves)
        for i, leaf in zip(self._places, varied, strict=True):
            leaves[i] = leaf
        return jax.tree.unflatten(self._structure, leaves)

    def _check(self, trial: Callable[[Any, jax.Array], Any], inert: dict[str, str]) -> None:
        """Raise ConfigError for a leaf that this environment does not read, or cannot vary."""
        names = [list(_paths(self._model))[i] for i in self._places]
        for name in names:
            if name in inert:
                raise ConfigError("env.randomize", name, inert[name])
        key = jax.random.key_data(jax.random.key(0))
        varied = [jnp.asarray(self._leaves[i]) for i in self._places]
        seen = lambda varied: jax.tree.leaves(trial(self.put(varied), key))
        try:
            closed = jax.make_jaxpr(seen)(varied)
        except (jax.errors.JAXTypeError, TypeError) as error:
            valid = f"leaves that this backend can vary: {first_line(error)}"
            raise ConfigError("env.randomize", ", ".join(names), valid) from None
        for name, is_used in zip(names, tree.used_inputs(closed.jaxpr), strict=True):
            if not is_used:
                valid = (
                    f"a leaf that this backend and environment read ({_OTHERS}); it would change "
                    "nothing"
                )
                raise ConfigError("env.randomize", name, valid)
