"""Members equal single runs; where they are placed; sweeps."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from types import SimpleNamespace

import chex
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import runtime
from jaxrl_fast.engine import iteration, placement
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.tree import as_float32

BOTH = pytest.mark.parametrize("name", family(["ppo", "dqn"], ["dqn"]))
compiles = Counter()
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiles.update([event]))
COMPILE = "/jax/core/compile/backend_compile_duration"


@pytest.mark.matrix("tests/sweeps/test_sweep.py::test_members_are_the_single_runs")
@pytest.mark.parametrize("name", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def test_members_one_after_the_other_are_the_single_runs_bit_for_bit(name, singles,
                                                                     as_users_have_it):
    with as_users_have_it():
        session = tools.train(name, seeds=3, batching="map", total_steps=tools.HALF,
                              horizon=tools.TOTAL, eval_every=0)
    assert session.population.mode == "map"
    rows = tools.through_json(session.history)
    for i, single in enumerate(singles(name)):
        tools.assert_same(tools.member(session.state, i), single.state)
        alone = tools.through_json(single.history)
        assert [{k: v[i : i + 1] if isinstance(v, list) else v for k, v in r.items()}
                for r in rows] == alone


@BOTH
def test_members_in_one_batch_are_the_single_runs_to_rounding(name):
    settings = dict(total_steps=192 if name == "ppo" else 128, horizon=tools.TOTAL, eval_every=0)
    session = tools.train(name, seeds=3, seed=1, batching="vmap", **settings)
    assert session.population.mode == "vmap"
    for i in (0, 2):
        single = tools.train(name, seed=1 + i, **settings)
        tools.assert_close(tools.member(tools.state(session), i), single.state)
        for key in ("episode_return", "loss" if name == "dqn" else "value_loss"):
            np.testing.assert_allclose(session.curve(key)[1][:, i], single.curve(key)[1][:, 0],
                                       rtol=1e-4)


@pytest.mark.matrix("test_members_in_one_batch_are_the_single_runs_to_rounding")
def test_members_of_a_run_differ(singles):
    states = [tools.arrays(s.state.agent.params) for s in singles("ppo")]
    assert all((states[0][k] != states[1][k]).any() for k in states[0])


def quick(fn, *args):
    """fn(*args) jitted, without XLA's optimizations: compiling is what costs here."""
    return jax.jit(fn).lower(*args).compile({"xla_backend_optimization_level": 0})(*args)


# rainbow: noise and a sum tree for each member; apg and es: rollouts of their own in `learn`
@pytest.mark.matrix("test_a_sweep_is_a_vmap_and_one_compile")
@pytest.mark.parametrize(
    "name",
    family([
        "ppo", "dqn", "es",
        *(pytest.param(x, marks=pytest.mark.slow) for x in (
            "rainbow", "pqn", "apg", "iqn", "apex", "sac", "td3", "tqc", "crossq", "c51", "qr_dqn",
            "ars")),
    ], ["es"]),
)  # fmt: skip
def test_vmap_over_keys_of_make_train(name):
    algo, env = tools.algorithm(name), tools.environment(name)
    train = jf.make_train(algo, env, total_steps=128, log_every=64)
    keys = jax.random.split(jax.random.key(0), 4)
    state, metrics = quick(jax.vmap(train), keys)
    assert {m.shape[0] for m in metrics.values()} == {4}
    one, rows = quick(train, keys[2])
    tools.assert_close(tools.member(state, 2), one)
    tools.assert_close(tools.member(metrics, 2), rows)


def test_a_sweep_is_a_vmap_and_one_compile():
    """Of settings of the algorithm and of the environment."""
    algo = jf.A2C(num_envs=4, num_steps=8, hidden=(8,), normalize_observations=True)
    chex.clear_trace_counter()

    def trained(rate, env, key):
        swept = dataclasses.replace(algo, learning_rate=rate)
        state, metrics = jf.make_train(swept, env, total_steps=96, log_every=32)(key)
        return state.agent.params, metrics

    @chex.assert_max_traces(1)
    def last(rate, gravity, key):
        params, metrics = trained(rate, CartPole(gravity=gravity, max_steps_in_episode=30), key)
        return params, metrics["value_loss"], metrics["episode_length"]

    sweep = jax.jit(jax.vmap(last, in_axes=(0, 0, None)))
    key, rates = jax.random.key(0), jnp.array([1e-4, 1e-3, 1e-2, 0.0, 0.0])
    gravity = jnp.array([9.8, 9.8, 9.8, 9.8, 90.0])
    before = compiles[COMPILE]
    params, loss, lengths = sweep(rates, gravity, key)
    jax.block_until_ready(params)
    after = compiles[COMPILE]
    sweep(rates * 3, gravity, key)
    assert sweep._cache_size() == 1
    assert after - before == 1 and compiles[COMPILE] - after <= 1  # rates * 3 is a program too
    assert loss.shape == (5, 3) and len(set(np.asarray(loss)[:, -1].tolist())) == 5

    @jax.jit
    def alone(key):
        env = tools.environment()
        run = as_float32(iteration.Run(env, algo.bind(env.spec), 3.0))
        return *trained(1e-3, env, key), iteration.init(run, key).agent.params

    learned, metrics, start = alone(key)
    tools.assert_close(tools.member(params, 1), learned)
    tools.assert_close(tools.member(lengths, 1), metrics["episode_length"])
    tools.assert_close(tools.member(params, 3), start)  # without a rate nothing moves
    tools.assert_close(tools.member(params, 4), start)
    lengths = np.asarray(lengths)[3:, -1]  # of one policy
    assert np.isfinite(lengths).all() and lengths[0] != lengths[1]


@pytest.mark.matrix("test_members_in_one_batch_are_the_single_runs_to_rounding")
def test_a_sweep_of_learning_rates_from_replay():
    """Each member has a replay and optimizers of its own and the rate that it was given, whoever is
    beside it."""
    algo, env = tools.algorithm("sac"), tools.environment("sac")
    train = lambda rate: jf.make_train(dataclasses.replace(algo, learning_rate=rate), env,
                                       total_steps=96, log_every=32)
    rates = jnp.array([1e-3, 0.0, 1e-2])
    sweep = jax.jit(jax.vmap(lambda rate: train(rate)(jax.random.key(0))))
    sweep = sweep.lower(rates).compile({"xla_backend_optimization_level": 0})
    there, back = sweep(rates), sweep(rates[::-1])
    for i in range(3):
        tools.assert_close(tools.member(there, i), tools.member(back, 2 - i))
    actors = tools.arrays(there[0].agent.params["actor"]).values()
    assert all((x[0] != x[1]).any() and (x[1] != x[2]).any() for x in actors)
    still = there[0].agent  # without a rate the critics' targets only follow what does not move
    tools.assert_close(tools.member(still.params["critics"], 1), tools.member(still.target, 1))


def devices(platform, count):
    return [SimpleNamespace(platform=platform, id=i, process_index=0) for i in range(count)]


@pytest.mark.parametrize(("jaxlib", "hangs"), [("0.10.2", True), ("0.11.0", False)])
def test_placement_of_members(jaxlib, hangs):
    plan = lambda *args: (lambda p: (p.mode, len(p.devices), p.padded))(
        placement.plan_population(*args, jaxlib=jaxlib))
    assert plan(4, "auto", devices("gpu", 1)) == ("vmap", 1, 4)
    assert plan(5, "auto", devices("gpu", 4)) == ("vmap", 4, 8)
    assert plan(4, "auto", devices("cpu", 1)) == ("map", 1, 4)
    assert plan(1, "auto", devices("cpu", 2)) == ("map", 1, 1)
    assert plan(3, "map", devices("cpu", 2)) == ("map", 2, 4)
    assert plan(4, "map", devices("gpu", 1)) == ("map", 1, 4)
    assert plan(4, "vmap", devices("cpu", 1)) == ("vmap", 1, 4)
    assert plan(3, "auto", devices("cpu", 2)) == ("map", 2, 4)
    # jaxlib 0.10: never a vmap on each of several CPU devices
    assert plan(3, "vmap", devices("cpu", 2)) == (("vmap", 1, 3) if hangs else ("vmap", 2, 4))


def test_idle_cores_are_mentioned():
    cpu = devices("cpu", 1)
    text = placement.of_idle_cores(3, "auto", 3, cpu)
    assert re.match(
        "3 members .* 1 of 3 CPU cores.*restart of the kernel.*up to 3 times.*device_count=3", text)
    assert placement.of_idle_cores(3, "vmap", 3, cpu, "0.11.0") == text
    assert placement.of_idle_cores(3, "vmap", 3, cpu, "0.10.2") is None  # takes one device there
    assert placement.of_idle_cores(1, "auto", 1, cpu) is None
    assert placement.of_idle_cores(3, "auto", 3, devices("cpu", 3)) is None
    assert placement.of_idle_cores(3, "auto", 3, devices("gpu", 1)) is None


def test_idle_cores_are_mentioned_once(monkeypatch, capsys):
    """JAX has started in this process, so there will be no more devices; one that the user asked
    for is enough, and a sweep's parts of other sizes say no more."""
    monkeypatch.setattr(placement, "_told", [])
    idle = len(jax.devices("cpu")) < min(17, runtime.cpu_count()) and jax.default_backend() == "cpu"
    for flags, seeds, expected in (("--xla_force_host_platform_device_count=1", 17, 0),
                                   ("", 17, idle), ("", 9, 0)):
        monkeypatch.setenv("XLA_FLAGS", flags)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            placement.spread(RunConfig(seeds=seeds))
        assert len(caught) == expected


@pytest.mark.parametrize("watched", [True, False])
def test_idle_cores_are_a_line_where_a_user_looks(watched, capsys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        placement.tell("on 1 of 2 cores", watched)
    told = ("on 1 of 2 cores\n", 0) if watched else ("", 1)
    assert (capsys.readouterr().err, len(caught)) == told


TWO_DEVICES = """
import re, shutil, sys
# imports jaxrl_fast, which must see the flag before the backend starts
from helpers import runs as tools
import jax, numpy as np
from jaxrl_fast import runtime
from jaxrl_fast.engine import placement

assert len(jax.devices()) == 2, jax.devices()
hangs = runtime.vmap_hangs_on_cpu()
plans = {mode: placement.plan_population(3, mode) for mode in ("auto", "vmap", "map")}
assert plans["auto"].mode == "map" and len(plans["auto"].devices) == 2
assert len(plans["vmap"].devices) == (1 if hangs else 2)
for mode in ("map",) if hangs else ("map", "vmap"):
    settings = dict(horizon=tools.TOTAL, eval_every=0, seeds=3, batching=mode)
    session = tools.train("dqn", f"{sys.argv[1]}/{mode}", total_steps=128, **settings)
    assert (session.population.mode, session.population.padded) == (mode, 4)
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(session.state)} == {2}
    text = session.lanes.programs._compiled["chunk"].as_text()
    found = (
        re.findall(r"all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|"
                   r"collective-broadcast", text)
    )
    assert not found, found
    assert "num_partitions=2" in text
    np.savez(f"{sys.argv[1]}/{mode}.npz", **tools.arrays(tools.state(session)))
    if "resumed" in sys.argv[2:]:
        whole = tools.train("dqn", total_steps=tools.HALF, **settings)
        copy = shutil.copytree(f"{sys.argv[1]}/{mode}", f"{sys.argv[1]}/{mode}-copy")
        tools.assert_same(tools.state(tools.resume(copy, tools.HALF)), tools.state(whole))
if "halved" in sys.argv[2:]:  # two devices, then one for the one member that is left
    rates = {"algo.learning_rate": [1e-3, 2e-3, 3e-3, 4e-3]}
    left = tools.train("ppo", total_steps=512, population=rates, selection=tools.jf.Halving(2),
                       eval_every=0)
    assert len(left.lanes) == len(left.population.devices) == 1 and left.env_steps == 512
"""


@pytest.mark.matrix("tests/engine/test_processes.py::test_two_processes_equal_one_with_two_devices")
@pytest.mark.parametrize("more", family(["", "resumed halved"], 1))
def test_three_members_on_two_devices(more, tmp_path):
    """Members equal single runs (to rounding: a partitioned program is fused differently), one pads
    the devices, the devices send nothing, a resumed run equals an unbroken one bit for bit, and one
    device can take over."""
    ended = tools.python(TWO_DEVICES, tmp_path, *more.split(), timeout=280,
                         XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert ended.returncode == 0, ended.stderr[-3000:]
    settings = dict(total_steps=128, horizon=tools.TOTAL, eval_every=0)
    singles = {i: tools.train("dqn", seed=i, **settings) for i in (0, 2)}
    for file in tmp_path.glob("*.npz"):
        with np.load(file) as found:
            for i, single in singles.items():
                tools.assert_close_arrays({k: v[i] for k, v in found.items()},
                                          tools.arrays(single.state))
    with np.load(tmp_path / "map.npz") as found:
        session = tools.resume(tmp_path / "map")  # on the devices of this process
        tools.assert_same_arrays(tools.arrays(tools.state(session)), dict(found))
    session = tools.resume(tmp_path / "map", 256)
    assert session.env_steps == 256 and len(tools.logged(tmp_path / "map")) == 4
