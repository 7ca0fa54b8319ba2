"""SAC, TD3, TQC and CrossQ find the known values and actions of probes with continuous actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.envs import probes, probes_spaces

COMMON = {
    "num_envs": 16, "updates_per_iteration": 2, "batch_size": 64, "buffer_size": 4096, "learning_starts": 512,
    "learning_rate": 3e-3, "discount": 0.9, "hidden": (16,), "critic_hidden": (32,), "target_tau": 0.05,
}  # fmt: skip
CROSSQ = {"learning_rate": 2e-3, "policy_period": 1, "norm_momentum": 0.95, "norm_warmup": 200, "adam_beta": 0.5}
HARD = {"autotune": False, "initial_temperature": 1e-3}  # so that soft values are values
ACTING = [
    (jf.SAC, {}),
    (jf.TD3, {"normalize_observations": True}),
    (jf.TD3, {"num_critics": 1, "policy_period": 1, "target_noise": 0.0, "exploration_noise": 0.3}),  # DDPG
    (jf.TQC, {"num_quantiles": 7, "drop_quantiles": 1, "prioritized": True}),
    (jf.CrossQ, CROSSQ),
]


@jf.settings
class Aside(probes_spaces.Continuous):
    """The right action is 1 + x, in bounds that are not symmetric."""

    @property
    def spec(self):
        return jf.EnvSpec("test/aside", jf.Box(-1.0, 1.0, (1,)), jf.Box(-0.5, 3.0, (1,)), 1)

    def _reward(self, obs, action):
        return -jnp.square(action[:, 0] - obs[:, 0] - 1.0)

    def known_values(self, gamma):
        known = super().known_values(gamma)
        return known._replace(action=known.action + 1.0)


@jf.settings
class Endless(probes.TruncatedOnly):
    """`probe/truncated-only` with an action that does nothing: 1 / (1 - gamma) unless a cut is taken for an end."""

    @property
    def spec(self):
        return jf.EnvSpec("test/endless", jf.Box(0.0, 1.0, (1,)), jf.Box(-1.0, 1.0, (1,)), self.length)


@jf.settings
class AtEnd(probes.RewardAtEnd):
    """`probe/reward-at-end` likewise: the discount, and no bootstrap beyond the end."""

    @property
    def spec(self):
        return jf.EnvSpec("test/at-end", jf.Box(0.0, 1.0, (self.length,)), jf.Box(-1.0, 1.0, (1,)), self.length)


@pytest.fixture(scope="module")
def trained(compiled):
    """(algorithm, environment, steps) -> (bound algorithm, agent, known values, metrics)."""

    def run(algo, env, steps):
        train = jf.make_train(algo, env, total_steps=steps, log_every=steps)
        state, metrics = compiled(lambda key: train(key), jax.random.key(0))
        assert all(np.isfinite(x).all() for x in metrics.values())
        return algo.bind(env.spec), jax.tree.map(np.asarray, state.agent), env.known_values(float(algo.discount)), metrics

    return run


@pytest.mark.parametrize(("cls", "settings"), ACTING, ids=["sac", "td3", "ddpg", "tqc", "crossq"])
def test_the_right_action(trained, clock, cls, settings):
    algo, agent, known, _ = trained(cls(**COMMON | settings), Aside(), 20_000)
    noise = jnp.zeros((len(known.obs), 1))
    action = algo.act(agent, (), known.obs, noise, clock(), "greedy")[1]
    np.testing.assert_allclose(action, known.action, atol=0.15)
    q = algo.critic_output(agent.params["critics"], algo.view(agent.moments, known.obs), algo.from_bounds(known.action))
    np.testing.assert_allclose(q.mean(-1), np.tile(known.value, (algo.num_critics, 1)), atol=0.15)


VALUES = [
    (jf.SAC, Endless, HARD | {"n_step": 2}),
    (jf.TD3, AtEnd, {"n_step": 3, "prioritized": True}),
    (jf.CrossQ, Endless, CROSSQ | HARD),
]


@pytest.mark.parametrize(("cls", "world", "settings"), VALUES, ids=lambda x: getattr(x, "__name__", ""))
def test_the_right_values(trained, cls, world, settings):
    algo, agent, known, _ = trained(cls(**COMMON | settings), world(), 20_000)
    action = jnp.zeros((len(known.obs), 1))
    q = algo.critic_output(agent.params["critics"], algo.view(agent.moments, known.obs), action)[..., 0]
    np.testing.assert_allclose(q, np.tile(known.value, (2, 1)), atol=0.05 * max(1.0, known.value.max()))
