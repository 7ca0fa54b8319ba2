"""The programs of `scripts/single_file` compute what the library's algorithms compute, from the
same draws."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.presets import find_preset
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.ops import optim
from jaxrl_fast.types import Window

PROGRAMS = {"ppo": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1"}
ROWS = 16


def library(single):
    """The library's algorithm with the settings of a single file's, not bound to its
    environment."""
    settings = {f.name: getattr(single, f.name) for f in dataclasses.fields(single)}
    del settings["env"], settings["total_steps"]
    if type(single).__name__ == "SAC":
        settings["critic_hidden"] = settings["hidden"]
    else:
        settings["anneal_learning_rate"] = True
    if type(single).__name__ == "DQN":
        settings["layer_norm"] = True
    return getattr(jf, type(single).__name__)(**settings)


def layers(*modules):
    """Variables of modules that follow each other as those of one: Dense_0, Dense_1, ..."""
    found = {}
    for variables in modules:
        params = variables["params"]
        params = {"Dense_0": params} if "kernel" in params else params
        for name in sorted(params):
            found.setdefault(name.partition("_")[0], []).append(params[name])
    return {"params": {f"{kind}_{i}": layer for kind, every in found.items()
                       for i, layer in enumerate(every)}}


def ppo_params(params):
    actor, critic = (tree.take(params["torso"], i) for i in range(2))
    return layers(actor, params["policy"], critic, params["value"])


def torso_and_head(params):
    return layers(params["torso"], params["head"])


def critic_params(params):
    """Our critics see [action, observation], the single file's [observation, action]."""
    params = torso_and_head(params)
    first = params["params"]["Dense_0"]
    rolled = first | {"kernel": jnp.roll(first["kernel"], -1, axis=-2)}  # one dimension of action
    return {"params": params["params"] | {"Dense_0": rolled}}


def assert_same(ours, theirs, atol=2e-6):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=atol)


def assert_same_moments(ours, params, translate, theirs):
    """Adam's running gradients, whose size the parameters do not show: Adam divides it out."""
    mean = optim.unpack(optax.tree_utils.tree_get(ours, "mu"), params)
    assert_same(translate(mean), optax.tree_utils.tree_get(theirs, "mu"))


def moved(before, after):
    return max(float(jnp.abs(a - b).max())
               for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True))


def shaken(rng, params):
    return jax.tree.map(lambda p: p + 0.3 * rng.normal(size=p.shape).astype(np.float32), params)


@pytest.mark.parametrize(("name", "environment"), PROGRAMS.items())
def test_the_defaults_equal_the_preset(load, name, environment):
    single = load(name)[0](jf.make(environment))
    assert library(single) == jf.preset(name, environment)
    assert single.total_steps == find_preset(name, environment).run["total_steps"]


@pytest.mark.parametrize(("name", "environment"), family(PROGRAMS.items(), ["dqn"]))
def test_the_parameters_begin_alike(load, name, environment, key, compiled):
    """Weights are orthogonal with the same gains, biases are zero."""
    single = load(name)[0](jf.make(environment))
    ours = compiled(library(single).bind(single.env.spec).init, key).params
    theirs = compiled(single.init, key)
    if name == "sac":
        params, target_critics, _ = theirs
        pairs = [(torso_and_head(ours["actor"]), params["policy"]["actor"])]
        pairs += [(critic_params(ours["critics"]), params["critics"])]
        assert ours["log_temperature"] == params["policy"]["log_alpha"]
        assert_same(params["critics"], target_critics, atol=0)
    else:
        pairs = [(ppo_params(ours), theirs[0]) if name == "ppo"
                 else (torso_and_head(ours), theirs.params)]
    for a, b in pairs:
        for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True):
            assert x.shape == y.shape
            np.testing.assert_allclose(norms(x), norms(y), rtol=1e-4, atol=1e-5)


def norms(x):
    """Singular values of kernels [..., m, n]; biases [n] and stacked biases [2, n] have the values
    0."""
    return np.linalg.svd(np.atleast_2d(x), compute_uv=False)


@pytest.mark.parametrize("max_grad_norm", [0.1, pytest.param(100.0, marks=pytest.mark.slow)])
def test_ppo_learns_the_same_from_the_same_draws(load, max_grad_norm, key, rng, compiled):
    """Two iterations: rollout, advantages, all minibatches. Poles fall here, and episodes run out
    of time."""
    env = jf.make("CartPole-v1", max_steps_in_episode=16)
    single = load("ppo")[0](
        env, total_steps=600, num_envs=4, num_steps=48, num_epochs=2, num_minibatches=2,
        learning_rate=0.02, max_grad_norm=max_grad_norm, clip_ratio=0.02, value_coefficient=0.7,
        entropy_coefficient=0.03, hidden=(8,),
    )  # fmt: skip
    algo = library(single).bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, float(single.iterations)))

    def both(key):
        state = iteration.init(run, key)
        state = state._replace(agent=state.agent._replace(params=shaken(rng, state.agent.params)))
        params = ppo_params(state.agent.params)
        learner, start = (params, single.optimizer.init(params)), (state.env, state.obs)

        def turn(carry, t):
            state, learner, start = carry
            draws = iteration.draw(run, key, t)
            actor = rollout.Actor(state.env, state.obs, state.carry)
            clock = iteration.clock_at(run, t)
            trajectory = rollout.collect(env, algo, state.agent, actor, draws.rollout, clock,
                                         "sample")[1]
            rows = algo.prepare(state.agent, trajectory)
            state, metrics = iteration.iteration(run, state, draws, t, True)
            start, steps = single.rollout(learner[0], *start, tuple(draws.rollout))
            advantage = single.advantages(learner[0], steps)
            learner = single.learn(learner, steps, draws.plan)
            seen = trajectory.steps, rows, metrics["clip_fraction"], steps, advantage
            return (state, learner, start), seen

        (state, learner, _), seen = jax.lax.scan(turn, (state, learner, start), jnp.arange(2))
        return seen, params, state.agent, learner

    seen, first, agent, (params, opt_state) = compiled(both, key)
    seen = [tree.take(seen, i) for i in range(2)]
    for ours, rows, _, theirs, advantage in seen:
        for name in ("action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
        # XLA fuses their physics differently
        assert_same((ours.obs, ours.next_obs), (theirs.obs, theirs.next_obs))
        assert_same((rows.log_prob, rows.value, rows.advantage),
                    (theirs.log_prob, theirs.value, advantage), atol=1e-5)
    assert seen[0][3].terminated.any() and seen[0][3].truncated.any()
    assert 0 < float(seen[1][2].total / seen[1][2].count) < 1
    assert_same(ppo_params(agent.params), params, atol=1e-5)
    assert_same_moments(agent.opt_state, agent.params, ppo_params, opt_state)
    assert moved(first, params) > 0.01


def made_up(rng, module, size, action):
    """A batch of random transitions with observations of `size` numbers."""
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    return module.Transition(draw(ROWS, size), action, draw(ROWS), rng.random(ROWS) < 0.3,
                             draw(ROWS, size))


def window(batch, action):
    """A batch of transitions as the library's replay hands it out."""
    use, steps, weight = (
        np.ones((1, ROWS), bool), np.ones(ROWS, np.int32), np.ones(ROWS, np.float32))
    boot = 1.0 - batch.terminated.astype(np.float32)
    return Window(batch.obs, action, batch.reward[None], use, steps, batch.next_obs, boot, weight)


@pytest.mark.parametrize("max_grad_norm", family([0.1, 100.0], 1))
def test_dqn_learns_the_same_from_the_same_batches(load, max_grad_norm, key, rng):
    """Three updates, of which the first and the third move the target network."""
    DQN, module = load("dqn")
    single = DQN(
        jf.make("CartPole-v1"), total_steps=96, learning_starts=16, max_grad_norm=max_grad_norm,
        target_period=2, hidden=(8, 8), learning_rate=0.02, batch_size=ROWS,
    )  # fmt: skip
    algo = library(single).bind(single.env.spec)
    agent = jax.jit(algo.init)(key)
    agent = agent._replace(params=shaken(rng, agent.params), target=shaken(rng, agent.target))
    params = torso_and_head(agent.params)
    learner = module.Learner(params, torso_and_head(agent.target), single.optimizer.init(params),
                             jnp.int32(0))
    run = tree.as_float32(iteration.Run(single.env, algo, float(single.iterations)))
    ours, theirs = jax.jit(algo.update), jax.jit(single.update)
    for i in range(3):
        batch = made_up(rng, module, 4, rng.integers(0, 2, ROWS).astype(np.int32))
        now = iteration.clock_at(run, jnp.int32(single.warmup + i // 2), i % 2)
        agent = ours(agent, window(batch, batch.action), key, now)[0]
        learner = theirs(learner, batch)
        assert_same(torso_and_head(agent.params), learner.params)
        assert_same(torso_and_head(agent.target), learner.target_params)
        assert_same_moments(agent.opt_state, agent.params, torso_and_head, learner.opt_state)
        assert (moved(learner.params, learner.target_params) == 0) == (i != 1)
    assert moved(params, learner.params) > 0.01


@pytest.mark.matrix("test_dqn_learns_the_same_from_the_same_batches")
def test_dqn_acts_the_same(load, key, clock, rng):
    single = load("dqn")[0](jf.make("CartPole-v1"), hidden=(8,))
    algo = library(single).bind(single.env.spec)
    agent = jax.jit(algo.init)(key)
    agent = agent._replace(params=shaken(rng, agent.params))
    obs = rng.normal(size=(256, 4)).astype(np.float32)
    noise = jax.tree.map(lambda x: x[0], algo.draw(key, 1, 256))
    greedy = algo.act(agent, (), obs, noise, clock(), "greedy")[1]
    start = single.env.init(key, 256)[0], obs
    act = lambda epsilon: np.asarray(
        single.step(torso_and_head(agent.params), start, key, epsilon)[1].action)
    np.testing.assert_array_equal(greedy, act(0.0))
    assert 0 < greedy.mean() < 1
    other = np.mean(act(0.5) != greedy)
    assert 0.15 < other < 0.35  # half of them are random, half of those the greedy one
    for t in (125, 1000, 2500, 12_000):  # after the warm-up
        ours = algo.epsilon((), clock(t, t, t / single.iterations))
        assert float(single.epsilon(t)) == pytest.approx(float(ours), abs=1e-6)


@pytest.mark.matrix("test_dqn_learns_the_same_from_the_same_batches")
def test_sac_learns_the_same_from_the_same_batches_and_noise(load, key, clock, rng):
    SAC, module = load("sac")
    single = SAC(jf.make("Pendulum-v1"), hidden=(8, 8), learning_rate=0.02, batch_size=ROWS,
                 target_tau=0.1)
    algo = library(single).bind(single.env.spec)
    agent = jax.jit(algo.init)(key)
    agent = agent._replace(params=shaken(rng, agent.params), target=shaken(rng, agent.target))
    policy = lambda x: {"actor": torso_and_head(x["actor"]), "log_alpha": x["log_temperature"]}
    params = {"critics": critic_params(agent.params["critics"]), "policy": policy(agent.params)}
    opt_state = {name: optax.adam(single.learning_rate).init(part) for name, part in params.items()}
    learner = params, critic_params(agent.target), opt_state
    ours, theirs = jax.jit(algo.update), jax.jit(single.update)
    for i in range(3):
        batch = made_up(rng, module, 3, rng.uniform(-1, 1, (ROWS, 1)).astype(np.float32))
        update_key = random.fold_in(key, i)
        noise = jnp.stack([random.normal(k, (ROWS, 1)) for k in random.split(update_key)])
        torque = single.env.spec.action.from_unit(batch.action)
        agent = ours(agent, window(batch, torque), update_key, clock(i, i, 0.0))[0]
        learner = theirs(learner, batch, noise)
        assert_same(critic_params(agent.target), learner[1])
        assert_same(critic_params(agent.params["critics"]), learner[0]["critics"])
        assert_same(policy(agent.params), learner[0]["policy"])
        packed = {name: optax.tree_utils.tree_get(state, "mu")
                  for name, state in agent.opt_state.items()}
        means = {name: optim.unpack(packed[name], part) for name, part in agent.params.items()}
        for name, expected in (("critics", critic_params(means["critics"])),
                               ("policy", policy(means))):
            assert_same(expected, optax.tree_utils.tree_get(learner[2][name], "mu"))
    assert all(moved(params[name], learner[0][name]) > 0.01 for name in params)
    assert moved(params["policy"]["log_alpha"], learner[0]["policy"]["log_alpha"]) > 0.01


@pytest.mark.matrix("test_dqn_learns_the_same_from_the_same_batches")
def test_sac_acts_the_same(load, key, clock, rng):
    SAC, module = load("sac")
    single = SAC(jf.make("Pendulum-v1"), hidden=(8,))
    algo = library(single).bind(single.env.spec)
    agent = jax.jit(algo.init)(key)
    agent = agent._replace(params=shaken(rng, agent.params))
    obs, noise = (rng.normal(size=(64, n)).astype(np.float32) for n in (3, 1))
    start = single.env.init(key, 64)[0], obs
    actor = torso_and_head(agent.params["actor"])
    for mode, scale in (("sample", 1.0), ("greedy", 0.0)):
        torque = algo.act(agent, algo.init_carry(64), obs, noise, clock(), mode)[1]
        action = single.policy(actor, obs, scale * noise)[0]
        state, after, end = single.env.step(single.env.draw(key, 1, 64, 0).at(0), start[0], torque)
        assert_same((state, after), single.step(start, action, key)[0], atol=1e-5)
        expected = module.Transition(obs, action, end.reward, end.terminated, end.next_obs)
        assert_same(expected, single.step(start, action, key)[1], atol=1e-5)
