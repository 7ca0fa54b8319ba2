"""Action distributions, sampled from noise that is drawn before the rollout."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.spaces import Box, Discrete, MultiDiscrete, Space

FEW_ACTIONS = 16
MAX_COMPARED = 4  # XLA fuses comparisons into the choice's reader, but no reduction
ILLEGAL = -1e9  # logit of a masked action: finite, so that entropies and gradients are


def few(by_terms: Callable, by_rows: Callable, values: jax.Array,
        *args: Any, axis: int = -1) -> jax.Array:
    """Return by_terms(values, *args) of few actions on a GPU, else by_rows(values, *args).

    A reduction over an axis of a few numbers is a launch; terms are elementwise in the other axes,
    so XLA fuses them with what makes and reads them.
    """
    if values.shape[axis] > FEW_ACTIONS:
        return by_rows(values, *args)
    return on_gpu(by_terms, by_rows, values, *args)


def choose(by_terms: Callable, by_rows: Callable, values: jax.Array, *args: Any) -> jax.Array:
    """Like `few`, but by_terms on every platform for at most MAX_COMPARED actions."""
    if values.shape[-1] <= MAX_COMPARED:
        return by_terms(values, *args)
    return few(by_terms, by_rows, values, *args)


def columns(values: jax.Array) -> list[jax.Array]:
    """Return the n arrays [...] of values [..., n]."""
    return [values[..., i] for i in range(values.shape[-1])]


def one_hot_select(values: jax.Array, index: jax.Array) -> jax.Array:
    """Return values [..., n] at index int [...], by a one-hot product (no scatter)."""
    by_rows = lambda values, index: jnp.sum(
        values * jax.nn.one_hot(index, values.shape[-1], dtype=values.dtype), axis=-1
    )
    by_terms = lambda values, index: sum(jnp.where(index == i, x, 0.0)
                                         for i, x in enumerate(columns(values)))
    return few(by_terms, by_rows, values, index)


def at_action(z: jax.Array, action: jax.Array) -> jax.Array:
    """Return z [b, n, k] at action [b] -> [b, k], by a one-hot product (no scatter)."""
    by_rows = lambda z, action: jnp.sum(
        z * jax.nn.one_hot(action, z.shape[-2], dtype=z.dtype)[..., None], axis=-2
    )
    by_terms = lambda z, action: sum(jnp.where(action[:, None] == i, z[:, i], 0.0)
                                     for i in range(z.shape[-2]))
    return few(by_terms, by_rows, z, action, axis=-2)


def argmax(values: jax.Array) -> jax.Array:
    """Return the index of the largest of `values` [..., n], int32 [...]; NaN counts as largest."""
    by_rows = lambda values: jnp.argmax(values, axis=-1).astype(jnp.int32)
    return choose(lambda values: _largest(columns(values))[0], by_rows, values)


def best(values: jax.Array) -> jax.Array:
    """Return the index of the largest of `values` [..., n], int32 [...]; -1 if one is NaN."""

    def by_rows(values):
        unknown = jnp.any(jnp.isnan(values), axis=-1)
        return jnp.where(unknown, -1, jnp.argmax(values, axis=-1)).astype(jnp.int32)

    return choose(lambda values: _best(columns(values)), by_rows, values)


def _best(values: list[jax.Array]) -> jax.Array:
    """Return the index of the largest of n arrays [...], int32 [...]; -1 if one is NaN."""
    index, top = _largest(values)
    return jnp.where(jnp.isnan(top), -1, index)


def _largest(values: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Return (index, value) of the largest of n arrays [...], elementwise."""
    first, *others = values
    index, top = jnp.zeros(first.shape, jnp.int32), first
    for i, x in enumerate(others, 1):
        larger = (x > top) | (jnp.isnan(x) & ~jnp.isnan(top))
        index, top = jnp.where(larger, i, index), jnp.where(larger, x, top)
    return index, top


class Categorical(NamedTuple):
    """A distribution over 0 .. n-1 with unnormalised `logits` [..., n]."""

    logits: jax.Array

    def sample(self, noise: jax.Array) -> jax.Array:
        """Return int32 [...] by Gumbel-max; noise: standard Gumbel [..., n]."""
        by_rows = lambda logits, noise: best(logits + noise)
        # columns of a sum would be read out of stacked logits
        by_terms = lambda logits, noise: _best([x + z for x, z in zip(
            columns(logits), columns(noise), strict=True)])
        return choose(by_terms, by_rows, self.logits, noise)

    def mode(self) -> jax.Array:
        return best(self.logits)

    def log_prob(self, action: jax.Array) -> jax.Array:
        by_rows = lambda logits, action: one_hot_select(jax.nn.log_softmax(logits), action)
        by_terms = lambda logits, action: sum(jnp.where(action == i, x, 0.0)
                                              for i, x in enumerate(log_p_terms(logits)))
        return few(by_terms, by_rows, self.logits, action)

    def entropy(self) -> jax.Array:
        def by_rows(logits):
            log_p = jax.nn.log_softmax(logits)
            return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

        return few(lambda logits: -sum(jnp.exp(x) * x for x in log_p_terms(logits)),
                   by_rows, self.logits)


def log_p_terms(logits: jax.Array) -> list[jax.Array]:
    """Return the log-probability of each action, n arrays [...]."""
    top = jax.lax.stop_gradient(functools.reduce(jnp.maximum, columns(logits)))
    shifted = [x - top for x in columns(logits)]
    log_total = jnp.log(sum(map(jnp.exp, shifted)))
    return [x - log_total for x in shifted]


class MultiCategorical(NamedTuple):
    """Independent categoricals; the action is an int vector [..., m]."""

    parts: tuple[Categorical, ...]

    def sample(self, noise: tuple[jax.Array, ...]) -> jax.Array:
        return jnp.stack([p.sample(n) for p, n in zip(self.parts, noise, strict=True)], axis=-1)

    def mode(self) -> jax.Array:
        return jnp.stack([p.mode() for p in self.parts], axis=-1)

    def log_prob(self, action: jax.Array) -> jax.Array:
        return sum(p.log_prob(action[..., i]) for i, p in enumerate(self.parts))

    def entropy(self) -> jax.Array:
        return sum(p.entropy() for p in self.parts)


class Normal(NamedTuple):
    """A diagonal Gaussian over `mean`'s trailing axis; `log_std` broadcasts against it."""

    mean: jax.Array
    log_std: jax.Array

    def sample(self, noise: jax.Array) -> jax.Array:
        """Return a draw [..., d]; noise: standard normal [..., d]."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> jax.Array:
        return self.mean

    def log_prob(self, action: jax.Array) -> jax.Array:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> jax.Array:
        log_std = jnp.broadcast_to(self.log_std, self.mean.shape)
        return jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class TanhNormal(NamedTuple):
    """The tanh of a diagonal Gaussian, in (-1, 1). Methods take the action BEFORE the tanh."""

    mean: jax.Array
    log_std: jax.Array

    @staticmethod
    def squash(raw: jax.Array) -> jax.Array:
        return jnp.tanh(raw)

    sample, mode = Normal.sample, Normal.mode

    def log_prob(self, raw: jax.Array) -> jax.Array:
        """Return the log-density of tanh(raw) [...] (Haarnoja et al. 2018, eq. 21)."""
        return Normal.log_prob(self, raw) - jnp.sum(log_tanh_slope(raw), axis=-1)

    def entropy(self, noise: jax.Array) -> jax.Array:
        """Estimate the entropy: the Gaussian's, and the mean slope at one sample."""
        return Normal.entropy(self) + jnp.sum(log_tanh_slope(self.sample(noise)), axis=-1)


def log_tanh_slope(x: jax.Array) -> jax.Array:
    """Return log(1 - tanh(x)^2), exact for large |x| as well."""
    return 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))


def num_outputs(space: Space) -> int:
    """Return the number of a policy head's outputs for an action space."""
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    return math.prod(space.shape)


def draw_noise(key: jax.Array, space: Space, batch: tuple[int, ...]) -> Any:
    """Return the noise for `sample` of this space's distribution, leading axes `batch`."""
    if isinstance(space, Discrete):
        return random.gumbel(key, (*batch, space.n))
    if isinstance(space, MultiDiscrete):
        keys = random.split(key, len(space.nvec))
        return tuple(random.gumbel(k, (*batch, n)) for k, n in zip(keys, space.nvec, strict=True))
    return random.normal(key, (*batch, math.prod(space.shape)))


def from_outputs(space: Space, out: jax.Array, log_std: jax.Array | None = None,
                 mask: jax.Array | None = None,
                 squash: bool = False):  # fmt: skip
    """Return the distribution of a head's outputs [..., num_outputs].

    log_std, squash: of a Box; squashed it is a `TanhNormal`. mask: Discrete only.
    """
    if isinstance(space, Discrete):
        return Categorical(out if mask is None else jnp.where(mask, out, ILLEGAL))
    if isinstance(space, MultiDiscrete):
        cuts = [sum(space.nvec[: i + 1]) for i in range(len(space.nvec) - 1)]
        return MultiCategorical(tuple(Categorical(part) for part in jnp.split(out, cuts, axis=-1)))
    assert isinstance(space, Box)
    kind = TanhNormal if squash else Normal
    return kind(out, jnp.broadcast_to(log_std, out.shape))  # a rollout stacks both over time


def entropy(dist: Any, key: jax.Array) -> jax.Array:
    """Return the entropy in nats [...]; estimated with one sample without a closed form."""
    if isinstance(dist, TanhNormal):
        return dist.entropy(random.normal(key, dist.mean.shape))
    return dist.entropy()


def random_action(noise: Any, space: Space, mask: jax.Array | None = None) -> jax.Array:
    """Return a uniformly random legal action; of an unbounded Box the noise, clipped."""
    if isinstance(space, Box):
        low, high = space.bounds()
        noise = noise.reshape(noise.shape[:-1] + space.shape)
        if not space.bounded:
            return jnp.clip(noise, low, high).astype(space.dtype)
        uniform = jax.scipy.stats.norm.cdf(noise)
        if jnp.issubdtype(space.dtype, jnp.integer):  # uniform over the integers
            number = jnp.floor(low + (high - low + 1.0) * uniform)
            return jnp.clip(number, low, high).astype(space.dtype)
        # rounding may leave the bounds
        return jnp.clip(low + (high - low) * uniform, low, high).astype(space.dtype)
    outputs = jnp.zeros((num_outputs(space),), jnp.float32)
    return from_outputs(space, outputs, mask=mask).sample(noise)
