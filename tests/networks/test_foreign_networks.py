"""Networks of flax.nnx, and pytrees that can be called (Equinox's are), as torsos."""

from __future__ import annotations

import functools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import jaxrl_fast as jf
from jaxrl_fast.networks import MLP, Foreign, as_network, make_torso
from jaxrl_fast.runs import config_json


class Net(nnx.Module):
    def __init__(self, width: int = 8, inputs: int = 4, drop: bool = False, norm: bool = False, *,
                 rngs):
        self.dense = nnx.Linear(inputs, width, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs) if drop else None
        self.norm = nnx.BatchNorm(width, rngs=rngs) if norm else None

    def __call__(self, x):
        x = nnx.tanh(self.dense(x))
        x = self.norm(x) if self.norm else x
        return self.drop(x) if self.drop else x


class Two(Net):
    def __call__(self, x):
        return x, x


@jax.tree_util.register_pytree_node_class
class Tree:
    """A module in Equinox's form: arrays and functions are its leaves, and it takes one
    observation."""

    def __init__(self, key, width: int = 8):
        self.weight, self.act, self.count = (
            jax.random.normal(key, (width, 4)), jnp.tanh, jnp.int32(3))

    def __call__(self, x):
        x = x["a"] if isinstance(x, dict) else x
        assert x.shape == (4,)
        return self.act(self.weight @ x)

    def tree_flatten(self):
        return (self.weight, self.act, self.count), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        tree = object.__new__(cls)
        tree.weight, tree.act, tree.count = leaves
        return tree


@functools.cache  # made by the first test, not when tests are collected
def held_net():
    return Net(rngs=nnx.Rngs(0))


@functools.cache
def held_tree():
    return Tree(jax.random.key(0))


WIDE = functools.partial(Tree, width=16)
SPACE, OBS = (
    jf.Box(-1.0, 1.0, (4,)), np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32))


def made(network):
    """The torso of a setting, and its parameters by two keys."""
    torso = make_torso(as_network("network", network), SPACE, (), "tanh")
    init = jax.jit(torso.init)
    return torso, *(init(jax.random.key(i), OBS[0]) for i in range(2))


@pytest.mark.parametrize("held", [held_net, held_tree], ids=["nnx", "pytree"])
def test_a_foreign_object_computes_the_same(held):
    network = held()
    torso, first, other = made(network)
    want = network(OBS) if isinstance(network, Net) else jax.vmap(jax.vmap(network))(OBS)
    np.testing.assert_allclose(jax.jit(torso.apply)(first, OBS), want, rtol=1e-5, atol=1e-6)
    assert all(np.array_equal(a, b)
               for a, b in zip(*map(jax.tree.leaves, (first, other)), strict=True))
    grads = jax.grad(lambda p: torso.apply(p, OBS).sum())(first)
    assert all(np.abs(x).sum() > 0 for x in jax.tree.leaves(grads))


@pytest.mark.parametrize(
    ("network", "names", "width"),
    [(Net, {"dense.kernel", "dense.bias"}, 8),
     (functools.partial(Net, 16), {"dense.kernel", "dense.bias"}, 16),
     (lambda rngs: Net(rngs=rngs), {"dense.kernel", "dense.bias"}, 8),
     (Tree, {"[<flat index 0>]"}, 8),
     (WIDE, {"[<flat index 0>]"}, 16), (lambda key: Tree(key), {"[<flat index 0>]"}, 8)],
    ids=["nnx class", "nnx partial", "nnx function", "pytree class", "pytree partial",
         "pytree function"],
)  # fmt: skip
def test_a_factory_gets_its_own_key(network, names, width):
    torso, first, other = made(network)
    assert torso.apply(first, OBS).shape == (3, 5, width)
    found = first["params"]["net"]
    assert len(found) == len(names) and (isinstance(torso.source, type) or callable(torso.source))
    assert network in (WIDE, Tree) or not names & {"dense.kernel"} or found.keys() == names
    assert any(not np.array_equal(a, b)
               for a, b in zip(*map(jax.tree.leaves, (first, other)), strict=True))


def test_dicts_reach_a_pytree_one_by_one():
    space = jf.Dict.of(a=SPACE, b=jf.Discrete(2))
    torso = make_torso(as_network("network", held_tree()), space, (), "tanh")
    obs = {"a": OBS[0], "b": np.zeros(5, np.int32)}
    np.testing.assert_allclose(torso.init_with_output(jax.random.key(0), obs)[0],
                               jax.vmap(held_tree())(OBS[0]), rtol=1e-5)


@pytest.mark.parametrize("setting", ["drop", "norm"])
def test_a_call_that_changes_the_network_is_refused(setting):
    net = Net(rngs=nnx.Rngs(0), **{setting: True})
    with pytest.raises(jf.ConfigError, match=r"network must be .*got 'Net'.*net.eval\(\)"):
        made(net)
    net.eval()
    torso, params, _ = made(net)
    np.testing.assert_allclose(torso.apply(params, OBS), net(OBS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "network",
    [5, [1], print, lambda x: x, jax.nn.relu, object, {"a": np.zeros(3)}, functools.partial(max, 1),
     None]
)
def test_objects_that_are_no_network_are_refused(network):
    with pytest.raises(jf.ConfigError,
                       match=r"network must be .*flax.linen.Module, a network of flax.nnx or "
                             r"Equinox"):
        jf.PPO(network=network)


def test_factories_of_other_objects_are_refused():
    for maker in (lambda key: 3, lambda rngs: Tree(jax.random.key(0))):
        with pytest.raises(jf.ConfigError, match=r"network must be .* that returns a"):
            made(maker)
    with pytest.raises(jf.ConfigError, match="returns features, an array"):
        made(Two)
    with pytest.raises(jf.ConfigError, match="fields have defaults"):
        jf.PPO(network=MLP)


class Fixed(linen.Module):
    """A linen module that fits eight numbers."""

    @linen.compact
    def __call__(self, x):
        return x @ self.param("kernel", linen.initializers.ones, (8, 2))


@pytest.mark.parametrize("algo", [jf.PPO, jf.DQN, jf.SAC])
@pytest.mark.parametrize("make", [lambda: Net(inputs=8, rngs=nnx.Rngs(0)), Fixed],
                         ids=["nnx", "linen"])
def test_a_network_of_another_width_is_refused_with_both_shapes(algo, make):
    env, width = ("Pendulum-v1", 3) if algo is jf.SAC else ("CartPole-v1", 4)
    says = rf"network must be one for observations float32\[{width}\], got .*\(8,\)"
    with pytest.raises(jf.ConfigError, match=says):
        str(jf.plan(algo(network=make()), jf.make(env)))


class Plain(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4)(x)


def test_a_linen_class_with_defaults_is_made():
    assert jf.PPO(network=Plain).network == Plain()


@pytest.fixture
def nets(monkeypatch):
    """A module of the user's, in memory, that holds networks by name."""
    module = types.ModuleType("my_nets")
    module.__file__ = "my_nets.py"
    module.net, module.tree, module.wide, module.Net = held_net(), held_tree(), WIDE, Net
    monkeypatch.setitem(sys.modules, "my_nets", module)
    monkeypatch.setattr(sys.modules[__name__], "WIDE", None)  # named there alone
    return module


@pytest.mark.parametrize("name", ["net", "tree", "wide"])
def test_config_names_an_object_by_its_module(nets, name):
    written = config_json.encode_algorithm(jf.PPO(network=getattr(nets, name)))
    assert written["settings"]["network"] == {"network": f"my_nets:{name}"}
    read = config_json.decode_algorithm(written).network
    assert (
        isinstance(read, Foreign)
        and getattr(read.source, "value", read.source) is getattr(nets, name)
    )
    assert (
        config_json.build_algorithm(jf.PPO, {"network": f"my_nets:{name}"}).network.is_nnx
        == (name == "net")
    )


@pytest.mark.parametrize("make", [lambda: Net(rngs=nnx.Rngs(1)), lambda: Tree(jax.random.key(1)),
    lambda: lambda key: Tree(key)])
def test_config_cannot_hold_unnamed_networks(make):
    with pytest.raises(jf.ConfigError, match=r"network must be .*(Without `out`|no lambda)"):
        config_json.encode_algorithm(jf.PPO(network=make()))


@pytest.mark.matrix(
    "tests/runs/test_config_json.py::test_a_run_with_a_network_of_a_space_is_saved_loaded_and_resumed")
def test_a_run_is_saved_loaded_and_resumed(nets, tmp_path):
    env, settings = jf.make("CartPole-v1"), {"eval_episodes": 2, "tensorboard": False,
                                             "progress": False}
    algo = jf.DQN(num_envs=4, learning_starts=32, buffer_size=256, batch_size=8, network=nets.net)
    whole = jf.train(algo, env, 192, horizon=192, log_every=64, out=tmp_path / "whole", **settings)
    jf.train(algo, env, 128, horizon=192, log_every=64, out=tmp_path / "run", **settings)
    resumed = jf.resume(tmp_path / "run", 192, tensorboard=False)
    for a, b in zip(*(jax.tree.leaves(run.agent().state) for run in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(a, b)
    obs = OBS[0]
    np.testing.assert_array_equal(jf.load(tmp_path / "run", "last").act(obs),
                                  whole.agent().act(obs))
