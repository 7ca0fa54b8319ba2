"""SAC, TD3, TQC and CrossQ: whole updates against the formulas spelled out, and what their curves
do not show."""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import random
from jaxrl_fast.algorithms.common.normalize import init_moments, normalize_obs
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import distributions
from jaxrl_fast.ops.statistics import Moments
from jaxrl_fast.spaces import Box, Dict, Discrete
from jaxrl_fast.types import Clock, EnvSpec, Mean, Window

QUICK = {"xla_backend_optimization_level": 0}  # compiling is what costs here

OBS, ACTIONS, ROWS, N = 3, 2, 6, 3
LOW, HIGH = np.float32([-1.0, 0.5]), np.float32([3.0, 4.5])  # not symmetric
SPEC = EnvSpec("x", Box(-9, 9, (OBS,)), Box(tuple(LOW.tolist()), tuple(HIGH.tolist()), (ACTIONS,)))
# a large epsilon, or Adam's first steps would be signs, and rounding of a gradient near zero a
# whole step
TINY = {
    "hidden": (8,), "critic_hidden": (7,), "learning_rate": 0.03, "discount": 0.9, "n_step": N,
    "adam_epsilon": 1e-2, "reward_scale": 0.7, "num_steps": 1, "num_envs": 4,
}  # fmt: skip
QUICK_TARGETS = TINY | {"target_tau": 0.3}  # crossq has none
CLIPPED = {"log_std_min": -0.8, "log_std_max": 0.3}  # so that both ends of the range are met
VARIANTS = {
    "sac": jf.SAC(**QUICK_TARGETS, **CLIPPED, initial_temperature=0.4, target_entropy=-0.5,
                  normalize_observations=True,
        anneal_learning_rate=True),
    "sac, period 2, three critics": jf.SAC(
        **QUICK_TARGETS, policy_period=2, num_critics=3, initial_temperature=0.2, autotune=False),
    "td3": jf.TD3(**QUICK_TARGETS, target_noise=0.6, target_noise_clip=0.4),
    "ddpg": jf.TD3(**QUICK_TARGETS, num_critics=1, policy_period=1, target_noise=0.0,
                   anneal_learning_rate=True),
    "tqc": jf.TQC(**QUICK_TARGETS, **CLIPPED, num_quantiles=5, drop_quantiles=2, kappa=0.6,
                  initial_temperature=0.3),
    "crossq": jf.CrossQ(**TINY, policy_period=2, norm_momentum=0.7, norm_warmup=2, adam_beta=0.3,
                        initial_temperature=0.3,
        anneal_learning_rate=True),
}  # fmt: skip


def window(rng, n: int = N) -> Window:
    """Ends of every kind: a whole window, one cut short by a truncation, terminated ones, and one
    that weighs nothing."""
    steps = np.minimum([3, 3, 2, 1, 2, 0], n).astype(np.int32)
    boot = np.array([1, 0, 1, 0, 0, 1], np.float32)
    use = np.arange(n)[:, None] < steps
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    weight = np.where(steps > 0, rng.uniform(0.2, 1.0, ROWS), 0.0).astype(np.float32)
    action = (LOW + (HIGH - LOW) * rng.uniform(size=(ROWS, ACTIONS))).astype(np.float32)
    return Window(normal(ROWS, OBS), action, 2 * normal(n, ROWS), use, steps, normal(ROWS, OBS),
                  boot, weight)


def made_up(algo, rng):
    """An agent as `init` shapes it, of random numbers: parameters and targets differ, running
    statistics fit."""
    agent = jax.eval_shape(algo.init, jax.random.key(0))
    drawn = lambda x: (0.5 * rng.normal(size=x.shape)).astype(np.float32)

    def number(path, x):
        name = jax.tree_util.keystr(path)
        if "updates" in name:
            return np.zeros(x.shape, np.float32)
        if "log_temperature" in name:
            return np.log(np.float32(algo.initial_temperature))
        return np.abs(drawn(x)) + np.float32(0.3) if "var" in name or "scale" in name else drawn(x)

    params, target = (jax.tree_util.tree_map_with_path(number, x)
                      for x in (agent.params, agent.target))
    opt_state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.opt_state)
    moments = Moments(np.float32(5.0), np.float32([0.3, -0.2, 0.1]), np.float32([9.0, 2.0, 4.0]))
    return agent._replace(
        params=params, target=target, opt_state=opt_state,
        moments=moments if algo.normalize_observations else ()
    )


# Everything below is written out from the papers; of the library it takes only the random numbers
# -----------------------


def dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def renormalised(layer, stats, x, algo, train):
    """Ioffe 2017, algorithm 1 -> (y, new running statistics)."""
    running_std = jnp.sqrt(stats["var"] + 1e-3)
    if not train:
        return (x - stats["mean"]) / running_std * layer["scale"] + layer["bias"], stats
    mean = x.sum(0) / len(x)
    var = ((x - mean) ** 2).sum(0) / len(x)
    r, d = jnp.ones_like(mean), jnp.zeros_like(mean)
    corrected = stats["updates"] >= algo.norm_warmup
    r = jnp.where(corrected, jnp.clip(jnp.sqrt(var + 1e-3) / running_std, 1 / 3, 3), r)
    d = jnp.where(corrected, jnp.clip((mean - stats["mean"]) / running_std, -5, 5), d)
    y = (x - mean) / jnp.sqrt(var + 1e-3) * jax.lax.stop_gradient(r) + jax.lax.stop_gradient(d)
    rho = algo.norm_momentum
    new = {"mean": rho * stats["mean"] + (1 - rho) * mean,
           "var": rho * stats["var"] + (1 - rho) * var}
    return y * layer["scale"] + layer["bias"], new | {"updates": stats["updates"] + 1}


def network(algo, net, x, train=False):
    """Outputs, and the network with what it saw."""
    layers = net["torso"]["params"]
    if not isinstance(algo, jf.CrossQ):
        return dense(net["head"]["params"], jnp.maximum(dense(layers["Dense_0"], x), 0)), net
    stats = net["torso"]["batch_stats"]
    x, first = renormalised(layers["BatchRenorm_0"], stats["BatchRenorm_0"], x, algo, train)
    x = jnp.maximum(dense(layers["Dense_0"], x), 0)
    x, second = renormalised(layers["BatchRenorm_1"], stats["BatchRenorm_1"], x, algo, train)
    seen = jax.lax.stop_gradient({"BatchRenorm_0": first, "BatchRenorm_1": second})
    return dense(net["head"]["params"], x), net | {"torso": {"params": layers, "batch_stats": seen}}


def every(algo, critics, obs, action, train=False):
    """All critics, one after the other: [[b, outputs], ...] and what they saw."""
    x = jnp.concatenate([obs, action] if isinstance(algo, jf.CrossQ) else [action, obs], axis=1)
    pairs = [network(algo, jax.tree.map(lambda p, i=i: p[i], critics), x, train)
             for i in range(algo.num_critics)]
    return [z for z, _ in pairs], jax.tree.map(lambda *x: jnp.stack(x),
                                               *(seen for _, seen in pairs))


def drawn_action(algo, actor, obs, key, train=False):
    """tanh of a Gaussian and its log-density by the change of variables."""
    out, seen = network(algo, actor, obs, train)
    mean, log_std = out[:, :ACTIONS], out[:, ACTIONS:]
    log_std = jnp.where(log_std < algo.log_std_min, algo.log_std_min, log_std)
    std = jnp.exp(jnp.where(log_std > algo.log_std_max, algo.log_std_max, log_std))
    raw = mean + std * random.normal(key, mean.shape)
    density = jnp.exp(-((raw - mean) ** 2) / (2 * std**2)) / (std * jnp.sqrt(2 * jnp.pi))
    return jnp.tanh(raw), (jnp.log(density) - jnp.log(1 - jnp.tanh(raw) ** 2)).sum(1), seen


def critic_loss(algo, zs, y, weight):
    """-> (loss, errors [b]); y [b, atoms] for TQC, [b] else."""
    loss, errors = 0.0, 0.0
    for z in zs:
        if isinstance(algo, jf.TQC):
            one = jnp.zeros(len(z))
            for m in range(algo.num_quantiles):
                u = y - z[:, m : m + 1]
                size = jnp.abs(u)
                huber = jnp.where(size <= algo.kappa, u**2 / 2,
                                  algo.kappa * (size - algo.kappa / 2)) / algo.kappa
                one += (jnp.abs((m + 0.5) / algo.num_quantiles - (u < 0)) * huber).mean(1)
            error = one
        else:
            error = jnp.abs(z[:, 0] - y)
            one = error**2 / 2
        loss, errors = loss + (weight * one).mean(), errors + error / len(zs)
    return loss, errors


def targets(algo, zs, ret, factor, temperature, log_prob):
    """The targets of the critics [b], or [b, atoms] for TQC."""
    if isinstance(algo, jf.TQC):
        atoms = jnp.sort(jnp.concatenate(zs, axis=1), axis=1)
        atoms = atoms[:, : len(zs) * (algo.num_quantiles - algo.drop_quantiles)]
        return ret[:, None] + factor[:, None] * (atoms - temperature * log_prob[:, None])
    value = functools.reduce(jnp.minimum, zs)[:, 0]
    return ret + factor * (value - temperature * log_prob if isinstance(algo, jf.SAC) else value)


def normalise(algo, moments, obs):
    return (
        (obs - moments.mean) / jnp.sqrt(moments.m2 / moments.count) if algo.normalize_observations
        else obs
    )


def critics_objective(algo, critics, params, target, moments, batch, key):
    """-> loss, (errors [b], mean of the critics' values [b], networks with what they saw)."""
    obs, boot_obs = (normalise(algo, moments, x) for x in (batch.obs, batch.boot_obs))
    action = 2 * (batch.action - LOW) / (HIGH - LOW) - 1
    ret = (
        sum(algo.discount**i * batch.reward[i] * batch.use[i] for i in range(N)) * algo.reward_scale
    )
    factor = algo.discount**batch.steps * batch.boot
    if isinstance(algo, jf.SAC):
        temperature = jnp.exp(params["log_temperature"])
        boot_action, log_prob, _ = drawn_action(algo, params["actor"], boot_obs,
                                                random.split(key)[0])
    else:
        temperature, log_prob = 0.0, 0.0
        noise = algo.target_noise * random.normal(key, (ROWS, ACTIONS))
        noise = jnp.minimum(jnp.maximum(noise, -algo.target_noise_clip), algo.target_noise_clip)
        boot_action = jnp.tanh(network(algo, target["actor"], boot_obs)[0]) + noise
        boot_action = jnp.minimum(jnp.maximum(boot_action, -1), 1)
    if isinstance(algo, jf.CrossQ):  # both halves in one batch, and the second half is no variable
        both = jnp.concatenate([obs, boot_obs]), jnp.concatenate([action, boot_action])
        zs, seen = every(algo, critics, *both, train=True)
        boot_zs, zs = [z[ROWS:] for z in zs], [z[:ROWS] for z in zs]
    else:
        boot_zs, _ = every(algo, target if isinstance(algo, jf.SAC) else target["critics"],
                           boot_obs, boot_action)
        zs, seen = every(algo, critics, obs, action)
    y = jax.lax.stop_gradient(targets(algo, boot_zs, ret, factor, temperature, log_prob))
    loss, errors = critic_loss(algo, zs, y, batch.weight)
    return loss, (errors, sum(z.mean(1) for z in zs) / len(zs), seen)


def actor_objective(algo, actor, params, moments, batch, key):
    """-> loss, (log-probabilities [b], the network with what it saw)."""
    obs = normalise(algo, moments, batch.obs)
    if isinstance(algo, jf.TD3):
        action = jnp.tanh(network(algo, actor, obs)[0])
        return -every(algo, params["critics"], obs, action)[0][0].mean(), (jnp.zeros(ROWS), actor)
    action, log_prob, seen = drawn_action(algo, actor, obs, random.split(key)[1], train=True)
    zs, _ = every(algo, params["critics"], obs, action)
    if isinstance(algo, jf.TQC):
        q = jnp.concatenate(zs, axis=1).mean(1)
    else:
        q = functools.reduce(jnp.minimum, zs)[:, 0]
    return (jnp.exp(params["log_temperature"]) * log_prob - q).mean(), (log_prob, seen)


class Reference:
    """The algorithm's state after every update; Adam and the targets in NumPy."""

    def __init__(self, algo, agent):
        self.algo, self.params, self.target, self.moments = (
            algo, dict(agent.params), agent.target, agent.moments)
        zeros = lambda tree: jax.tree.map(np.zeros_like, tree)
        self.adam = {name: (0, zeros(p), zeros(p)) for name, p in agent.params.items()}
        self.compiled = {}

    def slope(self, name, objective, *args):
        """Value and gradient of objective(algo, params[name], *args), compiled once."""
        if name not in self.compiled:
            fn = jax.jit(jax.value_and_grad(functools.partial(objective, self.algo), has_aux=True))
            self.compiled[name] = fn.lower(self.params[name], *args).compile(QUICK)
        return jax.tree.map(np.asarray, self.compiled[name](self.params[name], *args))

    def step(self, name, grads):
        """Kingma & Ba 2015, algorithm 1."""
        n, m, v = self.adam[name]
        b1, b2, n = getattr(self.algo, "adam_beta", 0.9), 0.999, n + 1
        rate = self.algo.learning_rate * (1 - self.progress if self.algo.anneal_learning_rate
                                          else 1)
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        self.adam[name] = n, m, v
        move = lambda p, m, v: p - rate * (m / (1 - b1**n)) / (
            np.sqrt(v / (1 - b2**n)) + self.algo.adam_epsilon)  # fmt: skip
        self.params[name] = jax.tree.map(lambda *x: np.float32(move(*x)), self.params[name], m, v)

    def remember(self, name, seen):
        """Running statistics do not come from Adam."""
        if isinstance(self.algo, jf.CrossQ):
            self.params[name]["torso"]["batch_stats"] = seen["torso"]["batch_stats"]

    def follow(self, target, params):
        tau = self.algo.target_tau
        return jax.tree.map(lambda t, p: np.float32((1 - tau) * t + tau * p), target, params)

    def update(self, batch, key, due, progress=0.0):
        """-> (metrics, errors [b])."""
        algo, self.progress = self.algo, progress
        args = dict(self.params), self.target, self.moments, batch, key
        (loss, (errors, q, seen)), grads = self.slope("critics", critics_objective, *args)
        self.step("critics", grads)
        self.remember("critics", seen)
        real = batch.weight > 0
        metrics = {"critic_loss": loss, "q_value": q[real].mean(), "td_error": errors[real].mean()}
        if isinstance(algo, jf.SAC) and not isinstance(algo, jf.CrossQ):
            self.target = self.follow(self.target, self.params["critics"])
        if not due:
            return metrics, errors
        args = dict(self.params), self.moments, batch, key
        found, grads = self.slope("actor", actor_objective, *args)
        metrics["actor_loss"], (log_prob, seen) = found
        self.step("actor", grads)
        self.remember("actor", seen)
        if isinstance(algo, jf.TD3):
            self.target = self.follow(self.target, self.params)
            return metrics, errors
        alpha = np.exp(self.params["log_temperature"])
        metrics |= {"entropy": -log_prob.mean(), "temperature": alpha}
        if algo.autotune:  # d/dx of mean(-exp(x) (log pi + wanted))
            self.step("log_temperature", -alpha * (log_prob.mean() + algo.target_entropy * ACTIONS))
        return metrics, errors


def close(ours, theirs, rtol=1e-3, atol=2e-5):
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs),
                            strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=jax.tree_util.keystr(path))


@pytest.fixture(scope="module")
def updates():
    """name of a variant -> its compiled update."""

    @functools.cache
    def get(name):
        algo = VARIANTS[name].bind(SPEC)
        rng = np.random.default_rng(0)
        args = made_up(algo, rng), window(rng), jax.random.key(0), Clock(
            jnp.int32(0), jnp.int32(0), jnp.float32(0))
        return jax.jit(algo.update).lower(*args).compile(QUICK)

    return get


@pytest.mark.parametrize("name", family(VARIANTS, ["sac", "td3"]))
def test_updates_equal_the_formulas(name, updates, clock, rng):
    algo = VARIANTS[name].bind(SPEC)
    agent = made_up(algo, rng)
    reference = Reference(algo, agent)
    for step in (1, 2, 3):  # with a period of 2 only the second moves the actor
        batch, key, before = window(rng), jax.random.key(step), dict(reference.params)
        due = step % algo.policy_period == 0
        expected, errors = reference.update(batch, key, due, progress=0.25 * step)
        agent, metrics, priority = updates(name)(agent, batch, key, clock(step, step, 0.25 * step))
        np.testing.assert_allclose(priority, errors, rtol=1e-3, atol=1e-5)
        close(agent.params, reference.params)
        close(agent.target, reference.target)
        got = {k: float(m.total / m.count) for k, m in metrics.items() if m.count > 0}
        assert got.keys() == expected.keys()
        for k, x in expected.items():
            assert got[k] == pytest.approx(float(x), rel=1e-3, abs=1e-5), k
        changed = lambda a, b: any(
            (x != y).any() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
        moved = {part for part in before if changed(reference.params[part], before[part])}
        assert moved == {"critics"} | ({"actor"} if due else set()) | (
            {"log_temperature"} if due and getattr(algo, "autotune", False) else set())  # fmt: skip


# Actions
# --------------------------------------------------------------------------------------------------

# in float32 low + (high - low) is not always high
ODD = Box((-0.1, 0.3, 2.0, -7.0), (0.3, 0.7, 5.5, -1e-3), (2, 2))


@pytest.mark.parametrize("space", family([SPEC.action, ODD, Box(-0.1, 0.3, ())], 2),
                         ids=["vector", "matrix", "scalar"])
def test_actions_go_to_the_environments_bounds_and_back(space, rng):
    algo = jf.SAC().bind(dataclasses.replace(SPEC, action=space))
    size = int(np.prod(space.shape))
    assert algo.action_size == size and algo.actor_outputs == 2 * size
    action = rng.uniform(-1, 1, (200, size)).astype(np.float32)
    action[:2] = [[-1.0], [1.0]]
    low, high = space.bounds()
    there = np.asarray(algo.spec.action.from_unit(jnp.asarray(action)))
    assert there.shape == (200, *space.shape) and there.dtype == np.float32
    np.testing.assert_allclose(there[:2], [low, high], atol=1e-6)
    assert (there >= low).all() and (there <= high).all()  # of float32, to the last bit
    drawn = np.asarray(
        distributions.random_action(jnp.linspace(-9, 9, 50)[:, None] * jnp.ones(size), space))
    assert (drawn >= low).all() and (drawn <= high).all()
    np.testing.assert_allclose(algo.spec.action.to_unit(there), action, atol=2e-6)


@pytest.mark.parametrize("cls", [jf.SAC, jf.TD3])
def test_every_mode_acts_within_the_bounds(cls, rng, clock):
    """Greedy is the tanh of the mean, sampling adds noise, in [-1, 1] for TD3 and before the tanh
    for SAC."""
    noisy = {"exploration_noise": 0.7} if cls is jf.TD3 else {"log_std_min": -0.5}
    algo = cls(**TINY, **noisy, normalize_observations=True).bind(SPEC)
    agent = made_up(algo, rng)
    obs, noise = (
        rng.normal(size=(300, OBS)).astype(np.float32),
        rng.normal(size=(300, ACTIONS)).astype(np.float32)
    )
    out, _ = jax.tree.map(np.asarray,
                          network(algo, agent.params["actor"], normalise(algo, agent.moments, obs)))
    if cls is jf.TD3:
        greedy, sample = np.tanh(out), np.clip(np.tanh(out) + 0.7 * noise, -1, 1)
        assert (np.abs(sample) == 1).any()
    else:
        mean, std = out[:, :ACTIONS], np.exp(np.clip(out[:, ACTIONS:], -0.5, 2.0))
        greedy, sample = np.tanh(mean), np.tanh(mean + std * noise)
    act = jax.jit(algo.act, static_argnums=5)
    for mode, action in (("greedy", greedy), ("sample", sample), ("random", None)):
        carry, taken, extras = act(agent, algo.init_carry(len(noise)), obs, noise, clock(), mode)
        assert (carry == noise).all() and extras == ()  # not correlated
        if mode == "sample":  # by itself, and not because the bounds clip it
            view = normalise(algo, agent.moments, obs)
            assert (np.abs(algo.choose(agent.params["actor"], view, noise, False)) <= 1).all()
        assert (taken >= LOW).all() and (taken <= HIGH).all()
        if action is not None:
            np.testing.assert_allclose(taken, LOW + (HIGH - LOW) * (action + 1) / 2, rtol=1e-4,
                                       atol=1e-4)


# What the memory holds, and who sees what
# --------------------------------------------------------------------------------


@jf.settings
class Wanders(jf.Env):
    """A state that the action pushes, in bounds of its own; ends beyond 4, cut every 7 steps."""

    @property
    def spec(self):
        return EnvSpec("test/wanders", Box(-9.0, 9.0, (2,)), Box(-0.5, 2.0, (1,)), 7)

    def draw_reset(self, key, shape):
        return random.uniform(key, (*shape, 2))

    def reset(self, noise):
        time = jnp.zeros(noise.shape[0], jnp.int32)
        return (noise, time), noise

    def transition(self, noise, state, action):
        place, time = state[0] + jnp.concatenate([action, 0.1 * action], axis=1), state[1] + 1
        ended = place[:, 0] > 4
        return (place, time), jf.Outcome(place, action[:, 0], ended, ~ended & (time >= 7))


@jf.settings
class Counts(jf.SAC):
    """SAC that logs how many rows its statistics have seen when it updates and when it acts."""

    name = "counts"

    def update(self, agent, batch, key, clock):
        agent, metrics, priority = super().update(agent, batch, key, clock)
        return agent, metrics | {"seen": Mean.of(agent.moments.count)}, priority


def test_statistics_belong_to_the_agent_and_count_each_row_once():
    """Statistics count the rows of warm-up, follow the updates and stand still in evaluation; the
    memory holds the environment's actions."""
    sizes = dict(num_envs=4, num_steps=2, updates_per_iteration=2, batch_size=4, buffer_size=400,
                 learning_starts=16)
    algo = Counts(**sizes, hidden=(4,), critic_hidden=(4,), normalize_observations=True)
    train = jf.make_train(algo, Wanders(), total_steps=48, log_every=8, eval_every=24,
                          eval_episodes=3)
    key = jax.random.key(0)
    state, metrics = jax.jit(train).lower(key).compile(QUICK)(key)
    np.testing.assert_array_equal(metrics["env_steps"], [24, 32, 40, 48])
    # without the rows just collected
    np.testing.assert_array_equal(metrics["seen"], [16, 24, 32, 40])
    assert np.isfinite(metrics["eval_return"]).any()  # whose steps are in no statistics
    moments, rows = state.agent.moments, np.asarray(state.memory.obs)[:12].reshape(48, 2)
    assert moments.count == 48 and not np.asarray(state.memory.obs)[12:].any()
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(np.sqrt(moments.m2 / 48), rows.std(0), rtol=1e-4)
    action = np.asarray(state.memory.action)[:12]
    assert action.min() >= -0.5 and action.max() <= 2.0 and action.max() > 1.0  # not in [-1, 1]
    first, last = np.asarray(state.memory.obs)[:11, :, 0], np.asarray(state.memory.obs)[1:12, :, 0]
    goes_on = ~np.asarray(state.memory.terminated | state.memory.truncated)[:11]
    np.testing.assert_allclose((last - first)[goes_on], action[:11, :, 0][goes_on], atol=1e-5)


def test_float_observations_are_normalised(rng):
    space = Dict.of(place=Box(-1, 1, (2,)), image=Box(0, 255, (3,), jnp.uint8))
    obs = {"place": rng.normal(3, 2, (50, 2)).astype(np.float32),
           "image": rng.integers(0, 255, (50, 3)).astype(np.uint8)}
    moments = init_moments(True, obs)
    # nothing was seen yet
    np.testing.assert_array_equal(normalize_obs(space, moments, obs)["place"], obs["place"])
    update = jax.jit(lambda moments, obs: normalize_obs(space, moments.update(obs), obs))
    seen = jax.device_get(update(moments, obs))
    np.testing.assert_allclose(seen["place"].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(seen["place"].std(0), 1, rtol=1e-4)
    np.testing.assert_array_equal(seen["image"], obs["image"])
    assert init_moments(False, obs) == () and normalize_obs(space, (), obs) is obs


# CrossQ
# --------------------------------------------------------------------------------------------------


def test_crossq_has_no_targets_and_acts_by_its_running_statistics(updates, clock, rng):
    algo = VARIANTS["crossq"].bind(SPEC)
    agent = made_up(algo, rng)
    assert agent.target == () and jax.tree.leaves(
        jax.eval_shape(algo.init, jax.random.key(0)).target) == []
    obs, noise = rng.normal(size=(5, OBS)).astype(np.float32), np.zeros((5, ACTIONS), np.float32)
    play = jax.jit(lambda agent, obs: algo.act(agent, algo.init_carry(len(obs)), obs,
                                               noise[: len(obs)], clock(), "greedy")[1])
    act = lambda agent, obs: np.asarray(play(agent, obs))
    before = act(agent, obs)
    # whatever else is in the batch
    np.testing.assert_allclose(act(agent, obs[:1]), before[:1], rtol=1e-5)
    stats = lambda agent: agent.params["actor"]["torso"]["batch_stats"]
    # moves the actor too
    learned, _, _ = updates("crossq")(agent, window(rng), jax.random.key(1), clock(0, 0))
    assert stats(learned)["BatchRenorm_0"]["updates"] == 1
    assert (stats(learned)["BatchRenorm_0"]["mean"] != stats(agent)["BatchRenorm_0"]["mean"]).all()
    torso = agent.params["actor"]["torso"] | {"batch_stats": stats(learned)}
    moved = agent._replace(
        params=agent.params | {"actor": agent.params["actor"] | {"torso": torso}})
    assert (np.abs(act(moved, obs) - before) > 1e-4).any(axis=1).all()
    # not the actor's turn
    later, _, _ = updates("crossq")(agent, window(rng), jax.random.key(1), clock(1, 1))
    np.testing.assert_array_equal(stats(later)["BatchRenorm_0"]["mean"],
                                  stats(agent)["BatchRenorm_0"]["mean"])
    assert (later.params["critics"]["torso"]["batch_stats"]["BatchRenorm_0"]["updates"] == 1).all()


# TQC
# --------------------------------------------------------------------------------------------------


def test_tqc_drops_the_highest_atoms_of_all_critics_together():
    algo = jf.TQC(num_critics=3, num_quantiles=4, drop_quantiles=1).bind(SPEC)
    # one critic holds all the high ones
    z = jnp.float32([[[5, 1, 9, 3]], [[50, 70, 60, 80]], [[2, 4, 6, 8]]])
    np.testing.assert_array_equal(algo.pool(z), [[1, 2, 3, 4, 5, 6, 8, 9, 50]])
    np.testing.assert_allclose(algo.value(z), [z.mean()])  # the actor climbs all of them
    assert dataclasses.replace(algo, drop_quantiles=0).pool(z).shape == (1, 12)


# Networks of users, observations of other kinds
# -----------------------------------------------------------------------


class Flatten(nn.Module):
    """A network as people write them: the first axis is the batch, there is no other."""

    @nn.compact
    def __call__(self, x):
        return nn.relu(nn.Dense(5)(x.reshape((x.shape[0], -1))))


@pytest.mark.parametrize("cls", family([jf.SAC, jf.TD3, jf.TQC, jf.CrossQ], [jf.CrossQ]))
def test_a_users_torso_is_in_the_actor_and_each_critic(cls):
    algo = cls(**TINY, network=Flatten()).bind(SPEC)
    agent = jax.eval_shape(algo.init, jax.random.key(0))
    own = {k: v.shape
           for k, v in jax.tree_util.tree_leaves_with_path(agent.params)
           if "'Dense_0'" in jax.tree_util.keystr(k)
           and v.shape[-1] == 5 and "kernel" in jax.tree_util.keystr(k)}  # fmt: skip
    assert sorted(own.values()) == [(2, OBS, 5), (OBS, 5)]
    metrics = jax.eval_shape(
        jf.make_train(
            cls(**TINY, network=Flatten(), learning_starts=16), Wanders(), 64, log_every=32
        ), jax.random.key(0)
    )[1]
    assert metrics["critic_loss"].shape == metrics["env_steps"].shape


@pytest.mark.parametrize("cls", family([jf.SAC, jf.CrossQ], 1))
def test_dict_observations_reach_actor_and_critics(cls, rng, clock):
    space = Dict.of(place=Box(-1, 1, (2,)), kind=Discrete(3))
    algo = cls(**TINY).bind(dataclasses.replace(SPEC, observation=space))
    agent = made_up(algo, rng)
    obs = {"place": rng.normal(size=(4, 2)).astype(np.float32), "kind": np.array([0, 1, 2, 0])}
    action = np.zeros((4, ACTIONS), np.float32)
    carry = algo.init_carry(len(action))
    seen = jax.jit(lambda obs: (
        algo.act(agent, carry, obs, action, clock(), "greedy")[1],
        algo.networks.critic_output(agent.params["critics"], obs, action)[..., 0]))
    acted, value = map(np.asarray, seen(obs))
    for changed in ({"place": obs["place"] + 1}, {"kind": (obs["kind"] + 1) % 3}):
        others = map(np.asarray, seen(obs | changed))
        assert (next(others) != acted).any(axis=1).all() and (next(others) != value).all()


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="td3 needs Box actions"):
        jf.TD3().bind(dataclasses.replace(SPEC, action=Discrete(2)))
    with pytest.raises(ConfigError, match="sac needs bounded actions"):
        jf.SAC().bind(dataclasses.replace(SPEC, action=Box(-1.0, np.inf, (1,))))
    with pytest.raises(ConfigError,
                       match=r"normalize_observations must be False with stacked frames, got True"):
        jf.SAC(normalize_observations=True).bind(dataclasses.replace(SPEC, stack=2))
    with pytest.raises(ConfigError, match=r"drop_quantiles must be below num_quantiles = 4, got 4"):
        jf.TQC(num_quantiles=4, drop_quantiles=4)
    jf.SAC(log_std_min=-1.0, log_std_max=-1.0)  # one width for all is a policy
    jf.CrossQ(target_tau=0.005)
    # a sweep
    jax.vmap(
        lambda x: jf.CrossQ(adam_beta=x, norm_momentum=0.0, noise_correlation=x).adam_beta
    )(jnp.ones(2))


@pytest.mark.parametrize("mode", family(["sample", "random"], 1))
def test_exploration_has_the_requested_correlation(mode):
    """An Ornstein-Uhlenbeck process: unit variance from the first step on, a lag-one correlation of
    `noise_correlation`."""
    algo = jf.TD3(hidden=(4,), critic_hidden=(4,), noise_correlation=0.8,
                  exploration_noise=0.2).bind(SPEC)
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))

    @jax.jit
    def explored(key):
        agent = algo.init(key)

        def step(carry, noise):
            return algo.act(agent, carry, jnp.zeros((500, OBS)), noise, clock, mode)[:2]

        drawn = algo.draw(jax.random.key(1), 40, 500)
        return algo.spec.action.to_unit(jax.lax.scan(step, algo.init_carry(500), drawn)[1])

    x = np.asarray(explored(jax.random.key(0)))  # [T, 500, 2]
    x = x - x.mean((0, 1))
    assert np.mean(x[1:] * x[:-1]) / np.var(x) == pytest.approx(0.8, abs=0.05)
    expected = 0.2 if mode == "sample" else 1 / np.sqrt(3)  # a uniform variable's, on [-1, 1]
    for first in (x[0], x[1], x):
        assert np.std(first) == pytest.approx(expected, rel=0.07)
