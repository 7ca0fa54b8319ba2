"""The value-based family plays gymnax's environments through the adapter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.engine import iteration
from jaxrl_fast.envs import registry
from jaxrl_fast.spaces import Discrete

COMMON = {"num_envs": 2, "num_steps": 6, "hidden": (8,)}
REPLAY = COMMON | {"batch_size": 4, "buffer_size": 48}
FRACTIONS = {"num_fractions": 4, "num_act_fractions": 4, "num_cosines": 8}
FAMILY = [  # C51 is within Rainbow
    jf.DQN(**REPLAY),
    jf.QRDQN(**REPLAY, num_quantiles=5),
    jf.IQN(**REPLAY, **FRACTIONS),
    jf.Rainbow(**REPLAY, num_atoms=5),
    jf.PQN(**COMMON, num_epochs=1, num_minibatches=2),
]


def program(algo, env):
    """key -> (agent at first, agent, metrics) after two iterations; windows are whole from the
    first on, so no warm-up."""
    run = tree.as_float32(iteration.Run(env, algo.bind(env.spec), 10.0))

    def train(key):
        state = iteration.init(run, key)
        after, metrics = iteration.iterations(run, state, jnp.int32(0), 2, True)
        return state.agent, after.agent, metrics

    return train


# DQN and PQN: the others of the family differ in their heads alone
@pytest.mark.parametrize(
    "algo",
    family([x if x.name in ("dqn", "pqn") else pytest.param(x, marks=pytest.mark.slow)
            for x in FAMILY], lambda algo: algo.name == "dqn"),
    ids=lambda algo: algo.name,
)
def test_two_iterations_on_minatar(algo, compiled):
    first, agent, metrics = compiled(program(algo, jf.make("SpaceInvaders-MinAtar")),
                                     jax.random.key(0))
    for name in ("loss", "q_value", "td_error"):
        assert np.isfinite(metrics[name].total) and metrics[name].count > 0, name
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(agent))
    for a, b in zip(jax.tree.leaves(first.params["torso"]), jax.tree.leaves(agent.params["torso"]),
                    strict=True):
        assert a.shape == b.shape and (a != b).any()  # convolutions learn too


GYMNAX = [name
          for name, listed in registry.list_environments().items() if listed.source == "gymnax"]
# a vector, a number, and a small matrix
SHAPES = ("MemoryChain-bsuite", "FrozenLake-misc", "Catch-bsuite")
LAYERS = {"noisy": True, "dueling": True}
SWITCHED = [  # with all switches that each of them takes
    jf.C51(**REPLAY | LAYERS, num_atoms=5, prioritized=True, n_step=2),
    jf.QRDQN(**REPLAY | LAYERS, num_quantiles=5, prioritized=True, munchausen=True),
    jf.IQN(**REPLAY | LAYERS | FRACTIONS, prioritized=True, munchausen=True),
    jf.Rainbow(**REPLAY, num_atoms=5),
    jf.PQN(**COMMON | LAYERS, num_epochs=1, num_minibatches=2),
]
# Every one of them conforms (tests/testing/test_conformance.py), so one of a shape is enough here.
ONCE = (*SHAPES, "Breakout-MinAtar", "MountainCarContinuous-v0")
FITS = [
    pytest.param(algo, name, marks=[] if name in once else pytest.mark.slow)
    for algos, once in ((FAMILY[:1], ONCE), (SWITCHED, SHAPES)) for algo in algos for name in GYMNAX
]  # fmt: skip


# The others train elsewhere: on MinAtar and on probes.
@pytest.mark.parametrize(
    ("algo", "name"),
    family(FITS, lambda algo, name: name == "Catch-bsuite" and algo.name == "iqn"),
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_every_environment_of_gymnax_fits(algo, name):
    """Traced, not run: shapes and dtypes agree from reset to replay and update. Continuous actions
    are refused."""
    env = jf.make(name)
    if not isinstance(env.spec.action, Discrete):
        with pytest.raises(jf.ConfigError, match=f"{algo.name} needs Discrete actions"):
            program(algo, env)
        return
    first, agent, metrics = jax.eval_shape(program(algo, env), jax.random.key(0))
    assert first == agent and agent.params["head"]["params"]["kernel"].shape == (
        8, env.spec.action.n * algo.outputs)
    assert {x.shape for x in jax.tree.leaves(metrics)} == {()}
