"""Ape-X: what makes it more than DQN with switches on."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.engine import iteration
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import Filled, StartFrom, load_memory, mix, rows_of, save_memory
from jaxrl_fast.types import Clock

SMALL = dict(num_envs=4, num_steps=3, batch_size=8, buffer_size=96, learning_starts=24, hidden=(8,),
             discount=0.9)
START = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0.5))


def test_each_actor_has_its_own_epsilon():
    """epsilon^(1 + 7 i / (N - 1)): 0.4, ... 0.4^8 = 0.00066, whatever part of the actors is
    asked."""
    algo = jf.ApeX(num_envs=8)
    by_hand = [0.4 ** (1 + 7 * i / 7) for i in range(8)]
    np.testing.assert_allclose(algo.epsilon(algo.init_carry(8), START), by_hand, rtol=1e-5)
    np.testing.assert_allclose(algo.epsilon(tree.take(algo.init_carry(8), slice(3, 5)), START),
                               by_hand[3:5], rtol=1e-5)
    falling = jf.ApeX(epsilon_start=1.0, epsilon_end=0.2, epsilon_fraction=1.0)
    np.testing.assert_allclose(falling.epsilon(falling.init_carry(2), START), [0.6, 0.6**8],
                               rtol=1e-5)
    # in the middle of a run, as population-based training does
    changed = dataclasses.replace(algo, epsilon_exponent=1.0)
    np.testing.assert_allclose(changed.epsilon(algo.init_carry(8), START)[-1], 0.4**2, rtol=1e-5)
    alike = jf.ApeX(epsilon_exponent=0.0)
    np.testing.assert_allclose(alike.epsilon(alike.init_carry(3), START), 0.4, rtol=1e-6)


@pytest.mark.parametrize(("least", "epsilon"),
                         [(0.01, 0.01), (0.0, 0.4**8), (0.0001, 0.4**8), (1.0, 1.0)])
def test_sampled_evaluations_use_the_last_actors_epsilon_or_the_minimum(least, epsilon):
    algo = jf.ApeX(evaluation_epsilon=least)
    np.testing.assert_allclose(algo.epsilon(algo.evaluation_carry(3), START), [epsilon] * 3,
                               rtol=1e-5)


def test_actions_are_as_random_as_the_actor():
    env = jf.make("probe/named-action")
    algo = jf.ApeX(num_envs=512, epsilon_exponent=0.0, hidden=(8,)).bind(env.spec)
    agent, act = jax.jit(algo.init)(jax.random.key(0)), jax.jit(algo.act, static_argnames="mode")
    obs = jnp.zeros((512, *env.spec.observation.shape), env.spec.observation.dtype)
    noise = tree.take(algo.draw(jax.random.key(1), 1, 512), 0)
    greedy = act(agent, algo.init_carry(512), obs, noise, START, "greedy")[1]
    carry, action, known = act(agent, algo.init_carry(512), obs, noise, START, "sample")
    off = np.mean(action != greedy)
    n = env.spec.action.n
    assert abs(off - 0.4 * (n - 1) / n) < 0.08
    q = algo.action_values(agent.params, obs)
    np.testing.assert_allclose(known.best, q.max(-1), rtol=1e-6)
    np.testing.assert_allclose(known.taken,
                               np.take_along_axis(
                                   np.asarray(q), np.asarray(action)[:, None], 1)[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(carry.place, algo.init_carry(512).place)  # they keep their places
    _, action, known = act(agent, algo.init_carry(512), obs, noise, START, "random")
    np.testing.assert_allclose(known.taken, q[np.arange(512), action], rtol=1e-6)


def test_first_priorities_are_the_actors_errors():
    """After two iterations of play every leaf follows from the rows in the ring and the agent that
    played them."""
    env = jf.make("probe/two-step-credit")
    algo = jf.ApeX(**SMALL, priority_exponent=1.0, priority_epsilon=1e-6).bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, 10.0))

    @jax.jit
    def play(key):
        state = iteration.init(run, key)
        return state, iteration.iterations(run, state, jnp.int32(0), 4, False)[0]

    before, state = play(jax.random.key(3))
    mem, memory = jax.tree.map(np.asarray, state.memory), algo.memory()
    q = np.asarray(algo.action_values(before.agent.params, mem.rows.obs[:12]))
    r, a, end, cut = (np.asarray(x)[:12]
                      for x in (mem.rows.reward, mem.rows.action, mem.rows.terminated,
                                mem.rows.truncated))
    leaves = mem.tree[0].reshape(-1)[: memory.length * 4].reshape(-1, 4)
    alive = 0
    for t in range(12 - 3):
        for e in range(4):
            ret, factor = 0.0, 1.0
            for i in range(3):
                if cut[t + i, e]:
                    break
                ret, factor, last = ret + factor * r[t + i, e], factor * 0.9, t + i + 1
                if end[t + i, e]:
                    factor = 0.0
                    break
            if cut[t, e]:
                assert leaves[t + 3, e] == 0
                continue
            error = abs(ret + (factor * q[last, e].max() if factor else 0.0) - q[t, e, a[t, e]])
            np.testing.assert_allclose(leaves[t + 3, e], error + 1e-6, atol=1e-5)
            alive += 1
    assert alive > 20 and len({float(x) for x in leaves[leaves > 0]}) > 4


@pytest.mark.matrix(
    "tests/algorithms/test_learns_probes.py::test_value_based_algorithms_learn_probes")
@pytest.mark.parametrize("name", family(["two-step-credit", "masked"], ["masked"]))
def test_apex_learns(learn, name):
    """Q of the greedy action; the actors that hardly explore see little else."""
    settings = dict(num_envs=16, num_steps=2, batch_size=64, buffer_size=4096, learning_starts=512,
                    learning_rate=1e-2,
                    anneal_learning_rate=True, discount=0.9, hidden=(16,), target_period=10,
                    epsilon_exponent=2.0)  # fmt: skip
    algo, agent, known, metrics = learn(jf.ApeX(**settings), f"probe/{name}", 20_000)
    q = np.asarray(algo.action_values(agent.params, known.obs))
    np.testing.assert_array_equal(q.argmax(-1)[:1], known.action[:1])
    np.testing.assert_allclose(q.max(-1)[:1], known.value[:1],
                               atol=0.06 * max(1.0, abs(known.value).max()))
    assert all(np.isfinite(x).all() for x in metrics.values())


@pytest.mark.parametrize(("name", "value"),
                         [("prioritized", False), ("noisy", True), ("epsilon_exponent", -1.0)])
def test_apex_refuses_noisy_and_uniform_replay(name, value):
    with pytest.raises(ConfigError, match=name):
        jf.ApeX(**{name: value})


def test_memories_of_equal_settings_are_equal():
    """Memories are static arguments of jitted functions: two that differ by identity would compile
    twice."""
    spec = jf.make("probe/masked").spec
    memories = [jf.ApeX(**SMALL | {"discount": d}).bind(spec).memory() for d in (0.9, 0.9, 0.8)]
    assert (
        memories[0] == memories[1] and hash(memories[0]) == hash(memories[1])
        and memories[0] != memories[2]
    )


@pytest.mark.slow
def test_apex_experience_is_an_ordinary_dataset(tmp_path):
    """Written and read back without what the actors knew; mixed with, or followed by, what actors
    do know."""
    env = jf.make("probe/named-action")
    algo = jf.ApeX(**SMALL).bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, 10.0))
    state = (
        jax.jit(lambda key: iteration.iterations(
            run, iteration.init(run, key), jnp.int32(0), 6, False)[0])(jax.random.key(0))
    )
    memory = algo.memory()
    held = Filled(memory, state.memory, 6)
    save_memory(tmp_path / "replay", held)
    back = load_memory(tmp_path / "replay", memory)
    assert back.store.rows.extras == () and back.store.rows.obs.shape == held.store.rows.obs.shape
    np.testing.assert_array_equal(back.store.tree[0], held.store.tree[0])
    assert rows_of(held).extras == ()
    block = jax.tree.map(lambda x: x[:3], held.store.rows)  # of the run, with extras
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))
    for start in (held, back):
        for other in (mix(memory, start), StartFrom(memory, start)):
            mem = other.init(jax.eval_shape(lambda: block))
            for w in range(4):
                mem = other.add(mem, block, jnp.int32(w))
            window, handle = other.fetch(
                mem, tree.take(other.plan(jax.random.key(1), 1, jnp.int32(4), clock), 0))
            assert window.reward.shape == (3, SMALL["batch_size"]) and np.isfinite(other.watch(mem))
            other.feedback(mem, handle, jnp.ones(SMALL["batch_size"]))
