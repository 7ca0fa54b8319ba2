"""Loss functions, elementwise over a batch [b]; the caller weights and averages."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def policy_gradient(log_prob: jax.Array, advantage: jax.Array) -> jax.Array:
    """Return -log pi(a|s) A [b], A constant (Williams 1992; Mnih et al. 2016, section 4)."""
    return -log_prob * jax.lax.stop_gradient(advantage)


def clipped_surrogate(log_prob: jax.Array, old_log_prob: jax.Array,
                      advantage: jax.Array, clip: jax.Array | float):
    """Return PPO's loss -min(rho A, clip(rho, 1 - eps, 1 + eps) A) [b] (2017, eq. 7) and rho."""
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, clipped * advantage), ratio


def value_loss(
    value: jax.Array, target: jax.Array, old_value: jax.Array | None = None,
    clip: jax.Array | float | None = None,
):  # fmt: skip
    """Return 0.5 (V - target)^2 [b]; with `clip` at least that of V within old_value +- clip.

    The clipped form is detail 9 of Huang et al. 2022 (The 37 Implementation Details of PPO).
    """
    loss = jnp.square(value - target)
    if clip is not None:
        clipped = old_value + jnp.clip(value - old_value, -clip, clip)
        loss = jnp.maximum(loss, jnp.square(clipped - target))
    return 0.5 * loss


def huber(error: jax.Array, delta: float = 1.0) -> jax.Array:
    """Return 0.5 e^2 if |e| <= delta, else delta (|e| - delta / 2) (Huber 1964)."""
    size = jnp.abs(error)
    inside = jnp.minimum(size, delta)
    return 0.5 * inside**2 + delta * (size - inside)


def quantile_huber(quantiles: jax.Array, taus: jax.Array, targets: jax.Array,
                   kappa: float = 1.0) -> jax.Array:
    """Return the quantile Huber loss [b], summed over quantiles and averaged over targets.

        rho(d) = |tau - 1[d < 0]| L_kappa(d) / kappa,   d_ij = target_j - quantile_i, L_kappa: Huber

    Dabney et al. 2018, eq. 10. quantiles, taus: [b, N] (taus also [N]); targets: [b, M], constants.
    Value and slope are summed target by target: XLA's CPU backend takes five times as long for all
    pairs.
    """
    at = jax.lax.stop_gradient(quantiles)

    def add(sums, target):
        loss, slope = sums
        delta = target[:, None] - at
        clipped = jnp.clip(delta, -kappa, kappa)
        weighted = jnp.where(delta < 0, 1.0 - taus, taus) * clipped
        return (loss + weighted * (delta - 0.5 * clipped), slope - weighted), None

    start, count = jnp.zeros(at.shape, jnp.result_type(at, taus, targets)), targets.shape[-1]
    (loss, slope), _ = jax.lax.scan(add, (start, start), jax.lax.stop_gradient(targets).T,
                                    unroll=min(count, 64))
    return jnp.sum(loss + (quantiles - at) * slope, axis=-1) / (count * kappa)


def categorical_projection(atoms: jax.Array, probs: jax.Array,
                           v_min: jax.Array, v_max: jax.Array) -> jax.Array:
    """Project probabilities of moved atoms onto the support (Bellemare et al. 2017, alg. 1).

    atoms: float32 [b, K], clipped to the support.  probs: [b, K].  The support is K even values
    from v_min to v_max. A triangle kernel shares each mass between its two neighbours, without a
    scatter.
    """
    num = atoms.shape[-1]
    # [b, K] in 0 .. K-1
    place = (jnp.clip(atoms, v_min, v_max) - v_min) * ((num - 1) / (v_max - v_min))
    support = jnp.arange(num, dtype=place.dtype)
    share = jnp.clip(1.0 - jnp.abs(place[:, None, :] - support[:, None]), 0.0, 1.0)  # [b, to, from]
    return jnp.sum(share * probs[:, None, :], axis=-1)
