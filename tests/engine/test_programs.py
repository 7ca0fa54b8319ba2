"""Properties of the compiled programs: no callbacks, no implicit transfers, small metrics, the same
for every platform."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import re
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxrl_fast as jf
from helpers import fresh
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import runtime
from jaxrl_fast.engine import iteration, programs
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.placement import plan_population
from jaxrl_fast.engine.prepared import prepare

BOTH = pytest.mark.parametrize("name", family(["ppo", "dqn"], ["dqn"]))
ONE = pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
KEY = jax.eval_shape(lambda: jax.random.key(0))


def build(name, members=1, mode="map", total=tools.TOTAL, **settings):
    """Programs that are not compiled, and the shapes of their state."""
    config = RunConfig(total_steps=total, seeds=members, log_every=64, eval_episodes=4)
    found = prepare(tools.algorithm(name, **settings), tools.environment(), config)
    place = plan_population(members, mode, jax.devices()[:1])
    made = programs.Programs(dataclasses.replace(found, population=place))
    return made, jax.eval_shape(made._init, made.run, place.keys(range(members)))


@functools.cache
def lowered(name, members):
    """Every program of a run, (traced, its text as lowered); for every platform."""
    made, state = build(name, members=members)
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    traced = [made._init.trace(made.run, made.population.keys(range(made.population.size))),
              made._chunk.trace(made.run, state, zero, zero),
              made._evaluate.trace(made.run, (state.agent, state.key), zero)]
    if made.grid.warmup:
        traced.append(made._warmup.trace(made.run, state))
    return [(program, program.lower().as_text()) for program in traced]


def callbacks(program, text: str | None = None) -> list[str]:
    """Names of host callbacks in a traced program, and in its text as lowered."""
    jaxpr = re.findall(r"\w*(?:callback|debug_print|infeed|outfeed)\w*", str(program.jaxpr))
    custom = re.findall(r'custom_call @(\S*callback\S*?)\(|custom_call_target ?= '
                        r'?"([^"]*callback[^"]*)"',
                        program.lower().as_text() if text is None else text)  # fmt: skip
    return jaxpr + ["".join(found) for found in custom] + [
        str(effect) for effect in program.jaxpr.effects]


@BOTH
@pytest.mark.parametrize("members", family([1, 3], [3]))
@pytest.mark.usefixtures("every_platform")
def test_no_callback_in_any_program(name, members):
    found = lowered(name, members)
    assert len(found) == (4 if name == "dqn" else 3)
    assert all(callbacks(*program) == [] for program in found)


@pytest.mark.matrix("test_no_callback_in_any_program")
@BOTH
@pytest.mark.usefixtures("every_platform")
def test_no_callback_in_make_train(name):
    train = jf.make_train(tools.algorithm(name), tools.environment(), tools.TOTAL, eval_every=320,
                          eval_episodes=4)
    assert callbacks(jax.jit(train).trace(KEY)) == []
    assert (
        callbacks(jax.jit(jax.vmap(train)).trace(
            jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3)))) == []
    )


@ONE
@pytest.mark.usefixtures("every_platform")
def test_no_lapack_in_any_program(name):
    """A batch of LAPACK calls deadlocks on two CPU devices with jaxlib 0.10:
    `networks.orthogonal.orthonormal_rows`."""
    assert not any("lapack" in text for _, text in lowered(name, 3))


def test_the_search_would_find_a_callback():
    def prints(x):
        jax.debug.print("{}", x)
        return jax.pure_callback(lambda v: v, x, x, vmap_method="sequential")

    found = callbacks(jax.jit(jax.vmap(prints)).trace(jnp.ones(2)))
    assert any("debug" in x for x in found) and any("pure" in x for x in found)
    assert sum("custom" in x or "ffi" in x for x in found) >= 2, found  # and in what was lowered


@BOTH
def test_no_callback_in_the_compiled_program(name, unbroken):
    compiled = unbroken(name)[0].lanes.programs._compiled
    assert {"init", "chunk", "evaluate"} <= compiled.keys()
    for program in compiled.values():
        text = program.as_text()
        assert "ENTRY" in text and not re.search(
            r'custom_call_target="[^"]*callback|\b(?:infeed|outfeed|send|recv)\(', text
        )


@BOTH
def test_a_chunk_runs_without_implicit_transfers(name, unbroken):
    whole, _ = unbroken(name)
    made = whole.lanes.programs
    state = made.snapshot(whole.state)
    with jax.transfer_guard("disallow"):
        with pytest.raises(Exception, match="[Dd]isallowed"):  # the guard is awake
            jnp.add(jnp.ones(3), np.ones(3)).block_until_ready()
        chunk = made.chunk(state, 1000, 2)
        assert not chunk.ready and (chunk.iterations, chunk.stopped) == (
            1000 + 2 * whole.grid.row, None)
        agent = made.snapshot(chunk.state.agent)
        metrics, finite = chunk.fetch()
    assert finite and jax.tree.leaves(agent)
    assert all(np.isfinite(m.count[:2]).all() for m in metrics.values())


@BOTH
def test_the_state_is_donated(name, unbroken):
    """Every byte of the state that goes in is reused; what a checkpoint took before is not
    touched."""
    whole, _ = unbroken(name)
    made = whole.lanes.programs
    old = made.snapshot(whole.state)
    kept, before = made.snapshot(old), tools.arrays(made.snapshot(old))
    made.chunk(old, 1000, 1)
    assert all(x.is_deleted() for x in jax.tree.leaves((old.agent, old.env, old.memory)))
    tools.assert_same_arrays(tools.arrays(kept), before)


@BOTH
def test_metrics_are_a_sum_and_a_count_a_row(name):
    """The size of metrics is independent of environments, steps, updates and the length of a
    row."""
    wide = (
        dict(num_envs=16, num_steps=32, num_epochs=3) if name == "ppo"
        else dict(num_envs=16, updates_per_iteration=3)
    )
    for settings in ({}, wide):
        made, state = build(name, total=51_200, **settings)
        zero = jax.ShapeDtypeStruct((), jnp.int32)
        after, metrics, finite = jax.eval_shape(made._chunk, made.run, state, zero, zero)
        assert (
            metrics.sums.shape == (programs.ROWS, metrics.structure.num_leaves)
            and finite.shape == ()
        )
        assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
            lambda x: (x.shape, x.dtype), state)
    train = jf.make_train(tools.algorithm(name), tools.environment(), 51_200, log_every=5120)
    _, metrics = jax.eval_shape(train, KEY)
    assert len({x.shape for x in jax.tree.leaves(metrics)}) == 1 and len(
        metrics["env_steps"].shape) == 1
    assert metrics["env_steps"].shape[0] <= 10


@BOTH
@pytest.mark.usefixtures("every_platform")
def test_no_leaf_of_the_state_is_weakly_typed(name):
    """A weak leaf would come back strong and cost a second compile."""
    made, _state = build(name)
    closed = jax.make_jaxpr(iteration.init)(made.run, jax.random.key(0))
    assert not any(aval.weak_type for aval in closed.out_avals if hasattr(aval, "weak_type"))
    assert not any(x.weak_type for x in jax.tree.leaves(made.run))


@pytest.mark.parametrize(("count", "everything", "beside"),
                         [(2, False, False), (4, False, True), (2, True, True)])
def test_programs_compiled_before_the_first_update(count, everything, beside, cores, monkeypatch):
    """Few cores compile no evaluation: the updates would wait for it. Programs that run once
    compile quickly."""
    options, compile = [], jax.stages.Lowered.compile
    seen = lambda lowered, given=None: (options.append(given), compile(lowered, given))[1]
    monkeypatch.setattr(jax.stages.Lowered, "compile", seen)
    cores(count)
    made, _ = build("dqn")
    made.compile(made.population.keys(range(made.population.size)), everything)
    assert list(made.memory_analysis()) == ["init", "warmup", "chunk", *["evaluate"] * beside]
    assert [x for x in options if x] == [runtime.once_options("cpu")]


def test_functions_live_as_long_as_their_runs_and_the_latest_runs_longer(monkeypatch):
    monkeypatch.setattr(programs, "_latest", [])  # that of conftest.py keeps more
    cartpole = jf.make("CartPole-v1")
    started = lambda width: programs.Programs(
        prepare(jf.PPO(num_envs=2, num_steps=4, hidden=(width,)), cartpole, RunConfig()))
    found = lambda run: weakref.ref(run._functions)
    first, again = started(4), started(4)
    assert first._functions is again._functions
    kept, other = found(first), started(5)
    gc.collect()
    assert kept() is not None
    del first, again
    gc.collect()
    assert kept() is None  # and with them their programs
    latest = found(other)
    del other
    gc.collect()
    assert latest() is started(5)._functions


def test_a_program_that_runs_once():
    assert runtime.once_options("gpu") is None and runtime.once_options("tpu") is None
    double = jax.jit(lambda x: 2 * x).lower(jnp.arange(3.0)).compile(runtime.once_options("cpu"))
    assert double(jnp.arange(3.0)).tolist() == [0, 2, 4]  # this jaxlib knows the options


@pytest.mark.parametrize(("parallel", "divided"), [(True, runtime.cpu_count() > 1), (False, False)])
def test_loops_are_divided_among_threads_only_if_the_setting_allows(parallel, divided):
    """A batch from a large replay: XLA counts the whole replay as read."""
    config = RunConfig(total_steps=tools.TOTAL, parallel_loops=parallel)
    algo = tools.algorithm("dqn", buffer_size=100_000)
    made = programs.Programs(prepare(algo, tools.environment(), config))
    state = jax.eval_shape(made._init, made.run, made.population.keys([0]))
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    compiled = made._chunk.lower(made.run, state, zero, zero).compile().as_text()
    found = re.findall(r'"outer_dimension_partitions":\["', compiled)
    assert bool(found) == divided


@BOTH
def test_float_settings_and_the_horizon_are_arguments(name):
    """Another learning rate, discount or length of the run is the same program, so the compile
    cache has it."""
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    texts = []
    for total, rate, discount in ((tools.TOTAL, 1e-3, 0.9), (2 * tools.TOTAL, 7e-4, 0.99)):
        made, state = build(name, total=total, learning_rate=rate, discount=discount)
        texts.append(made._chunk.lower(made.run, state, zero, zero).as_text())
    assert texts[0] == texts[1]


@pytest.mark.matrix("test_a_chunk_of_a_population_lowers_for_every_platform")
@ONE
@pytest.mark.usefixtures("every_platform")
def test_the_run_lowers_for_every_platform(name):
    """This machine need not have the platform."""
    platforms = ("cpu", "cuda", "tpu")
    train = jf.make_train(tools.algorithm(name), tools.environment(), tools.TOTAL, eval_every=320,
                          eval_episodes=4)
    lowered = export.export(jax.jit(train), platforms=platforms)(KEY)
    assert lowered.platforms == platforms and lowered.mlir_module()
    for platform in platforms:
        assert export.export(jax.jit(train), platforms=[platform])(KEY).platforms == (platform,)


@pytest.mark.parametrize(("name", "mode"), family([("dqn", "map"), ("ppo", "vmap")], 1))
@pytest.mark.usefixtures("every_platform")
def test_a_chunk_of_a_population_lowers_for_every_platform(name, mode):
    made, state = build(name, members=3, mode=mode)
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    lowered = export.export(made._chunk, platforms=("cpu", "cuda", "tpu"))(
        made.run, state, zero, zero)
    assert lowered.platforms == ("cpu", "cuda", "tpu")


CUDA = """
import re, sys
from helpers import runs as tools
import _aot_compile as compile_, _aot_hlo as hlo, _aot_programs as aot
import jax, jax.numpy as jnp

SENDS = (
    r"stablehlo[.](all_reduce|all_gather|all_to_all|collective_permute|reduce_scatter|"
    r"collective_broadcast)"
)
for name in sys.argv[1:]:
    work = aot.Work(tools.algorithm(name), tools.environment(name), 640, seeds=4)
    text = compile_.lower(aot.chunk(work, jax.devices()), "cuda").as_text()
    assert (
        text.count("module @") == 1
        and not re.search(SENDS, text)
        and not re.search(hlo.CALLBACKS, text)
    ), name
# that the search would find a collective
mesh = jax.make_mesh((2,), "p", axis_types=(jax.sharding.AxisType.Auto,))
P = jax.sharding.PartitionSpec
talks = jax.jit(
    jax.shard_map(lambda x: jax.lax.psum(x, "p"), mesh=mesh, in_specs=P("p"), out_specs=P()))
x = jax.ShapeDtypeStruct((2,), "float32", sharding=jax.sharding.NamedSharding(mesh, P("p")))
assert re.search(SENDS, compile_.lower(aot.Program(talks, (x,), None), "cuda").as_text())
# and a callback, as it is lowered for a CPU
calls = jax.jit(lambda x: jax.pure_callback(lambda v: v, x, x))
assert re.search(hlo.CALLBACKS, calls.lower(jnp.ones(2)).as_text())
"""


@pytest.mark.matrix("tests/engine/test_processes.py::test_two_processes_equal_one_with_two_devices")
def test_a_population_on_two_gpus_sends_nothing(tmp_path):
    """XLA gets one module for CUDA, without collectives or callbacks. `gpu_aot` compiles it."""
    scripts = str(Path(__file__).resolve().parents[2] / "scripts")
    ended = tools.python(CUDA, "ppo", "dqn", timeout=240,
                         XLA_FLAGS="--xla_force_host_platform_device_count=2",
                         PYTHONPATH=os.pathsep.join(
                             [scripts, os.environ.get("PYTHONPATH", "")]))  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]


def test_a_population_keeps_branches_and_slices():
    """The target's period stays a branch under vmap and the ring's write a slice: t is not
    batched."""
    made, state = build("dqn", members=3, mode="vmap")
    zero = jax.ShapeDtypeStruct((), jnp.int32)
    text = made._chunk.lower(made.run, state, zero, zero).compile().as_text()
    assert "conditional(" in text and "dynamic-update-slice(" in text


@pytest.fixture
def cache_settings():
    """JAX's settings of its compile cache, put back after the test."""
    before = {name: value for name, value in jax.config.values.items()
              if name.startswith("jax_persistent_cache")}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("cache_settings")
def test_compiled_programs_are_kept_in_the_users_folder(tmp_path, compile_cache, monkeypatch):
    """JAX's folder wins over ours; a cache that is off has none."""
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for jaxs, variable, folder in ((None, ours, ours), (None, "off", None), (theirs, ours, theirs)):
        compile_cache(jaxs)
        monkeypatch.setenv("JAXRL_FAST_CACHE", variable)
        assert runtime.enable_compile_cache() == folder == jax.config.jax_compilation_cache_dir


SETTINGS = """
from helpers import runs as tools
import jaxrl_fast as jf, jax
env, algo = tools.environment(), tools.algorithm("ppo")
before = dict(jax.config.values)
jax.jit(jf.make_train(algo, env, 64)).lower(jax.random.key(0))
changed = {name for name, value in jax.config.values.items() if before.get(name) != value}
assert not changed, changed
"""


def test_make_train_changes_no_setting_of_jax():
    fresh.check(SETTINGS)
