"""Returns against plain NumPy loops, over every pattern of terminated and truncated."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import returns
from jaxrl_fast.types import Timestep, Trajectory, Window

T = 5
# Every pattern of (goes on, terminated, truncated) over T steps, one environment each: 3^5 = 243.
PATTERNS = np.array(list(itertools.product((0, 1, 2), repeat=T))).T
B = PATTERNS.shape[1]
TERMINATED, TRUNCATED = PATTERNS == 1, PATTERNS == 2
DONE = TERMINATED | TRUNCATED
# (discount, lambda)
SETTINGS = np.array([(0.9, 0.8), (0.99, 0.95), (1.0, 1.0), (0.9, 1.0), (0.9, 0.0), (0.0, 0.5)],
                    np.float32)


@pytest.fixture(scope="module")
def data():
    """Return reward, value and next_value: the next row's value unless the episode ended."""
    rng = np.random.default_rng(0)
    reward, value, beyond = (rng.normal(size=(T, B)).astype(np.float32) for _ in range(3))
    shifted = np.concatenate([value[1:], rng.normal(size=(1, B))]).astype(np.float32)
    return reward, value, np.where(DONE, beyond, shifted).astype(np.float32)


def loop_gae(reward, value, next_value, discount, lambda_):
    out = np.zeros((T, B))
    for b in range(B):
        carry = 0.0
        for t in reversed(range(T)):
            successor = 0.0 if TERMINATED[t, b] else next_value[t, b]
            delta = reward[t, b] + discount * successor - value[t, b]
            carry = delta + (0.0 if DONE[t, b] else discount * lambda_ * carry)
            out[t, b] = carry
    return out


@pytest.mark.parametrize("discount", [0.9, 1.0, 0.0])
def test_returns_so_far(data, discount):
    """The second of two blocks goes on where the first ended."""
    reward, so_far, found = data[0], np.zeros(B), []
    before = jnp.zeros(B)
    for block in (slice(0, 2), slice(2, T)):
        before, rows = returns.returns_so_far(before, reward[block], DONE[block], discount)
        found += list(rows)
    for t in range(T):
        so_far = reward[t] + discount * np.where(DONE[t - 1] if t else True, 0.0, so_far)
        np.testing.assert_allclose(found[t], so_far, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(before, np.where(DONE[-1], 0.0, so_far), rtol=1e-5, atol=1e-6)


def loop_lambda_returns(reward, next_value, discount, lambda_):
    """Return the weighted mean of n-step returns, up to an episode's end or the last row."""
    out = np.zeros((T, B))
    for t, b in itertools.product(range(T), range(B)):
        total, weight = 0.0, 1.0
        partial = 0.0
        for i in range(t, T):
            partial += discount ** (i - t) * reward[i, b]
            n_step = partial + (0.0 if TERMINATED[i, b]
                                else discount ** (i - t + 1) * next_value[i, b])
            if DONE[i, b] or i == T - 1:
                total += weight * n_step
                break
            total += weight * (1.0 - lambda_) * n_step
            weight *= lambda_
        out[t, b] = total
    return out


def loop_vtrace(reward, value, next_value, ratio, discount, lambda_, rho_bar, c_bar):
    """The sum of equation 1 of the paper, term by term, up to an episode's end or the last row."""
    target, advantage = np.zeros((T, B)), np.zeros((T, B))
    successor = np.where(TERMINATED, 0.0, next_value)
    for t, b in itertools.product(reversed(range(T)), range(B)):
        target[t, b], trace = value[t, b], 1.0
        for i in range(t, T):
            error = min(rho_bar,
                        ratio[i, b]) * (reward[i, b] + discount * successor[i, b] - value[i, b])
            target[t, b] += discount ** (i - t) * trace * error
            trace *= lambda_ * min(c_bar, ratio[i, b])
            if DONE[i, b]:
                break
        beyond = successor[t, b]
        if not DONE[t, b] and t < T - 1:
            beyond = (1 - lambda_) * beyond + lambda_ * target[t + 1, b]
        advantage[t, b] = min(rho_bar,
                              ratio[t, b]) * (reward[t, b] + discount * beyond - value[t, b])
    return target, advantage


def both(reward, value, next_value, setting):
    discount, lambda_ = setting
    return (
        returns.gae(reward, TERMINATED, DONE, value, next_value, discount, lambda_),
        returns.lambda_returns(reward, TERMINATED, DONE, next_value, discount, lambda_),
    )


def test_gae_and_lambda_returns_equal_plain_loops_on_every_pattern(data):
    reward, value, next_value = data
    batched = jax.jit(jax.vmap(both, in_axes=(None, None, None, 0)))
    advantages, lambda_returns = batched(*data, SETTINGS)
    for i, (discount, lambda_) in enumerate(SETTINGS.astype(np.float64)):
        expected = loop_gae(reward, value, next_value, discount, lambda_)
        np.testing.assert_allclose(advantages[i], expected, rtol=1e-5, atol=1e-5)
        expected = loop_lambda_returns(reward, next_value, discount, lambda_)
        np.testing.assert_allclose(lambda_returns[i], expected, rtol=1e-5, atol=1e-5)
        # For values that fit together the two are one thing: G^lambda = A + V.
        np.testing.assert_allclose(lambda_returns[i], advantages[i] + value, rtol=1e-5, atol=2e-5)


def test_advantages_up_to_the_target_of_the_next_row(data):
    """A plain loop agrees on every pattern of ends; with lambda = 1 the result is GAE."""
    reward, value, next_value = data
    rng = np.random.default_rng(6)
    target = rng.normal(size=(T, B)).astype(np.float32)
    ours = returns.target_advantages(reward, TERMINATED, DONE, value, next_value, target, 0.9)
    for t, b in itertools.product(range(T), range(B)):
        beyond = next_value[t, b] if DONE[t, b] or t == T - 1 else target[t + 1, b]
        expected = reward[t, b] + (0.0 if TERMINATED[t, b] else 0.9 * beyond) - value[t, b]
        assert ours[t, b] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    gae = returns.gae(reward, TERMINATED, DONE, value, next_value, 0.9, 1.0)
    again = returns.target_advantages(reward, TERMINATED, DONE, value, next_value, value + gae, 0.9)
    np.testing.assert_allclose(again, gae, rtol=1e-5, atol=1e-5)


BARS = [(1.0, 1.0), (2.0, 0.5), (1.5, 1.5), (0.7, 1.2), (np.inf, np.inf),
        (1.0, 0.0)]  # rho's, c's; one a setting


def test_vtrace_equals_the_sum_of_the_paper_on_every_pattern(data):
    reward, value, next_value = data
    ratio = np.exp(np.random.default_rng(4).normal(size=(T, B))).astype(np.float32)
    both_bars = np.array(BARS, np.float32)
    one = lambda s, bars: returns.vtrace(reward, TERMINATED, DONE, value, next_value, ratio, *s,
                                         *bars)
    target, advantage = jax.jit(jax.vmap(one))(SETTINGS, both_bars)
    for i, (setting, bars) in enumerate(zip(SETTINGS.astype(np.float64), BARS, strict=True)):
        expected = loop_vtrace(reward, value, next_value, ratio, *setting, *bars)
        np.testing.assert_allclose(target[i], expected[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(advantage[i], expected[1], rtol=1e-4, atol=1e-4)
    plain = one(SETTINGS[0], both_bars[0])
    np.testing.assert_allclose(plain[0], target[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(plain[1], advantage[0], rtol=1e-6, atol=1e-6)


def test_vtrace_on_policy_is_the_lambda_return_and_gae(data):
    """Ratios are 1 and bounds from 1 up; other ratios and lower bounds change the result."""
    reward, value, next_value = data
    one = np.ones_like(reward)
    run = jax.jit(lambda s, ratio,
                  *bars: returns.vtrace(reward, TERMINATED, DONE, value, next_value, ratio, *s,
                                        *bars))
    expected = jax.jit(both)
    for setting in SETTINGS:
        advantage, lambda_return = expected(*data, setting)
        for bars in ((1.0, 1.0), (3.0, 2.0)):
            found = run(setting, one, *bars)
            np.testing.assert_allclose(found[0], lambda_return, rtol=1e-5, atol=2e-5)
            np.testing.assert_allclose(found[1], advantage, rtol=1e-5, atol=2e-5)
    for found in (run(SETTINGS[0], 0 * one, 1.0, 1.0),
                  run(SETTINGS[0], one, 0.0, 1.0)):  # never done: nothing learned
        np.testing.assert_array_equal(found[0], value)
        np.testing.assert_array_equal(found[1], 0.0)
    never = run(SETTINGS[0], one, 1.0, 0.0)  # a trace that is cut at once: one-step targets
    np.testing.assert_allclose(never[0], reward + 0.9 * np.where(TERMINATED, 0.0, next_value),
                               rtol=1e-5, atol=1e-6)


# kind of end of row 0, V(next_obs) of row 0, rho_bar -> targets, advantages
# with gamma 0.5, c_bar 1, ratios 2 and 0.5
VTRACE = [
    ("none", 2.0, 1.0, (2.75, 3.5), (1.75, 1.5)),
    ("none", 2.0, 2.0, (3.75, 3.5), (3.5, 1.5)),
    ("terminated", 2.0, 1.0, (1.0, 3.5), (0.0, 1.5)),
    ("truncated", 10.0, 1.0, (6.0, 3.5), (5.0, 1.5)),
    ("truncated", 10.0, 0.25, (2.25, 2.75), (1.25, 0.75)),
]


@pytest.mark.parametrize(("end", "beyond", "rho_bar", "target", "advantage"), VTRACE)
def test_vtrace_by_hand(end, beyond, rho_bar, target, advantage):
    """Row 1: rho 0.5, delta 0.5 (3 + 0.5 4 - 2) = 1.5.

    Row 0: rho 1 of 2, delta 1 + 0.5 2 - 1 = 1, then 0.5 c 1.5 of row 1.
    """
    column = lambda *x: jnp.array(x)[:, None]
    found = returns.vtrace(
        column(1.0, 3.0), column(end == "terminated", False), column(end != "none", False),
        column(1.0, 2.0), column(beyond, 4.0), column(2.0, 0.5), 0.5, 1.0, rho_bar, 1.0,
    )  # fmt: skip
    np.testing.assert_allclose(found, [column(*target), column(*advantage)], rtol=1e-6)


def test_with_and_without_jit_and_vmap_agree(data):
    plain = both(*data, SETTINGS[0])
    jitted = jax.jit(both)(*data, SETTINGS[0])
    lane = jax.vmap(both, in_axes=(None, None, None, 0))(*data, SETTINGS[:1])
    for a, b, c in zip(plain, jitted, lane, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(a, c[0], rtol=1e-6, atol=1e-6)


def test_next_value_of_a_terminated_row_is_ignored_even_if_nan(data):
    reward, value, next_value = data
    poisoned = np.where(TERMINATED, np.nan, next_value)
    for clean, dirty in zip(both(*data, SETTINGS[0]), both(reward, value, poisoned, SETTINGS[0]),
                            strict=True):
        np.testing.assert_array_equal(clean, dirty)
    trace = lambda beyond: returns.vtrace(reward, TERMINATED, DONE, value, beyond, np.abs(value),
                                          *SETTINGS[0])
    np.testing.assert_array_equal(trace(next_value), trace(poisoned))


def test_a_time_limit_is_not_a_failure():
    """One step, reward 1, successor worth 10: cut it is worth 1 + gamma 10, terminated 1."""
    one, ten = jnp.ones((1, 2)), jnp.full((1, 2), 10.0)
    terminated = jnp.array([[False, True]])
    advantage = returns.gae(one, terminated, jnp.array([[True, True]]), 0 * one, ten, 0.9, 0.95)
    np.testing.assert_allclose(advantage, [[10.0, 1.0]])


@pytest.mark.parametrize(("function", "values"),
                         [(returns.gae, 2), (returns.lambda_returns, 1), (returns.vtrace, 3)])
def test_shapes_that_differ_are_refused(function, values):
    x, flags = jnp.ones((3, 2)), jnp.zeros((3, 2), bool)
    args = (x, flags, flags, *[x] * (values - 1), x[:2])
    named = rf"arrays of {function.__name__} must be of one shape, \(3, 2\), got \(2, 2\)"
    with pytest.raises(ConfigError, match=named):
        function(*args, 0.9, 0.9)


def expected_bootstrap(value, last, truncated, successor):
    shifted = np.concatenate([value[1:], last[None]])
    return np.where(truncated, successor, shifted)


def test_bootstrap_values_on_every_pattern(data, both_forms):
    """Truncations at every time: five passes on a CPU, one batch on a GPU."""
    _, value, _ = data
    rng = np.random.default_rng(1)
    last = rng.normal(size=B).astype(np.float32)
    successor = rng.normal(size=(T, B)).astype(np.float32)
    asked = []

    def value_of(x):
        asked.append(x.shape)
        return x

    at = lambda t: jnp.asarray(successor)[slice(None) if t is None else t]
    bootstrap = lambda v, x: returns.bootstrap_values(v, x, jnp.asarray(TRUNCATED), value_of, at)
    for out in both_forms(bootstrap, value, last):
        np.testing.assert_array_equal(out, expected_bootstrap(value, last, TRUNCATED, successor))
    assert set(asked) == {(B,)}  # the network is traced for one time step


def test_bootstrap_values_under_vmap_with_other_truncations_in_every_lane(both_forms):
    """From none to all times of 64. The value behind a time without a truncation is NaN and must
    not be taken."""
    rng = np.random.default_rng(2)
    steps, envs = 64, 2
    share = np.array([0.0, 0.005, 0.1, 0.5, 0.9, 1.0])
    truncated = rng.random((6, steps, envs)) < share[:, None, None]
    value, successor = (rng.normal(size=(6, steps, envs)).astype(np.float32) for _ in range(2))
    last = rng.normal(size=(6, envs)).astype(np.float32)
    successor = np.where(truncated, successor, np.nan)

    def one(value, last, truncated, successor):
        at = lambda t: successor if t is None else successor[t]
        return returns.bootstrap_values(value, last, truncated, lambda x: x, at)

    for out in both_forms(jax.vmap(one), value, last, truncated, successor):
        for lane in range(6):
            expected = expected_bootstrap(value[lane], last[lane], truncated[lane], successor[lane])
            np.testing.assert_array_equal(out[lane], expected)
    single = jax.jit(one)
    for lane in range(6):
        expected = expected_bootstrap(value[lane], last[lane], truncated[lane], successor[lane])
        np.testing.assert_array_equal(single(value[lane], last[lane], truncated[lane],
                                             successor[lane]), expected)


def test_bootstrap_values_of_one_environment():
    out = returns.bootstrap_values(
        jnp.array([[1.0], [2.0]]), jnp.array([3.0]), jnp.array([[True], [False]]),
        lambda x: 10.0 + x, lambda t: jnp.array([[0.0], [jnp.nan]]) if t is None else t[None],
    )  # fmt: skip
    np.testing.assert_array_equal(out, [[10.0], [3.0]])


@pytest.mark.parametrize("joined", [0, returns.JOINED])
def test_rollout_values_are_those_of_observations_and_true_successors(joined, both_forms,
                                                                      monkeypatch):
    """On a GPU in one batch, or in two where a copy of the observations is large."""
    monkeypatch.setattr(returns, "JOINED", joined)
    rng = np.random.default_rng(4)
    obs, successor = rng.normal(size=(2, T, B, 3)).astype(np.float32)
    last_obs, weights = rng.normal(size=(B, 3)).astype(np.float32), np.float32([1, -2, 3])
    steps = Timestep(obs, (), successor, np.zeros((T, B)), np.zeros((T, B), bool), TRUNCATED, ())
    batches = []

    def value_of(x):
        batches.append(x.shape)
        return jnp.sum(x * weights, axis=-1)

    values = lambda steps: returns.rollout_values(
        value_of, Trajectory(steps, (), obs[0], last_obs), steps.obs, 1)
    value, last, beyond = (np.sum(x * weights, axis=-1) for x in (obs, last_obs, successor))
    expected = value, expected_bootstrap(value, last, TRUNCATED, beyond)
    for found in both_forms(values, steps):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert len(batches) == (3 if joined else 4)  # two on a CPU


def test_window_return_equals_a_plain_loop():
    n = 3
    use = np.array(list(itertools.product((False, True), repeat=n))).T  # [3, 8]
    b = use.shape[1]
    rng = np.random.default_rng(3)
    reward, boot_value = rng.normal(size=(n, b)), rng.normal(size=b)
    steps, boot = use.sum(0), np.arange(b) % 2
    for discount in (0.9, 0.0, 1.0):
        expected = [
            sum(discount**i * reward[i, j] for i in range(n) if use[i, j])
            + discount ** int(steps[j]) * boot[j] * boot_value[j]
            for j in range(b)
        ]
        window = Window((), (), jnp.float32(reward), use, jnp.int32(steps), (), jnp.float32(boot),
                        jnp.ones(b))
        for fn in (returns.window_return, jax.jit(returns.window_return)):
            ret, factor = fn(window, jnp.float32(discount))
            np.testing.assert_allclose(ret + factor * jnp.float32(boot_value), expected, rtol=1e-5,
                                       atol=1e-6)


def test_window_return_is_no_product_of_matrices():
    """Products are bfloat16 on a TPU by default; returns stay float32."""
    window = Window((), (), jnp.ones((3, 8)), jnp.ones((3, 8), bool), jnp.ones(8, jnp.int32), (),
                    jnp.ones(8), jnp.ones(8))
    assert "dot_general" not in str(jax.make_jaxpr(returns.window_return)(window, 0.9))


@pytest.mark.parametrize("doubled", [True, False])
@pytest.mark.parametrize(("name", "steps"), family([
    ("gae", 13), ("gae", 64), ("lambda_returns", 24), ("vtrace", 24), ("returns_so_far", 13),
    ("gae", 1), ("gae", 24),
], 5))  # fmt: skip
@pytest.mark.usefixtures("every_platform")
def test_recursions_in_both_forms(name, steps, doubled, both_forms, rng):
    """Step by step, and on a GPU in log2 T passes over few numbers or a loop over many."""
    envs, tolerance = (3, 2e-6) if doubled else (returns.DOUBLED // steps + 1, 1e-5)
    reward, value, next_value, ratio = rng.normal(size=(4, steps, envs)).astype(np.float32)
    terminated, done = rng.random((steps, envs)) < 0.1, rng.random((steps, envs)) < 0.2
    args = {
        "gae": (reward, terminated, terminated | done, value, next_value, 0.99, 0.95),
        "lambda_returns": (reward, terminated, terminated | done, next_value, 0.99, 0.95),
        "vtrace": (reward, terminated, terminated | done, value, next_value, np.abs(ratio), 0.99,
                   0.95),
        "returns_so_far": (value[0], reward, done, 0.99),
    }[name]
    function = getattr(returns, name)
    ours, gpus = both_forms(function, *args)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6, atol=tolerance), ours,
                 gpus)
    scans = re.findall(r"scan\[.*?unroll=(\d+)", str(jax.make_jaxpr(function)(*args)), re.S)
    looped = [] if doubled or steps == 1 else [{13: 13, 24: 24, 64: 32}[steps]]
    assert sorted(map(int, scans)) == [1, *looped]


@pytest.mark.parametrize("end", ["terminated", "done"])
def test_an_end_stops_values_that_are_not_finite_in_both_forms(end, both_forms, rng):
    reward = rng.normal(size=(9, 2)).astype(np.float32)
    reward[4, 0] = np.inf
    ends = np.zeros((9, 2), bool)
    ends[[3, 6], 0] = True
    if end == "done":
        forms = both_forms(returns.returns_so_far, np.zeros(2, np.float32), reward, ends, 0.9)
        found = [rows for _, rows in forms]
    else:
        value = np.ones((9, 2), np.float32)
        found = both_forms(returns.lambda_returns, reward, ends, ends, value, 0.9, 0.8)
    for rows in found:
        assert np.isfinite(rows[:4]).all() and not np.isfinite(rows[4, 0])
        assert np.isfinite(rows[7:]).all() and np.isfinite(rows[:, 1]).all()
