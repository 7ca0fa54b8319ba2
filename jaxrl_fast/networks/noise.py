"""The noise of noisy layers (`layers.NoisyDense`)."""

from __future__ import annotations

from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random


def draw_noise(key: jax.Array, variables: dict[str, Any]) -> dict[str, Any]:
    """Return a module's `variables` with noise f(e) = sgn(e) sqrt|e| for every `NoisyDense`."""
    return draw_noises(key[None], [variables])[0]


def draw_noises(keys: jax.Array, modules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `draw_noise` of keys[i] and modules[i] for each i, drawn together."""
    flat = [flax.traverse_util.flatten_dict(variables.get("params", {})) for variables in modules]
    sizes = [{path[:-1]: sum(leaf.shape) for path, leaf in leaves.items()
              if path[-1] == "kernel_sigma"} for leaves in flat]
    noisy = [i for i, each in enumerate(sizes) if each]
    if not noisy:
        return modules
    drawn = random.each_from_bits(keys[np.array(noisy)], [sum(sizes[i].values()) for i in noisy],
                                  lambda bits: _spread(random.to_normal(random.to_uniform(bits))))
    found = list(modules)
    for i, numbers in zip(noisy, drawn, strict=True):
        parts = jnp.split(numbers, np.cumsum(list(sizes[i].values()))[:-1])
        noise = {(*path, "epsilon"): part for path, part in zip(sizes[i], parts, strict=True)}
        found[i] = modules[i] | {"noise": flax.traverse_util.unflatten_dict(noise)}
    return found


def _spread(e: jax.Array) -> jax.Array:
    return jnp.sign(e) * jnp.sqrt(jnp.abs(e))
