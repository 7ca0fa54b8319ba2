"""Programs as they are lowered for a GPU, on a machine without one: the host waits for nothing."""

from __future__ import annotations

import collections
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.engine import iteration, programs
from jaxrl_fast.engine.grid import RunConfig
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.members import build_run
from jaxrl_fast.engine.population import Population
from jaxrl_fast.envs.api import write_step
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.ops import equal_steps, lowering
from jaxrl_fast.ops.log_rows import scan_rows
from jaxrl_fast.tree import as_float32

pytestmark = pytest.mark.usefixtures("every_platform")


def equations(jaxpr, platform: str):
    """Return every equation of a JAXPR for a platform, and of a choice by platform its branch."""
    for eqn in jaxpr.eqns:
        params = eqn.params
        if eqn.primitive.name == "cond" and params.get("branches_platforms"):
            here = next(i for i, names in enumerate(params["branches_platforms"])
                        if names is None or platform in names)
            yield from equations(params["branches"][here].jaxpr, platform)
            continue
        yield eqn
        inner = lambda x: isinstance(x, (core.Jaxpr, core.ClosedJaxpr))
        for value in jax.tree.leaves(params, is_leaf=inner):
            if inner(value):
                yield from equations(getattr(value, "jaxpr", value), platform)


def control(jaxpr, platform: str) -> collections.Counter:
    """Counts of `while` and `cond`. A `scan` knows its trip count."""
    return collections.Counter(e.primitive.name for e in equations(jaxpr, platform)
                               if e.primitive.name in ("cond", "while"))


def unrolled(jaxpr, platform: str) -> dict[int, set[int]]:
    """{length of a scan: how many steps its body has}."""
    found = collections.defaultdict(set)
    for eqn in equations(jaxpr, platform):
        if eqn.primitive.name == "scan":
            found[eqn.params["length"]].add(eqn.params["unroll"])
    return dict(found)


@functools.cache
def log_row(name: str, members: int = 1, **settings):
    """Trace a log row of two iterations, as in a chunk and in `make_train`; members: by `vmap`."""
    env = tools.environment(name)
    run = as_float32(Run(env, tools.algorithm(name, **settings).bind(env.spec), 100.0))
    init = lambda key: iteration.init(run, key)
    row = lambda state: iteration.iterations(run, state, jnp.int32(30), 2, True)
    if members == 1:
        return jax.make_jaxpr(row)(jax.eval_shape(init, jax.random.key(0))).jaxpr
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), members))
    return jax.make_jaxpr(jax.vmap(row))(jax.eval_shape(jax.vmap(init), keys)).jaxpr


KEY = jax.random.key(0)
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)
# a loop that runs once keeps a ring's write apart from its readers (`memory.ring`)
RING = {"while": 1}
ON_A_CPU = {
    **{name: RING | {"cond": 1}
       for name in ("dqn", "c51", "qr_dqn", "rainbow", "apex", "sac", "td3", "crossq")},
    "tqc": RING,
    **{name: {"while": 1} for name in ("ppo", "pqn", "impala")},
    **{name: {} for name in ("apg", "es", "ars")},
}


# One of a family under `vmap`: its members differ in their losses.
@pytest.mark.parametrize(("name", "members"), family([
    *((name, 1) for name in ON_A_CPU),
    *((name, 3) for name in ("rainbow", "td3", "ppo", "apg", "es")),
    *(SLOW(name, 3) for name in ON_A_CPU if name not in ("rainbow", "td3", "ppo", "apg", "es")),
], lambda name, members: (name, members) in (("ppo", 1), ("dqn", 1), ("apg", 1), ("es", 3))))
def test_a_training_program_for_a_gpu_waits_for_nothing(name, members):
    """No branch and no loop of unknown trip count, also under `vmap` over seeds. A CPU has both if
    they save operations."""
    row = log_row(name, members)
    assert control(row, "cuda") == control(row, "rocm") == {}
    assert control(row, "cpu") == ON_A_CPU[name]


@pytest.mark.matrix("test_a_training_program_for_a_gpu_waits_for_nothing")
def test_a_step_of_physics_resets_without_a_branch():
    """A pool of starts is `OnEnd` in a rollout of one step."""
    row = log_row("td3", num_steps=1, n_step=1)
    assert control(row, "cuda") == {} and control(row, "cpu") == RING | {"cond": 2}


def carried(jaxpr, platform: str) -> int:
    """The most arrays that a loop carries: each is a write, on a GPU a launch, in every turn."""
    loops = (e.params for e in equations(jaxpr, platform) if e.primitive.name == "scan")
    return max(params["num_carry"] for params in loops)


@pytest.mark.parametrize(("name", "cpu", "cuda"), family(
    [("dqn", 25, 2), ("sac", 40, 8), ("ppo", 19, 9)], ["dqn", "ppo"]))
def test_a_gpus_loop_carries_its_small_arrays_as_one(name, cpu, cuda):
    row = log_row(name)
    assert (carried(row, "cpu"), carried(row, "cuda")) == (cpu, cuda)


@pytest.mark.parametrize("members", [1, 3])
def test_a_packed_carry_has_the_same_results(members, both_forms):
    """Every dtype, a leaf too large to pack, one that never changes, and a key."""
    carry = {
        "a": jnp.float32(1), "b": jnp.ones((2, 3)), "c": jnp.array([True, False]),
        "d": jnp.array([3, 250], jnp.uint8), "e": jnp.int32(7), "f": jnp.uint32(2**32 - 1),
        "g": jnp.zeros(lowering.SMALL + 1), "h": jnp.arange(3), "i": jax.random.key(1),
    }  # fmt: skip

    def step(carry, x):
        new = {"a": carry["a"] * x, "b": carry["b"] + carry["a"], "c": ~carry["c"],
               "d": carry["d"] + jnp.uint8(9)}
        new |= {"e": carry["e"] - 3, "f": carry["f"] + 5, "g": carry["g"] + x,
                "i": jax.random.fold_in(carry["i"], 3)}
        return carry | new, (carry["b"].sum() + carry["h"][1])[None]

    def run(scale):
        out, total = lowering.scan_sum(step, carry | {"a": scale}, jnp.arange(1.0, 6.0))
        return out | {"i": jax.random.key_data(out["i"])}, total

    run = jax.vmap(run) if members > 1 else run
    ours, gpus = both_forms(run, jnp.arange(1.0, members + 1.0) if members > 1 else jnp.float32(2))
    tools.assert_same(ours, gpus)


def test_a_packed_carry_has_gradients(both_forms):
    """Meta-gradients through a whole run pass its loops."""
    carry = {"a": jnp.float32(1), "b": jnp.ones(3), "n": jnp.int32(0), "m": jnp.int32(1)}
    step = lambda c, x: ({"a": c["a"] * x, "b": c["b"] + c["a"], "n": c["n"] + 1, "m": c["m"] + 2},
                         c["b"].sum()[None])
    xs = jnp.arange(1.0, 5.0)
    total = lambda scale: jnp.sum(lowering.scan_sum(step, carry | {"a": scale}, xs)[1])
    ours, gpus = both_forms(jax.grad(total), jnp.float32(2))
    assert float(ours) == float(gpus) == 3 * (3 * 1 + 2 * 1 + 1 * 2 + 0 * 6)


@pytest.mark.parametrize("most", [2, 4])
def test_sums_of_several_steps_a_turn_are_the_scans(most, both_forms):
    def step(carry, x):
        number = jnp.floor(8 * jax.random.uniform(x["key"]))  # sums of whole numbers are exact
        return {"a": carry["a"] * x["n"], "b": carry["b"] + number}, carry["b"]

    def run(a):
        xs = {"n": jnp.arange(1.0, 9.0), "key": jax.random.split(jax.random.key(0), 8)}
        return lowering.scan_sum(step, {"a": a, "b": jnp.zeros(2)}, xs, most=most)

    tools.assert_same(*both_forms(run, jnp.float32(2)))


@pytest.mark.parametrize(("apart", "steps"), [((False, True), 1), (False, 2)])
def test_steps_that_write_to_a_store_go_one_a_turn(apart, steps, both_forms):
    """XLA would copy the store between two steps of a turn."""
    step = lambda c, x: ((c[0] + x, c[1].at[x].set(c[0])), c[1].sum()[None].astype(jnp.float32))
    total = lambda a: lowering.scan_sum(step, (a, jnp.zeros(9, jnp.int32)), jnp.arange(6), apart,
                                        most=2)
    assert unrolled(jax.make_jaxpr(total)(jnp.int32(1)).jaxpr, "cuda") == {6: {steps}}
    tools.assert_same(*both_forms(total, jnp.int32(1)))


def test_one_step_is_no_loop_on_a_gpu(both_forms):
    total = lambda a: lowering.scan_sum(lambda c, x: (c + x, c[None]), a, jnp.arange(3.0, 4.0))
    jaxpr = jax.make_jaxpr(total)(jnp.float32(1)).jaxpr
    assert unrolled(jaxpr, "cuda") == {} and unrolled(jaxpr, "cpu") == {1: {1}}
    tools.assert_same(*both_forms(total, jnp.float32(1)))


@pytest.mark.parametrize(("name", "envs", "written"), family([
    ("dqn", 1, None), ("dqn", 4, ["float32", "bool", "bool"]), ("sac", 4, ["bool", "bool"]),
], ["dqn"]))  # fmt: skip
def test_ends_and_an_observation_from_the_state_are_written_on_a_gpu(name, envs, written):
    """Else each kernel that reads them would step several environments again."""
    row = log_row(name, num_envs=envs, num_steps=1, n_step=1)
    found = lambda platform: [
        dtypes for eqn in equations(row, platform) if eqn.primitive.name == "optimization_barrier"
        for dtypes in [[str(x.aval.dtype) for x in eqn.outvars]] if dtypes[-2:] == ["bool"] * 2
    ]
    assert found("cuda") == ([written] if written else []) and found("cpu") == []


def test_ends_of_an_environment_with_its_own_step_are_written_on_a_gpu():
    class Own(CartPole):
        def step(self, noise, state, action):
            return super().step(noise, state, action)

    env = Own()
    state, _ = env.init(jax.random.key(0), 4)
    noise, action = env.draw(jax.random.key(1), 1, 4, jnp.int32(0)).at(0), jnp.zeros(4, jnp.int32)
    with lowering.known("cuda"):
        text = str(jax.make_jaxpr(functools.partial(write_step, env))(noise, state, action))
    assert text.count("optimization_barrier") == 1


def test_resets_of_a_network_stay_a_branch():
    """A fresh network is a loop over the rows of each kernel: too much for every update."""
    assert control(log_row("iqn", reset_period=20), "cuda") == {"cond": 1}
    assert control(log_row("iqn", reset_period=0), "cuda") == {}


def test_the_search_would_find_branches_and_loops():
    def waits(x):
        x = jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)
        looped = jax.jit(lambda x: jax.lax.while_loop(lambda x: jnp.any(x > 0), lambda x: x - 1, x))
        return jax.lax.scan(lambda x, _: (looped(x), ()), x, length=3)

    assert control(jax.make_jaxpr(waits)(jnp.ones(2)).jaxpr, "cuda") == {"cond": 1, "while": 1}


@pytest.mark.parametrize("due", [False, True])
def test_a_selection_is_the_branch(due, both_forms):
    x = {"a": jnp.arange(3.0), "b": jnp.int32(4)}
    choose = lambda due, x: lowering.when(due, lambda: jax.tree.map(lambda x: 3 * x, x), lambda: x)
    expected = jax.tree.map(lambda x: np.asarray(3 * x if due else x), x)
    for found in both_forms(choose, jnp.array(due), x):
        tools.assert_same(found, expected)
    jaxpr = jax.make_jaxpr(choose)(jnp.array(due), x).jaxpr
    assert control(jaxpr, "cpu") == {"cond": 1} and control(jaxpr, "cuda") == {}


@pytest.mark.parametrize(("backend", "version", "platform"), family([
    ("cpu", "cpu", "cpu"), ("gpu", "cuda 12090", "cuda"), ("gpu", "PJRT C API\nrocm 60300", "rocm"),
    ("tpu", "libtpu", "tpu"),
], lambda backend, version, platform: platform == "cuda"))  # fmt: skip
@pytest.mark.parametrize("name", family(["ppo", "dqn", "sac"], ["ppo"]))
def test_a_run_traces_no_other_platforms_branches(name, backend, version, platform):
    """The rest is the platform's part of a trace for every platform."""
    device = SimpleNamespace(platform=backend, client=SimpleNamespace(platform_version=version))
    env = tools.environment(name)
    run = as_float32(Run(env, tools.algorithm(name).bind(env.spec), 100.0))
    row = lambda state: iteration.iterations(run, state, jnp.int32(30), 2, True)
    state = jax.eval_shape(lambda key: iteration.init(run, key), jax.random.key(0))
    with Population(1, "vmap", (device,)).tracing():
        assert lowering.known.value == platform
        alone = jax.make_jaxpr(row)(state).jaxpr
    names = lambda jaxpr, platform: collections.Counter(e.primitive.name
                                                        for e in equations(jaxpr, platform))
    assert names(alone, "cuda") == names(alone, "cpu")
    assert "platform_index" not in names(alone, "cpu")
    assert control(alone, platform) == control(log_row(name), platform)


@pytest.mark.parametrize("members", [1, 3])
def test_a_loop_with_a_limit_of_turns(members, both_forms):
    """Lanes end at turns of their own, and the branch stays one. On a GPU a turn has parts."""
    goes_on = lambda carry: carry[0] < carry[1]

    def step(carry, drawn):
        at = carry[0] + jnp.arange(len(drawn))
        goes = (at < carry[1]) & (drawn == at)
        return carry[0] + len(drawn), carry[1], carry[2] + jnp.sum(goes)

    draw = lambda i: 4 * i + jnp.arange(4)
    part = lambda x, j: jax.lax.dynamic_slice_in_dim(x, 2 * j, 2)
    begin = lambda most: (jnp.int32(0), most, jnp.int32(0))
    run = lambda most: lowering.while_at_most(goes_on, step, begin(most), 2, draw, 2, part)[2]
    run, most = (jax.vmap(run), jnp.array([3, 0, 5])) if members > 1 else (run, jnp.int32(3))
    for found in both_forms(run, most):
        np.testing.assert_array_equal(found, most)
    jaxpr = jax.make_jaxpr(run)(most).jaxpr
    assert control(jaxpr, "cpu") == {"while": 1} and control(jaxpr, "cuda") == {"cond": 1}


@pytest.mark.parametrize(("name", "members"), family(
    [(name, members) for name in ("ppo", "dqn", "sac") for members in (1, 3)],
    lambda *row: row in (("dqn", 3), ("sac", 1))))
def test_an_evaluation_waits_for_nothing(name, members):
    """A branch that holds no loop: XLA records it in a CUDA graph."""
    env = tools.environment(name)
    algo = tools.algorithm(name).bind(env.spec)
    score = lambda key: jf.evaluate(env, algo, algo.init(key), key, episodes=4).ret
    score, key = (jax.vmap(score), jax.random.split(KEY, 3)) if members > 1 else (score, KEY)
    jaxpr = jax.make_jaxpr(score)(key).jaxpr
    assert control(jaxpr, "cuda") == {"cond": 1}
    branch = next(e for e in equations(jaxpr, "cuda") if e.primitive.name == "cond")
    inner = [e.params["length"] // e.params["unroll"] for b in branch.params["branches"]
             for e in equations(b.jaxpr, "cuda") if e.primitive.name == "scan"]
    assert inner == [1]
    assert control(jaxpr, "cpu") == {"while": 1}


@pytest.mark.parametrize("name", family(["dqn", "td3", "ppo", "pqn", "apg", "es",
                                  *map(SLOW, ("c51", "impala", "crossq"))], ["dqn"]))
def test_a_log_row_has_the_same_numbers_in_both_forms(name, both_forms):
    """Every leaf of the state and every metric is equal to rounding: XLA fuses otherwise.

    All but DQN and TD3 also begin in both forms: weights, warm-up. PPO, APG and ES have four steps
    in a row.
    """
    # one learner compiles the physics twice
    env = tools.environment("sac" if name == "crossq" else name)
    short = {"num_steps": 4} if name in ("ppo", "apg", "es") else {}
    run = as_float32(Run(env, tools.algorithm(name, **short).bind(env.spec), 100.0))
    count = 3 if name in ("td3", "crossq") else 6

    def begun(key):
        state = iteration.init(run, key)
        return iteration.warmup(run, state)[0] if run.algo.warmup_iterations else state

    def row(state):
        state, metrics = iteration.iterations(run, state, jnp.int32(run.algo.warmup_iterations),
                                              count, True)
        return state._replace(key=()), metrics

    key = jax.random.key(3)
    # a warm-up would compile twice more; of TD3 its physics
    warm = name in ("dqn", "td3")
    together = (row, jax.jit(begun)(key)) if warm else (lambda key: row(begun(key)), key)
    tools.assert_close(*both_forms(*together))


@pytest.mark.parametrize(("name", "members", "steps"), family([
    ("ppo", 1, 2), ("es", 1, 8), ("apg", 1, 8), ("ppo", 3, 2), ("pqn", 1, 2), ("impala", 1, 2),
], 2))  # fmt: skip
def test_a_rollout_is_unrolled_on_a_gpu(name, members, steps):
    row = log_row(name, members, num_steps=24)
    assert steps in unrolled(row, "cuda")[24] and 1 not in unrolled(row, "cuda")[24]
    assert unrolled(row, "cpu")[24] == unrolled(row, "tpu")[24] == {1}


def test_a_rollout_of_up_to_eight_steps_is_no_loop_on_a_gpu():
    assert tools.SETTINGS["ppo"]["num_steps"] == 8
    assert unrolled(log_row("ppo"), "cuda")[8] == {8}


@pytest.mark.parametrize(("updates", "settings", "steps"), family([
    (2, {}, {1, 2}), (6, {}, {1}), (24, {}, {4}), (24, {"prioritized": True}, {1}),
], [24]))  # fmt: skip
def test_many_updates_go_in_a_row(updates, settings, steps):
    """Few compile faster one by one; priorities are a store. The row's loop has two turns too."""
    row = log_row("dqn", updates_per_iteration=updates, **settings)
    assert unrolled(row, "cuda")[updates] == steps and unrolled(row, "cpu")[updates] == {1}


@pytest.mark.parametrize(
    ("count", "cpu", "cuda"),
    [(1, 1, 1), (10, 10, 10), (64, 64, 64), (490, 49, 490), (97, 97, 97), (134, 67, 134),
     (131, 1, 131), (90, 45, 90), (194, 97, 194), (10_000, 50, 2500)],
)  # fmt: skip
def test_iterations_of_a_log_row_that_draw_together(count, cpu, cuda):
    """On a CPU a divisor up to 64, or a larger one if these are small; on a GPU 1 MiB of draws."""
    run = build_run(tools.algorithm("dqn"), tools.environment("dqn"),
                    RunConfig(total_steps=tools.TOTAL))
    for platform, together in (("cpu", cpu), ("cuda", cuda)):
        with lowering.known(platform):
            assert iteration.drawn_together(run, count) == together


@pytest.mark.parametrize(("platform", "together"), [("cpu", 50), ("cuda", 4000)])
def test_a_warm_up_draws_for_its_rollouts_alone_on_a_gpu(platform, together):
    """No batches: more iterations fit, and fewer loops are compiled."""
    run = build_run(tools.algorithm("dqn"), tools.environment("dqn"),
                    RunConfig(total_steps=tools.TOTAL))
    with lowering.known(platform):
        assert iteration.drawn_together(run, 4000, learn=False) == together
        assert iteration.drawn_together(run, 4000) == min(together, 2000)


@pytest.mark.parametrize("unroll", family([3, 1], 1))
def test_a_users_unroll_applies_to_every_platform(unroll):
    """The programs of `make_train`, and the `Run` that `train` compiles."""
    algo, env = tools.algorithm("ppo", num_steps=24), tools.environment()
    run = build_run(algo, env, RunConfig(total_steps=960, unroll=unroll))
    state = jax.eval_shape(lambda: iteration.init(run, jax.random.key(0)))
    row = lambda state: iteration.iterations(run, state, jnp.int32(0), 2, True)
    train = jax.make_jaxpr(jf.make_train(algo, env, 960, unroll=unroll))(jax.random.key(0))
    for program in (jax.make_jaxpr(row)(state), train):
        for platform in ("cuda", "cpu"):
            assert unroll in unrolled(program.jaxpr, platform)[24]
    chosen = jax.make_jaxpr(jf.make_train(algo, env, 960))(jax.random.key(0)).jaxpr
    assert 2 in unrolled(chosen, "cuda")[24] and unrolled(chosen, "cpu")[24] == {1}


@pytest.mark.parametrize(
    ("length", "size", "most", "expected"),
    [(128, 100, 8, 8), (10, 100, 8, 5), (13, 100, 8, 1), (7, 100, 8, 7), (3, 1, 8, 3),
     (128, 10, 16, 16), (128, 1014, 8, 4), (128, 4096, 8, 1), (128, 12_000, 8, 1),
     (24, 1000, 8, 6)],
)  # fmt: skip
def test_steps_in_a_gpu_loop_body(length, size, most, expected):
    """A divisor of its length, and no more than the compiler takes in its stride."""
    assert lowering.steps_in_a_row(length, size, most) == expected


def test_operations_of_inner_functions_and_loops_count():
    def step(x):
        x = jax.jit(lambda x: jnp.sin(x) * 2)(x)
        return jax.lax.scan(lambda x, _: (jnp.cos(x), ()), x, length=100)[0]

    assert lowering.operations(jax.make_jaxpr(step)(1.0)) == 3


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_has_the_same_results_in_both_forms(reverse, both_forms):
    xs = {"a": jnp.arange(24, dtype=jnp.int32), "b": jnp.arange(48, dtype=jnp.int32).reshape(24, 2)}
    step = lambda carry, x: (3 * carry + x["a"], carry - x["b"])
    scan = lambda xs: lowering.scan(step, jnp.int32(1), xs, reverse)
    expected = jax.lax.scan(step, jnp.int32(1), xs, reverse=reverse)
    for found in both_forms(scan, xs):
        tools.assert_same(found, expected)


@pytest.mark.parametrize(("apart", "arrays"), [(True, 3), ((True, (False, False)), 2)])
def test_a_scan_packs_the_floats_of_parts_that_are_not_apart(apart, arrays, both_forms):
    carry = jnp.ones((4, 2)), (jnp.ones((4, 3)), jnp.zeros(4, jnp.int32))
    xs = jnp.arange(48.0, dtype=jnp.float32).reshape(12, 4)

    def step(carry, x):
        obs, (state, time) = carry
        state, time = state + x[:, None], time + 1
        return (obs + state[:, :2], (state, time)), state * time[:, None]

    scan = lambda carry, xs: lowering.scan(step, carry, xs, most=4, apart=apart)
    tools.assert_same(*both_forms(scan, carry, xs))
    assert carried(jax.make_jaxpr(scan)(carry, xs).jaxpr, "cuda") == arrays


def test_every_algorithm_has_a_test_of_its_launches():
    """A2C is PPO's rollout and one update; IQN's resets are the exception above."""
    assert {*ON_A_CPU, "a2c", "iqn"} == set(jf.list_algorithms())


def test_prioritized_replay_waits_for_nothing():
    row = log_row("dqn", updates_per_iteration=24, prioritized=True)  # traced above
    assert control(row, "cuda") == {}


def whole_run(name: str, **settings):
    train = jf.make_train(tools.algorithm(name), tools.environment(name), tools.TOTAL, **settings)
    return jax.make_jaxpr(train)(jax.random.key(0)).jaxpr


@pytest.mark.parametrize("members", [1, 3])
def test_log_rows_in_one_array_are_the_scans(members, both_forms):
    row = lambda state, r: (state * 2 + r, {"a": jnp.float32(state), "b": jnp.isnan(state / r),
                                            "c": state / r})
    rows = lambda state: scan_rows(row, state, 5)
    start = jnp.float32(0)
    rows, start = (jax.vmap(rows), jnp.arange(3.0)) if members > 1 else (rows, start)
    ours, gpus = both_forms(rows, start)
    tools.assert_same(ours, gpus)
    assert gpus[1]["b"].dtype == bool and gpus[1]["b"].any() and not gpus[1]["b"].all()


def test_a_gpu_carries_the_state_packed_over_log_rows(both_forms):
    start = {"a": jnp.arange(3.0), "n": jnp.int32(7), "m": jnp.ones((2, 2), bool)}

    def row(state, r):
        after = {"a": state["a"] * 1.5 + r, "n": -state["n"] - r, "m": ~state["m"]}
        return after, {"sum": jnp.sum(after["a"])}

    rows = lambda state: scan_rows(row, state, 5)
    tools.assert_same(*both_forms(rows, start))
    with lowering.known("cuda"):
        jaxpr = jax.make_jaxpr(rows)(start)
    (loop,) = (x for x in jaxpr.eqns if x.primitive.name in ("scan", "while"))
    carried = [x.aval.shape for x in loop.outvars]
    assert sorted(carried, key=len)[1:] == [(8,), (1, 5)]  # beside its counter


def test_log_rows_keep_integers_and_vectors(both_forms):
    row = lambda state, r: (state + 1, {"n": state, "v": jnp.ones(2) * r})
    for _, metrics in both_forms(lambda state: scan_rows(row, state, 2), jnp.int32(2**24 + 1)):
        assert metrics["n"].tolist() == [2**24 + 1, 2**24 + 2] and metrics["v"].shape == (2, 2)
    assert both_forms(lambda x: scan_rows(lambda x, r: (x, {}), x, 2), jnp.float32(1))[1] == (1, {})


@pytest.mark.parametrize("name", family(["ppo", "dqn"], ["dqn"]))
def test_a_whole_run_waits_only_where_it_evaluates(name):
    """Initialization and warm-up included."""
    assert control(whole_run(name), "cuda") == {}
    evaluated = control(whole_run(name, eval_every=tools.TOTAL // 2), "cuda")
    # whether to evaluate, and whether an episode goes on: in a CUDA graph
    assert evaluated == {"cond": 2}


def test_a_chunk_waits_once_a_log_row():
    """The number of its rows is an argument, so that one program serves all chunks."""
    run = build_run(tools.algorithm("dqn"), tools.environment("dqn"),
                    RunConfig(total_steps=tools.TOTAL))
    state = jax.eval_shape(lambda: iteration.init(run, jax.random.key(0)))
    chunk = lambda state, rows: programs.chunk(run, state, jnp.int32(8), rows, 2)
    assert control(jax.make_jaxpr(chunk)(state, jnp.int32(3)).jaxpr, "cuda") == {"while": 1}


def small_steps(entries: int = 3):
    """A step of every dtype that packs, with equal outputs and a key in its inputs."""
    carry = {
        "a": jnp.ones((entries, 2)), "b": jnp.full((entries, 2), 5.0),
        "n": jnp.arange(entries, dtype=jnp.int32), "seen": jnp.zeros(entries, bool),
    }  # fmt: skip
    xs = {"key": jax.random.split(KEY, 12), "x": jnp.arange(12.0)}

    def step(carry, x):
        number = jnp.floor(8 * jax.random.uniform(x["key"], (entries,)))
        a, n = carry["a"] + number[:, None], carry["n"] + x["x"].astype(jnp.int32)
        new = {"a": a * 2, "b": a * 2, "n": n, "seen": carry["seen"] | (number > 4)}
        return new, {"obs": carry["a"], "odd": n % 2 == 1, "n": n.astype(jnp.uint8), "to": a * 2,
                     "b": carry["b"]}  # starts apart from `a`

    return step, carry, xs


@pytest.mark.parametrize("members", [1, 3])
def test_steps_of_equal_code_have_the_same_results(members, both_forms):
    step, carry, xs = small_steps()

    def run(scale):
        return equal_steps.scan(step, carry | {"a": scale * carry["a"]}, xs, most=4)

    run = jax.vmap(run) if members > 1 else run
    scale = jnp.arange(1.0, 4.0) if members > 1 else jnp.float32(2)
    tools.assert_same(*both_forms(run, scale))
    jaxpr = jax.make_jaxpr(run)(scale).jaxpr
    assert unrolled(jaxpr, "cuda") == {12: {2}} and unrolled(jaxpr, "cpu") == {12: {1}}
    # under `vmap` the step's number has no axis of members: else the slices were gathers
    assert not [e for e in equations(jaxpr, "cuda") if e.primitive.name == "gather"]


def test_a_step_of_equal_code_reads_and_writes_one_array():
    """A row that equals an array of the state is in it once."""
    step, carry, xs = small_steps()
    jaxpr = jax.make_jaxpr(lambda carry: equal_steps.scan(step, carry, xs, most=4))(carry).jaxpr
    loop = next(e for e in equations(jaxpr, "cuda") if e.primitive.name == "scan")
    shapes = [x.aval.shape for x in loop.outvars]
    assert shapes == [(3, 2 + 2 + 1 + 1 + 2 + 1 + 1 + 2 + 1), (12, 3, 13)]
    assert carried(jaxpr, "cuda") == 1 and carried(jaxpr, "cpu") == 4


def test_steps_with_a_large_array_keep_it_apart(both_forms):
    step, carry, xs = small_steps(lowering.VECTOR // 2 + 1)
    run = lambda carry: equal_steps.scan(step, carry, xs, most=4)
    tools.assert_same(*both_forms(run, carry))
    assert carried(jax.make_jaxpr(run)(carry).jaxpr, "cuda") > 1


def test_steps_of_equal_code_have_gradients(both_forms):
    _, carry, xs = small_steps()
    step = lambda c, x: (c | {"a": c["a"] * x["x"], "n": c["n"] + 1}, c["a"][:, 0])
    total = lambda scale: jnp.sum(equal_steps.scan(
        step, {"a": scale * carry["a"], "n": carry["n"]}, {"x": xs["x"][1:5]}, most=4)[1])
    ours, gpus = both_forms(jax.grad(total), jnp.float32(2))
    assert float(ours) == float(gpus) == 3 * (1 + 1 + 1 * 2 + 1 * 2 * 3)


@pytest.mark.parametrize(("groups", "carries"), family([(2, 2), (1, 1)], 1))
def test_environments_on_several_devices_keep_an_index_of_the_loop(groups, carries):
    """The number of a step would be read from one device by all."""
    env = tools.environment()
    algo = tools.algorithm("ppo", num_steps=24).bind(env.spec)
    run = as_float32(Run(env, algo, 100.0, groups=groups))
    state = jax.eval_shape(lambda key: iteration.init(run, key), KEY)
    row = lambda state: iteration.iterations(run, state, jnp.int32(30), 2, True)
    jaxpr = jax.make_jaxpr(row)(state).jaxpr
    loops = [e for e in equations(jaxpr, "cuda") if e.primitive.name == "scan"]
    assert [e.params["num_carry"] for e in loops if e.params["length"] == 24] == [carries]
