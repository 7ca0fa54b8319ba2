"""Sine and cosine: on a GPU by polynomials.

XLA's reduce any float32 by the bits of 2/pi: with them a kernel of a step of CartPole has 494 lines
of PTX, with these 157, and compiles in less time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_fast.ops.lowering import on_gpu, reaches_a_gpu

# pi/2 in four parts: the first three have at most eight bits, so multiples below 2^16 are exact
PARTS = (1.5703125, 0.0004825592041015625, 1.2665987014770508e-06, 9.920935796805404e-10)
# Coefficients in x^2 of (sin x - x) / x^3 and (cos x - 1 + x^2 / 2) / x^4 on [-pi/4, pi/4]: minimax
# fits by Lawson's weighted least squares, which leave 4e-9 of the sine and 1e-10 of the cosine.
SINE = (-1.6666654944e-1, 8.3321781903e-3, -1.9517305153e-4)
COSINE = (4.1666646867e-2, -1.3887367541e-3, 2.4438454603e-5)


def sin_cos(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (sin x, cos x) of radians, float32.

    On a GPU right to 1.2e-7 for |x| up to 10^5. Beyond, the error reaches 0.03 at 10^6 unless the
    compiler fuses each product with its difference.
    """
    return on_gpu(by_polynomials, _plain, x) if reaches_a_gpu() else _plain(x)


def _plain(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    cosine = jnp.cos(x)
    return jnp.sin(x), cosine


@jax.custom_jvp
def by_polynomials(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (sin x, cos x) from x less its nearest multiple of pi/2."""
    turns = jnp.round(x * (2 / jnp.pi))
    for part in PARTS:
        x = x - turns * part
    square = x * x
    sine = x + x * square * _polynomial(SINE, square)
    cosine = 1 - 0.5 * square + square * square * _polynomial(COSINE, square)
    quarter = turns.astype(jnp.int32) & 3
    odd = quarter & 1 == 1
    sine, cosine = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    return (jnp.where(quarter >= 2, -sine, sine),
            jnp.where((quarter == 1) | (quarter == 2), -cosine, cosine))


@by_polynomials.defjvp
def _(primals, tangents):
    sine, cosine = by_polynomials(*primals)
    return (sine, cosine), (cosine * tangents[0], -sine * tangents[0])


def _polynomial(terms: tuple[float, ...], x: jax.Array) -> jax.Array:
    return terms[0] + x * (terms[1] + x * terms[2])
