"""ARS and OpenES: one iteration against NumPy on the noise that it drew, and what an iteration is
made of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.common.evolution import first_episode
from jaxrl_fast.algorithms.common.learning import Iteration, Played
from jaxrl_fast.algorithms.es import centred_ranks
from jaxrl_fast.engine import iteration, rollout
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import Memory
from jaxrl_fast.ops.statistics import Moments
from jaxrl_fast.types import Clock

CLOCK = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0.25))
LIMIT, SETTINGS = 9, dict(directions=3, episodes_per_candidate=2, noise_std=0.3, hidden=())
MIDDLE = {"bias": np.array([0.2], np.float32), "kernel": np.array([[-0.5], [0.3]], np.float32)}
SEEN = Moments(jnp.float32(4.0), jnp.array([0.1, -0.2]), jnp.array([2.0, 9.0]))


@jf.settings
class Line(jf.Env):
    """x' = x + 0.4 a, reward 2 - (x' - 0.5)^2; terminates where |x'| > 1.2. Observation (x, x^2),
    action in [-1, 3]."""

    limit: int | None = LIMIT

    @property
    def spec(self):
        return jf.EnvSpec("test/line", jf.Box(-10.0, 10.0, (2,)), jf.Box(-1.0, 3.0, (1,)),
                          self.limit)

    def draw_reset(self, key, shape):
        return random.uniform(key, shape, -1.0, 1.0)

    def reset(self, noise):
        return (noise, jnp.zeros(noise.shape, jnp.int32)), jnp.stack([noise, noise**2], -1)

    def transition(self, noise, state, action):
        x, time = state[0] + 0.4 * action[:, 0], state[1] + 1
        terminated = jnp.abs(x) > 1.2
        reward = 2.0 - jnp.square(x - 0.5)
        return (x, time), jf.Outcome(jnp.stack([x, x**2], -1), reward, terminated,
                                     ~terminated & (time >= LIMIT))


def play(theta, start, steps, view):
    """One episode of the linear policy theta = (bias, kernel) -> (return, length, observations)."""
    x, total, seen = np.float64(start), 0.0, []
    for _ in range(steps):
        obs = np.array([x, x * x])
        seen.append(obs)
        action = 1.0 + 2.0 * np.clip(theta[0] + view(obs) @ theta[1:], -1, 1)
        x = x + 0.4 * action
        total += 2 - (x - 0.5) ** 2
        if abs(x) > 1.2:
            break
    return total, len(seen), seen


def reference(algo, noise, start, view):
    """(returns [2, directions], mean length, observations that count)."""
    theta = np.concatenate([MIDDLE["bias"], MIDDLE["kernel"][:, 0]]).astype(np.float64)
    total, length, seen = [], [], []
    for c, candidate in enumerate(np.concatenate([theta + 0.3 * noise, theta - 0.3 * noise])):
        found = [play(candidate, start[2 * c + i], algo.num_steps, view) for i in range(2)]
        total.append(np.mean([f[0] - algo.survival_bonus * f[1] for f in found]))
        length += [f[1] for f in found]
        seen += [obs for f in found for obs in f[2]]
    return np.reshape(total, (2, -1)), np.mean(length), np.array(seen)


def ars(ret, noise, count, scale):
    order = sorted(range(len(noise)), key=lambda i: -ret[:, i].max())[:count]
    spread = np.std([ret[s, i] for s in (0, 1) for i in order]) if scale else 1.0
    return sum((ret[0, i] - ret[1, i]) * noise[i] for i in order) / (count * spread)


def es(ret, noise):
    flat = ret.reshape(-1)
    rank = np.array([(flat < r).sum() for r in flat]) / (flat.size - 1) - 0.5
    return (
        sum(r * e for r, e in zip(rank, np.concatenate([noise, -noise]), strict=True))
        / (flat.size * 0.3)
    )


CASES = {
    "V1": (jf.ARS, dict(normalize_observations=False, scale_by_return_std=False),
           lambda r, n: ars(r, n, 3, False)),
    "V2-t": (jf.ARS, dict(top_directions=2, anneal_learning_rate=True),
             lambda r, n: ars(r, n, 2, True)),
    "short": (jf.ARS, dict(num_steps=4, survival_bonus=1.5), lambda r, n: ars(r, n, 3, True)),
    "es": (jf.OpenES, dict(weight_decay=0.7, normalize_observations=True), es),
}


@pytest.mark.parametrize("case", family(CASES, ["V2-t", "es"]))
def test_one_iteration_against_numpy(case):
    cls, settings, formula = CASES[case]
    env = Line()
    algo = tree.as_float32(cls(**SETTINGS | settings, learning_rate=0.1).bind(env.spec))
    assert algo.num_envs == 12 and algo.num_steps == settings.get("num_steps", LIMIT)
    agent = jax.jit(algo.init)(jax.random.key(0))
    params = agent.params | {"head": {"params": jax.tree.map(jnp.asarray, MIDDLE)}}
    agent = agent._replace(params=params, moments=SEEN if algo.normalize_observations else ())
    keys = random.split(jax.random.key(1), 4)
    draw = lambda keys: rollout.draw(env, algo, keys, algo.num_steps, algo.num_envs, jnp.int32(0))
    drawn, begin = jax.jit(draw)(keys[1:3]), lambda key: rollout.init(env, algo, key, algo.num_envs)
    play = lambda agent, start: Played(
        *rollout.collect(env, algo, agent, start, drawn, CLOCK, "sample"), {}, ())
    iteration = lambda key: Iteration(CLOCK.iteration, True, lambda: CLOCK, Memory(), (), key[None],
                                      play, begin)
    after, _, metrics, _ = (
        jax.jit(lambda agent, key: algo.learn(agent, (), iteration(key)))(agent, keys[3]))
    start_key, noise_key = random.split(keys[3])
    start = jax.jit(begin)(start_key)
    noise = np.asarray(random.normal(noise_key, (3, 3)), np.float64)
    std = np.sqrt(np.asarray(SEEN.m2) / 4.0)
    view = (
        (lambda obs: (obs - np.asarray(SEEN.mean)) / std) if algo.normalize_observations
        else lambda obs: obs
    )
    ret, length, seen = reference(algo, noise, np.asarray(start.env[0]), view)
    assert length < algo.num_steps  # some episodes end early, or this tests little
    way = formula(ret, noise)
    if cls is jf.ARS:
        step = 0.1 * (0.75 if algo.anneal_learning_rate else 1.0) * way
    else:  # Adam's first step
        descent = 0.7 * np.concatenate([MIDDLE["bias"], MIDDLE["kernel"][:, 0]]) - way
        step = -0.1 * descent / (np.abs(descent) + 1e-8)
    moved = jax.tree.map(lambda a, b: np.asarray(a - b).reshape(-1), after.params["head"]["params"],
                         MIDDLE)
    np.testing.assert_allclose([*moved["bias"], *moved["kernel"]], step, rtol=2e-4, atol=1e-6)
    assert after.candidates == ()
    means = {name: m.total / m.count for name, m in metrics.items()}
    raw = ret.mean() + algo.survival_bonus * length
    np.testing.assert_allclose(means["candidate_return"], raw, rtol=1e-5)
    np.testing.assert_allclose(means["candidate_length"], length, rtol=1e-6)
    np.testing.assert_allclose(means["grad_norm"], np.linalg.norm(way), rtol=2e-4)
    if not algo.survival_bonus:
        np.testing.assert_allclose(means["best_candidate_return"], ret.max(), rtol=1e-5)
    if algo.normalize_observations:
        moments = after.moments
        np.testing.assert_allclose(moments.count, 4 + len(seen))
        wanted = (4 * np.asarray(SEEN.mean) + seen.sum(0)) / (4 + len(seen))
        np.testing.assert_allclose(moments.mean, wanted, rtol=1e-5)


def test_each_candidate_acts_in_its_own_environments():
    env = jf.make("CartPole-v1")
    algo = jf.OpenES(directions=2, episodes_per_candidate=3, hidden=(4,)).bind(env.spec)
    init, act = jax.jit(algo.init), jax.jit(algo.act, static_argnums=5)
    agents = [init(jax.random.key(i)) for i in range(4)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *(a.params for a in agents))
    obs = random.normal(jax.random.key(9), (12, 4))
    together = act(agents[0]._replace(candidates=stacked), (), obs, None, CLOCK, "sample")[1]
    alone = [act(a, (), obs[3 * i : 3 * i + 3], None, CLOCK, "greedy")[1]
             for i, a in enumerate(agents)]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    assert len({a.tobytes() for a in map(np.asarray, alone)}) > 1


def test_ranks_are_centred():
    np.testing.assert_allclose(centred_ranks(jnp.array([3.0, -1.0, 10.0])), [0.0, -0.5, 0.5])
    np.testing.assert_allclose(centred_ranks(jnp.array([5.0, 5.0, 5.0, 5.0])), 0.0)
    np.testing.assert_allclose(centred_ranks(jnp.array([1.0, 2.0, 2.0, 9.0, 0.0])),
                               [-0.25, 0.125, 0.125, 0.5, -0.5])


def test_only_the_first_episode_counts():
    done = jnp.array([[0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]], bool)
    wanted = [[1, 1, 1], [1, 0, 1], [1, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(first_episode(done), np.array(wanted, bool))


def test_every_iteration_begins_new_episodes():
    """Five of nine steps: no episode ever ends by its limit, which a second rollout would reach."""
    env = Line()
    algo = tree.as_float32(
        jf.ARS(**SETTINGS | dict(noise_std=1e-3), learning_rate=0.0, num_steps=5).bind(env.spec))
    run = iteration.Run(env, algo, jnp.float32(10))
    state = iteration.init(run, jax.random.key(0))
    one = jax.jit(
        lambda state, t: iteration.iteration(run, state, iteration.draw(run, state.key, t), t, True)
    )
    for t in range(3):
        before = state
        state, _ = one(state, jnp.int32(t))
        assert state.env[1].max() <= 5 and state.episodes.length.max() <= 5 < LIMIT
        assert not np.array_equal(before.env[0], state.env[0])


PROBES = [
    (jf.ARS, "continuous", {"top_directions": 8}),
    (jf.ARS, "masked", {"learning_rate": 0.2}),
    (jf.ARS, "multi-discrete", {"hidden": (8,), "learning_rate": 0.2}),
    (jf.OpenES, "continuous", {"hidden": (), "normalize_observations": True}),
    pytest.param(jf.OpenES, "dict", {"hidden": (16,)}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("cls", "name", "settings"), family(
    PROBES,
    lambda cls, name, _: (cls, name) == (jf.OpenES, "continuous")),
                         ids=lambda x: getattr(x, "name", None))
def test_evolution_learns(learn, cls, name, settings):
    common = {"directions": 16, "episodes_per_candidate": 8, "noise_std": 0.1,
              "learning_rate": 0.05, "hidden": ()}
    algo, agent, known, metrics = learn(cls(**common | settings), f"probe/{name}", 40_000)
    act = jax.jit(lambda obs: algo.act(agent, (), obs, None, CLOCK, "greedy")[1])
    action, wanted = np.asarray(act(known.obs)), known.action
    if name == "continuous":
        np.testing.assert_allclose(action, wanted, atol=0.15)
    else:
        np.testing.assert_array_equal(action, wanted)
    assert all(np.isfinite(x).all() for x in metrics.values())


def test_evolution_refuses_unfit_settings():
    with pytest.raises(ConfigError, match="num_steps must be .*got 0: .* no limit of its own"):
        jf.ARS().bind(Line(limit=None).spec)
    with pytest.raises(ConfigError, match="top_directions must be at most directions = 16, got 17"):
        jf.ARS(top_directions=17)
    with pytest.raises(ConfigError, match="noise_std must be .*got 0"):
        jf.OpenES(noise_std=0.0)
    assert jf.ARS(num_steps=3).bind(Line(limit=None).spec).steps_per_iteration == 2 * 16 * 3
