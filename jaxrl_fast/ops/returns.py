"""Returns and advantages; time is the leading axis.

Every function takes `terminated` (the value beyond is zero) and `done` = terminated | truncated
(the recursion stops) apart: a truncated step bootstraps from V(next_obs), the successor before the
reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl_fast.errors import expected
from jaxrl_fast.ops import lowering, stacking
from jaxrl_fast.types import Trajectory, Window

Scalar = jax.Array | float
# steps of a recursion in one turn of a GPU's loop: four launches instead of 32 times three
IN_A_ROW = 32
# numbers of one member that a GPU doubles; above, its reads cost more than launches
DOUBLED = 1 << 20
# numbers of a rollout's observations that a GPU copies to compute all values in one batch
JOINED = 1 << 20


def _check_shapes(function: str, *arrays: Any) -> None:
    """Raise ConfigError unless all arrays of a function have the first one's shape."""
    for shape in map(jnp.shape, arrays):
        if shape != jnp.shape(arrays[0]):
            raise expected(f"arrays of {function}", f"of one shape, {jnp.shape(arrays[0])}",
                           str(shape))


def _recursion(step: Callable, carry: Any, xs: Any, terms: Callable,
               reverse: bool = False) -> jax.Array:
    """Return the rows [T, B] of a scan of `step`, from the last if `reverse`.

    terms: () -> (offset, factor), float [T, B], of the same as x_t = offset_t + factor_t x_{t-1}. A
    GPU takes log2 T passes over all rows, which XLA fuses: T steps in a row compile for ten times
    as long, and a loop of fewer makes launches a turn.
    """
    if jax.tree.leaves(xs)[0].size > DOUBLED:
        return lowering.scan(step, carry, xs, reverse, IN_A_ROW)[1]
    plain = lambda: jax.lax.scan(step, carry, xs, reverse=reverse)[1]
    return lowering.on_gpu(lambda: _scan_by_doubling(*terms(), reverse), plain)


def _scan_by_doubling(offset: jax.Array, factor: jax.Array, reverse: bool) -> jax.Array:
    """Return x_t = offset_t + factor_t x_{t-1}, 0 before the first row (Hillis & Steele 1986).

    A factor of 0 also ends a sum that is not finite.
    """
    reach = 1
    while reach < len(offset):
        edge = (-reach, reach, 0) if reverse else (reach, -reach, 0)
        before = lambda x, edge=edge: jax.lax.pad(x, jnp.zeros_like(x, shape=()),
                                                  [edge, *[(0, 0, 0)] * (x.ndim - 1)])
        offset = jnp.where(factor == 0, offset, offset + factor * before(offset))
        factor, reach = factor * before(factor), 2 * reach
    return offset


def gae(
    reward: jax.Array, terminated: jax.Array, done: jax.Array, value: jax.Array,
    next_value: jax.Array, discount: Scalar, gae_lambda: Scalar,
) -> jax.Array:  # fmt: skip
    """Return generalised advantage estimates, [T, B] (Schulman et al. 2016, eq. 11-16).

        delta_t = r_t + gamma (1 - terminated_t) V(next_obs_t) - V(obs_t)
        A_t     = delta_t + gamma lambda (1 - done_t) A_{t+1}

    reward, value, next_value: float [T, B]; terminated, done: bool [T, B]. `next_value[t]` is V of
    the successor before any reset; it is ignored where terminated.
    """
    _check_shapes("gae", reward, terminated, done, value, next_value)
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    return _backwards(delta, discount * gae_lambda * (1.0 - done))


def _backwards(delta: jax.Array, decay: jax.Array) -> jax.Array:
    """Return x_t = delta_t + decay_t x_{t+1}, zero past the last row; [T, B]."""

    def step(x, row):
        delta, decay = row
        x = delta + decay * x
        return x, x

    return _recursion(step, jnp.zeros_like(delta[0]), (delta, decay),
                      lambda: (delta, decay), reverse=True)


def returns_so_far(
    before: jax.Array, reward: jax.Array, done: jax.Array, discount: Scalar
) -> tuple[jax.Array, jax.Array]:
    """Return each episode's discounted reward sums, and the start of the next block.

        G_t = r_t + gamma (1 - done_{t-1}) G_{t-1}

    before: float [B], G of the step before the block, 0 at an episode's start. reward: float, done:
    bool [T, B]. Returns (before the next block [B], G [T, B]).
    """
    _check_shapes("returns_so_far", reward, done)

    def step(before, row):
        reward, done = row
        so_far = reward + discount * before
        return jnp.where(done, 0.0, so_far), so_far

    def terms():
        fresh = jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])  # the row before ended
        first = reward[:1] + discount * before
        return jnp.concatenate([first, reward[1:]]), discount * (1.0 - fresh)

    so_far = _recursion(step, before, (reward, done), terms)
    return jnp.where(done[-1], 0.0, so_far[-1]), so_far


def target_advantages(
    reward: jax.Array, terminated: jax.Array, done: jax.Array, value: jax.Array,
    next_value: jax.Array, target: jax.Array, discount: Scalar,
) -> jax.Array:  # fmt: skip
    """Return advantages up to the next row's target, [T, B] (Espeholt et al. 2018, section 4.2).

        A_t = r_t + gamma (1 - terminated_t) v_{t+1} - V(obs_t)
        v_{t+1} = V(next_obs_t) where done and after the last row

    reward, value, next_value, target (v_t): float [T, B]; terminated, done: bool [T, B]. With v = V
    + GAE it is delta_t + gamma (1 - done_t) GAE_{t+1}: less bias and more variance than GAE. brax's
    PPO has this form.
    """
    _check_shapes("target_advantages", reward, terminated, done, value, next_value, target)
    following = jnp.where(done, next_value, jnp.concatenate([target[1:], next_value[-1:]]))
    return reward + discount * jnp.where(terminated, 0.0, following) - value


def lambda_returns(
    reward: jax.Array, terminated: jax.Array, done: jax.Array, next_value: jax.Array,
    discount: Scalar, lambda_: Scalar,
) -> jax.Array:  # fmt: skip
    """Return TD(lambda) returns, [T, B] (Sutton & Barto 2018, eq. 12.18).

    G_t = r_t + gamma (1 - terminated_t) ((1 - lambda_t) V(next_obs_t) + lambda_t G_{t+1}), lambda_t
    = 0 where done.
    """
    _check_shapes("lambda_returns", reward, terminated, done, next_value)
    mix = lambda_ * (1.0 - done)

    def step(ret, x):
        r, end, v, lam = x
        ret = r + discount * jnp.where(end, 0.0, (1.0 - lam) * v + lam * ret)
        return ret, ret

    def terms():
        following = jnp.concatenate([(1.0 - mix[:-1]) * next_value[:-1], next_value[-1:]])
        factor = discount * jnp.where(terminated, 0.0, mix)
        return reward + discount * jnp.where(terminated, 0.0, following), factor

    return _recursion(step, next_value[-1], (reward, terminated, next_value, mix),
                      terms, reverse=True)


def vtrace(
    reward: jax.Array, terminated: jax.Array, done: jax.Array, value: jax.Array,
    next_value: jax.Array, ratio: jax.Array, discount: Scalar, lambda_: Scalar = 1.0,
    rho_bar: Scalar = 1.0, c_bar: Scalar = 1.0,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Return the learner's V-trace targets and advantages (Espeholt et al. 2018, eq. 1).

        rho_t   = min(rho_bar, ratio_t),   c_t = lambda min(c_bar, ratio_t)
        ratio_t = pi(a_t|x_t) / mu(a_t|x_t)
        delta_t = rho_t (r_t + gamma (1 - terminated_t) V(next_obs_t) - V(obs_t))
        v_t     = V(obs_t) + delta_t + gamma c_t (1 - done_t) (v_{t+1} - V(obs_{t+1}))
        A_t     = rho_t (r_t + gamma (1 - terminated_t) (V(next_obs_t)
                                       + lambda (1 - done_t) (v_{t+1} - V(obs_{t+1}))) - V(obs_t))

    Returns (v, A), [T, B] each; the caller stops their gradients. reward, value, next_value, ratio:
    float [T, B]; terminated, done: bool [T, B]. After the last row only V(next_obs) is known. With
    lambda = 1, A is the paper's rho_t (r_t + gamma v_{t+1} - V(obs_t)), section 4.2. On policy,
    with every ratio 1 and neither bound below it, v is the lambda-return and A is GAE(lambda).
    """
    _check_shapes("vtrace", reward, terminated, done, value, next_value, ratio)
    rho, c = jnp.minimum(rho_bar, ratio), lambda_ * jnp.minimum(c_bar, ratio)
    delta = rho * (reward + discount * jnp.where(terminated, 0.0, next_value) - value)
    excess = _backwards(delta, discount * c * (1.0 - done))  # v_t - V(obs_t)
    following = (1.0 - done) * jnp.concatenate([excess[1:], jnp.zeros_like(excess[:1])])
    return value + excess, delta + rho * discount * lambda_ * following


def window_return(window: Window, discount: Scalar) -> tuple[jax.Array, jax.Array]:
    """Return (ret, factor), [b] each: a window's n-step target is ret + factor * V(boot_obs).

        ret = sum_i gamma^i r_i use_i,   factor = gamma^steps boot;   see `jaxrl_fast.types.Window`
    """
    _check_shapes("window_return", window.reward, window.use)
    powers = discount ** jnp.arange(window.reward.shape[0], dtype=jnp.float32)
    # a matrix product would be bfloat16 on a TPU
    ret = jnp.sum(powers[:, None] * window.reward * window.use, axis=0)
    return ret, discount**window.steps * window.boot


def standardize(advantage: jax.Array) -> jax.Array:
    """Return a minibatch's advantages with zero mean and unit variance."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def rollout_values(
    value_of: Callable[[Any], jax.Array], trajectory: Trajectory, obs: Any, stack: int
) -> tuple[jax.Array, jax.Array]:
    """Return V of the observations of a rollout and of their true successors, float [T, B] each.

    value_of: observations [B, ...] -> [B].  obs: the rollout's as the agent saw them, [T, B, ...].
    stack: how many frames they hold.
    """
    seen = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), obs, trajectory.last_obs)
    truncated, steps = trajectory.steps.truncated, len(trajectory.steps.truncated)
    successors = lambda t: stacking.successors(trajectory, stack, t)
    # step by step: one batch [T * B] would be gathered if B is divided over devices
    values_of = jax.vmap(value_of)

    def apart():
        values = values_of(seen)
        value, last = values[:-1], values[-1]
        return value, bootstrap_values(value, last, truncated, value_of, successors)

    def joined():
        values = values_of(jax.tree.map(lambda *x: jnp.concatenate(x), seen, successors(None)))
        following = jnp.where(truncated, values[steps + 1 :], values[1 : steps + 1])
        return values[:steps], following

    small = sum(x.size for x in jax.tree.leaves(seen)) <= JOINED
    return lowering.on_gpu(joined if small else apart, apart)


def bootstrap_values(
    value: jax.Array, last_value: jax.Array, truncated: jax.Array,
    value_of: Callable[[Any], jax.Array], successors: Callable[[jax.Array | None], Any],
) -> jax.Array:  # fmt: skip
    """Return V of the true successor of every row, float [T, B].

    If the episode continues, V(next_obs_t) is the next row's value.

    Args:
        value: V(obs_t), float [T, B].
        last_value: V of the observation after the last row, float [B].
        truncated: bool [T, B].
        value_of: the network, observations [B, ...] -> [B].
        successors: true successors [B, ...] of time t (traced int32), or [T, B, ...] if t is None.

    A CPU visits the times with a truncation; a GPU takes all rows in one batch
    (docs/architecture.md).
    """
    shifted = jnp.concatenate([value[1:], last_value[None]])

    def body(state):
        todo, out = state
        t = jnp.argmax(todo).astype(jnp.int32)
        row = jnp.where(truncated[t], value_of(successors(t)), out[t])
        return todo.at[t].set(False), jax.lax.dynamic_update_slice_in_dim(out, row[None], t, 0)

    def in_turns():
        start = jnp.any(truncated, axis=1), shifted
        return jax.lax.while_loop(lambda s: jnp.any(s[0]), body, start)[1]

    def at_once():
        return jnp.where(truncated, jax.vmap(value_of)(successors(None)), shifted)

    return lowering.on_gpu(at_once, in_turns)
