"""Every algorithm and environment traced with jax_enable_x64, in the dtypes that it has without."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import ALGORITHMS, ENVIRONMENTS, family
from jaxrl_fast import tree
from jaxrl_fast.actors import play
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.evaluate import evaluate
from jaxrl_fast.envs import registry

NATIVE = [name
          for name, listed in registry.list_environments().items()
          if listed.source in ("native", "probe")]
# fail in gymnax itself
MIXED = ["DiscountingChain-bsuite", "MetaMaze-misc", "BernoulliBandit-misc"]
PPO = dict(num_envs=4, num_steps=4, num_epochs=1, num_minibatches=1, hidden=(4,))


def traced(algo, env):
    """(states before and after, metrics, an evaluation) of a warm-up and an iteration, as
    shapes."""
    algo = algo.bind(env.spec)
    run = tree.as_float32(iteration.Run(env, algo, 10.0))

    def whole(key):
        state = iteration.init(run, key)
        warm, _ = iteration.iterations(run, state, jnp.int32(0), 1, False)
        new, metrics = iteration.iterations(run, warm, jnp.int32(1), 2, True)
        return state, new, metrics, evaluate(run.env, algo, new.agent, key, 3)

    return jax.eval_shape(whole, jax.random.key(0))

pytestmark = pytest.mark.usefixtures("every_platform")


def wide(shapes):
    return [jax.tree_util.keystr(path)
            for path, x in jax.tree_util.tree_leaves_with_path(shapes) if "64" in str(x.dtype)]


@pytest.mark.parametrize("name", family(tools.SETTINGS, [*ALGORITHMS, "rainbow"]))
def test_every_algorithm_runs_with_64_bits_switched_on(name):
    with jax.enable_x64(True):
        state, new, *rest = traced(tools.algorithm(name), tools.environment(name))
    assert not wide((state.agent.params, new.agent.params, state.episodes, rest))


@pytest.mark.parametrize("name", family([*NATIVE, *MIXED], ENVIRONMENTS))
def test_every_environment_runs_with_64_bits_switched_on(name):
    with jax.enable_x64(True):
        seen = traced(jf.PPO(**PPO), jf.make(name, time_limit=1, sticky_actions=0.5))
    assert not wide(seen)


def test_a_64_bit_environment_error_names_the_switch():
    @jf.settings
    class Counts(jf.SingleEnv):
        @property
        def spec(self):
            return jf.EnvSpec("counts", jf.Box(0, 1, (2,), jnp.int32), jf.Discrete(2), 9)

        def reset_one(self, key):
            return jnp.int32(0), jnp.zeros(2, int)

        def step_one(self, key, state, action):
            return state + 1, jnp.zeros(2, int), 1.0, False, state > 7

    traced(jf.PPO(**PPO), Counts())
    with jax.enable_x64(True), pytest.raises(jf.ConfigError,
        match=r"counts: reset must be .*got 'int64\[4, 2\]'.*jax_enable_x64"):
        traced(jf.PPO(**PPO), Counts())


def test_rollouts_of_the_host_have_32_bits():
    algo = jf.PPO(**PPO).bind(jf.make("CartPole-v1").spec)
    obs, no = np.zeros((4, 4), np.float32), np.zeros(4, bool)
    seen = play.Seen(obs, None, np.zeros(4, np.float32), no, no)

    def rollout(key):
        start, agent, noise = play.begin(algo, obs, of=4), algo.init(key), algo.draw(key, 4, 4)
        given = (noise, play.start_clock(), jnp.int32(0))
        actor, steps, _ = play.step(algo, algo.acting(agent), start, None, None, *given, "sample")
        return play.end(algo, start, actor, steps, seen, jnp.int32(0))

    with jax.enable_x64(True):
        assert not wide(jax.eval_shape(rollout, jax.random.key(0)))
