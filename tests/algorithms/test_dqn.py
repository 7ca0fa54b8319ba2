"""DQN with a linear Q function, so that targets, gradients and steps can be worked out in NumPy."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.descent import init_optimizer
from jaxrl_fast.algorithms.dqn import Agent
from jaxrl_fast.algorithms.pqn import Rows
from jaxrl_fast.engine import iteration
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import Row
from jaxrl_fast.ops.distributions import ILLEGAL
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec, Timestep, Trajectory, Window

OBS, ACTIONS, ROWS, N = 3, 4, 10, 3
SPEC = EnvSpec("x", Box(-9, 9, (OBS,)), Discrete(ACTIONS))
BASE = jf.DQN(
    hidden=(), learning_rate=0.05, discount=0.9, n_step=N, max_grad_norm=0.4, adam_epsilon=1e-6,
    target_period=2, target_tau=0.3,
)  # fmt: skip


def window(rng) -> Window:
    """Ends of every kind: whole windows, cut short, terminated, and one that weighs nothing."""
    steps = np.array([3, 3, 3, 2, 1, 1, 2, 3, 0, 1])
    boot = np.array([1, 1, 0, 1, 0, 1, 0, 1, 1, 0], np.float32)
    use = np.arange(N)[:, None] < steps
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    weight = np.where(steps > 0, rng.uniform(0.2, 1.0, ROWS), 0.0).astype(np.float32)
    action = rng.integers(0, ACTIONS, ROWS).astype(np.int32)
    steps = steps.astype(np.int32)
    return Window(normal(ROWS, OBS), action, 2 * normal(N, ROWS), use, steps, normal(ROWS, OBS),
                  boot, weight)


def linear(params, obs):
    """Q by hand, float64."""
    w, b = (np.asarray(params["head"]["params"][k], np.float64) for k in ("kernel", "bias"))
    q = obs @ w + b
    if "value" in params:
        v, c = (np.asarray(params["value"]["params"][k], np.float64) for k in ("kernel", "bias"))
        q = obs @ v + c + q - q.mean(1, keepdims=True)
    return q


def by_hand(algo, params, target, batch):
    """(targets, errors, loss, gradients by name)."""
    rows = np.arange(ROWS)
    boot_q = linear(target, batch.boot_obs)
    if algo.double:
        boot_value = boot_q[rows, linear(params, batch.boot_obs).argmax(1)]
    else:
        boot_value = boot_q.max(1)
    targets = np.zeros(ROWS)
    for j in rows:
        for i in range(batch.steps[j]):
            targets[j] += algo.discount**i * batch.reward[i, j]
        targets[j] += algo.discount ** int(batch.steps[j]) * batch.boot[j] * boot_value[j]
    error = linear(params, batch.obs)[rows, batch.action] - targets
    if algo.huber:
        loss = np.where(np.abs(error) <= 1, 0.5 * error**2, np.abs(error) - 0.5)
        slope = np.clip(error, -1, 1)
    else:
        loss, slope = 0.5 * error**2, error
    grads = gradients(batch, slope * batch.weight / ROWS, algo.dueling)
    return targets, error, (batch.weight * loss).mean(), grads


def gradients(batch, slope, dueling):
    """Gradients by name, of a loss with this slope [rows] at Q of the action taken."""
    chosen = np.eye(ACTIONS)[batch.action]
    head = chosen - 1 / ACTIONS if dueling else chosen
    grads = (
        {"head": {
            "kernel": batch.obs.T @ (slope[:, None] * head), "bias": (slope[:, None] * head).sum(0)
        }}
    )
    if dueling:
        grads["value"] = {"kernel": batch.obs.T @ slope[:, None], "bias": slope.sum(keepdims=True)}
    return grads


VARIANTS = {
    "double": {},
    "plain": {"double": False},
    "huber": {"huber": True},
    "dueling, loose clip": {"dueling": True, "max_grad_norm": 100.0},
    "annealed, copied target": {"anneal_learning_rate": True, "target_tau": 1.0,
                                "target_period": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_updates_equal_numpy(variant, clock, rng):
    algo = dataclasses.replace(BASE, **VARIANTS[variant]).bind(SPEC)
    agent = algo.init(jax.random.key(0))
    shake = lambda p: p + 0.5 * rng.normal(size=p.shape).astype(np.float32)
    params = jax.tree.map(shake, agent.params)
    target = jax.tree.map(shake, agent.target)
    agent = Agent(params, target, agent.opt_state)
    update = jax.jit(algo.update)
    names = ["head", "value"] if algo.dueling else ["head"]
    m = {(n, k): 0.0 for n in names for k in ("kernel", "bias")}
    v = dict(m)
    disagree = False
    for step in (1, 2, 3):
        batch, progress = window(rng), 0.2 * step
        _, error, loss, grads = by_hand(algo, params, target, batch)
        q = linear(params, batch.boot_obs), linear(target, batch.boot_obs)
        disagree |= bool((q[0].argmax(1) != q[1].argmax(1)).any())
        norm = np.sqrt(sum((g**2).sum() for part in grads.values() for g in part.values()))
        scale = min(1.0, algo.max_grad_norm / norm)
        rate = algo.learning_rate * ((1 - progress) if algo.anneal_learning_rate else 1)
        params = jax.tree.map(np.asarray, params)
        for n, k in m:
            g = grads[n][k] * scale
            m[n, k] = 0.9 * m[n, k] + 0.1 * g
            v[n, k] = 0.999 * v[n, k] + 0.001 * g**2
            direction = (m[n, k] / (1 - 0.9**step)) / (
                np.sqrt(v[n, k] / (1 - 0.999**step)) + algo.adam_epsilon)
            params[n]["params"][k] = (params[n]["params"][k] - rate * direction).astype(np.float32)
        if step % algo.target_period == 0:  # with the new parameters
            target = jax.tree.map(lambda t, p: t + algo.target_tau * (p - t), target, params)
        agent, metrics, priority = update(agent, batch, jax.random.key(0),
                                          clock(step, step, progress))
        assert float(metrics["loss"].total) == pytest.approx(loss, rel=1e-4)
        np.testing.assert_allclose(priority, np.abs(error), rtol=1e-4, atol=1e-5)
        for ours, theirs in ((agent.params, params), (agent.target, target)):
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert disagree  # else double and plain would be one


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def test_munchausen_equals_numpy(clock, rng):
    """The soft value of the bootstrap state, and the clipped bonus of the action taken, by the
    target network."""
    settings = {"munchausen_alpha": 0.8, "munchausen_temperature": 0.7, "munchausen_clip": -1.2}
    algo = dataclasses.replace(BASE, munchausen=True, n_step=1, **settings).bind(SPEC)
    alpha, tau, clip = settings.values()
    agent, rows = algo.init(jax.random.key(0)), np.arange(ROWS)
    shake = lambda p: p + 0.5 * rng.normal(size=p.shape).astype(np.float32)
    agent = agent._replace(params=jax.tree.map(shake, agent.params),
                           target=jax.tree.map(shake, agent.target))
    batch = window(rng)
    boot = (rows > 2).astype(np.float32)  # the others ended there
    batch = batch._replace(reward=batch.reward[:1], use=np.ones((1, ROWS), bool),
                           steps=np.ones(ROWS, np.int32))
    batch = batch._replace(boot=boot, weight=np.ones(ROWS, np.float32))
    z = linear(agent.target, batch.boot_obs)
    log_policy = log_softmax(z / tau)
    soft = (np.exp(log_policy) * (z - tau * log_policy)).sum(1)
    raw = tau * log_softmax(linear(agent.target, batch.obs) / tau)[rows, batch.action]
    assert (raw < clip).any() and (raw > clip).any()  # some bonuses are clipped
    q = linear(agent.params, batch.obs)[rows, batch.action]
    errors = lambda value, bonus: q - (
        batch.reward[0] + alpha * bonus + algo.discount * boot * value)
    expected = errors(soft, np.clip(raw, clip, 0.0))
    for wrong in (
        errors(z.max(1), np.clip(raw, clip, 0.0)),
        errors(z[rows, linear(agent.params, batch.boot_obs).argmax(1)], np.clip(raw, clip, 0.0)),
        errors((np.exp(log_policy) * z).sum(1), np.clip(raw, clip, 0.0)),  # without the entropy
        errors(soft, raw),
    ):
        assert np.abs(np.abs(wrong) - np.abs(expected)).max() > 0.05
    _, metrics, priority = jax.jit(algo.update)(agent, batch, jax.random.key(0), clock(1, 1))
    np.testing.assert_allclose(priority, np.abs(expected), rtol=1e-4, atol=1e-5)
    assert float(metrics["loss"].total) == pytest.approx(0.5 * np.mean(expected**2), rel=1e-4)
    assert float(metrics["td_error"].total) == pytest.approx(np.abs(expected).sum(), rel=1e-4)


def outputs(algo, params, obs):
    """Outputs of every action [rows, n, outputs] by hand, of heads on the bare observation."""
    part = lambda name, n: linear({"head": params[name]}, obs).reshape(*obs.shape[:-1], n, -1)
    z = part("head", ACTIONS)
    return part("value", 1) + z - z.mean(-2, keepdims=True) if algo.dueling else z


def softmax(z):
    return (
        np.exp(z - z.max(-1, keepdims=True))
        / np.exp(z - z.max(-1, keepdims=True)).sum(-1, keepdims=True)
    )


def categorical(algo, params, target, batch):
    """Loss and priority of each row of C51: every atom moved, clipped, and shared out between its
    neighbours."""
    atoms = np.linspace(algo.v_min, algo.v_max, algo.num_atoms)
    wide, rows = atoms[1] - atoms[0], np.arange(ROWS)
    best = (softmax(outputs(algo, params, batch.boot_obs)) @ atoms).argmax(1)
    p = softmax(outputs(algo, target, batch.boot_obs))[rows, best]
    log_q = np.log(softmax(outputs(algo, params, batch.obs))[rows, batch.action])
    loss, priority = np.zeros(ROWS), np.zeros(ROWS)
    for j in rows:
        ret = sum(algo.discount**i * batch.reward[i, j] for i in range(batch.steps[j]))
        m = np.zeros(algo.num_atoms)
        for atom, mass in zip(atoms, p[j], strict=True):
            moved = ret + algo.discount ** int(batch.steps[j]) * batch.boot[j] * atom
            at = (np.clip(moved, algo.v_min, algo.v_max) - algo.v_min) / wide
            low = min(int(at), algo.num_atoms - 2)
            m[low] += mass * (low + 1 - at)
            m[low + 1] += mass * (at - low)
        loss[j] = -(m * log_q[j]).sum()
        priority[j] = loss[j] + (m[m > 0] * np.log(m[m > 0])).sum()
    return loss, priority


def quantile(algo, z, z_boot, taus, batch):
    """Loss of each row of QR-DQN and IQN: the mean over targets of the sum over predictions (eq.
    10)."""
    loss = np.zeros(ROWS)
    for j in range(ROWS):
        ret = sum(algo.discount**i * batch.reward[i, j] for i in range(batch.steps[j]))
        targets = ret + algo.discount ** int(batch.steps[j]) * batch.boot[j] * z_boot[j]
        for tau, theta in zip(taus[j], z[j], strict=True):
            u = targets - theta
            huber = np.where(np.abs(u) <= algo.kappa, u**2 / 2,
                             algo.kappa * (np.abs(u) - algo.kappa / 2)) / algo.kappa
            loss[j] += (np.abs(tau - (u < 0)) * huber).mean()
    return loss


def at_fractions(algo, params, obs, taus):
    """Outputs of QR-DQN and IQN at fractions [rows, N] -> [rows, n, N]."""
    if isinstance(algo, jf.QRDQN):
        return outputs(algo, params, obs)
    w, b = (np.asarray(params["fractions"]["params"][k], np.float64) for k in ("kernel", "bias"))
    phi = np.maximum(np.cos(np.pi * np.arange(algo.num_cosines) * taus[..., None]) @ w + b, 0.0)
    return outputs(algo, params, obs[:, None] * phi)[..., 0].swapaxes(1, 2)


def middle(n):
    return np.broadcast_to((np.arange(n) + 0.5) / n, (ROWS, n))


def drawing(fractions):
    """IQN that takes its fractions from a list."""

    @jf.settings
    class Drawing(jf.IQN):
        def predict(self, params, obs, key):
            taus = jnp.asarray(fractions.pop(0))
            return self.quantiles(params, obs, taus), taus

    return Drawing


@pytest.mark.parametrize("dueling", family([False, True], [True]))
@pytest.mark.parametrize("cls", family([jf.C51, jf.QRDQN, jf.IQN], [jf.C51, jf.IQN]))
def test_distributional_updates_equal_numpy(cls, dueling, clock, rng):
    """Double, three-step, weighed: the loss, and what becomes the priority."""
    sizes = {jf.C51: dict(num_atoms=7, v_min=-4.0, v_max=3.0),
             jf.QRDQN: dict(num_quantiles=5, kappa=0.7),
             jf.IQN: dict(num_fractions=5, num_act_fractions=6, num_cosines=4,
                          kappa=0.7)}[cls]  # fmt: skip
    common = {f.name: getattr(BASE, f.name) for f in dataclasses.fields(jf.DQN) if f.name != "spec"}
    fractions = []
    made = drawing(fractions) if cls is jf.IQN else cls
    algo = made(**common | dict(dueling=dueling) | sizes).bind(SPEC)
    shake = lambda p: p + 0.5 * rng.normal(size=p.shape).astype(np.float32)
    agent, rows, batch = algo.init(jax.random.key(0)), np.arange(ROWS), window(rng)
    params, target = jax.tree.map(shake, agent.params), jax.tree.map(shake, agent.target)
    if cls is jf.C51:
        loss, priority = categorical(algo, params, target, batch)
    else:
        drawn = rng.uniform(size=(ROWS, 5)).astype(np.float32)
        fractions += [drawn, drawn]
        z = functools.partial(at_fractions, algo)
        taus, act = (middle(5), middle(5)) if cls is jf.QRDQN else (drawn, middle(6))
        best = z(params, batch.boot_obs, act).mean(-1).argmax(1)
        boot = z(target, batch.boot_obs, taus)[rows, best]
        loss = priority = quantile(algo, z(params, batch.obs, taus)[rows, batch.action], boot, taus,
                                   batch)
    _, metrics, found = jax.jit(algo.update)(Agent(params, target, agent.opt_state), batch,
                                             jax.random.key(0), clock(1, 1))
    assert float(metrics["loss"].total) == pytest.approx((batch.weight * loss).mean(), rel=1e-4)
    np.testing.assert_allclose(found, priority, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("cls", family([jf.IQN, jf.QRDQN], 1))
def test_munchausen_of_quantiles_equals_numpy(cls, clock, rng):
    """Every quantile takes the policy of their means at the fractions drawn; the bonus is of those
    that actions use."""
    sizes = {jf.QRDQN: dict(num_quantiles=5),
             jf.IQN: dict(num_fractions=5, num_act_fractions=6, num_cosines=4)}[cls]
    alpha, tau, clip = 0.8, 0.7, -1.2
    soft = dict(munchausen=True, munchausen_alpha=alpha, munchausen_temperature=tau,
                munchausen_clip=clip)
    fractions = []
    made = drawing(fractions) if cls is jf.IQN else cls
    algo = made(hidden=(), discount=0.9, kappa=0.7, **sizes | soft).bind(SPEC)
    shake = lambda p: p + 0.5 * rng.normal(size=p.shape).astype(np.float32)
    agent, rows, batch = algo.init(jax.random.key(0)), np.arange(ROWS), window(rng)
    agent = agent._replace(params=jax.tree.map(shake, agent.params),
                           target=jax.tree.map(shake, agent.target))
    boot = (rows > 2).astype(np.float32)  # the others ended there
    batch = batch._replace(reward=batch.reward[:1], use=np.ones((1, ROWS), bool),
                           steps=np.ones(ROWS, np.int32), boot=boot)
    # in the order in which they are drawn
    boot_taus, taus = rng.uniform(size=(2, ROWS, 5)).astype(np.float32)
    fractions += [boot_taus, taus]
    act = middle(6)
    if cls is jf.QRDQN:
        boot_taus = taus = act = middle(5)
    z = at_fractions(algo, agent.target, batch.boot_obs, boot_taus)
    log_policy = log_softmax(z.mean(-1) / tau)[..., None]
    value = (np.exp(log_policy) * (z - tau * log_policy)).sum(1)
    raw = (
        tau * log_softmax(
            at_fractions(algo, agent.target, batch.obs, act).mean(-1) / tau)[rows, batch.action]
    )
    assert (raw < clip).any() and (raw > clip).any()  # some bonuses are clipped
    munchausen = batch._replace(reward=batch.reward + alpha * np.clip(raw, clip, 0.0))
    loss = quantile(algo, at_fractions(algo, agent.params, batch.obs, taus)[rows, batch.action],
                    value, taus, munchausen)
    _, metrics, priority = jax.jit(algo.update)(agent, batch, jax.random.key(0), clock(1, 1))
    np.testing.assert_allclose(priority, loss, rtol=1e-3, atol=1e-5)
    assert float(metrics["loss"].total) == pytest.approx((batch.weight * loss).mean(), rel=1e-4)
    each = (
        log_softmax(
            (z / tau).swapaxes(1, 2).reshape(-1, ACTIONS)).reshape(ROWS, -1, ACTIONS).swapaxes(1, 2)
    )
    for wrong in ((np.exp(each) * (z - tau * each)).sum(1), (np.exp(log_policy) * z).sum(1)):
        assert np.abs(wrong - value).max() > 0.05  # a policy for each quantile, and no entropy


@pytest.mark.parametrize("stack", family([2, 1], 1))
def test_targets_of_pqn_equal_numpy(stack, clock, rng):
    """Peng's Q(lambda), backwards by hand: nothing after a termination, the true successor's value
    after a truncation. The values of the rollout's observations come from acting."""
    steps, envs, gamma, mix = 9, 5, 0.9, 0.6
    spec = dataclasses.replace(SPEC, stack=stack)
    algo = jf.PQN(hidden=(), num_envs=envs, num_steps=steps, num_minibatches=1, discount=gamma,
                  return_lambda=mix).bind(spec)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    ends = rng.choice(3, size=(steps, envs), p=[0.6, 0.2, 0.2])
    ends[-1] = [0, 1, 2, 0, 2]
    frame, reward = normal(steps + 1, envs, OBS), normal(steps, envs)
    successor = np.where(ends[..., None] > 0, normal(steps, envs, OBS), frame[1:])
    first = np.concatenate([normal(envs, OBS)] * (stack - 1) + [frame[0]], axis=-1)
    seen = [first]  # a stack that starts afresh after an end
    for t in range(steps):
        before = np.where(ends[t][:, None] > 0, frame[t + 1], seen[t][:, -OBS:])
        seen.append(frame[t + 1] if stack == 1 else np.concatenate([before, frame[t + 1]], axis=-1))
    ended = [successor[t] if stack == 1 else np.concatenate([seen[t][:, -OBS:], successor[t]], -1)
             for t in range(steps)]
    agent = jax.device_get(jax.jit(algo.init)(jax.random.key(1)))
    best = lambda obs: linear(agent.params, obs).max(-1)
    expected, after = np.zeros((steps, envs)), best(seen[-1])
    for t in reversed(range(steps)):
        value = best(ended[t])
        if t == steps - 1:
            after = value  # beyond the rollout the value alone
        rest = np.where(ends[t] == 1, 0.0,
                        np.where(ends[t] == 2, value, (1 - mix) * value + mix * after))
        expected[t] = after = reward[t] + gamma * rest
    action = rng.integers(0, ACTIONS, (steps, envs))
    act = lambda obs, noise: algo.act(agent, (), obs, noise, clock(), "sample")[2]
    acted = jax.jit(lambda key: jax.vmap(act)(np.stack(seen[:-1]), algo.draw(key, steps, envs)))(
        jax.random.key(2))
    np.testing.assert_allclose(acted, best(np.stack(seen[:-1])), rtol=1e-4, atol=1e-5)
    step = Timestep(
        *map(jnp.asarray, (frame[:-1], action, successor, reward, ends == 1, ends == 2)), acted)
    rows = jax.jit(algo.prepare)(agent,
                                 Trajectory(step, (), jnp.asarray(first), jnp.asarray(seen[-1])))
    np.testing.assert_allclose(rows.target, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows.obs, np.stack(seen[:-1]), rtol=1e-6)


@pytest.mark.parametrize("dueling", [False, True])
def test_updates_of_pqn_equal_numpy(dueling, clock, rng):
    """Half the mean square, clipped; RAdam (Liu et al. 2020, algorithm 2) is plain momentum for its
    first five steps."""
    settings = dict(learning_rate=0.05, max_grad_norm=1.0, adam_epsilon=1e-3, dueling=dueling)
    algo = jf.PQN(hidden=(), num_envs=ROWS, num_steps=1, num_minibatches=1, **settings).bind(SPEC)
    agent, update = algo.init(jax.random.key(0)), jax.jit(algo.update)
    params = jax.tree.map(np.asarray, agent.params)
    m = {(n, k): 0.0 for n in ("head", "value")[: 1 + dueling] for k in ("kernel", "bias")}
    v, longest, clipped = dict(m), 2 / (1 - 0.999) - 1, []
    for step in range(1, 10):
        batch, progress = window(rng), 0.1 * step
        batch = Rows(batch.obs, batch.action, batch.reward[0] / step)
        q = linear(params, batch.obs)[np.arange(ROWS), batch.action]
        error = q - batch.target
        grads = gradients(batch, error / ROWS, dueling)
        norm = np.sqrt(sum((g**2).sum() for part in grads.values() for g in part.values()))
        clipped.append(norm > algo.max_grad_norm)
        length = longest - 2 * step * 0.999**step / (1 - 0.999**step)  # of the variance's average
        assert (length > 5) == (step > 5)
        for n, k in m:
            g = grads[n][k] * min(1.0, algo.max_grad_norm / norm)
            m[n, k] = 0.9 * m[n, k] + 0.1 * g
            v[n, k] = 0.999 * v[n, k] + 0.001 * g**2
            direction = m[n, k] / (1 - 0.9**step)
            if step > 5:
                rectified = (length - 4) * (length - 2) * longest / (
                    (longest - 4) * (longest - 2) * length)
                direction *= np.sqrt(rectified) / (
                    np.sqrt(v[n, k] / (1 - 0.999**step)) + algo.adam_epsilon)
            params[n]["params"][k] = (
                (params[n]["params"][k] - 0.05 * (1 - progress) * direction).astype(np.float32))
        agent, metrics, _ = update(agent, batch, jax.random.key(0), clock(0, step, progress))
        expected = {"loss": 0.5 * np.mean(error**2), "q_value": q.mean(),
                    "td_error": np.abs(error).mean()}
        assert {name: float(x.total) for name, x in metrics.items()} == pytest.approx(
            expected, rel=1e-4, abs=1e-5)
        for a, b in zip(jax.tree.leaves(agent.params), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert any(clipped) and not all(clipped)


def counts(opt_state):
    """Updates that the optimizer has seen."""
    return [int(x) for x in jax.tree.leaves(opt_state) if jnp.issubdtype(x.dtype, jnp.integer)]


def test_a_reset_takes_the_heads_and_the_optimizer(clock, rng):
    """Update 3 of every 4 (from 0) resets; then the target network moves to the result."""
    sizes = dict(hidden=(5,), dueling=True, target_period=1, reset_period=4)
    algo = dataclasses.replace(BASE, **sizes).bind(SPEC)
    never = jax.jit(dataclasses.replace(algo, reset_period=0).update)
    update, batches, key = jax.jit(algo.update), [window(rng) for _ in range(4)], jax.random.key
    init = jax.jit(algo.init)
    agent = init(key(0))
    for i in range(3):  # nothing happens before
        plain = never(agent, batches[i], key(i), clock(i, i))[0]
        agent = update(agent, batches[i], key(i), clock(i, i))[0]
        same(agent, plain)
        assert counts(agent.opt_state) == [i + 1]
    trained = never(agent, batches[3], key(3), clock(3, 3))[0]
    after, _, priority = update(agent, batches[3], key(3), clock(3, 3))
    same(after.params["torso"], trained.params["torso"])
    assert sorted(after.params) == ["head", "torso", "value"]
    for name in ("head", "value"):
        for fresh, other in ((after.params, trained.params), (after.params, init(key(0)).params)):
            assert (fresh[name]["params"]["kernel"] != other[name]["params"]["kernel"]).all()
        assert not np.asarray(after.params[name]["params"]["bias"]).any()  # as a new one's
        kernel = np.asarray(after.params[name]["params"]["kernel"])
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(kernel.shape[1]), atol=1e-5)
    same(after.opt_state, init_optimizer(algo, after.params))
    assert counts(after.opt_state) == [0] and counts(trained.opt_state) == [4]
    moved = jax.tree.map(lambda t, p: t + algo.target_tau * (p - t), agent.target, after.params)
    for x, y in zip(jax.tree.leaves(after.target), jax.tree.leaves(moved), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    again = update(agent, batches[3], key(4), clock(3, 3))[0]  # another key, other heads
    assert (
        again.params["head"]["params"]["kernel"] != after.params["head"]["params"]["kernel"]).all()
    later = update(after, batches[0], key(5), clock(4, 4))[0]
    assert counts(later.opt_state) == [1] and np.isfinite(priority).all()
    same(later, never(after, batches[0], key(5), clock(4, 4))[0])


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cls", family([jf.DQN, jf.IQN], 1))
def test_each_environment_has_its_own_noise_and_greedy_actions_have_none(cls, key, clock):
    algo = cls(hidden=(8,), noisy=True, epsilon_start=0.0, epsilon_end=0.0).bind(SPEC)
    agent, envs, keys = jax.jit(algo.init)(key), 16, 6
    obs = jnp.broadcast_to(jnp.array([0.3, -0.2, 0.5]), (envs, OBS))

    @jax.jit
    def actions(key):
        noise = algo.draw(key, keys, envs)
        one = lambda mode: jax.vmap(lambda x: algo.act(agent, (), obs, x, clock(), mode)[1])(noise)
        return one("sample"), one("greedy")

    sample, greedy = map(np.asarray, actions(key))  # [keys, envs]
    assert len(np.unique(greedy)) == 1
    # epsilon is zero: nothing but noise tells them apart
    assert (sample != sample[:, :1]).any(axis=1).sum() >= 2
    assert len(np.unique(sample, axis=0)) >= 2
    other, still = actions(jax.random.key(1))
    assert (other != sample).any() and (still == greedy).all()
    q = lambda key: algo.action_values(agent.params, obs[:1], key)
    noise = np.asarray(jax.jit(lambda keys: jax.vmap(q)(keys) - q(None))(jax.random.split(key, 50)))
    assert (noise.std(axis=0) > 0).all()  # of every action


def test_noisy_heads_on_a_plain_torso():
    """A torso may have no parameters; the heads are noisy all the same."""
    algo = dataclasses.replace(BASE, noisy=True).bind(SPEC)
    agent, obs = jax.jit(algo.init)(jax.random.key(0)), jnp.ones((1, OBS))
    assert "params" not in agent.params["torso"]
    values = jax.jit(algo.action_values)
    one, two = (np.asarray(values(agent.params, obs, jax.random.key(i))) for i in (0, 1))
    assert (one != two).all()


@pytest.mark.parametrize("cls", family([jf.DQN, jf.PQN], 1))
def test_an_update_depends_on_its_key_only_through_noise(cls, clock, rng):
    batch = window(rng)
    # the noise of the online network; the target's is below
    batch = batch._replace(boot=np.zeros(ROWS, np.float32))
    if cls is jf.PQN:
        batch = Rows(batch.obs, batch.action, batch.reward[0])
    for noisy in (False, True):
        algo = cls(hidden=(8,), noisy=noisy, **({"n_step": N} if cls is jf.DQN else {})).bind(SPEC)
        agent, update = jax.jit(algo.init)(jax.random.key(0)), jax.jit(algo.update)
        (a, metrics, _), (b, others, _) = (update(agent, batch, jax.random.key(i), clock())
                                           for i in (1, 2))
        changed = [bool((x != y).any())
                   for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
        assert any(changed) == noisy
        assert (float(metrics["loss"].total) != float(others["loss"].total)) == noisy
        if cls is jf.DQN:
            bootstrap = window(rng)
            plain = jax.jit(dataclasses.replace(algo, double=False).target)
            one, two = (np.asarray(plain(agent, bootstrap, jax.random.key(i)))[:, 0]
                        for i in (1, 2))
            np.testing.assert_array_equal(one != two, noisy & (bootstrap.boot > 0))


def test_a_weight_of_zero_moves_nothing(clock, rng):
    algo = BASE.bind(SPEC)
    agent = algo.init(jax.random.key(0))
    batch = window(rng)
    other = batch._replace(reward=batch.reward.copy())
    other.reward[:, 8] = 1e6  # the window of weight 0
    a, b = (jax.jit(algo.update)(agent, x, jax.random.key(0), clock(1, 1))[0].params
            for x in (batch, other))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_epsilon_falls_linearly_over_its_fraction_of_the_horizon(key, clock):
    n = 20_000
    algo = dataclasses.replace(BASE, epsilon_start=0.8, epsilon_end=0.1,
                               epsilon_fraction=0.5).bind(SPEC)
    agent = algo.init(key)
    # always prefers action 2
    head = {"kernel": jnp.zeros((OBS, ACTIONS)), "bias": jnp.array([0.0, 0.0, 1.0, 0.0])}
    agent = agent._replace(params=agent.params | {"head": {"params": head}})
    obs = jnp.ones((n, OBS))

    @functools.partial(jax.jit, static_argnums=1)
    def act(clock, mode):
        noise = jax.tree.map(lambda x: x[0], algo.draw(key, 1, n))
        return algo.act(agent, (), obs, noise, clock, mode)[1]

    for progress, epsilon in ((0.0, 0.8), (0.25, 0.45), (0.5, 0.1), (0.75, 0.1), (1.0, 0.1)):
        share = np.bincount(act(clock(progress=progress), "sample"), minlength=ACTIONS) / n
        expected = epsilon / ACTIONS + (1 - epsilon) * np.eye(ACTIONS)[2]
        np.testing.assert_allclose(share, expected, atol=0.015)
    assert (np.asarray(act(clock(), "greedy")) == 2).all()
    uniform = np.bincount(act(clock(progress=1.0), "random"), minlength=ACTIONS) / n
    np.testing.assert_allclose(uniform, 1 / ACTIONS, atol=0.015)


def test_no_mode_takes_an_illegal_action_and_no_bootstrap_values_one(key, clock):
    env = jf.make("probe/masked")
    algo = jf.DQN(hidden=(8,), epsilon_end=0.5).bind(env.spec)
    modes = "random", "sample", "greedy"

    @jax.jit
    def play(key):
        agent, (_, obs) = algo.init(key), env.init(key, 500)
        noise = jax.tree.map(lambda x: x[0], algo.draw(key, 1, 500))
        actions = [algo.act(agent, (), obs, noise, clock(progress=1.0), mode)[1] for mode in modes]
        return obs, actions, algo.action_values(agent.params, obs)

    obs, actions, q = play(key)
    mask, q = np.asarray(obs["action_mask"]), np.asarray(q)
    for action in map(np.asarray, actions):
        assert action.dtype == np.int32 and mask[np.arange(500), action].all()
    assert (q[~mask] == np.float32(ILLEGAL)).all() and (np.abs(q[mask]) < 100).all()


def test_the_target_is_a_copy_not_the_same_buffer():
    """One buffer twice in a donated state is an error."""
    agent = jax.jit(BASE.bind(SPEC).init)(jax.random.key(0))
    for p, t in zip(jax.tree.leaves(agent.params), jax.tree.leaves(agent.target), strict=True):
        assert p is not t and p.unsafe_buffer_pointer() != t.unsafe_buffer_pointer()
        np.testing.assert_array_equal(p, t)


def test_replay_stores_single_frames_and_no_successor():
    env = jf.make("probe/reward-at-end", stack=3)
    algo = jf.DQN(hidden=(4,), num_envs=4, buffer_size=400).bind(env.spec)
    assert algo.memory().stack == 3 and algo.warmup_steps >= 4 * (1 + 3)
    run = tree.as_float32(iteration.Run(env, algo, 100.0))
    memory = jax.eval_shape(lambda: iteration.init(run, jax.random.key(0))).memory
    assert memory.obs.shape == (100, 4, 4)
    assert tree.nbytes(memory._replace(next_obs=())) == 400 * (4 * 4 + 4 + 4 + 1 + 1)


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        (jf.EnvSpec("pendulum", jf.Box(-1.0, 1.0, (3,)), jf.Box(-2.0, 2.0, (1,)), 200), 0.03),
        (jf.EnvSpec("atari", jf.Box(0, 255, (84, 84, 1), "uint8"), jf.Discrete(6), 27_000, stack=4),
         0.001),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_successors_of_truncated_rows_take_little_memory(spec, share):
    algo = jf.SAC if spec.name == "pendulum" else jf.DQN
    memory = algo(num_envs=8, buffer_size=1_000_000).bind(spec).memory()
    shape = lambda space: jax.ShapeDtypeStruct((memory.num_steps, memory.num_envs, *space.shape),
                                               space.dtype)
    reward, flag = (shape(jf.Box(0, 1, (), dtype)) for dtype in ("float32", "bool"))
    row = Row(shape(spec.observation), shape(spec.action), reward, flag, flag,
              next_obs=shape(spec.observation))
    with_them, without = (jax.eval_shape(memory.init, x) for x in (row, row._replace(next_obs=())))
    assert 0 < tree.nbytes(with_them) / tree.nbytes(without) - 1 < share


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"buffer_size must be at least 32, .*got 31"):
        jf.DQN(num_envs=8, n_step=3, buffer_size=31)
    # frames of a stack take rows too
    with pytest.raises(ConfigError, match=r"buffer_size must be at least 40, .*got 16"):
        jf.DQN(num_envs=8, buffer_size=16, batch_size=8).bind(dataclasses.replace(SPEC, stack=4))
    # two whole blocks of 64
    with pytest.raises(ConfigError, match=r"batch_size must be at most 128, got 190"):
        jf.DQN(num_envs=8, num_steps=8, buffer_size=190, batch_size=190)

    @jf.settings
    class Greedy(jf.DQN):  # of a user: its memory is its own
        def memory(self):
            return dataclasses.replace(super().memory(), capacity=100)

    with pytest.raises(ConfigError,
                       match=r"batch_size must be at most 96, got 128: capacity = 100"):
        Greedy().bind(SPEC)
    with pytest.raises(ConfigError, match=r"target_tau must be .*got 0"):
        jf.DQN(target_tau=0.0)
    with pytest.raises(ConfigError, match=r"v_max must be .* finite .*got 3e\+38"):
        jf.C51(v_min=-3e38, v_max=3e38)
    for cls in (jf.C51, jf.QRDQN, jf.IQN):
        with pytest.raises(ConfigError, match=rf"huber must be False, got True.* {cls.name}"):
            cls(huber=True)
    with pytest.raises(ConfigError, match="dqn needs Discrete actions"):
        jf.DQN().bind(dataclasses.replace(SPEC, action=Box(-1, 1, (1,))))
