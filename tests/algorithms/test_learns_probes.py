"""Every algorithm finds the known values of probes that it can play. Slow: what another probe of it
tells too."""

from __future__ import annotations

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast.algorithms.common.normalize import normalize_obs

PPO = {
    "num_envs": 32, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "learning_rate": 1e-2,
    "discount": 0.9,
    "hidden": (16,), "entropy_coefficient": 0.0, "clip_value": False, "max_grad_norm": 10.0,
}  # fmt: skip
# probe, settings, rows of its known values that a trained policy still visits
PPO_PROBES = [
    pytest.param("constant-reward", {}, slice(None), marks=pytest.mark.slow),
    ("reward-at-end", {"shared_torso": True}, slice(None)),
    ("two-step-credit", {}, slice(0, 2)),
    ("two-step-credit", {"recompute_advantage": True}, slice(0, 2)),
    pytest.param("action-reward", {"normalize_observations": True}, slice(None),
                 marks=pytest.mark.slow),
    ("truncated-only", {}, slice(None)),
    pytest.param("named-action", {}, slice(None), marks=pytest.mark.slow),
    ("multi-discrete", {}, slice(None)),
    ("masked", {"normalize_observations": True}, slice(None)),
    ("dict", {}, slice(None)),
]


@pytest.mark.parametrize(("name", "settings", "visited"), family(
    PPO_PROBES, ["truncated-only"]),
                         ids=lambda x: x if isinstance(x, str) else "")
def test_ppo_learns_probes(learn, name, settings, visited):
    algo, agent, known, metrics = learn(jf.PPO(**PPO | settings), f"probe/{name}", 20_000)
    obs = normalize_obs(algo.spec.observation, agent.moments, known.obs)
    value = algo.networks.value(agent.params, obs)
    np.testing.assert_allclose(value[visited], known.value[visited],
                               atol=0.05 * max(1.0, abs(known.value).max()))
    if name == "two-step-credit":  # in its branches either action is as good
        visited = slice(0, 1)
    if known.action is not None:
        np.testing.assert_array_equal(algo.networks.policy(agent.params, obs).mode()[visited],
                                      known.action[visited])
    assert all(np.isfinite(x).all() for x in metrics.values())


@pytest.mark.matrix("test_ppo_learns_probes")
def test_ppo_learns_a_continuous_probe(learn):
    settings = {"initial_log_std": -0.5, "num_envs": 64}
    algo, agent, known, _ = learn(jf.PPO(**PPO | settings), "probe/continuous", 60_000)
    dist = algo.networks.policy(agent.params, known.obs)
    np.testing.assert_allclose(dist.mode(), known.action, atol=0.15)
    np.testing.assert_allclose(algo.networks.value(agent.params, known.obs), known.value, atol=0.15)
    assert dist.log_std.max() < -1  # it became sure of itself


A2C = {k: v for k, v in PPO.items() if k not in ("num_epochs", "num_minibatches", "clip_value")} | {
    "num_steps": 4, "rmsprop": False,
}  # fmt: skip
IMPALA = A2C | {"num_steps": 8, "num_minibatches": 2, "num_epochs": 2}
ADVANTAGE_PROBES = [
    (jf.A2C, "reward-at-end",
     {"rmsprop": True, "learning_rate": 0.02, "optimizer_epsilon": 1e-6, "rms_decay": 0.9}),
    (jf.A2C, "masked", {"gae_lambda": 0.9, "normalize_observations": True}),
    (jf.IMPALA, "two-step-credit", {"shared_torso": True, "optimizer": "adamw(weight_decay=1e-4)"}),
    (jf.IMPALA, "truncated-only", {"gae_lambda": 0.9, "normalize_advantage": True}),
]


@pytest.mark.matrix(
    "tests/algorithms/test_advantage_actor_critics.py::"
    "test_an_update_equals_a_reference_written_by_hand")
@pytest.mark.parametrize(("cls", "name", "settings"), family(
    ADVANTAGE_PROBES, 1),
                         ids=lambda x: getattr(x, "name", None))
def test_advantage_actor_critics(learn, cls, name, settings):
    common = A2C if cls is jf.A2C else IMPALA
    algo, agent, known, metrics = learn(cls(**common | settings), f"probe/{name}", 20_000)
    obs = normalize_obs(algo.spec.observation, agent.moments, known.obs)
    # it no longer visits the other rows
    first = slice(0, 1) if name == "two-step-credit" else slice(None)
    value = algo.networks.value(agent.params, obs)
    np.testing.assert_allclose(value[first], known.value[first],
                               atol=0.05 * max(1.0, abs(known.value).max()))
    if known.action is not None:
        np.testing.assert_array_equal(algo.networks.policy(agent.params, obs).mode()[first],
                                      known.action[first])
    assert all(np.isfinite(x).all() for x in metrics.values())


DQN = {
    "num_envs": 16, "batch_size": 64, "buffer_size": 4096, "learning_starts": 512,
    "learning_rate": 1e-2,
    "anneal_learning_rate": True, "discount": 0.9, "hidden": (16,), "target_period": 10,
    "epsilon_end": 0.1,
}  # fmt: skip
ONE = {  # environment, and a replay ratio above 1: these steps are too few for one update each
    "num_envs": 1, "updates_per_iteration": 6, "batch_size": 32, "buffer_size": 1024,
    "learning_starts": 100,
    "prioritized": True, "n_step": 2,
}  # fmt: skip
ONE_STEPS = 300
DQN_PROBES = [
    pytest.param(jf.DQN, "constant-reward", {"dueling": True}, marks=pytest.mark.slow),
    (jf.DQN, "reward-at-end", {"n_step": 3}),
    (jf.DQN, "two-step-credit",
     {"double": False, "learning_rate": optax.linear_schedule(1e-2, 0.0, 1_200)}),
    (jf.DQN, "action-reward",
     {"noisy": True, "epsilon_start": 0.0, "epsilon_end": 0.0, "updates_per_iteration": 3}),
    (jf.DQN, "truncated-only", {"n_step": 2, "target_period": 1, "target_tau": 0.2}),
    pytest.param(jf.DQN, "named-action", {"num_steps": 4, "updates_per_iteration": 4},
                 marks=pytest.mark.slow),
    (jf.DQN, "masked", {"dueling": True}),
    pytest.param(jf.DQN, "dict", {"layer_norm": True}, marks=pytest.mark.slow),
    (jf.DQN, "truncated-only", {"prioritized": True, "n_step": 2, "num_steps": 2}),
    (jf.DQN, "constant-reward", {"prioritized": True, "reset_period": 700}),
    (jf.DQN, "truncated-only", ONE),
    (jf.DQN, "reward-at-cut", {"prioritized": True, "n_step": 2}),
    pytest.param(jf.QRDQN, "reward-at-cut", {"num_quantiles": 8, "num_steps": 2},
                 marks=pytest.mark.slow),
    pytest.param(
        jf.C51, "reward-at-end", {"v_min": -0.5, "v_max": 1.5, "num_atoms": 17},
        marks=pytest.mark.slow
    ),
    (jf.C51, "masked", {"v_min": -2.0, "v_max": 4.0, "num_atoms": 25, "dueling": True}),
    (jf.QRDQN, "truncated-only", {"num_quantiles": 8}),
    pytest.param(jf.QRDQN, "masked", {"num_quantiles": 8, "dueling": True}, marks=pytest.mark.slow),
    (jf.IQN, "reward-at-end", {"num_fractions": 8, "num_act_fractions": 8, "num_cosines": 16}),
    pytest.param(
        jf.IQN, "masked", {"num_fractions": 8, "num_act_fractions": 8, "num_cosines": 16},
        marks=pytest.mark.slow
    ),
]
PQN = {
    "num_envs": 32, "num_steps": 8, "num_epochs": 4, "num_minibatches": 4, "learning_rate": 1e-2,
    "discount": 0.9, "hidden": (16,), "epsilon_end": 0.1,
}  # fmt: skip
PQN_PROBES = [
    pytest.param(jf.PQN, "constant-reward", {"dueling": True}, marks=pytest.mark.slow),
    (jf.PQN, "two-step-credit", {"return_lambda": 0.0}),  # above 0 the exploring actions count
    (jf.PQN, "truncated-only", {}),
    pytest.param(jf.PQN, "reward-at-cut", {}, marks=pytest.mark.slow),
    (jf.PQN, "masked", {"layer_norm": False, "epsilon_end": 0.5}),
]


@pytest.mark.parametrize(
    ("cls", "name", "settings"),
    # by default: replay with priorities and windows; PQN's rollouts in order are PPO's
    family(DQN_PROBES + PQN_PROBES, lambda cls, name, settings: name == "truncated-only"
           and settings.get("num_steps") == 2),
    ids=lambda x: getattr(x, "name", None),
)
def test_value_based_algorithms_learn_probes(learn, cls, name, settings):
    common = PQN if cls is jf.PQN else DQN
    steps = ONE_STEPS if settings is ONE else 20_000
    algo, agent, known, metrics = learn(cls(**common | settings), f"probe/{name}", steps)
    q = np.asarray(algo.action_values(agent.params, known.obs))
    legal = known.q > -50  # an illegal action is never taken, so its value is never learned
    np.testing.assert_allclose(q[legal], known.q[legal],
                               atol=0.05 * max(1.0, abs(known.value).max()))
    if name == "two-step-credit":
        assert q[0].argmax() == known.action[0]
    elif known.action is not None:
        np.testing.assert_array_equal(q.argmax(-1), known.action)
    assert all(np.isfinite(x).all() for x in metrics.values())


@pytest.mark.matrix("tests/algorithms/test_dqn.py::test_munchausen_of_quantiles_equals_numpy")
@pytest.mark.parametrize("cls", family([jf.DQN, jf.QRDQN], 1))
def test_munchausen_learns_soft_values(learn, cls):
    """The fixed point by hand, on a probe whose episodes last one step: Q(a) = r(a) + alpha
    clip(tau log pi(a))."""
    tau, alpha, clip = 0.5, 0.5, -0.6
    settings = {"munchausen": True, "munchausen_temperature": tau, "munchausen_alpha": alpha,
                "munchausen_clip": clip}
    algo, agent, known, _ = learn(cls(**DQN | settings), "probe/action-reward", 20_000)
    expected = known.q.copy()
    for _ in range(200):
        log_policy = expected / tau - np.log(np.exp(expected / tau).sum(-1, keepdims=True))
        expected = 0.9 * expected + 0.1 * (known.q + alpha * np.clip(tau * log_policy, clip, 0))
    np.testing.assert_allclose(algo.action_values(agent.params, known.obs), expected, atol=0.06)


@pytest.mark.slow
def test_rainbow_finds_the_action(learn):
    settings = {k: v for k, v in DQN.items() if not k.startswith("epsilon")}
    algo, agent, known, metrics = learn(jf.Rainbow(**settings, v_min=-1.5, v_max=1.5),
                                        "probe/masked", 20_000)
    np.testing.assert_array_equal(algo.action_values(agent.params, known.obs).argmax(-1),
                                  known.action)
    assert all(np.isfinite(x).all() for x in metrics.values())


@pytest.mark.matrix("test_value_based_algorithms_learn_probes")
def test_dqn_bootstraps_through_stacked_frames(learn):
    """Two frames of a step counter: replay rebuilds the stacks that acting saw."""
    algo, agent, _, _ = learn(jf.DQN(**DQN), "probe/reward-at-end", 16_000, stack=2)
    eye = np.eye(4, dtype=np.float32)
    seen = np.stack([np.concatenate([eye[max(i - 1, 0)], eye[i]]) for i in range(4)])
    expected = 0.9 ** np.arange(3, -1, -1)
    np.testing.assert_allclose(algo.action_values(agent.params, seen).max(-1), expected, atol=0.05)


class Flatten(nn.Module):
    """A network as people write them: the first axis is the batch, there is no other."""

    @nn.compact
    def __call__(self, x):
        return nn.relu(nn.Dense(8)(x.reshape((x.shape[0], -1))))


@pytest.mark.parametrize(
    ("cls", "settings"),
    family([(cls, {}) for cls in (jf.PPO, jf.DQN, jf.IQN, jf.PQN, jf.IMPALA)] + [
        (cls, {"noisy": True}) for cls in (jf.DQN, jf.PQN)],
           lambda cls, settings: cls is jf.PPO),
)
def test_a_users_network_sees_one_batch_axis(cls, settings):
    common = {jf.PPO: PPO, jf.PQN: PQN, jf.IMPALA: IMPALA}.get(cls, DQN)
    env = jf.make("probe/truncated-only")
    train = jf.make_train(cls(**common | settings | {"network": Flatten()}), env, total_steps=2000,
                          log_every=2000)
    metrics = jax.eval_shape(train, jax.random.key(0))[1]
    assert metrics["episode_return"].shape == metrics["env_steps"].shape
