"""The strategies that `env.resets` names: where episodes begin, what is drawn once, and what an
author may write."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.resets import EveryStep, Frozen, Noise, OnEnd, Pool, Resets
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.testing import check_env
from jaxrl_fast.types import Lasting, Outcome


@tree.settings
class Lottery(jf.Env):
    """Shows the number that its episode began with; an episode ends by action 1."""

    resets: Resets = EveryStep()

    @property
    def spec(self):
        return jf.EnvSpec("lottery", jf.Box(0.0, 100.0, (1,)), jf.Discrete(2), 50)

    def draw_reset(self, key, shape, t):
        return jax.random.uniform(key, (*shape, 1)) + jnp.minimum(t, 10)

    def reset(self, noise):
        return (noise, jnp.zeros(len(noise), jnp.int32)), noise

    def transition(self, noise, state, action):
        number, time = state
        ended = action == 1
        return (number, time + 1), Outcome(number, jnp.ones(ended.shape), ended,
                                           (time + 1 >= 50) & ~ended)


@tree.settings
class Tally(wrappers.Wrapper):
    """Adds how many episodes ended, for good, to what a new one shows: where an episode begins
    depends on what lasts."""


    def reset(self, noise):
        state, obs = self.env.reset(noise)
        return (state, Lasting(jnp.zeros(len(obs)))), obs

    def restart(self, noise, state):
        fresh, obs = self.env.restart(noise, state[0])
        return (fresh, state[1]), obs + state[1].value[:, None]

    def transition(self, noise, state, action):
        inner, outcome = self.env.transition(noise, state[0], action)
        return (inner, Lasting(state[1].value + outcome.terminated)), outcome

    def unwrap_state(self, state):
        return state[0]


def play(env, actions, key=0, t=0):
    """The observations before each action and after the last one [T + 1, B], for the actions [T,
    B]."""
    actions = jnp.asarray(actions)

    @jax.jit
    def run(key):
        state, first = env.init(key, actions.shape[1], t)
        noise = env.draw(jax.random.fold_in(key, 1), len(actions), actions.shape[1], jnp.int32(t))

        def step(state, x):
            state, obs, _ = env.step(noise.with_rows(x[0]), state, x[1])
            return state, obs

        return jnp.concatenate([first[None], jax.lax.scan(step, state, (noise.rows, actions))[1]])

    return np.asarray(run(jax.random.key(key)))[..., 0]


STRATEGIES = [EveryStep(), OnEnd(), Pool(), Pool(3), Pool(1000)]
ENDS = np.array([[0, 1, 1], [0, 0, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]] * 4)


@pytest.mark.parametrize("resets", family(STRATEGIES, 3), ids=repr)
def test_every_strategy_of_resets_conforms(resets):
    assert check_env(wrappers.TimeLimit(Lottery(resets), 20), num_envs=6,
                     num_steps=60).random_resets


@pytest.mark.parametrize("resets", STRATEGIES, ids=repr)
def test_only_ended_environments_begin_new_episodes(resets):
    seen = play(Lottery(resets), ENDS)
    began, starts = seen[1:] != seen[:-1], seen[1:][ENDS == 1]
    assert began[ENDS == 0].sum() == 0
    if isinstance(resets, EveryStep):
        assert began[ENDS == 1].all() and len(np.unique(starts)) == len(starts)
    elif resets.size < 1000:  # as many entries as environments: those that end together begin apart
        assert len(np.unique(starts)) == 3 and all(len(np.unique(row)) == 3
                                                   for row in seen[1:][ENDS.all(axis=1)])
    else:  # one for every step of every environment, some of which are taken twice
        assert len(np.unique(starts)) > len(starts) / 2


def test_resets_at_an_episodes_end_equal_resets_of_every_step():
    np.testing.assert_array_equal(play(Lottery(OnEnd()), ENDS), play(Lottery(EveryStep()), ENDS))
    # of one step
    np.testing.assert_array_equal(play(Lottery(Pool()), ENDS[4:5]),
                                  play(Lottery(EveryStep()), ENDS[4:5]))


@pytest.mark.usefixtures("every_platform")
def test_a_gpu_resets_at_an_episodes_end_without_a_branch(both_forms):
    """The host would wait for the branch in every step."""
    env = Lottery(OnEnd())
    state, _ = env.init(jax.random.key(0), 3)
    noise = env.draw(jax.random.key(1), 1, 3, jnp.int32(0)).at(0)
    for ours, gpus in zip(*both_forms(env.step, noise, state, jnp.array([0, 1, 1])), strict=True):
        jax.tree.map(np.testing.assert_array_equal, ours, gpus)
    text = lambda on: jax.jit(env.step).trace(noise, state, jnp.zeros(3, int)).lower(
        lowering_platforms=(on,)).as_text()
    branches = lambda on: text(on).count('"stablehlo.case"(')
    assert branches("cpu") == branches("cuda") + 1


def test_frozen_environments_restart_from_their_starts():
    starts = Lottery().init(jax.random.key(5), 3)
    seen = play(Lottery(Frozen(starts)), ENDS)
    for b in range(3):
        np.testing.assert_array_equal(seen[1:, b][ENDS[:, b] == 1], starts[1][b, 0])
        assert seen[0, b] != starts[1][b, 0]


@pytest.mark.parametrize("resets", family(STRATEGIES, 3), ids=repr)
def test_a_curriculum_of_starts_gets_the_iteration(resets):
    for t, low in ((0, 0), (4, 4), (2**31 - 1, 10)):
        seen = play(wrappers.TimeLimit(Lottery(resets), 30), ENDS, t=t)
        assert (seen >= low).all() and (seen <= low + 1).all()
    outside = Lottery(resets).init(jax.random.key(0), 3)[1]
    assert (outside >= 10).all()


@pytest.mark.parametrize("resets", STRATEGIES, ids=repr)
def test_a_start_may_depend_on_lasting_state(resets):
    seen = play(wrappers.TimeLimit(Tally(wrappers.TimeLimit(Lottery(resets), 30)), 30), ENDS)[1:]
    np.testing.assert_array_equal(np.floor(seen)[ENDS == 1], np.cumsum(ENDS, axis=0)[ENDS == 1])


def test_rows_hold_the_noise_with_a_time_axis():
    for resets in STRATEGIES:
        noise = jax.eval_shape(lambda env: env.draw(jax.random.key(0), 8, 6, jnp.int32(0)),
                               Lottery(resets))
        assert isinstance(noise, Noise) and {x.shape[0] for x in jax.tree.leaves(noise.rows)} == {8}
    many = jax.eval_shape(lambda: Pool(5).draw(Lottery(), jax.random.key(0), 8, 6, 0)[1].entries)
    assert {x.shape[0] for x in jax.tree.leaves(many)} == {5}


# What an author may write


def test_an_environment_without_a_curriculum_leaves_out_the_iteration():
    class Mixin:
        def draw_reset(self, key, shape):
            return jax.random.uniform(key, (*shape, 1))

    @tree.settings
    class Old(Mixin, Lottery):
        pass

    @tree.settings
    class Shifted(Old):
        def draw_reset(self, key, shape):
            return 5 + super().draw_reset(key, shape)

    seen = play(wrappers.TimeLimit(Old(), 30), ENDS, t=7)
    assert (seen >= 0).all() and (seen <= 1).all()
    np.testing.assert_allclose(play(wrappers.TimeLimit(Shifted(), 30), ENDS), 5 + seen, atol=1e-6)


@pytest.mark.parametrize("name", ["draw_start", "draw_resets", "draw_again"])
def test_old_methods_are_refused_with_their_replacement(name):
    with pytest.raises(ConfigError,
                       match=rf"Old\.{name} must be left out, got a method: `draw_reset\(key, "
                             rf"shape, t\)`"):
        type("Old", (Lottery,), {name: lambda self, *_: None})


def test_unknown_reset_strategies_are_refused():
    with pytest.raises(ConfigError, match=r"lottery: resets must be EveryStep\(\), .*, got 'pool'"):
        Lottery("pool").draw(jax.random.key(0), 2, 2, jnp.int32(0))
    with pytest.raises(ConfigError, match=r"Pool\.size must be .*got -1"):
        Pool(-1)


def test_noise_of_another_form_is_refused():
    @tree.settings
    class Own(Lottery):
        def draw(self, key, num_steps, num_envs, t):
            return jax.random.split(key, num_steps)

    algo = jf.PPO(num_envs=2, num_steps=2, num_minibatches=1, hidden=(4,))
    with pytest.raises(ConfigError, match=r"lottery: draw must be the Noise of `Env\.draw`, got a"):
        jax.eval_shape(jf.make_train(algo, Own(), 8), jax.random.key(0))
    state, _ = Lottery().init(jax.random.key(0), 2)
    with pytest.raises(ConfigError,
                       match=r"lottery: step\(noise\) must be one row of `env\.draw.*got 'tuple'"):
        Lottery().step(((), ()), state, jnp.zeros(2, jnp.int32))
