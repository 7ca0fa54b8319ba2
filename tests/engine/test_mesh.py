"""One member divided over devices: what a program of several devices computes is what one with as
many groups does."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import fresh
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import random
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.placement import population_of
from jaxrl_fast.memory import (
    PrioritizedMemory,
    RolloutMemory,
    Row,
    SequenceMemory,
    UniformMemory,
    grouped,
)
from jaxrl_fast.types import Clock

MESH = """
import re, sys
from helpers import runs as tools
import jax, numpy as np
from jaxrl_fast.envs.physics import api as physics

# each device's two environments are stepped one after the other
physics.PhysicsEnv.block_bytes, physics.PhysicsEnv.block_envs = 1, 1
ALL = (
    r"= (\\S+) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|"
    r"collective-broadcast)\\((.*)"
)
BASE = dict(total_steps=256, log_every=64, eval_every=0)
CASES = {
    "ppo": (dict(total_steps=32, log_every=32), dict(mesh={"env": 2}), dict(devices=1, groups=2)),
    "anew": (dict(total_steps=32, log_every=32), dict(mesh={"env": 2}), dict(devices=1, groups=2)),
    "dqn": (dict(total_steps=136, log_every=8), dict(mesh={"env": 2}), dict(devices=1, groups=2)),
    "prioritized": (dict(total_steps=136, log_every=8), dict(mesh={"env": 2}),
                    dict(devices=1, groups=2)),
    "sac": (dict(total_steps=72, log_every=8), dict(mesh={"env": 2}), dict(devices=1, groups=2)),
    # with starts from a pool, masses of their own, and statistics of observations that all devices
    # share
    "physics": (dict(total_steps=72, log_every=8), dict(mesh={"env": 2}),
                dict(devices=1, groups=2)),
    "both": (dict(total_steps=32, log_every=32, seeds=3), dict(mesh={"population": 2, "env": 2}),
             dict(devices=1, groups=2, batching="map")),
}
def unclipped(name):
    return {} if name in ("sac", "td3") else {"max_grad_norm": 1e9}

for case in sys.argv[2:]:
    run, mesh, alone = CASES[case]
    name = {"prioritized": "dqn", "both": "ppo", "anew": "ppo", "physics": "td3"}.get(case, case)
    more = {"prioritized": dict(prioritized=True), "physics": dict(normalize_observations=True),
            "ppo": dict(normalize_reward=True), "both": dict(normalize_reward=True),
            "anew": dict(recompute_advantage=True)}.get(case, {})
    # clipping by the norm would hide from Adam's moments a gradient that is counted twice
    algo = tools.algorithm(name, **more, **unclipped(name))
    several = tools.train(algo, env=tools.environment(name), **BASE | run | mesh)
    one = tools.train(algo, env=tools.environment(name), **BASE | run | alone)
    devices = int(np.prod(list(mesh["mesh"].values())))
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(several.state)} == {devices}
    divided = [x.sharding.spec for x in jax.tree.leaves((several.state.env, several.state.memory))]
    assert divided and all("env" in spec for spec in divided), divided
    tools.assert_close_arrays(tools.arrays(tools.state(several)), tools.arrays(tools.state(one)),
                              rtol=1e-4, atol=1e-5)
    for a, b in zip(several.history, one.history, strict=True):
        for key, value in a.metrics.items():
            np.testing.assert_allclose(value, b.metrics[key], rtol=1e-3, atol=1e-4, err_msg=key)
    text = several.lanes.programs._compiled["chunk"].as_text()
    found = re.findall(ALL, text)
    moved = [(kind, shape) for shape, kind, _ in found if kind != "all-reduce"]
    assert any(kind == "all-reduce" for _, kind, _ in found)
    # no experience goes from device to device: at most the random bits of a batch's actions do, and
    # a return an environment
    few = ("u32[", *{"ppo": ["f32[4]"], "both": ["f32[2,4]"]}.get(case, ()))  # of two members
    assert all(shape.startswith(few) for _, shape in moved), moved
    if case == "both":  # sums stay among the two devices of a member
        groups = {g for _, _, rest in found for g in re.findall(r"replica_groups=(\\S+?), ", rest)}
        assert groups <= {"{{0,1},{2,3}}", "[2,2]<=[4]"}, groups
"""


@pytest.mark.parametrize(
    "cases",
    family([pytest.param(("ppo",)), pytest.param(("both",)),
            pytest.param(("prioritized", "physics")),
            pytest.param(("anew", "dqn", "sac"), marks=pytest.mark.slow)], 1),
    ids="-".join,
)
def test_devices_along_the_environments(cases, tmp_path):
    """The state after the run, optimizer included (a gradient counted twice would show in Adam's
    moments), and its logs."""
    env = tools.subprocess_environment(XLA_FLAGS="--xla_force_host_platform_device_count=4")
    ended = fresh.python(MESH, tmp_path, *cases, timeout=280, environment=env)
    assert ended.returncode == 0, ended.stderr[-3000:]


CLOCK = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0.5))


@functools.partial(jax.jit, static_argnums=(0, 1))
def rows(time, envs, t=0):
    """Every row is its own (time, environment), so that whatever is sampled tells where it is
    from."""
    at = t + jnp.arange(time)[:, None] + jnp.zeros((1, envs), jnp.int32)
    env = jnp.zeros((time, 1), jnp.int32) + jnp.arange(envs)
    no = jnp.zeros((time, envs), bool)
    return Row(jnp.stack([at, env], -1).astype(jnp.float32), env,
               (1000 * env + at).astype(jnp.float32), no, no)


def filled(memory, blocks=6, time=2, envs=4):
    mem = memory.init(jax.eval_shape(lambda: rows(time, envs)))
    add = jax.jit(memory.add)
    for w in range(blocks):
        mem = add(mem, rows(time, envs, w * time), w)
    return mem


def fetched(memory, mem, count, blocks=1):
    """Batches [count, ...] of a plan after so many blocks."""

    @jax.jit
    def run(mem):
        plan = memory.plan(jax.random.key(0), count, jnp.int32(blocks), CLOCK)
        return jax.vmap(lambda x: memory.fetch(mem, x)[0])(plan)

    return jax.device_get(run(mem))


def test_each_group_samples_its_own_environments():
    memory = grouped(UniformMemory(64, 2, 4, 8, 2), 2)
    mem = filled(memory)
    assert {x.shape[:3] for x in jax.tree.leaves(mem)} == {(2, 16, 2)}
    seen, batches = set(), fetched(memory, mem, 50, 6)
    for i in range(50):
        batch = jax.tree.map(lambda x, i=i: np.asarray(x)[i], batches)
        assert (
            batch.obs.shape == (8, 2) and batch.reward.shape == (2, 8)
            and batch.boot_obs.shape == (8, 2)
        )
        at, env = np.asarray(batch.obs).T
        assert set(env[:4]) <= {0, 1} and set(env[4:]) <= {2, 3}
        np.testing.assert_array_equal(batch.reward[0], 1000 * env + at)
        np.testing.assert_array_equal(batch.boot_obs, np.stack([at + 2, env], 1))
        seen |= set(zip(at, env, strict=True))
    assert len(seen) == 40  # ten starts of twelve rows, in four environments


def test_priorities_of_groups_are_weighed_together():
    """A weight is (N P)^-beta over the largest, where P is a row's share of its own group's sum,
    over the groups."""
    memory = grouped(PrioritizedMemory(64, 2, 4, 8, 1, 1, 1.0, 1.0, 0.0), 2)
    mem = filled(memory)

    @jax.jit
    def drawn(mem, i):
        plan = memory.plan(jax.random.fold_in(jax.random.key(1), i), 1, jnp.int32(6), CLOCK)
        return memory.fetch(mem, jax.tree.map(lambda x: x[0], plan))

    @jax.jit
    def heard(mem, i):
        batch, handle = drawn(mem, i)
        priority = 1.0 + batch.obs[:, 0] * (1.0 + 3.0 * batch.obs[:, 1])
        return memory.feedback(mem, handle, priority)

    for i in range(8):  # until priorities differ well
        mem = heard(mem, i)
    batch, handle = drawn(mem, 7)
    leaves = np.asarray(mem.tree[0]).reshape(2, -1)
    share = np.concatenate([leaves[g][np.asarray(handle[g])] / leaves[g].sum() for g in range(2)])
    np.testing.assert_allclose(batch.weight, share.min() / share, rtol=1e-5)
    assert len(set(np.round(share, 6))) > 3
    # new rows: one priority for all
    assert np.asarray(memory.watch(mem)).shape == (2,) and len(set(np.asarray(mem.top))) == 1
    assert float(mem.top[0]) == leaves.max() or float(mem.top[0]) > leaves.max()


def test_an_epoch_hands_out_every_row_once():
    memory = grouped(RolloutMemory(3, 4, 3), 2)
    batches = fetched(memory, filled(memory, 1, 3, 4), 6)
    for epoch in range(2):
        got = [batches.reward[3 * epoch + i] for i in range(3)]
        assert sorted(np.concatenate(got)) == sorted(np.asarray(rows(3, 4).reward).reshape(-1))
        assert (
            all({int(x) // 1000 for x in r[:2]} <= {0, 1}
                and {int(x) // 1000 for x in r[2:]} <= {2, 3} for r in got)
        )


def test_groups_hold_whole_environments():
    """V-trace needs the time axis whole: each group gives half of the environments of a batch."""
    memory = grouped(RolloutMemory(3, 8, 2, by_env=True), 2)
    batches = fetched(memory, filled(memory, 1, 3, 8), 4)
    for epoch in range(2):
        got = batches.obs[2 * epoch : 2 * epoch + 2]  # [2, T, b, (time, env)]
        assert got.shape == (2, 3, 4, 2) and (got[..., 0] == np.arange(3)[:, None]).all()
        env = got[:, 0, :, 1]
        assert (got[..., 1] == env[:, None]).all() and sorted(env.reshape(-1)) == list(range(8))
        assert (env[:, :2] < 4).all() and (env[:, 2:] >= 4).all()


def test_sequences_of_groups():
    from jaxrl_fast.memory import Recurrent

    memory = grouped(SequenceMemory(64, 2, 4, 4, 1, 1, 4, 1, 2), 2)
    block = lambda t: Recurrent(rows(2, 4, t), random.uniform(jax.random.key(0), (1, 4)))
    mem = memory.init(jax.eval_shape(lambda: block(0)))
    add = jax.jit(lambda mem, w: memory.add(mem, block(2 * w), w))
    for w in range(6):
        mem = add(mem, w)
    batch = jax.tree.map(lambda x: x[0], fetched(memory, mem, 1, 6))
    assert (
        batch.steps.reward.shape == (5, 4) and batch.use.shape == (5, 4)
        and batch.carry.shape == (4,)
    )
    env = np.asarray(batch.steps.obs[..., 1])
    assert (env == env[0]).all() and set(env[0, :2]) <= {0, 1} and set(env[0, 2:]) <= {2, 3}


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(groups=3), "groups must be a divisor of num_envs = 4, got 3"),
        (dict(mesh={"env": 3}), "mesh env must be a divisor of num_envs = 4, got 3"),
        (dict(mesh={"env": 2}, groups=3), "a multiple of mesh env = 2"),
        (dict(mesh={"rows": 2}), 'axes "population" and "env"'),
        (dict(mesh={"env": 0}), "mesh env must be .*got 0"),
        (dict(devices=0), "devices must be .*got 0"),
    ],
)  # fmt: skip
def test_bad_meshes(settings, message):
    with pytest.raises(jf.ConfigError, match=message):
        tools.train("ppo", **settings)


def test_more_devices_than_exist_are_refused(monkeypatch):
    with pytest.raises(jf.ConfigError,
                       match=r"devices must be at most the \d+ .*got "
                             r"64.*host_platform_device_count"):
        population_of(RunConfig(devices=64))
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1] * 4)
    with pytest.raises(jf.ConfigError, match="whose product is devices = 3"):
        population_of(RunConfig(devices=3, mesh={"env": 2}))
    with pytest.raises(jf.ConfigError, match="mesh must be .*got 'population=32,env=2'"):
        population_of(RunConfig(mesh={"population": 32, "env": 2}))


def test_indivisible_members_are_refused():
    with pytest.raises(jf.ConfigError,
                       match="groups must be 1, got 2: apg compares or differentiates whole "
                             "rollouts"):
        tools.train("apg", groups=2)
    with pytest.raises(jf.ConfigError, match="num_minibatches = 2 divides"):
        tools.train(tools.algorithm("ppo", num_envs=4, num_steps=1, num_minibatches=2), groups=4)
