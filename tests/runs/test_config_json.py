"""The content of config.json comes back: classes, functions, dtypes and spaces, and a run made of
them goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast import algorithms
from jaxrl_fast.envs.own_spaces import Own
from jaxrl_fast.runs import config_json


def act(x):
    return x


class Net(nn.Module):
    activation: Callable = nn.relu
    dtype: Any = jnp.float32


@jf.settings
class Ours(jf.PPO):
    """Keeps PPO's name, and is not registered."""


@jf.settings
class Maze(jf.SingleEnv):
    name: str = "small"
    spec: jf.EnvSpec = jf.EnvSpec("maze", jf.Discrete(2), jf.Discrete(2), 3)


def again(entry: dict) -> dict:
    return json.loads(json.dumps(entry))


PLACE = jf.Box((-1.0, float("-inf")), (1.0, float("inf")), (2,))
HELD = [  # by networks, in a field of theirs
    jnp.bfloat16, jnp.dtype(jnp.bfloat16), np.dtype("bool"), np.float64, PLACE,
    jf.Box(0, 255, (8, 8, 1), "uint8"),
    jf.Discrete(3), jf.MultiDiscrete((2, 3)), jf.Dict.of(place=PLACE, kind=jf.Discrete(2)),
    jf.make("CartPole-v1").spec,
    Own(jf.Discrete(3), (), np.dtype("int64"), start=5),
]  # fmt: skip


@pytest.mark.parametrize(
    "net", [Net(), Net(act), Net(jnp.sin), Net(nn.Dense), *(Net(nn.gelu, held) for held in HELD)])
def test_functions_and_dtypes_of_a_network_come_back(net):
    algo = jf.PPO(network=net)
    assert config_json.decode_algorithm(again(config_json.encode_algorithm(algo))) == algo


@pytest.mark.parametrize("dtype",
                         ["object", "float", "<f4", "f4,f4", "S3", "datetime64[ns]", "none", "", 4,
                          None, ["float32"]])
def test_a_file_may_name_dtypes_of_numbers_only(dtype):
    entry = again(config_json.encode_algorithm(jf.PPO(network=Net(dtype=np.dtype("int8")))))
    assert entry["settings"]["network"]["fields"]["dtype"] == {"dtype": "int8"}
    entry["settings"]["network"]["fields"]["dtype"] = {"dtype": dtype}
    with pytest.raises(jf.ConfigError,
                       match="network.dtype must be the name of a dtype of numbers"):
        config_json.decode_algorithm(entry)


@pytest.mark.parametrize("dtype", ["O", "S3", ">f4", "M8[ns]"])
def test_a_dtype_that_config_json_cannot_name_is_refused(dtype):
    with pytest.raises(jf.ConfigError, match="network.dtype"):
        config_json.encode_algorithm(jf.PPO(network=Net(dtype=np.dtype(dtype))))


def test_a_subclass_that_keeps_a_name_comes_back():
    for algo in (Ours(), jf.PPO()):
        assert (
            type(config_json.decode_algorithm(again(config_json.encode_algorithm(algo))))
            is type(algo)
        )


def test_an_environment_made_by_hand_keeps_every_field():
    env = Maze("large", jf.EnvSpec("other", jf.Discrete(3), jf.Discrete(2), 4))
    assert config_json.decode_environment(again(config_json.encode_environment(env))) == env


def test_classes_of_a_script(monkeypatch):
    """Found in the process of the script; and an algorithm also after it moved to a module that
    registers it."""
    entry = config_json.encode_algorithm(jf.PPO(network=Net()))
    entry["settings"]["network"]["class"] = "__main__:Net"
    with pytest.raises(jf.ConfigError, match="write 'nets:Net' into config.json"):
        config_json.decode_algorithm(entry)
    monkeypatch.setattr(sys.modules["__main__"], "Net", Net, raising=False)
    assert config_json.decode_algorithm(entry).network == Net()
    algorithms.ALGORITHMS.added["ppo"] = Ours
    assert type(config_json.decode_algorithm(entry | {"class": "__main__:Ours"})) is Ours


class OfSpace(nn.Module):
    """Layers that are told which observations they are for, as an environment's spec says it."""

    space: jf.Box

    @nn.compact
    def __call__(self, obs):
        return nn.tanh(nn.Dense(8, dtype=self.space.dtype)(obs))


def test_a_run_with_a_network_of_a_space_is_saved_loaded_and_resumed(tmp_path):
    env, run = jf.make("CartPole-v1"), tmp_path / "run"
    settings = dict(total_steps=256, eval_episodes=2, eval_every=0, tensorboard=False,
                    pictures=False)
    algo = jf.PPO(network=OfSpace(env.spec.observation), num_envs=4, num_steps=16,
                  num_minibatches=2, num_epochs=1)
    trained = jf.train(algo, env, out=run, **settings)
    agent = jf.load(run, "last")
    assert agent.algo.network == algo.network
    obs = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    assert agent.act(obs) == trained.agent().act(obs)
    assert jf.resume(run, 512, horizon=512, tensorboard=False).env_steps == 512
