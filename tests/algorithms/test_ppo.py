"""PPO against a reference written out by hand, and the details that its learning curves do not
show."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.common.normalize import normalize_obs, normalized
from jaxrl_fast.algorithms.ppo import Rows, Steps
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.networks import make_torso
from jaxrl_fast.ops import optim
from jaxrl_fast.spaces import Box, Dict, Discrete
from jaxrl_fast.types import EnvSpec

OBS, ROWS, TIMES = 3, 12, (6, 2)  # whole environments: [T, b]
BASE = jf.PPO(
    num_envs=4, num_steps=6, num_minibatches=2, hidden=(5,), learning_rate=0.02,
    entropy_coefficient=0.03,
    value_coefficient=0.7, clip_ratio=0.1, max_grad_norm=0.3, adam_epsilon=1e-5,
)  # fmt: skip
VARIANTS = {
    "discrete": ({}, Discrete(4)),
    "shared, neither value clipping nor normalisation": (
        {"shared_torso": True, "clip_value": False, "normalize_advantage": False,
         "max_grad_norm": 1e3}, Discrete(4)
    ),
    "box, the entropy annealed from then on": (
        {"anneal_learning_rate": False, "learning_rate": 0.006, "anneal_entropy_from": 0.375,
         "entropy_coefficient": 0.3},
        Box(-1.0, 1.0, (2,)),
    ),
    "squashed box, deviations from the head": (
        {"squash": True, "state_dependent_std": True, "initial_log_std": -0.5,
         "learning_rate": 0.006}, Box(-1.0, 1.0, (2,))
    ),
    "box, recomputed advantages": ({
        "recompute_advantage": True, "learning_rate": 0.006, "discount": 0.9}, Box(-1.0, 1.0,
        (2,))),
    "squashed box, recomputed advantages": (
        {"recompute_advantage": True, "squash": True, "clip_value": False, "learning_rate": 0.006},
        Box(-1.0, 1.0, (2,))
    ),
}  # fmt: skip


def dense(params, x):
    return x @ params["params"]["kernel"] + params["params"]["bias"]


def anew(value, steps, algo):
    """Targets and advantages by these values, row by row from the last; [T, b]."""
    target, advantage = [], []
    for t in reversed(range(len(value))):
        going = ~steps.done[t] if t < len(value) - 1 else jnp.zeros_like(steps.done[t])
        ahead, excess = (value[t + 1], target[0] - value[t + 1]) if target else (0.0, 0.0)
        beyond = jnp.where(going, ahead, steps.next_value[t]) * (1.0 - steps.terminated[t])
        delta = steps.reward[t] + algo.discount * beyond - value[t]
        target.insert(0, value[t] + delta + algo.discount * algo.gae_lambda * going * excess)
        advantage.insert(0, delta + algo.discount * going * excess)
    return jnp.stack(target), jnp.stack(advantage)


def reference_loss(params, batch, algo, discrete, noise, progress):
    """Every formula spelled out, nothing of the library called."""
    # [2, ...]: the actor's and the critic's, unless they share one
    layer = params["torso"]["params"]["Dense_0"]
    torso = lambda i: jnp.tanh(dense({
        "params": layer if algo.shared_torso else {k: v[i] for k, v in layer.items()}},
        batch.obs))
    features = torso(0)
    value = dense(params["value"], torso(1))[:, 0]
    out = dense(params["policy"], features)
    if discrete:
        log_p = out - jnp.log(jnp.exp(out).sum(1, keepdims=True))
        log_prob = log_p[jnp.arange(ROWS), batch.action]
        entropy = -(jnp.exp(log_p) * log_p).sum(1)
    else:
        if algo.state_dependent_std:
            out, std = out[:, :2], jnp.exp(out[:, 2:] + algo.initial_log_std)
        else:
            std = jnp.exp(params["log_std"])
        density = jnp.exp(-((batch.action - out) ** 2) / (2 * std**2)) / (
            std * jnp.sqrt(2 * jnp.pi))
        log_prob = jnp.log(density).sum(1)
        entropy = (0.5 * jnp.log(2 * jnp.pi * jnp.e * std**2) * jnp.ones((ROWS, 2))).sum(1)
        if algo.squash:
            log_prob -= jnp.log(1 - jnp.tanh(batch.action) ** 2).sum(1)
            entropy += jnp.log(1 - jnp.tanh(out + std * noise) ** 2).sum(1)
    advantage, target = batch.advantage, batch.advantage + batch.value
    if algo.recompute_advantage:
        values = jax.lax.stop_gradient(value).reshape(batch.steps.done.shape)
        target, advantage = (x.ravel() for x in anew(values, batch.steps, algo))
    if algo.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob) / jnp.exp(batch.log_prob)
    low, high = 1 - algo.clip_ratio, 1 + algo.clip_ratio
    policy_loss = -jnp.where(
        advantage > 0, jnp.minimum(ratio, high) * advantage, jnp.maximum(ratio, low) * advantage
    ).mean()
    error = (value - target) ** 2
    if algo.clip_value:
        near = jnp.clip(value, batch.value - algo.clip_ratio, batch.value + algo.clip_ratio)
        error = jnp.maximum(error, (near - target) ** 2)
    value_loss = 0.5 * error.mean()
    bonus = algo.entropy_coefficient * (0.8 if progress == 0.5 and algo.anneal_entropy_from < 1
                                        else 1.0)
    loss = policy_loss + algo.value_coefficient * value_loss - bonus * entropy.mean()
    clipped = (ratio < low) | (ratio > high)
    return loss, (policy_loss, value_loss, entropy.mean(), clipped.mean())


def reference_step(params, grads, moments, rate, clip, eps, step):
    """Global-norm clipping and Adam (Kingma & Ba 2015, algorithm 1) in NumPy."""
    leaves, structure = jax.tree.flatten(params)
    grads = [np.asarray(g, np.float64) for g in jax.tree.leaves(grads)]
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    grads = [g * min(1.0, clip / norm) for g in grads]
    moments = [(0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g)
               for (m, v), g in zip(moments, grads, strict=True)]
    out = []
    for p, (m, v) in zip(leaves, moments, strict=True):
        direction = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + eps)
        out.append(np.asarray(p, np.float64) - rate * direction)
    return jax.tree.unflatten(structure, [x.astype(np.float32) for x in out]), moments, norm


@pytest.mark.parametrize("variant", family(VARIANTS, [
    "discrete", "squashed box, recomputed advantages"]))
def test_two_updates_equal_a_reference_written_by_hand(variant, key, clock):
    settings, action = VARIANTS[variant]
    discrete = isinstance(action, Discrete)
    algo = dataclasses.replace(BASE, **settings).bind(EnvSpec("x", Box(-9, 9, (OBS,)), action))
    agent = jax.jit(algo.init)(key)
    rng = np.random.default_rng(0)
    shake = lambda p: p + 0.3 * rng.normal(size=p.shape).astype(np.float32)
    agent = agent._replace(params=jax.tree.map(shake, agent.params))
    update = jax.jit(algo.update)
    params, moments = agent.params, [(0.0, 0.0)] * len(jax.tree.leaves(agent.params))
    norms, clipped, noise = [], [], random.normal(key, (ROWS, 2))
    for i, progress in enumerate((0.25, 0.5)):
        act = (
            rng.integers(0, 4, ROWS).astype(np.int32) if discrete
            else rng.normal(size=(ROWS, 2)).astype(np.float32)
        )
        batch = Rows(
            *(rng.normal(size=(ROWS, *s)).astype(np.float32) for s in ((OBS,), (), (), (), ())))
        if algo.recompute_advantage:
            ends = rng.integers(0, 6, TIMES)  # 0: terminated, 1: truncated
            steps = (rng.normal(size=TIMES).astype(np.float32) for _ in range(2))
            batch = batch._replace(steps=Steps(next(steps), ends == 0, ends < 2, next(steps)))
        # only to be near it: some ratios clip, some do not
        now = algo.networks.policy(agent.params, batch.obs).log_prob(act)
        batch = batch._replace(action=act, log_prob=now + 0.3 * batch.log_prob)
        loss = functools.partial(reference_loss, algo=algo, discrete=discrete, progress=progress)
        grads, (policy_loss, value_loss, entropy, fraction) = jax.jit(
            jax.grad(loss, has_aux=True))(params, batch, noise=noise)
        rate = algo.learning_rate * ((1 - progress) if algo.anneal_learning_rate else 1.0)
        params, moments, norm = reference_step(
            params, grads, moments, rate, algo.max_grad_norm, algo.adam_epsilon, i + 1
        )
        norms.append(norm)
        clipped.append(float(fraction))
        in_time = lambda x: x if x.shape == TIMES else x.reshape(TIMES + x.shape[1:])
        batch = jax.tree.map(in_time, batch) if algo.recompute_advantage else batch
        agent, metrics, _ = update(agent, batch, key, clock(i, i, progress))
        for name, expected in (
            ("policy_loss", policy_loss), ("value_loss", value_loss), ("entropy", entropy),
            ("clip_fraction", fraction)
        ):  # fmt: skip
            near = pytest.approx(float(expected), rel=1e-4, abs=1e-6)
            assert float(metrics[name].total) == near, name
        for ours, theirs in zip(jax.tree.leaves(agent.params), jax.tree.leaves(params),
                                strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)
    # the case is worth something: some ratios are clipped, some are not
    assert 0 < max(clipped) < 1
    if variant != list(VARIANTS)[1]:
        assert max(norms) > algo.max_grad_norm


@pytest.mark.parametrize(("start", "weights"),
                         [(0.0, [1, 0.5, 0]), (0.5, [1, 1, 0]), (1.0, [1, 1, 1])])
def test_the_weight_of_the_entropy(start, weights, clock):
    """1 is never: also not in a run that goes on after its horizon, where the progress stays 1."""
    algo = dataclasses.replace(BASE, anneal_entropy_from=start)
    found = [float(algo.entropy_weight(clock(0, 0, progress))) for progress in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([0.03 * w for w in weights])


FRESH = {
    "discrete": ("CartPole-v1", {"num_steps": 24}),
    "box, normalised": ("probe/continuous", {"normalize_observations": True}),
    "box, squashed": ("probe/continuous",
                      {"squash": True, "state_dependent_std": True,
                       "normalize_observations": True}),
    "multi-discrete, shared": ("probe/multi-discrete", {"shared_torso": True}),
    "a value of its own width": ("probe/continuous",
                                 {"value_hidden": (8, 24), "normalize_observations": True}),
    "masked, normalised": ("probe/masked", {"normalize_observations": True}),
    "stacked": ("probe/reward-at-end", {"stack": 3}),
    "recomputed advantages": ("probe/continuous",
                              {"recompute_advantage": True, "normalize_observations": True}),
}


def test_value_hidden_sets_the_value_torso():
    env = jf.make("CartPole-v1")
    agent = jax.eval_shape(jf.PPO(hidden=(16,), value_hidden=(8, 24)).bind(env.spec).init,
                           jax.random.key(0))
    actor, critic = agent.params["torso"]
    shapes = lambda part: sorted(x.shape for x in jax.tree.leaves(part) if x.ndim == 2)
    assert shapes(actor) == [(4, 16)] and shapes(critic) == [(4, 8), (8, 24)]
    assert (
        shapes(agent.params["policy"]) == [(16, 2)] and shapes(agent.params["value"]) == [(24, 1)])
    with pytest.raises(jf.ConfigError, match="value_hidden"):
        jf.PPO(value_hidden=(8,), shared_torso=True).bind(env.spec)


TOLD_BY_OTHERS = ("discrete", "box, normalised", "multi-discrete, shared",
                  "a value of its own width")


@pytest.mark.parametrize(
    "case", family(
        [pytest.param(x, marks=pytest.mark.slow) if x in TOLD_BY_OTHERS else x for x in FRESH],
        ["masked, normalised"]))
def test_the_first_minibatch_has_ratio_one(case, compiled):
    """Also after several iterations, when the observation statistics have moved."""
    name, settings = FRESH[case]
    settings = dict(settings)
    env = jf.make(name, **({"stack": settings.pop("stack")} if "stack" in settings else {}))
    algo = jf.PPO(num_envs=8, num_minibatches=2, hidden=(16,), learning_rate=0.01,
                  **{"num_steps": 4} | settings)
    algo = algo.bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, 100.0))

    def first_minibatch(state, t):
        draws = iteration.draw(run, state.key, t)
        actor = rollout.Actor(state.env, state.obs, state.carry)
        clock = iteration.clock_at(run, t)
        _, trajectory = rollout.collect(env, algo, state.agent, actor, draws.rollout, clock,
                                        "sample")
        rows = algo.prepare(state.agent, trajectory)
        memory = algo.memory()
        batch, _ = memory.fetch(memory.add(memory.init(rows), rows, t), draws.plan[0])
        metrics = algo.update(state.agent, batch, state.key, clock)[1]
        return iteration.iteration(run, state, draws, t, True)[0], (rows.obs, metrics)

    def three(key):
        first = iteration.init(run, key)
        last, seen = jax.lax.scan(first_minibatch, first, jnp.arange(3))
        return first.agent, seen, last.agent

    first, (seen, metrics), last = compiled(three, jax.random.key(3))
    np.testing.assert_array_equal(metrics["clip_fraction"].total, np.zeros(3))
    assert np.abs(metrics["approx_kl"].total).max() < 1e-6
    moved = [np.abs(a - b).max()
             for a, b in zip(*map(jax.tree.leaves, (first.params, last.params)), strict=True)]
    assert max(moved) > 1e-3  # it has learned in between
    # the statistics hold exactly the rows of the finished iterations, raw
    if algo.normalize_observations:
        flat = lambda x: np.asarray(x, np.float64).reshape(-1, x.shape[-1])
        raw = jax.tree.map(flat, seen)
        assert float(last.moments.count) == 3 * 8 * 4
        for mean, x in zip(jax.tree.leaves(last.moments.mean), jax.tree.leaves(raw), strict=True):
            np.testing.assert_allclose(mean, x.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.matrix("test_two_updates_equal_a_reference_written_by_hand")
def test_recomputed_advantages_begin_with_the_targets_of_the_rollout(key, clock, compiled):
    """Before any learning they are equal; other values give others. Poles fall, and episodes run
    out of time."""
    env = jf.make("CartPole-v1", max_steps_in_episode=12)
    settings = dict(num_envs=8, num_steps=24, num_minibatches=4, hidden=(8,), discount=0.9,
                    reward_scale=0.5)
    algo = jf.PPO(recompute_advantage=True, **settings).bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, 10.0))

    def play(key):
        state = iteration.init(run, key)
        draws = iteration.draw(run, key, jnp.int32(0))
        actor = rollout.Actor(state.env, state.obs, state.carry)
        _, trajectory = rollout.collect(env, algo, state.agent, actor, draws.rollout, clock(),
                                        "sample")
        rows = algo.prepare(state.agent, trajectory)
        memory = algo.memory()
        batch, _ = memory.fetch(memory.add(memory.init(rows), rows, 0), draws.plan[0])
        return rows, batch, algo.targets(batch, batch.value), algo.targets(batch, batch.value + 1.0)

    rows, batch, (target, advantage), (moved, _) = compiled(play, key)
    assert rows.steps.terminated.any() and (rows.steps.done & ~rows.steps.terminated).any()
    assert batch.obs.shape == (24, 2, 4)
    np.testing.assert_allclose(target, batch.value + batch.advantage, rtol=1e-5, atol=1e-5)
    going = ~batch.steps.done[:-1]
    ahead = np.where(going, batch.value[1:] + batch.advantage[1:], batch.steps.next_value[:-1])
    expected = batch.steps.reward + 0.9 * np.where(batch.steps.terminated, 0,
                                                   np.append(ahead, batch.steps.next_value[-1:], 0))
    np.testing.assert_allclose(advantage, expected - batch.value, rtol=1e-5, atol=1e-5)
    # nothing of the new values lies behind the end of an episode or of the rollout
    last = np.array(batch.steps.done)
    last[-1] = True
    np.testing.assert_allclose(moved[last], target[last], rtol=1e-5, atol=1e-5)
    assert np.abs(moved - target)[:-1][going].min() > 0.01


def test_statistics_change_after_the_updates_and_not_in_them(key, clock):
    algo = jf.PPO(num_envs=2, num_steps=2, num_minibatches=1, hidden=(4,),
                  normalize_observations=True)
    algo = algo.bind(EnvSpec("x", Box(-9, 9, (OBS,)), Discrete(2)))
    agent = jax.jit(algo.init)(key)
    agent = agent._replace(moments=agent.moments.update(jnp.arange(12.0).reshape(4, 3)))
    batch = Rows(jnp.ones((4, OBS)), jnp.zeros(4, jnp.int32), jnp.zeros(4), jnp.zeros(4),
                 jnp.arange(4.0))
    updated = jax.jit(algo.update)(agent, batch, key, clock())[0]
    for a, b in zip(*map(jax.tree.leaves, (agent.moments, updated.moments)), strict=True):
        np.testing.assert_array_equal(a, b)
    rows = jax.tree.map(lambda x: x.reshape((2, 2, *x.shape[1:])), batch)
    assert float(algo.finish(updated, rows).moments.count) == 8


def test_normalisation_leaves_masks_images_and_integers_alone():
    space = Dict.of(
        action_mask=Box(0, 1, (4,), jnp.bool_), image=Box(0, 255, (2, 2, 1), jnp.uint8),
        place=Discrete(3), speed=Box(-9, 9, (2,)),
    )  # fmt: skip
    algo = jf.PPO(normalize_observations=True, hidden=(4,)).bind(EnvSpec("x", space, Discrete(4)))
    obs = space.sample(jax.random.key(1), (50,))

    def look(key, obs):
        return normalize_obs(algo.spec.observation, algo.init(key).moments.update(obs), obs)

    view = jax.jit(look)(jax.random.key(0), obs)
    for name in ("action_mask", "image", "place"):
        assert view[name].dtype == obs[name].dtype
        np.testing.assert_array_equal(view[name], obs[name])
    np.testing.assert_allclose(view["speed"].mean(0), 0, atol=1e-5)


@pytest.mark.parametrize("normalize", family([True, False], 1))
def test_no_mode_takes_an_illegal_action(normalize, key, clock):
    env = jf.make("probe/masked")
    algo = jf.PPO(hidden=(8,), normalize_observations=normalize).bind(env.spec)

    @jax.jit
    def play(key):
        agent, (_, obs) = algo.init(key), env.init(key, 500)
        if normalize:
            agent = agent._replace(moments=agent.moments.update(obs))
        noise = jax.tree.map(lambda x: x[0], algo.draw(key, 1, 500))
        modes = "random", "sample", "greedy"
        return obs["action_mask"], [algo.act(agent, (), obs, noise, clock(), mode)[1]
                                    for mode in modes]

    mask, actions = jax.device_get(play(key))
    assert len(actions) == 3 and all(mask[np.arange(500), action].all() for action in actions)


def test_the_learning_rate_counts_optimizer_steps():
    """8 updates an iteration, a horizon of 4 iterations: 1, 31/32, ... 1/32 of the rate, then 0."""
    env = jf.make("probe/constant-reward")
    algo = (
        jf.PPO(num_envs=2, num_steps=4, num_epochs=4, num_minibatches=2, hidden=(4,)).bind(env.spec)
    )
    run = tree.as_float32(iteration.Run(env, algo, 4.0))
    clocks = [iteration.clock_at(run, jnp.int32(t), jnp.int32(i)) for t in range(5)
              for i in range(8)]
    np.testing.assert_allclose([c.progress for c in clocks], np.minimum(np.arange(40) / 32, 1.0))
    assert [int(c.update) for c in clocks] == list(range(40))
    assert float(clocks[0].anneal(1.0, 0.2, 0.5)) == 1.0
    np.testing.assert_allclose(clocks[8].anneal(1.0, 0.2, 0.5), 0.6)
    np.testing.assert_allclose([clocks[16].anneal(1.0, 0.2, 0.5), clocks[39].anneal(1.0, 0.2, 0.5)],
                               0.2)


def sampled(algo, key, clock):
    """(carry, action, extras) of a new agent in 64 environments, and the noise."""

    @jax.jit
    def play(key):
        noise = jax.tree.map(lambda x: x[0], algo.draw(key, 1, 64))
        found = algo.act(algo.init(key), (), jnp.ones((64, OBS)), noise, clock, "sample")
        return *found, noise

    return play(key)


def test_log_probabilities_are_of_the_action_before_any_clipping(key, clock):
    """A Gaussian policy's action is stored as it was drawn, however far outside the box."""
    spec = EnvSpec("x", Box(-9, 9, (OBS,)), Box(-1, 1, (2,)))
    algo = jf.PPO(num_envs=64, hidden=(4,), initial_log_std=2.0).bind(spec)
    action = sampled(algo, key, clock())[1]
    assert action.shape == (64, 2) and np.abs(action).max() > 3
    np.testing.assert_allclose(np.std(action), np.exp(2.0), rtol=0.3)


@pytest.mark.parametrize(("num_envs", "num_steps", "recompute", "number"), [
    (4, 128, False, 4), (8, 128, False, 8), (16, 128, False, 16), (2048, 128, False, 16),
    (10, 150, False, 10), (2, 4, False, 4), (24, 64, True, 12), (4, 512, True, 4),
])  # fmt: skip
def test_a_minibatch_has_128_rows_by_default(num_envs, num_steps, recompute, number):
    algo = jf.PPO(num_envs=num_envs, num_steps=num_steps, recompute_advantage=recompute)
    assert algo.memory().num_minibatches == number and algo.updates == 4 * number
    assert dataclasses.replace(algo, num_minibatches=2).updates == 8


def test_sizes_and_spaces_that_do_not_fit_are_refused():
    for number in (0, -4):
        with pytest.raises(ConfigError, match=f"num_minibatches must be .*from 1.*got {number}"):
            dataclasses.replace(BASE, num_minibatches=number)
    with pytest.raises(
        ConfigError, match=r"num_minibatches must be a divisor of num_envs \* num_steps = 24, got 5"
    ):
        dataclasses.replace(BASE, num_minibatches=5)
    with pytest.raises(ConfigError, match=r"a divisor of num_envs \(whole environments .*\) = 4"):
        dataclasses.replace(BASE, num_minibatches=8, recompute_advantage=True)
    spec = EnvSpec("x", Dict.of(action_mask=Box(0, 1, (2,), jnp.bool_)), Box(-1, 1, (2,)))
    with pytest.raises(ConfigError, match="action_mask needs Discrete actions"):
        BASE.bind(spec)
    with pytest.raises(ConfigError, match="network must be 'mlp'"):
        dataclasses.replace(BASE, network="cnn").bind(EnvSpec("x", Box(-1, 1, (2,)), Discrete(2)))


@pytest.mark.matrix("tests/engine/test_populations.py::test_a_sweep_is_a_vmap_and_one_compile")
def test_float_settings_are_leaves_that_can_be_swept(key, clock):
    """One compiled update, three learning rates, three different steps."""
    spec = EnvSpec("x", Box(-9, 9, (OBS,)), Discrete(2))
    rates = jnp.array([0.0, 0.01, 0.02])
    algo = dataclasses.replace(BASE, anneal_learning_rate=False, learning_rate=rates).bind(spec)
    agent = jax.jit(BASE.bind(spec).init)(key)
    batch = Rows(jnp.ones((4, OBS)), jnp.zeros(4, jnp.int32), jnp.zeros(4), jnp.zeros(4),
                 jnp.arange(4.0))
    one = lambda rate: dataclasses.replace(algo, learning_rate=rate).update(
        agent, batch, key, clock())[0].params
    params = jax.jit(jax.vmap(one))(rates)
    distance = jax.vmap(
        lambda p: optim.global_norm(jax.tree.map(lambda a, b: a - b, p, agent.params)))(params)
    np.testing.assert_allclose(distance / distance[1], [0, 1, 2], rtol=1e-3)


def test_reward_scale_does_not_change_the_logs(key):
    """The same learning, and returns in the environment's own units."""
    make = lambda scale, **env: jax.jit(
        jf.make_train(jf.PPO(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,),
                             reward_scale=scale), jf.make("CartPole-v1", **env), 64)
    )
    (inside, logged), (outside, scaled) = make(0.25)(key), make(1.0, reward_scale=0.25)(key)
    for a, b in zip(jax.tree.leaves(inside.agent.params), jax.tree.leaves(outside.agent.params),
                    strict=True):
        # Adam's first steps are signs of small gradients
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(logged["episode_return"] * 0.25, scaled["episode_return"], rtol=1e-6)


def test_a_squashed_policy_stays_within_bounds_that_are_not_unit(key, clock):
    space = Box((-1.0, 0.5), (3.0, 4.5), (2,))
    algo = dataclasses.replace(BASE, squash=True, initial_log_std=2.0).bind(
        EnvSpec("x", Box(-9, 9, (OBS,)), space))
    _, action, (dist, drawn), noise = sampled(algo, key, clock())
    low, high = space.bounds()
    assert (
        (action >= low).all() and (action <= high).all() and (action < low + 0.1).any()
        and (action > high - 0.1).any()
    )
    np.testing.assert_allclose(space.to_unit(action), np.tanh(drawn), atol=1e-5)
    np.testing.assert_allclose(drawn, dist.sample(noise))


def test_squash_needs_bounds():
    for action in (Box(-np.inf, np.inf, (2,)), Box(0.0, (0.0, 1.0), (2,)),
                   Box(0, 3, (2,), jnp.int32)):
        with pytest.raises(ConfigError, match="squash must be False for x, got True.*bounds"):
            jf.PPO(squash=True).bind(EnvSpec("x", Box(-9, 9, (OBS,)), action))


@pytest.mark.parametrize("name", ["squash", "state_dependent_std"])
def test_gaussian_settings_are_refused_for_discrete_actions(name):
    with pytest.raises(ConfigError,
                       match=f"{name} must be False for CartPole-v1, got True.*Discrete"):
        jf.PPO(**{name: True}).bind(jf.make("CartPole-v1").spec)


def test_statistics_normalise_unscaled_entries():
    """Floats, and integers without bounds; bytes, flags, short ranges and masks stay as they
    are."""
    i = np.iinfo(np.int32)
    mixed = Box((0, i.min), (1, i.max), (2,), jnp.int32)
    space = Dict.of(a=mixed, b=Box(0, 255, (2,), jnp.uint8), c=Box(-1, 1, (2,)),
                    d=Box(0, 1, (2,), bool), e=Discrete(3),
                    f=Box(i.min, i.max, (2,), jnp.int32))  # fmt: skip
    raw = {name: jnp.full((4, 2), 1 if name == "d" else 2, child.dtype)
           for name, child in space.items if name != "e"}
    raw["e"] = jnp.full(4, 2)
    seen = normalized(space, jax.tree.map(lambda x: x * 0.0 - 7.0, raw), raw)
    expected = {"a": [2, -7], "b": [2, 2], "c": [-7, -7], "d": [1, 1], "f": [-7, -7]}
    for name, value in expected.items():
        np.testing.assert_array_equal(seen[name], [value] * 4)
    assert seen["b"].dtype == jnp.uint8 and seen["e"].dtype == jnp.int32
    # scales the first and not the second again
    features = make_torso("mlp", mixed, (), "tanh").apply({}, seen["a"])
    np.testing.assert_array_equal(features, [[2, -7]] * 4)


@pytest.mark.parametrize(
    ("parent", "name", "instead"),
    [(jf.PPO, "policy", "networks"), (jf.A2C, "weighed", "prepare"), (jf.SAC, "actor", "networks"),
     (jf.TQC, "descend", "update"), (jf.C51, "gradient_step", "update"),
     (jf.IQN, "features", "networks"), (jf.APG, "view", "act"), (jf.ARS, "head", "networks"),
     (jf.Algorithm, "improve", "learn")],
)  # fmt: skip
def test_methods_of_older_versions_are_refused_with_their_replacement(parent, name, instead):
    said = (
        rf"Mine\.{name} must be left out, got a method: .*`{instead}`.*\. {parent.__name__} does "
        rf"not read it"
    )
    for method in (lambda self: None, property(lambda self: None)):
        with pytest.raises(jf.ConfigError, match=said):
            type("Mine", (parent,), {name: method})


def test_a_switch_of_older_versions_is_refused():
    with pytest.raises(jf.ConfigError,
                       match=r"Mine\.fresh_start must be left out, got True: call "
                             r"`iteration.begin`"):
        type("Mine", (jf.ARS,), {"fresh_start": True})


def test_a_setting_may_have_the_name_of_a_removed_method():
    @jf.settings
    class Mine(jf.PPO):
        features: int = 3

    assert Mine(features=4).features == 4
