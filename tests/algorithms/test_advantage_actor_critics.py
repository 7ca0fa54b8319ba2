"""A2C and IMPALA against losses written out by hand, against each other, and on what an older agent
did."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast import tree
from jaxrl_fast.algorithms import a2c, impala
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.ops import optim
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.types import EnvSpec

OBS, T, B, N = 3, 6, 2, 12
BASE = dict(
    num_envs=B, num_steps=T, hidden=(5,), learning_rate=0.02, discount=0.9,
    entropy_coefficient=0.03, value_coefficient=0.7, max_grad_norm=0.3,
)  # fmt: skip
CASES = {
    "a2c": (jf.A2C(**BASE), Discrete(4)),
    "impala": (jf.IMPALA(**BASE, rho_bar=1.2, c_bar=0.9, gae_lambda=0.8), Discrete(4)),
    "impala on a box, one torso, adam": (
        jf.IMPALA(**BASE, shared_torso=True, rmsprop=False, normalize_advantage=True,
                  anneal_learning_rate=False),
        Box(-1.0, 1.0, (2,)),
    ),
}


def dense(params, x):
    return x @ params["params"]["kernel"] + params["params"]["bias"]


def forward(params, obs, action, algo):
    """log-probability of the action, entropy, value [N]; nothing of the library called."""
    # [2, ...]: the actor's and the critic's, unless they share one
    layer = params["torso"]["params"]["Dense_0"]
    torso = lambda i: {"params": layer if algo.shared_torso
                       else {k: v[i] for k, v in layer.items()}}
    features, critic = (jnp.tanh(dense(torso(i), obs)) for i in (0, 1))
    out, value = dense(params["policy"], features), dense(params["value"], critic)[:, 0]
    if "log_std" not in params:
        log_p = out - jnp.log(jnp.exp(out).sum(1, keepdims=True))
        return log_p[jnp.arange(N), action], -(jnp.exp(log_p) * log_p).sum(1), value
    std = jnp.exp(params["log_std"])
    density = jnp.exp(-((action - out) ** 2) / (2 * std**2)) / (std * jnp.sqrt(2 * jnp.pi))
    return jnp.log(density).sum(1), jnp.full(
        N, jnp.log(std * jnp.sqrt(2 * jnp.pi * jnp.e)).sum()), value


def vtrace(batch, value, beyond, ratio, algo):
    """Backwards over [T, B], from the values of obs and of next_obs."""
    rho, c = np.minimum(ratio, algo.rho_bar), algo.gae_lambda * np.minimum(ratio, algo.c_bar)
    target, advantage = np.zeros((T, B)), np.zeros((T, B))
    for b in range(B):
        for t in reversed(range(T)):
            after = 0.0 if batch.terminated[t, b] else float(beyond[t, b])
            more = 0.0
            if t < T - 1 and not (batch.terminated[t, b] or batch.truncated[t, b]):
                more = target[t + 1, b] - value[t + 1, b]
            delta = rho[t, b] * (batch.reward[t, b] + algo.discount * after - value[t, b])
            target[t, b] = value[t, b] + delta + algo.discount * c[t, b] * more
            advantage[t, b] = delta + rho[t, b] * algo.discount * algo.gae_lambda * more
    return target, advantage


@pytest.mark.parametrize("case", CASES)
def test_an_update_equals_a_reference_written_by_hand(case, key, clock):
    algo, space = CASES[case]
    algo = algo.bind(EnvSpec("x", Box(-9, 9, (OBS,)), space))
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    agent = jax.jit(algo.init)(key)
    agent = agent._replace(params=jax.tree.map(lambda p: p + 0.3 * normal(*p.shape), agent.params))
    action = (
        rng.integers(0, 4, (T, B)).astype(np.int32) if isinstance(space, Discrete)
        else normal(T, B, 2)
    )
    obs, flat = normal(T, B, OBS), lambda x: x.reshape((N, *x.shape[2:]))
    look = jax.jit(lambda obs: forward(agent.params, flat(obs), flat(action), algo))
    log_prob, _, value = (np.asarray(x).reshape(T, B) for x in look(obs))
    if isinstance(algo, jf.IMPALA):
        # a half of the rows end; successors of the others are the next row
        ends = rng.integers(0, 4, (T, B))
        terminated, truncated = ends == 0, ends == 1
        following = np.concatenate([obs[1:], normal(1, B, OBS)])
        next_obs = np.where((terminated | truncated)[..., None], normal(T, B, OBS), following)
        beyond = np.asarray(look(next_obs)[2]).reshape(T, B)
        log_ratio = 0.4 * normal(T, B)
        batch = impala.Rows(obs, action, log_prob - log_ratio, normal(T, B), terminated, truncated,
                            next_obs)
        target, advantage = vtrace(batch, value, beyond, np.exp(log_ratio), algo)
    else:
        batch = a2c.Rows(*map(flat, (obs, action, normal(T, B), normal(T, B))))
        target, advantage = batch.value + batch.advantage, batch.advantage
    if algo.normalize_advantage:
        advantage = (advantage - advantage.mean()) / advantage.std()
    target, advantage = jnp.float32(target.reshape(-1)), jnp.float32(advantage.reshape(-1))

    def loss_fn(params):
        log_prob, entropy, value = forward(params, flat(obs), flat(action), algo)
        policy_loss, value_loss = -(log_prob * advantage).mean(), 0.5 * (
            (value - target) ** 2).mean()
        entropy = entropy.mean()
        return policy_loss + 0.7 * value_loss - 0.03 * entropy, (policy_loss, value_loss, entropy)

    grads, losses = jax.jit(jax.grad(loss_fn, has_aux=True))(agent.params)
    assert float(optim.global_norm(grads)) > 0.3  # so clipping counts
    rate = algo.learning_rate * (0.75 if algo.anneal_learning_rate else 1.0)
    expected, _ = jax.jit(lambda *args: optim.apply(algo.default_optimizer, rate, *args))(
        agent.params, grads, agent.opt_state)
    updated, metrics, _ = jax.jit(algo.update)(agent, batch, key, clock(0, 0, 0.25))
    named = dict(zip(("policy_loss", "value_loss", "entropy"), losses, strict=True))
    if isinstance(algo, jf.IMPALA):
        ratio = np.exp(log_ratio)
        named |= {"rho": ratio.mean(), "rho_clipped": (ratio > algo.rho_bar).mean()}
        named |= {"approx_kl": (ratio - 1 - log_ratio).mean()}
        assert 0 < named["rho_clipped"] < 1
    assert metrics.keys() == named.keys()
    for name, x in named.items():
        assert float(metrics[name].total) == pytest.approx(float(x), rel=1e-4, abs=1e-6), name
    for ours, theirs in zip(jax.tree.leaves(updated.params), jax.tree.leaves(expected),
                            strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)


@pytest.mark.matrix("test_an_update_equals_a_reference_written_by_hand")
def test_on_policy_impala_is_a2c(key, compiled):
    """One update a rollout: ratios are 1 and V-trace is GAE. Both kinds of end, stacked frames,
    running statistics.

    A member of a population on one side and a single run on the other; both iterate over one trace
    of the update.
    """
    env = jf.make("CartPole-v1", max_steps_in_episode=12, stack=2)
    settings = dict(num_envs=4, num_steps=8, gae_lambda=0.9, hidden=(8,),
                    normalize_observations=True, learning_rate=0.01)
    traced = []

    @jf.settings
    class Traced(jf.IMPALA):
        def update(self, *args):
            traced.append(1)
            return super().update(*args)

    train = lambda cls: jf.make_train(cls(**settings), env, total_steps=256, log_every=256)
    ours, metrics = tree.take(
        compiled(jax.vmap(train(Traced)), jnp.stack([jax.random.key(1), key])), 1)
    assert len(traced) == 1
    theirs, others = compiled(train(jf.A2C), key)
    assert float(metrics["rho"][0]) == pytest.approx(1, abs=1e-5) and float(
        metrics["rho_clipped"][0]) == 0
    assert abs(float(metrics["approx_kl"][0])) < 1e-6
    for name in others.keys() & metrics.keys():
        np.testing.assert_allclose(metrics[name], others[name], rtol=1e-4, atol=1e-5, err_msg=name)
    for a, b in zip(jax.tree.leaves(ours.agent), jax.tree.leaves(theirs.agent), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_impala_weights_an_older_rollout_by_the_behaviour_policy(key, clock):
    """A rollout as a loop over several hosts hands it over; squashed actions need their draw for
    the log-probability."""
    env = jf.make("probe/continuous")
    algo = jf.IMPALA(num_envs=4, num_steps=3, hidden=(4,), squash=True).bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, 10.0))

    @jax.jit
    def play(key):
        state = iteration.init(run, key)
        draws = iteration.draw(run, key, jnp.int32(0))
        actor = rollout.Actor(state.env, state.obs, state.carry)
        old = state.agent
        new = old._replace(params=jax.tree.map(lambda x: x + 0.1, old.params))
        _, trajectory = rollout.collect(env, algo, old, actor, draws.rollout, clock(), "sample")
        rows = algo.prepare(new, trajectory)
        metrics = algo.update(new, rows, key, clock())[1]
        drawn = trajectory.steps.extras[1]
        log_probs = (
            [jax.vmap(
                lambda obs, p=a.params: algo.networks.policy(p, obs)
            )(rows.obs).log_prob(drawn) for a in (old, new)]
        )
        return rows.log_prob, log_probs, metrics

    log_prob, (behaviour, current), metrics = play(key)
    np.testing.assert_allclose(log_prob, behaviour, rtol=1e-5, atol=1e-6)
    ratio = np.exp(np.asarray(current) - np.asarray(behaviour))
    assert ratio.std() > 0.01
    assert float(metrics["rho"].total) == pytest.approx(ratio.mean(), rel=1e-5)
    assert float(metrics["rho_clipped"].total) == pytest.approx((ratio > 1.001).mean())
