"""The memory plan: the forecast against what XLA and the device say, and refusals whose advice
holds."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import threading
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.cli import command as cli
from jaxrl_fast.doctor.quantities import gib
from jaxrl_fast.engine import programs
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.memory_plan import MemoryPlan
from jaxrl_fast.engine.placement import plan_population
from jaxrl_fast.engine.population import Population
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.errors import ConfigError

pytestmark = pytest.mark.timeout(200)
REPLAY = dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=20_000, learning_starts=64,
              hidden=(8,))
ALGORITHMS = {
    "ppo": jf.PPO(num_envs=4, num_steps=64, num_epochs=2, num_minibatches=2, hidden=(32,)),
    "dqn": jf.DQN(**REPLAY),
    "prioritized": jf.DQN(prioritized=True, **REPLAY),
    "pixels": jf.DQN(prioritized=True, **REPLAY | dict(buffer_size=4000)),
}
MIB = 2**20


@jf.settings
class Frames(jf.SingleEnv):
    """Atari's frames: 84 x 84 bytes, four of them to an observation."""

    @property
    def spec(self):
        return jf.EnvSpec("test/frames", jf.Box(0, 255, (84, 84, 1), jnp.uint8), jf.Discrete(4),
                          100, stack=4)

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros((84, 84, 1), jnp.uint8)

    def step_one(self, key, state, action):
        return state + 1, jnp.zeros((84, 84, 1), jnp.uint8), 0.0, False, state >= 99


def prepared(name: str, seeds: int = 1, mode: str = "map") -> Prepared:
    """A run on one device."""
    env = Frames() if name == "pixels" else tools.environment()
    made = prepare(ALGORITHMS[name], env,
                   RunConfig(5000, seeds=seeds, batching=mode, eval_episodes=4))
    return dataclasses.replace(made, population=plan_population(seeds, mode, jax.devices()[:1]))


def planned(name: str, seeds: int = 1) -> MemoryPlan:
    return prepared(name, seeds).plan


def close(forecast: float, found: float) -> bool:
    return abs(forecast - found) <= 0.1 * found


CASES = [*((name, 1, "map") for name in ALGORITHMS), ("dqn", 3, "map"), ("prioritized", 3, "vmap")]
CASES += [pytest.param(name, 3, "map", marks=pytest.mark.slow)
          for name in ALGORITHMS if name not in ("dqn", "pixels")]


@pytest.mark.parametrize("name, seeds, mode", family(
    CASES, lambda name, seeds, mode: seeds == 3 and mode == "map"))
def test_the_forecast_equals_xlas_count(name, seeds, mode):
    """Arguments and results of the chunk to 10%; a replay that takes turns also in the
    temporaries."""
    found = prepared(name, seeds, mode)
    plan, made = found.plan, programs.Programs(found)
    state = jax.eval_shape(made._init, plan.run, plan.population.keys(range(plan.population.size)))
    assert (
        plan.state_bytes * seeds == tree.nbytes(state)
        and plan.agent * seeds == tree.nbytes(state.agent)
    )
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    found = made._chunk.lower(plan.run, state, zero, zero).compile().memory_analysis()
    assert close(plan.arguments, found.argument_size_in_bytes)
    assert close(plan.results, found.output_size_in_bytes)
    assert found.alias_size_in_bytes == tree.nbytes(state)  # donated, so it is there once
    copies = sum(size * count for _, size, count in plan.passing()[:-1])
    if seeds > 1 and name != "ppo":
        assert (
            close(copies, found.temp_size_in_bytes) if mode == "map"
            else found.temp_size_in_bytes < plan.state_bytes
        )


@pytest.mark.matrix("test_the_forecast_equals_xlas_count")
def test_a_state_that_is_not_donated_is_there_twice():
    donated = prepared("ppo")
    found = prepare(donated.algo, donated.env, dataclasses.replace(donated.config, donate=False))
    made = programs.Programs(found)
    state = jax.eval_shape(made._init, made.run, found.population.keys([0]))
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    chunk = made._chunk.lower(made.run, state, zero, zero).compile().memory_analysis()
    assert chunk.alias_size_in_bytes == 0
    assert found.plan.need - donated.plan.need == tree.nbytes(state)


@pytest.mark.parametrize("name", family(ALGORITHMS, ["ppo", "prioritized"]))
def test_the_forecast_equals_the_device_memory(name):
    found = prepared(name)
    plan, made = found.plan, programs.Programs(found)
    state = made.init(plan.population.keys(range(plan.population.size)))
    snapshot = made.snapshot(state)
    is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    plain = lambda x: jax.random.key_data(x) if is_key(x) else x
    size = lambda x: sum(plain(leaf).on_device_size_in_bytes() for leaf in jax.tree.leaves(x))
    assert close(plan.state_bytes, size(state)) and close(
        dict(rows(plan))["a checkpoint's snapshot"], size(snapshot))
    assert close(plan.agent, size(state.agent))
    assert close(plan.state.get("replay", 0), size(state.memory))
    assert close(plan.settings, size(made.run))


def rows(plan: MemoryPlan) -> list[tuple[str, int]]:
    return [(part, size * count) for part, size, count in plan.resident()]


def test_temporaries_count_once_they_are_known():
    plan = planned("dqn")
    known = dataclasses.replace(plan, temporaries=10 * MIB)
    assert known.need == 10 * MIB + sum(size for _, size in rows(plan)) > plan.need
    # its program may not be compiled yet
    evaluation = sum(size * count for _, size, count in plan.passing()[-1:])
    unknown = dataclasses.replace(plan, temporaries=0)
    assert unknown.need == evaluation + sum(size for _, size in rows(plan)) > sum(
        size for _, size in rows(plan))


def test_a_run_whose_temporaries_do_not_fit_is_refused_before_it_learns(device_memory):
    """The forecast just fits, what XLA says of the compiled chunk does not."""
    settings = dict(total_steps=tools.TOTAL, eval_every=0, eval_episodes=4)
    algo, env = (
        jf.DQN(**REPLAY | dict(hidden=(256,), batch_size=512, buffer_size=2000)),
        tools.environment()
    )
    device_memory(jf.plan(algo, env, **settings).need)
    jf.plan(algo, env, **settings).check()
    rows = []
    with pytest.raises(ConfigError, match=r"memory must be at most the"):
        jf.train(algo, env, hooks=[lambda *_: rows.append(1)], **settings)
    assert not rows


ADVICE = re.compile(r"(\w+) = (\d+)")


@pytest.mark.parametrize(
    "name, seeds, mode, part, expected",
    family([("dqn", 3, "map", 0.5, {"buffer_size", "seeds"}),
     ("prioritized", 1, "map", 0.3, {"buffer_size"}),
     ("ppo", 4, "vmap", 0.6, {"seeds", "num_envs"}), ("ppo", 4, "map", 0.7, {"num_envs"}),
     ("batches", 1, "map", 0.7, {"batch_size"})], ["dqn"]),
)  # fmt: skip
def test_the_suggested_setting_fits(name, seeds, mode, part, expected, device_memory):
    # larger than what a smaller buffer would hold
    batches = jf.DQN(**REPLAY | dict(batch_size=16_384))
    algo = dataclasses.replace(ALGORITHMS.get(name, batches), num_envs=32)
    plan = lambda algo, seeds: jf.plan(algo, tools.environment(), 5000, seeds=seeds, batching=mode,
                                       eval_episodes=4)
    limit = int(part * plan(algo, seeds).need)
    device_memory(limit)
    with pytest.raises(jf.ConfigError,
                       match=r"memory must be at most the .*, got '[\d.]+ \w+'") as refused:
        plan(algo, seeds).check()
    advice = {name: int(value) for name, value in ADVICE.findall(refused.value.valid)}
    assert advice.keys() == expected
    for setting, value in advice.items():
        if setting == "seeds":
            tried = lambda n: plan(algo, n)
            assert not tried(value + 1).fits
        else:
            changed = lambda n, setting=setting: dataclasses.replace(algo, **{setting: n})
            tried = lambda n, changed=changed: plan(changed(n), seeds)
            assert not tried(int(value * 1.2) if setting == "buffer_size" else 2 * value).fits
        tried(value).check()


def test_errors_without_a_single_remedy(device_memory):
    device_memory(1000)
    with pytest.raises(jf.ConfigError,
                       match="1,000 B of .*lower buffer_size, hidden, num_envs or num_steps"):
        jf.plan(ALGORITHMS["dqn"], tools.environment(), 5000, seeds=3).check()


class Huge(nn.Module):
    shape: tuple[int, int]

    @nn.compact
    def __call__(self, obs):
        return obs @ jnp.zeros((4, 2)) + self.param("w", nn.initializers.zeros, self.shape)[0, :2]


def test_a_run_that_cannot_fit_leaves_nothing_behind(device_memory, tmp_path):
    device_memory(MIB)
    with pytest.raises(jf.ConfigError, match="the run fits with buffer_size"):
        jf.train(ALGORITHMS["dqn"], tools.environment(), 5000, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("shape", [(10**9, 10**9), (4 * 10**9, 1), (10**10, 10**10)])
def test_sizes_over_which_xla_ends_the_process_are_refused(shape, device_memory):
    """XLA aborts while it compiles the first program: the plan is checked before that."""
    device_memory(2**35)
    with pytest.raises(jf.ConfigError, match="memory must be at most the 32.0 GiB"):
        jf.train(jf.PPO(network=Huge(shape)), tools.environment(), 5000)


@pytest.mark.parametrize("hidden", [(64, 10**99), (10**9, 10**9)])
def test_widths_that_no_device_has_are_refused_before_anything_compiles(hidden):
    with pytest.raises(jf.ConfigError, match="hidden must be a tuple of integers of at most 1,000"):
        jf.PPO(hidden=hidden)


def test_bytes_of_huge_shapes_do_not_overflow():
    assert tree.nbytes(jax.ShapeDtypeStruct((10**10, 10**10), np.float32)) == 4 * 10**20


@pytest.mark.parametrize("platform", family(["gpu", "cpu"], 1))
def test_a_plan_in_a_pickle_or_copy_says_the_same(platform, device_memory):
    """Its devices may not exist where it is read; the remedies keep their memory."""
    whole = planned("dqn", 3)
    client = SimpleNamespace(platform_version="cuda 13000")
    devices = tuple(SimpleNamespace(platform=platform, device_kind="kind", process_index=0,
                                    client=client, lock=threading.Lock()) for _ in range(2))
    plan = dataclasses.replace(whole, have=whole.need // 2,
                               population=Population(3, "map", devices))
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(devices)
    for kept in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        device_memory(10 * whole.need)  # of the reading process
        assert str(kept) == str(plan) and kept.need == plan.need
        assert kept.remedies() == plan.remedies() != {}
    real = pickle.loads(pickle.dumps(whole))
    assert str(real) == str(whole) and real.remedies() == whole.remedies()


def test_an_unknown_memory_refuses_nothing(device_memory):
    device_memory(None)
    plan = planned("dqn")
    plan.check()
    assert plan.fits and "is not known" in str(plan)


def test_host_devices_share_one_memory():
    """Host devices hold all members together, each accelerator only its own; padding counts."""
    plan = planned("dqn", 3)

    def total(platform, count, size=4, mode="vmap"):
        devices = (
            SimpleNamespace(platform=platform, device_kind=platform, process_index=0),) * count
        return dataclasses.replace(plan, population=Population(size, mode, devices))

    whole = total("cpu", 1)
    assert abs(total("cpu", 4).need - whole.need) < 0.01 * whole.need
    assert abs(total("gpu", 2).need - whole.need / 2) < 0.01 * whole.need
    assert total("gpu", 2, size=3).need == total("gpu", 2, size=4).need
    in_turn = lambda mode: total("cpu", 2, mode=mode).passing()[0][1:]
    assert in_turn("map") == (plan.state_bytes, 2) and in_turn("vmap") == (plan.state_bytes, 0)
    tight = dataclasses.replace(total("gpu", 1), have=int(0.7 * whole.need))
    assert not tight.fits and dataclasses.replace(total("gpu", 2), have=tight.have).fits


@pytest.mark.parametrize("prioritized", family([False, True], 1))
def test_a_frame_is_kept_once(prioritized):
    """A transition of stacked frames costs one frame and a few bytes: a million of them 7 GB, and
    nothing is allocated."""
    algo = jf.DQN(prioritized=prioritized, buffer_size=1_000_000, n_step=3, hidden=(64,))
    plan = jf.plan(algo, Frames(), 2_000_000)
    assert 84 * 84 < plan.state["replay"] / 1_000_000 <= 7300


def test_the_printed_plan_has_every_part(capsys):
    line = (
        "plan dqn CartPole-v1 --algo.hidden 8 --algo.buffer-size 20000 --seeds 3 --batching map "
        "--eval-episodes 4"
    )
    assert cli.main(line.split()) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("dqn on CartPole-v1: 3 members by map on ")
    for part in ("parameters", "target network", "optimizer", "replay", "environments",
                 "a checkpoint's snapshot",
                 "rollout", "batch of an update", "evaluation", "total"):  # fmt: skip
        assert re.search(rf"^  {part} .*\d (B|KiB|MiB)$", out, re.M), part
    assert re.search(r"^fits: 0% of the [\d.]+ GiB of cpu", out, re.M)


def test_printed_with_compiled_sizes(capsys):
    line = (
        "plan ppo CartPole-v1 --no-preset --algo.hidden 8 --algo.num-steps 8 --eval-episodes 4 "
        "--compile"
    )
    assert cli.main(line.split()) == 0
    out = capsys.readouterr().out
    for part in ("compiled temporaries", "init", "chunk", "evaluate", "forecast for the chunk"):
        assert re.search(rf"^  {part} .*\d (B|KiB)$", out, re.M), part
    deviations = [float(x) for x in re.findall(r"([-+][\d.]+)%", out)]
    assert len(deviations) == 2 and all(abs(x) < 10 for x in deviations)


def test_a_plan_that_does_not_fit_is_printed_and_refused(capsys, device_memory):
    device_memory(2 * MIB)
    assert cli.main(["plan", "dqn", "CartPole-v1", "--compile"]) == 2
    out, err = capsys.readouterr()
    assert "replay" in out and re.search(r"^does not fit: \d+% of the 2.0 MiB", out, re.M)
    assert err.count("\n") == 1 and "the run fits with buffer_size = " in err


def test_bad_input(capsys):
    with pytest.raises(jf.ConfigError, match="a setting of train"):
        jf.plan(jf.PPO(), tools.environment(), sedes=3)
    for line in ("plan", "plan ppo", "plan ppo CartPole-v1 --out x",
                 "plan ppo CartPole-v1 --resume x"):
        assert cli.main(line.split()) == 2, line
    assert (
        "ALGO ENV must be an algorithm and an environment, got none: jaxrl-fast plan ppo"
        in capsys.readouterr().err
    )
    assert cli.main(["plan", "--help"]) == 0 and "jaxrl-fast train" not in capsys.readouterr().out


def test_bytes_are_shown_in_their_unit():
    assert [gib(x) for x in (0, 1023, 1024, 3 * MIB // 2, 2**30, 3 * 2**42)] == [
        "0 B", "1,023 B", "1.0 KiB", "1.5 MiB", "1.0 GiB", "12,288.0 GiB",
    ]  # fmt: skip
