"""APG: its gradient against finite differences of a simulation in NumPy, where it ends, and what it
refuses."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.common.learning import Iteration, Played
from jaxrl_fast.engine import rollout
from jaxrl_fast.envs.gradient import check_differentiable
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import Memory
from jaxrl_fast.types import Clock

STEPS, ENVS, LIMIT = 7, 3, 5  # the episode ends within the rollout
CLOCK = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0.25))


@jf.settings
class Line(jf.Env):
    """x' = 0.9 x + 0.3 a, reward -(x' - 1)^2 - 0.1 a^2; terminates after LIMIT steps."""

    action: jf.Box = jf.Box(-2.0, 2.0, (1,))
    reward: str = "smooth"

    @property
    def spec(self):
        return jf.EnvSpec("test/line", jf.Box(-10.0, 10.0, (1,)), self.action, None)

    def draw_reset(self, key, shape):
        return random.normal(key, shape)

    def reset(self, noise):
        return (noise, jnp.zeros(noise.shape, jnp.int32)), noise[:, None]

    def transition(self, noise, state, action):
        x, time = 0.9 * state[0] + 0.3 * action[:, 0], state[1] + 1
        reward = -jnp.square(x - 1.0) - 0.1 * jnp.square(action[:, 0])
        if self.reward == "steps":
            reward = jnp.floor(reward) + (action[:, 0] > 0.0)
        if self.reward == "constant":
            reward = jnp.ones_like(x)
        if self.reward == "loop":
            reward = -jax.lax.while_loop(lambda y: jnp.any(y > 1.0), lambda y: 0.5 * y,
                                         jnp.square(x))
        done = time >= LIMIT
        return (x, time), jf.Outcome(x[:, None], reward, done, jnp.zeros_like(done))


def simulate(params, start, fresh, noise, std):
    """The mean reward in float64: params (w, b) of the policy 2 tanh(w x + b + std noise)."""
    x, total = start.astype(np.float64), 0.0
    for t in range(STEPS):
        action = 2 * np.tanh(params[0] * x + params[1] + std * noise[t])
        x = 0.9 * x + 0.3 * action
        total += np.mean(-((x - 1) ** 2) - 0.1 * action**2)
        if t + 1 == LIMIT:
            x = fresh[t].astype(np.float64)
    return total / STEPS


def one_iteration(play):
    """The `Iteration` that `learn` gets from the engine, around the given rollout."""
    collect = lambda agent: Played(*play(agent), {}, ())
    return Iteration(CLOCK.iteration, True, lambda: CLOCK, Memory(), (), None, collect, None)


def begin(algo, env, key=0):
    """(bound algorithm, agent, start, noise)."""
    algo, keys = tree.as_float32(algo.bind(env.spec)), random.split(jax.random.key(key), 4)
    noise = lambda keys: rollout.draw(env, algo, keys, algo.num_steps, algo.num_envs, jnp.int32(0))
    start = lambda key: rollout.init(env, algo, key, algo.num_envs)
    return algo, *jax.jit(lambda keys: (algo.init(keys[0]), start(keys[3]), noise(keys[1:3])))(keys)


@pytest.mark.parametrize("settings", family(
    [{}, {"stochastic": False}, {"rematerialize": True}], lambda x: "stochastic" not in x),
                         ids=["plain", "mean", "remat"])
def test_the_gradient_of_apg_equals_the_mean_rewards_gradient(settings):
    """An epsilon far above the gradient makes Adam's first step the gradient itself."""
    huge = 1e4
    algo = jf.APG(num_envs=ENVS, num_steps=STEPS, hidden=(), learning_rate=huge,
                  anneal_learning_rate=False,
                  adam_epsilon=huge, max_grad_norm=1e6, initial_log_std=-0.5,
                  **settings)  # fmt: skip
    env = Line()
    algo, agent, start, noise = begin(algo, env)
    point = np.array([0.4, -0.3])
    params = agent.params | {"head": {"params": {"kernel": point[:1, None], "bias": point[1:]}}}
    agent = agent._replace(params=tree.as_float32(jax.tree.map(jnp.float32, params)))
    play = lambda agent: rollout.collect(env, algo, agent, start, noise, CLOCK, "sample")
    after, _, metrics, played = jax.jit(
        lambda agent: algo.learn(agent, (), one_iteration(play)))(agent)
    actor, trajectory = played.actor, played.trajectory
    std = np.exp(-0.5) if algo.stochastic else 0.0
    given = np.asarray(start.env[0]), np.asarray(noise.env[1]), np.asarray(noise.act)[..., 0]
    np.testing.assert_allclose(-metrics["policy_loss"].total, simulate(point, *given, std),
                               rtol=1e-5)
    h = 1e-5
    up, down = ([simulate(point + s * h * e, *given, std) for e in np.eye(2)] for s in (1, -1))
    wanted = (np.array(up) - np.array(down)) / (2 * h)
    if algo.stochastic:
        wanted = [*wanted,
                  (simulate(
                      point, *given, std * np.exp(h)
                  ) - simulate(point, *given, std * np.exp(-h))) / (2 * h)]
    names = [("head", "kernel"), ("head", "bias"), ("log_std", None)][: len(wanted)]
    leaf = lambda tree, a, b: float(np.squeeze(tree[a]["params"][b] if b else tree[a]))
    moved = [leaf(after.params, *n) - leaf(agent.params, *n) for n in names]
    np.testing.assert_allclose(moved, wanted, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(metrics["grad_norm"].total, np.linalg.norm(wanted), rtol=1e-3)
    assert trajectory.steps.reward.shape == (STEPS, ENVS) and actor.obs.shape == (ENVS, 1)


def test_no_gradient_crosses_an_episodes_end():
    env = Line()
    algo, agent, start, noise = begin(jf.APG(num_envs=ENVS, num_steps=STEPS, hidden=(4,)), env)

    def rewards(first):  # what came before the rollout, or before an end, is this state
        state = start._replace(env=(first, start.env[1]), obs=first[:, None])
        return (
            rollout.collect(env, algo, agent, state, noise, CLOCK, "sample")[1].steps.reward.mean(1)
        )

    jacobian = np.asarray(jax.jacrev(rewards)(start.env[0]))
    assert (jacobian[:LIMIT] != 0).all() and (jacobian[LIMIT:] == 0).all()


def test_the_steps_settings():
    """Clipped by the global norm, annealed; statistics are taken in, after the update."""
    env = Line()
    algo = jf.APG(num_envs=ENVS, num_steps=STEPS, hidden=(), learning_rate=1e4, adam_epsilon=1e4,
                  max_grad_norm=1e-2,
                  normalize_observations=True, stochastic=False)  # fmt: skip
    algo, agent, start, noise = begin(algo, env)
    play = lambda agent: rollout.collect(env, algo, agent, start, noise, CLOCK, "sample")
    after, _, metrics, played = algo.learn(agent, (), one_iteration(play))
    step = jax.tree.leaves(
        jax.tree.map(lambda a, b: jnp.sum(jnp.square(a - b)), after.params, agent.params))
    assert metrics["grad_norm"].total > 0.1
    # three quarters of the horizon are left
    np.testing.assert_allclose(np.sqrt(sum(step)), 0.75 * 1e-2, rtol=1e-2)
    obs = played.trajectory.steps.obs
    assert after.moments.count == obs[..., 0].size
    np.testing.assert_allclose(after.moments.mean, obs.mean((0, 1)), rtol=1e-5)


@pytest.mark.matrix("test_the_gradient_of_apg_equals_the_mean_rewards_gradient")
def test_apg_learns(learn):
    for settings in ({"hidden": ()},
                     {"hidden": (16,), "stochastic": False, "normalize_observations": True}):
        algo = jf.APG(num_envs=32, num_steps=2, learning_rate=2e-2, **settings)
        algo, agent, known, metrics = learn(algo, "probe/continuous", 20_000)
        action = algo.act(agent, (), jnp.asarray(known.obs), None, CLOCK, "greedy")[1]
        np.testing.assert_allclose(action, known.action, atol=0.1)
        assert all(np.isfinite(x).all() for x in metrics.values())
    assert "policy_std" not in metrics


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (lambda: jf.make("CartPole-v1"), "apg needs Box actions"),
        (lambda: jf.make("gymnax:CartPole-v1"), "apg needs Box actions"),
        (lambda: Line(action=jf.Box(-np.inf, np.inf, (1,))), "needs bounded actions"),
        (lambda: Line(reward="steps"), "reward depends smoothly on the action"),
        (lambda: Line(reward="constant"), "reward depends smoothly on the action"),
        (lambda: Line(reward="loop"),
         r"cannot be differentiated \(Reverse-mode [^;]*\); try .*ppo, ars, es"),
        (lambda: OnMJX(reward="loop"),
         r"cannot be differentiated .*; --env.backend spring .*; try .*ppo, ars, es"),
    ],
)
def test_apg_refuses_unfit_settings(env, says):
    with pytest.raises(ConfigError, match=says):
        jf.make_train(jf.APG(), env(), 1000)


@pytest.mark.slow
def test_a_backend_of_brax_with_a_gradient():
    """Traced only, contacts and all."""
    check_differentiable(jf.make("brax/inverted_double_pendulum", backend="generalized"))


@pytest.mark.slow
def test_a_reward_of_brax_without_a_gradient():
    """1 a step, until the pole has fallen."""
    with pytest.raises(ConfigError,
                       match="depends smoothly on the action, got .*; try .*ppo, ars, es"):
        check_differentiable(jf.make("brax/inverted_pendulum"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_apg_trains_on_brax():
    """Through the physics: a few steps, a gradient that is there, and parameters that move and stay
    finite."""
    env = jf.make("brax/reacher", episode_length=6)
    algo = jf.APG(num_envs=2, num_steps=4, hidden=(4,), normalize_observations=True)
    state, metrics = jax.jit(jf.make_train(algo, env, 32))(jax.random.key(0))
    assert all(np.isfinite(metrics[name]).all()
               for name in ("policy_loss", "grad_norm", "policy_std"))
    assert np.all(metrics["grad_norm"] > 0) and tree.all_finite(state.agent.params)


@pytest.mark.slow  # nine seconds of tracing, on an idle machine
def test_a_backend_of_brax_without_a_gradient():
    with pytest.raises(ConfigError,
                       match="cannot be differentiated .*; --env.backend spring .*; try .*ppo, "
                             "ars, es"):
        check_differentiable(jf.make("brax/inverted_double_pendulum", backend="mjx"))


@jf.settings
class OnMJX(Line):
    """An environment like brax's on mjx: a loop, and backends beside it without one."""

    @property
    def spec(self):
        return dataclasses.replace(super().spec, name="brax/line")


def test_a_linear_reward_has_a_gradient():
    """The gradient is a constant: a search for dependence on numbers would not find it."""

    class Linear(Line):
        def transition(self, noise, state, action):
            state, outcome = super().transition(noise, state, action)
            return state, outcome._replace(reward=3.0 * action[:, 0])

    jf.APG().bind(Line().spec).check_env(Linear())


def test_a_run_asks_before_it_writes(tmp_path):
    for call in (jf.train, lambda *args, out, **more: jf.plan(*args)):
        with pytest.raises(ConfigError, match="depends smoothly"):
            call(jf.APG(), Line(reward="steps"), 1000, out=tmp_path / "run", log_every=500)
    assert not (tmp_path / "run").exists()


@pytest.mark.matrix("tests/engine/test_populations.py::test_a_sweep_is_a_vmap_and_one_compile")
def test_a_learning_rate_is_swept():
    def last(rate):
        algo = dataclasses.replace(jf.APG(num_envs=2, num_steps=4, hidden=()), learning_rate=rate)
        return (
            jf.make_train(algo, Line(),
                          32)(jax.random.key(0))[0].agent.params["head"]["params"]["bias"]
        )

    assert len({float(x) for x in jax.jit(jax.vmap(last))(jnp.array([0.0, 1e-3, 1e-2]))[:, 0]}) == 3
