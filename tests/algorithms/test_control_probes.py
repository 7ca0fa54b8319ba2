"""SAC, TD3, TQC and CrossQ find the right actions and values of a probe with continuous actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import random
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.envs.probes.control import Known

COMMON = {
    "num_envs": 10, "updates_per_iteration": 1, "batch_size": 64, "buffer_size": 4096,
    "learning_starts": 512,
    "learning_rate": 5e-3, "discount": 0.8, "hidden": (16,), "critic_hidden": (32,),
}  # fmt: skip
TARGETS = {"target_tau": 0.05}
SURE = {"target_entropy": -3.0, "initial_temperature": 0.1}  # so that soft values are nearly values
CASES = [
    (jf.SAC, SURE | TARGETS),
    (jf.TD3, {"n_step": 2, "prioritized": True, "normalize_observations": True,
              "target_noise": 0.05, "exploration_noise": 0.05} | TARGETS),
    pytest.param(jf.TQC, SURE | TARGETS | {"num_quantiles": 7, "drop_quantiles": 1},
                 marks=pytest.mark.slow),
    (jf.CrossQ,
     SURE | {"learning_rate": 2e-3, "policy_period": 2, "norm_momentum": 0.95, "norm_warmup": 200}),
]


@jf.settings
class Aside(jf.Env):
    """Observation (x, kind); the right action is 1 + x, in bounds that are not symmetric, and pays
    1.

    Kind 1 ends after a step: its value is 1. Kind 0 goes on for ever, with a new x each step, and
        is cut every 4: its
    value is 1 / (1 - gamma), and less where a cut is taken for an end.
    """

    @property
    def spec(self):
        return jf.EnvSpec("test/aside", jf.Box(-1.0, 1.0, (2,)), jf.Box(-0.5, 3.0, (1,)), 4)

    def draw_reset(self, key, shape):
        keys = random.split(key)
        kind = (random.uniform(keys[1], (*shape, 1)) < 0.5).astype(jnp.float32)
        return jnp.concatenate([random.uniform(keys[0], (*shape, 1), -1.0, 1.0), kind], axis=-1)

    def reset(self, noise):
        return (noise, jnp.zeros(len(noise), jnp.int32)), noise

    def draw_step(self, key, num_steps, num_envs, t):
        return random.uniform(key, (num_steps, num_envs), -1.0, 1.0)

    def transition(self, noise, state, action):
        obs, time = state[0], state[1] + 1
        reward = 1.0 - jnp.square(action[:, 0] - obs[:, 0] - 1.0)
        ended = obs[:, 1] > 0
        obs = jnp.stack([noise, obs[:, 1]], axis=1)
        return (obs, time), jf.Outcome(obs, reward, ended, ~ended & (time >= 4))

    def known_values(self, gamma):
        x = np.tile(np.linspace(-0.9, 0.9, 5, dtype=np.float32), 2)
        kind = np.repeat(np.float32([0, 1]), 5)
        value = np.where(kind > 0, 1.0, 1.0 / (1.0 - gamma)).astype(np.float32)
        return Known(np.stack([x, kind], axis=1), value, x[:, None] + 1.0)


@pytest.mark.parametrize(("cls", "settings"), family(
    CASES, [jf.SAC]), ids=lambda x: getattr(x, "name", ""))
def test_the_right_actions_and_values(compiled, clock, cls, settings):
    env, steps = Aside(), 32_000
    algo, known = cls(**COMMON | settings).bind(env.spec), env.known_values(COMMON["discount"])

    def train(key):  # with what is looked at, in one program
        state, metrics = jf.make_train(algo, env, total_steps=steps, log_every=steps)(key)
        agent = state.agent
        action = algo.act(agent, algo.init_carry(len(known.obs)), known.obs,
                          jnp.zeros((len(known.obs), 1)), clock(), "greedy")[1]
        best = algo.spec.action.to_unit(known.action)
        obs = normalize_obs(env.spec.observation, agent.moments, known.obs)
        q = algo.networks.critic_output(agent.params["critics"], obs, best)
        return action, q.mean(-1), metrics

    action, q, metrics = compiled(train, jax.random.key(0))
    assert all(np.isfinite(x).all() for x in metrics.values())
    np.testing.assert_allclose(action, known.action, atol=0.2)
    np.testing.assert_allclose(q, np.tile(known.value, (algo.num_critics, 1)), atol=0.45)
