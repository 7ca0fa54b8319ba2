"""The adapter of brax and Playground on an environment of a few lines: resets, ends, randomised
physics."""

from __future__ import annotations

import collections
import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.ball import Ball, ToyEnv, toy
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.engine import iteration as iterate
from jaxrl_fast.engine import rollout
from jaxrl_fast.engine.evaluate import evaluate
from jaxrl_fast.envs import tracing, wrappers
from jaxrl_fast.envs.api import Drawing
from jaxrl_fast.envs.physics import randomize
from jaxrl_fast.envs.probes import control as probes
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import lowering
from jaxrl_fast.runs import config_json
from jaxrl_fast.testing import check_env
from jaxrl_fast.types import Clock

MASS = "part.mass=0.5:2"


@functools.partial(jax.jit, static_argnums=0)
def steps_of(env, key, actions, t):
    state, first = env.init(key, actions.shape[1])
    noise = env.draw(jax.random.fold_in(key, 1), len(actions), actions.shape[1], t)

    def step(state, x):
        state, obs, outcome = env.step(noise.with_rows(x[0]), state, x[1])
        return state, (state, obs, outcome)

    return *jax.lax.scan(step, state, (noise.rows, actions))[1], first


def play(env, actions, key=0, t=0):
    """(state after every step, its observation, Outcome), each [T], and the first observation."""
    actions = jnp.asarray(actions, jnp.float32)
    return jax.tree.map(np.asarray, steps_of(env, jax.random.key(key), actions, jnp.int32(t)))


@functools.partial(jax.jit, static_argnums=(0, 2))
def begin(env, key, num_envs, *t):
    return env.init(key, num_envs, *t)


@pytest.mark.parametrize(
    "env",
    family([
        toy(),
        toy(resets="every_step"),
        toy(reset_pool=7, randomized=MASS, randomize_warmup=3),
        wrappers.wrap(toy(randomized=MASS), action_repeat=2, sticky_actions=0.3, time_limit=7,
                      reward_scale=0.5),
    ], 1),
    ids=["pool", "every step", "randomised", "wrapped"],
)
def test_physics_environments_conform(env):
    report = check_env(env, num_envs=6, num_steps=150)
    assert report.random_resets and report.terminated > 0 and report.truncated > 0


def test_ends_and_the_terminal_observation():
    actions = jnp.concatenate([jnp.ones((30, 1, 1)), jnp.zeros((30, 1, 1))], axis=1)
    state, obs, outcome, first = play(toy(), actions)
    x = first[0, 0]
    for row in range(30):  # by hand: 0.1 of the action and 0.01 of the wind a step
        x = x + np.float32(0.11)
        assert outcome.next_obs[row, 0, 0] == pytest.approx(x, abs=1e-5)
        assert outcome.terminated[row, 0] == (x > 1) and not outcome.truncated[row, 0]
        if x > 1:
            assert abs(obs[row, 0, 0]) <= 0.7 and state.time[row, 0] == 0
            x = obs[row, 0, 0]
    # the wind alone carries it nowhere in 20 steps
    assert outcome.truncated[:, 1].nonzero()[0].tolist() == [19]
    assert outcome.next_obs[19, 1, 0] == pytest.approx(first[1, 0] + 0.2, abs=1e-5)
    assert (outcome.reward == 1).all() and state.info["steps"].dtype == np.int32


def test_actions_are_clipped_to_the_space():
    *_, far, _ = play(toy(), jnp.full((5, 3, 1), 7.0))
    *_, most, _ = play(toy(), jnp.ones((5, 3, 1)))
    np.testing.assert_array_equal(far.next_obs, most.next_obs)


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def drawn_pool(env, key, num_steps, num_envs, t):
    return env.resets.draw(env, key, num_steps, num_envs, t)


def pool(env, key, num_steps=8, num_envs=16, t=0):
    """The entries that the steps take, int32 [T, B]; the pool; and the starts of its entries."""
    index, drawn = drawn_pool(env, jax.random.key(key), num_steps, num_envs, jnp.int32(t))
    return np.asarray(index), drawn, np.asarray(drawn.entries[1][1])[:, 0]


def test_the_pool_is_fresh_every_iteration_and_shared_out():
    *_, starts = pool(toy(), 0)
    # 8 * 16 steps: one for 64 of them would be 2
    assert len(starts) == 16 == len(np.unique(starts))
    assert len(pool(toy(), 0, num_steps=256)[2]) == 64  # and here it is one for 64
    index, drawn, starts = pool(toy(reset_pool=40), 0)
    assert len(np.unique(starts)) == 40 and index.shape == (8, 16)
    assert all(len(np.unique(row)) == 16 for row in index)  # those that end together start apart
    assert index.min() >= 0 and index.max() < 40 and len(np.unique(index[:, 0])) > 3
    other, _, others = pool(toy(reset_pool=40), 1)
    assert not np.intersect1d(starts, others).size and (other != index).any()
    assert len(pool(toy(reset_pool=1000), 0)[2]) == 128  # no more than could be used
    assert len(pool(toy(), 0, 2, 1)[2]) == 1
    before, done = begin(toy(), jax.random.key(5), 16), np.arange(16) % 3 == 0
    state, obs = jax.jit(lambda drawn, *rest: drawn.apply(toy(), *rest))(
        drawn, index[3], done, before)
    expected = np.where(done, starts[index[3]], np.asarray(before[1])[:, 0])
    np.testing.assert_array_equal(np.asarray(obs)[:, 0], expected)
    np.testing.assert_array_equal(np.asarray(state.physics["x"]), np.asarray(obs))


@pytest.mark.parametrize("settings", family(
    [{"resets": "every_step"}, {"reset_pool": 8}, {"reset_pool": 500}], 2))
def test_consecutive_episodes_start_apart(settings):
    """`brax` replays one cached first state an environment. A pool whose size divides B does not
    amount to that."""
    _, obs, outcome, first = play(toy(episode_length=4, **settings), jnp.zeros((100, 8, 1)))
    done = outcome.terminated | outcome.truncated
    again = total = 0
    for b in range(8):
        starts = [first[b, 0], *obs[done[:, b], b, 0]]
        again += sum(x == y for x, y in itertools.pairwise(starts))
        total += len(starts) - 1
    assert total >= 200 and again <= (0 if "resets" in settings
                                      else 2.5 * total / settings["reset_pool"])


def test_environments_that_end_together_begin_apart():
    """Off-policy rollouts are a step long: eight environments that have ended together would stay
    together for ever."""
    state, obs, outcome, _ = play(toy(randomized=MASS, episode_length=1), jnp.zeros((1, 8, 1)))
    assert outcome.truncated.all() and len(np.unique(obs)) == len(np.unique(masses(state))) == 8


def test_in_rollouts_of_a_step_resets_are_computed_only_when_an_episode_ends():
    """A CPU branches on an end; the resets equal those of `every_step`, which a GPU computes
    always."""

    def run(env, actions):
        def iteration(state, action):
            state, t = state
            noise = env.draw(jax.random.fold_in(jax.random.key(1), t), 1, 5, t)
            state, obs, outcome = env.step(noise.at(0), state, action)
            return (state, t + 1), (state, obs, outcome)

        return jax.lax.scan(iteration, (env.init(jax.random.key(0), 5)[0], jnp.int32(0)),
                            actions)[1]

    actions = jax.random.uniform(jax.random.key(2), (60, 5, 1), minval=-0.2, maxval=1.5)
    rare, always = toy(randomized=MASS), toy(randomized=MASS, resets="every_step")
    played = {env: jax.tree.map(np.asarray, jax.jit(run, static_argnums=0)(env, actions))
              for env in (rare, always)}
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), played[rare],
                 played[always])
    *_, outcome = played[rare]
    done = (outcome.terminated | outcome.truncated).sum(1)
    assert (done == 0).sum() > 10 and (done > 0).sum() > 10 and (done > 1).any()
    wrapped = functools.partial(wrappers.wrap, action_repeat=2, time_limit=7)
    branches = lambda env: str(jax.make_jaxpr(lambda a: run(env, a))(actions)).count(" cond[")
    assert branches(rare) > branches(always) and branches(wrapped(rare)) > branches(wrapped(always))
    # who wants fewer than one an environment gets a pool
    assert len(pool(toy(reset_pool=3), 0, num_steps=1)[2]) == 3


def test_a_wrapper_may_draw_more_for_a_reset():
    @tree.settings
    class Shifted(wrappers.Wrapper):
        def draw_reset(self, key, shape, t):
            return jnp.ones(shape), self.env.draw_reset(key, shape, t)

        def reset(self, noise):
            state, obs = self.env.reset(noise[1])
            return state, obs + noise[0][:, None]

    for num_steps in (1, 4):
        _, obs, outcome, _ = play(Shifted(toy(episode_length=1)), jnp.zeros((num_steps, 3, 1)))
        assert outcome.truncated.all() and (obs >= 0.3).all()  # toy's own starts are in [-0.7, 0.7]


def masses(state):
    (mass,) = state.varied
    return mass[..., 0] / 2.0  # [T, B] the factor


def test_physics_are_randomised_for_each_environment_and_at_each_reset():
    env = toy(randomized=MASS, resets="every_step")
    state, _, outcome, first = play(env, jnp.full((40, 6, 1), -0.5))
    factor, done = masses(state), outcome.terminated | outcome.truncated
    assert len(np.unique(factor[0])) == 6 and factor.min() >= 0.5 and factor.max() <= 2.0
    # one factor for the whole leaf
    np.testing.assert_array_equal(state.varied[0][..., 1] / 4.0, factor)
    for b in range(6):
        same = factor[1:, b] == factor[:-1, b]
        np.testing.assert_array_equal(same, ~done[1:, b])
    moved = outcome.next_obs[0, :, 0] - first[:, 0]
    np.testing.assert_allclose(moved, -0.05 / factor[0] + 0.01, atol=1e-6)


def test_a_function_randomises_and_may_change_more_than_it_draws():
    def storm(key, model, t):
        wind = model.wind * jax.random.randint(key, (), 2, 5)
        return model.replace(wind=wind, part=model.part.replace(mass=2.0 * model.part.mass))

    env = toy(randomized=storm)
    state, _, outcome, first = play(env, jnp.ones((1, 64, 1)))
    assert (
        len(state.varied) == 1
        and np.unique(np.round(state.varied[0], 3)).tolist() == pytest.approx([0.02, 0.03, 0.04])
    )
    np.testing.assert_allclose(outcome.next_obs[0, :, 0] - first[:, 0], 0.05 + state.varied[0][0],
                               atol=1e-6)


@pytest.mark.matrix("test_a_function_randomises_and_may_change_more_than_it_draws")
def test_a_function_may_be_jitted():
    """All leaves go through the nested program, drawn or not."""

    @jax.jit
    def heavier(key, model, t):
        return model.replace(
            part=model.part.replace(mass=model.part.mass * jax.random.uniform(key, minval=0.5)))

    env = toy(randomized=heavier)
    state, _, outcome, first = play(env, jnp.full((1, 8, 1), -0.5))
    assert len(np.unique(masses(state))) == 8
    np.testing.assert_allclose(outcome.next_obs[0, :, 0] - first[:, 0],
                               -0.05 / masses(state)[0] + 0.01, atol=1e-6)


def test_leaves_read_in_nested_programs_are_found():
    def scanned(a, b, c):
        return jax.lax.scan(lambda carry, _: ((carry[0] + b, carry[1] * c), ()), (0.0, a),
                            length=2)[0][0]

    read = lambda f: tree.used_inputs(jax.make_jaxpr(f)(1.0, 2.0, 3.0).jaxpr)
    assert (
        read(lambda *args: jnp.sin(jax.jit(lambda a, b, c: (a, b * c))(*args)[1]))
        == [False, True, True]
    )
    assert read(scanned) == [False, True, False]
    assert read(lambda a, b, c: (1.0, c)) == [False, False, True]

    def depends(f, **kwargs):
        return tracing.depends_on_inputs(jax.make_jaxpr(f)(1.0, 2.0, 3.0).jaxpr, **kwargs)

    pair = jax.jit(lambda a, b, c: (a, b * c))
    assert depends(pair, first=1) == [True, False] and depends(pair) == [True, True]
    assert depends(scanned, first=1) == [False]

    def printed(a, b, c):
        jax.debug.print("{}", a)
        return b, 2.0 * a, 1.0

    assert depends(printed, first=1) == [False, True, False]


def test_a_curriculum_opens_the_range():
    env = toy(randomized="part.mass=0.5:2, wind=3:5", randomize_warmup=10, reset_pool=400)

    def ranges(t):
        _, drawn, _ = pool(env, 0, 20, 20, t)
        wind, mass = drawn.entries[1][0].varied
        factors = np.stack([np.asarray(wind) / 0.01, np.asarray(mass)[:, 0] / 2.0])
        return np.stack([factors.min(1), factors.max(1)], 1)

    np.testing.assert_allclose(ranges(0), 1.0, atol=1e-6)
    np.testing.assert_allclose(ranges(5), [[2.0, 3.0], [0.75, 1.5]], atol=0.02)
    np.testing.assert_allclose(ranges(10), [[3.0, 5.0], [0.5, 2.0]], atol=0.02)
    np.testing.assert_array_equal(ranges(1000), ranges(10))
    # without an iteration: the whole range, as evaluations see it
    wind, _ = map(np.asarray, begin(env, jax.random.key(0), 100)[0].varied)
    assert wind.min() >= 0.0299 and wind.max() > 0.045
    wrapped = wrappers.wrap(env, stack=2, time_limit=9)
    wind, _ = begin(wrapped, jax.random.key(0), 100, jnp.int32(0))[0][0].varied
    np.testing.assert_allclose(wind, 0.01, rtol=1e-6)


@pytest.mark.parametrize("algo",
                         family([jf.PPO(num_envs=4, num_steps=2, num_minibatches=1),
                          jf.OpenES(directions=2, num_steps=2)], 1))
def test_a_run_begins_with_its_curriculum(algo):
    """The first episodes begin at t = 0, new ones at their own iteration; evaluations see the whole
    range."""
    env = toy(randomized=MASS, randomize_warmup=10, episode_length=50)
    algo = algo.bind(env.spec)
    run = tree.as_float32(iterate.Run(env, algo, 20.0))
    np.testing.assert_allclose(masses(iterate.init(run, jax.random.key(0)).env), 1.0, rtol=1e-6)
    if algo.whole_rollouts:  # two steps on, in the episodes that the iteration began
        at = (
            lambda t: masses(iterate.iterations(
                run, iterate.init(run, jax.random.key(0)), jnp.int32(t), 1, True)[0].env)
        )
        np.testing.assert_allclose(at(0), 1.0, rtol=1e-6)
        assert len(np.unique(at(5))) == 4 and at(5).min() >= 0.75 and at(5).max() <= 1.5
    shown = masses(rollout.init(env, algo, jax.random.key(0), 100).env)
    assert shown.min() < 0.55 and shown.max() > 1.9


def test_the_state_is_made_of_arrays():
    for env in (toy(), toy(randomized=MASS)):
        state, obs = env.init(jax.random.key(0), 3)
        assert all(isinstance(x, jax.Array) and x.shape[0] == 3
                   for x in jax.tree.leaves((state, obs)))
    assert jax.tree.leaves(env) == []  # the environment itself is static


def test_keys_of_another_implementation():
    state, _ = toy().init(jax.random.key(0, impl="rbg"), 4)
    assert len(np.unique(state.physics["x"])) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"randomized": "mass"}, "env.randomize must be text like .*got 'mass'"),
        ({"randomized": "part.mass=2"}, "text like"),
        ({"randomized": "part.mass=a:b"}, "text like"),
        ({"randomized": "part.mass=2:1"}, "the lower of two"),
        ({"randomized": "part.mass=1:inf"}, "finite"),
        ({"randomized": "part.mass=nan:1"}, "finite"),
        ({"randomized": "wind=-1:1, part.mass=-0.1:1"}, "factors above 0 for part.mass"),
        ({"randomized": "part.mass=0:0"}, "factors above 0 for part.mass"),
        ({"randomized": "part.mass=1e-50:1"}, "factors above 0 for part.mass"),  # 0 in float32
        ({"randomized": "part.mass=1:2, part.mass=1:2"}, "comes twice"),
        ({"randomized": "mass=1:2"}, r"env.randomize must be .*got 'mass'; there are part.mass"),
        ({"randomized": "part.mas=1:2"}, r"there are part.mass"),
        ({"randomized": "widn=1:2"}, "did you mean 'wind'"),
        # whole numbers too: brax has gears of them
        ({"randomized": "count=1:2"}, "change nothing"),
        ({"randomized": "unread=1:2"}, "env.randomize must be .*got 'unread'.*change nothing"),
        ({"randomized": 3}, "env.randomize must be .*got 3"),
        ({"randomized": lambda key, model, t: model}, "depends on the key"),
        ({"randomized": lambda key, model, t: model.wind}, "returns the model"),
        ({"randomized": lambda key, model: model},
         r"a function \(key, model, t\) -> model, got .*too many"),
        ({"randomized": lambda key, model, t: model.replace(wind=jax.random.normal(key, (2,)))},
         "of the same shapes"),
        ({"randomized": "still=1:2"}, "env.randomize must be .*not 0 in this model.*got 'still'"),
        ({"randomize_warmup": 3}, "0 without env.randomize"),
        ({"randomize_warmup": -1, "randomized": MASS}, "env.randomize_warmup must be .*got -1"),
        ({"randomize_warmup": 3, "randomized": lambda key, model, t: model}, "gets t itself"),
        ({"resets": "never"}, "env.resets must be .*got 'never'"),
        ({"reset_pool": -1}, "env.reset_pool must be .*got -1"),
        ({"reset_pool": 7, "resets": "every_step"},
         "env.reset_pool must be 0 .*'every_step', which has no pool, got 7"),
        ({"episode_length": 0}, "env.episode_length must be .*got 0"),
    ],
)
def test_bad_input(settings, message):
    with pytest.raises(ConfigError, match=message):
        toy(**settings)


def test_a_function_that_cannot_be_written_down_is_named():
    jf.register("toy/ball", toy)
    env = jf.make("toy/ball",
                  randomized=lambda key, model, t: model.replace(wind=jax.random.normal(key)))
    with pytest.raises(ConfigError, match="env.randomized must be .*got <function"):
        config_json.encode_environment(env)


def test_factors_may_be_zero_except_for_divisors():
    model = {"geom_friction": np.ones(2), "dof_damping": np.ones(2), "body_inertia": np.ones(2)}
    assert randomize.parse("geom_friction=0:1, dof_damping=0:0", 0, model).low == (0.0, 0.0)
    with pytest.raises(ConfigError, match="factors of at least 0 for dof_damping"):
        randomize.parse("dof_damping=-1:1", 0, model)
    with pytest.raises(ConfigError, match="factors above 0 for body_inertia"):
        randomize.parse("body_inertia=0:1", 0, model)


@pytest.mark.usefixtures("every_platform")
def test_few_resets_on_a_cpu_run_in_turn():
    """A program for another platform, made on a CPU, resets in turn too."""
    env = toy()
    few = lambda key: env.resets.draw(env, key, 100, 8, jnp.int32(0))
    many = lambda key: env.resets.draw(env, key, 2, 8, jnp.int32(0))  # as many as environments
    key = jax.random.key(0)
    loops = (
        lambda make, on: jax.jit(make).trace(key).lower(
            lowering_platforms=(on,)).as_text().count("stablehlo.while")
    )
    beside = loops(many, "cpu")  # of the random bits themselves
    assert loops(few, "cpu") > beside and loops(lambda key: env.init(key, 8), "cpu") > beside
    assert loops(few, "tpu") == loops(many, "tpu") == loops(lambda key: env.init(key, 8), "tpu")


@pytest.mark.parametrize("settings", family(
    [{}, {"randomized": MASS}, {"resets": "every_step"}], 2))
def test_the_physics_is_traced_once(settings):
    """Seconds of each run's start, and first states, pools, rollouts and questions of shape all ask
    for it. A run on a CPU traces for a CPU alone."""
    traced = collections.Counter()

    class Counted(Ball):
        def reset(self, rng):
            traced.update(["reset"])
            return super().reset(rng)

        def step(self, state, action):
            traced.update(["step"])
            return super().step(state, action)

    env, algo = toy(ball=Counted, **settings), jf.PPO(num_envs=4, num_steps=6, hidden=(4,))
    made = traced.copy()
    with lowering.known("cpu"):
        jax.jit(jf.make_train(algo, env, 96)).trace(jax.random.key(0))
    assert traced - made == {"reset": 1, "step": 1}
    jf.plan(algo, env, 96)
    # the memory plan, which comes first in a run, finds them there
    assert traced - made == {"reset": 1, "step": 1}


@pytest.mark.parametrize(
    ("num_envs", "size", "block"),
    [(1, 8, 1), (64, 2000, 64), (128, 2000, 64), (2048, 1000, 128), (200, 2000, 100),
     (96, 10**6, 48), (131, 2000, 131),
     (512, 10, 512), (32 * 17, 2000, 68), (16 * 67, 2000, 67), (16 * 131, 2000, 16),
     (15 * 131, 2000, 15 * 131)],
)
def test_blocks_of_environments(num_envs, size, block):
    """A divisor of their number, at most as many as fit; all at once where no divisor is of use."""
    assert toy()._block(num_envs, size) == block


def blocks(n):
    """The environment, of which at most n are stepped together."""

    class Blocks(ToyEnv):
        block_bytes, block_envs = 1, n

    return Blocks


@pytest.mark.usefixtures("every_platform")
def test_blocks_do_not_change_results():
    actions = jax.random.uniform(jax.random.key(3), (30, 6, 1))
    want = play(toy(randomized=MASS, reset_pool=5), actions)
    assert want[2].terminated.any() and want[2].truncated.any()
    for least, loops in ((6, 0), (2, 1)):
        env = toy(randomized=MASS, reset_pool=5, kind=blocks(least))
        begun, _ = jax.eval_shape(lambda env=env: env.init(jax.random.key(0), 6))
        step = lambda state, action, env=env: env.transition((), state, action)
        lowered = jax.jit(step).trace(begun, actions[0])
        assert (
            lowered.lower(lowering_platforms=("cpu",)).as_text().count("stablehlo.while") == loops)
        cuda = lowered.lower(lowering_platforms=("cuda",))
        assert "stablehlo.while" not in cuda.as_text()
        assert "/physics/" in cuda.as_text(debug_info=True)  # for scripts/aot_report.py
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), play(env, actions),
                     want)


def test_gradients_flow_through_blocks():
    # so each environment has a slope of its own
    whole, apart = (toy(randomized=MASS, kind=kind) for kind in (ToyEnv, blocks(2)))
    state, action = begin(whole, jax.random.key(0), 6)[0], jnp.full((6, 1), 0.1)
    slope = lambda env: jax.jit(jax.grad(
        lambda action: env.transition((), state, action)[1].next_obs.sum()))
    want = slope(whole)(action)
    assert len(set(want[:, 0].tolist())) == 6
    assert "stablehlo.while" in slope(apart).lower(action).as_text()
    np.testing.assert_allclose(slope(apart)(action), want, rtol=1e-6)


def test_each_device_has_its_own_blocks(monkeypatch):
    """Environments over three devices are stepped by blocks of three times as many; each device
    makes the environment once."""
    env = wrappers.wrap(toy(), action_repeat=2)
    assert env.on_device(1) is env and env.on_device(3).env is env.on_device(3).env is not env.env
    assert toy().on_device(3).spec == toy().spec
    shapes, scan = [], jax.lax.map
    monkeypatch.setattr(jax.lax, "map", lambda f, xs: (shapes.append(xs[0].shape), scan(f, xs))[1])
    env, actions = toy(kind=blocks(2)), jnp.full((12, 1), 0.1)
    state = jax.eval_shape(lambda: env.init(jax.random.key(0), 12)[0])
    # five devices cannot share twelve environments
    for parts, shape in ((1, (6, 2)), (3, (2, 6)), (5, (6, 2)), (24, (6, 2))):
        shapes.clear()
        jax.eval_shape(
            lambda state, parts=parts: env.on_device(parts).transition((), state, actions), state)
        assert {x[:2] for x in shapes} == {shape}  # blocks, environments in each


def test_a_rollout_of_one_step_and_of_several():
    """`collect` holds what is shared and steps the rest."""
    env = toy(reset_pool=5, episode_length=3)
    algo = jf.PPO(num_envs=4, num_steps=6, hidden=(4,)).bind(env.spec)
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))

    @jax.jit
    def begun(key):
        noise = rollout.draw(env, algo, jax.random.split(jax.random.key(2)), 6, 4, jnp.int32(0))
        return algo.init(key), rollout.init(env, algo, jax.random.key(1), 4), noise

    @jax.jit
    def collect(agent, actor, noise):
        return rollout.collect(env, algo, agent, actor, noise, clock, "sample")

    agent, actor, noise = begun(jax.random.key(0))
    end, whole = collect(agent, actor, noise)
    rows = []
    for t in range(6):
        drawn, act = tree.take((noise.env.rows, noise.act), slice(t, t + 1))
        row = rollout.Noise(noise.env.with_rows(drawn), act)
        actor, one = collect(agent, actor, row)
        rows.append(one.steps)
    assert whole.steps.truncated.any()
    for got, want in ((actor, end),
                      (jax.tree.map(lambda *x: jnp.concatenate(x), *rows), whole.steps)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)


@pytest.mark.matrix("test_a_rollout_of_one_step_and_of_several")
def test_iterations_drawn_ahead():
    """Several iterations' pools in one draw: the numbers are those of one draw an iteration."""
    env = toy(reset_pool=1, episode_length=3, randomized=MASS)
    algo = (
        jf.PPO(num_envs=2, num_steps=2, hidden=(4,), num_epochs=1, num_minibatches=1).bind(env.spec)
    )
    run = tree.as_float32(iterate.Run(env, algo, 12.0))
    start = iterate.init(run, jax.random.key(0))
    together = iterate.iterations(run, start, jnp.int32(0), 12, True)
    state, rows = start, []
    for t in range(12):
        state, metrics = iterate.iterations(run, state, jnp.int32(t), 1, True)
        rows.append(metrics)
    one_by_one = state, jax.tree.map(lambda *x: sum(x), *rows)
    for a, b in zip(*map(jax.tree.leaves, (together, one_by_one)), strict=True):
        if not jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.matrix("test_a_run_begins_with_its_curriculum")
def test_evaluations_see_the_end_of_a_curriculum_of_steps_too():
    @tree.settings
    class Growing(probes.TruncatedOnly):
        def draw_step(self, key, num_steps, num_envs, t):
            return jnp.full((num_steps, num_envs), jnp.minimum(t / 10, 1.0))

        def transition(self, noise, state, action):
            state, outcome = super().transition((), state, action)
            return state, outcome._replace(reward=noise)

    env = Growing()
    algo = jf.PPO(num_envs=2, num_steps=2, num_minibatches=1, hidden=(4,)).bind(env.spec)
    result = evaluate(env, algo, algo.init(jax.random.key(0)), jax.random.key(1), 3)
    np.testing.assert_array_equal(result.ret, result.length)


@pytest.mark.matrix("tests/runs/test_pictures.py::test_the_last_picture_is_the_end")
def test_the_pictures_of_a_run(tmp_path):
    """`rollout.html` is the page of the very states that were played, `rollout.gif` has their
    pictures."""
    pages = []

    class Drawn(ToyEnv):
        def render(self, state):
            return np.full((8, 8, 3), int(state.time), np.uint8)

        @property
        def drawing(self):
            return Drawing(self.render, None,
                           lambda states, seconds: pages.append(states) or "<html>")

    jf.register("toy/ball", lambda: toy(kind=Drawn, episode_length=6))
    algo = jf.PPO(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1, hidden=(4,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jf.train(algo, jf.make("toy/ball"), 16, out=tmp_path / "run", eval_every=0, eval_episodes=2,
                 tensorboard=False)
    assert (tmp_path / "run" / "rollout.html").read_text() == "<html>" and (
        tmp_path / "run" / "rollout.gif").exists()
    # the end too
    assert [int(s.time) for s in pages[0]] == list(range(len(pages[0]))) and 1 < len(pages[0]) <= 7


def test_evaluation_plays_whole_physics_episodes():
    env = toy(episode_length=30)
    algo = jf.PPO(num_envs=2, num_steps=2, num_minibatches=1, hidden=(4,)).bind(env.spec)
    played = lambda key, episodes: evaluate(env, algo, algo.init(key), episodes, 5)
    result = jax.device_get(jax.jit(played)(jax.random.key(0), jax.random.key(1)))
    assert (
        result.finished.all() and (result.ret == result.length).all() and result.length.max() <= 30)
