"""Wrappers change what they say and nothing else, and keep both kinds of end right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.engine import iteration
from jaxrl_fast.envs import registry, wrappers
from jaxrl_fast.envs.api import Env, checked_transition
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.testing import check_env
from jaxrl_fast.types import EnvSpec, Lasting, Outcome


@tree.settings
class Count(Env):
    """Observes how often it was stepped and what it was told; terminates after `ends`, truncates
    after `cuts`."""

    ends: int = 10
    cuts: int = 1000

    @property
    def spec(self):
        return EnvSpec("count", Box(0.0, 1e4, (2,)), Discrete(5), self.cuts)

    def draw_reset(self, key, shape):
        return jnp.zeros((*shape, 2))

    def reset(self, noise):
        return noise, noise

    def transition(self, noise, state, action):
        count = state[:, 0] + 1
        state = jnp.stack([count, action.astype(jnp.float32)], axis=-1)
        terminated = count >= self.ends
        return state, Outcome(state, count, terminated, (count >= self.cuts) & ~terminated)


def play(env, actions, num_envs=1, key=0):
    """Rows [T, B] of (obs, Outcome) under the actions [T]."""
    state, _obs = env.init(jax.random.key(key), num_envs)
    noise = env.draw(jax.random.key(key + 1), len(actions), num_envs, 0)

    def one(carry, x):
        noise, action = x
        state, obs, outcome = env.step(noise, carry, jnp.full(num_envs, action))
        return state, (obs, outcome)

    return jax.lax.scan(one, state, (noise, jnp.asarray(actions)))[1]


def test_action_repeat_adds_rewards_and_stops_at_the_end():
    _, out = play(wrappers.ActionRepeat(Count(ends=7), 3), [1, 1, 1, 1])
    # the end, then a new episode
    np.testing.assert_array_equal(out.reward[:, 0], [1 + 2 + 3, 4 + 5 + 6, 7, 1 + 2 + 3])
    np.testing.assert_array_equal(out.terminated[:, 0], [False, False, True, False])
    np.testing.assert_array_equal(out.next_obs[:, 0, 0], [3, 6, 7, 3])


def test_action_repeat_truncates():
    env = wrappers.ActionRepeat(Count(ends=100, cuts=8), 3)
    _, out = play(env, [1] * 3)
    assert env.spec.max_episode_steps == 3
    np.testing.assert_array_equal(out.truncated[:, 0], [False, False, True])
    assert not out.terminated.any() and out.reward[2, 0] == 7 + 8


def test_action_repeat_draws_new_noise_for_every_repetition():
    env = wrappers.ActionRepeat(wrappers.StickyActions(Count(ends=1000), 0.5), 4)
    uniform, inner = env.draw_step(jax.random.key(0), 3, 2, 0)
    assert uniform.shape == (3, 4, 2) and inner == () and len(np.unique(uniform)) == 24


def test_sticky_actions_repeat_the_last_action_played():
    actions = np.arange(400) % 5
    _obs, out = play(wrappers.StickyActions(Count(ends=10**6, cuts=10**6), 0.25), actions)
    told = np.asarray(out.next_obs[:, 0, 1]).astype(int)
    stuck = told[1:] == told[:-1]
    np.testing.assert_array_equal(told[1:][~stuck], actions[1:][~stuck])
    assert told[0] == actions[0] and 0.18 < stuck.mean() < 0.32


def test_sticky_actions_end_with_the_episode():
    # Episodes of two steps under probability ~1: the first action of each is the agent's, the
    # second repeats it.
    env = wrappers.StickyActions(Count(ends=2), 0.999999)
    _, out = play(env, [1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(out.next_obs[:, 0, 1], [1, 1, 3, 3, 0, 0])


@pytest.mark.matrix("test_sticky_actions_repeat_the_last_action_played")
def test_sticky_actions_with_box_actions():
    env = registry.make("Pendulum-v1", sticky_actions=0.3)
    check_env(env, num_envs=4)


def test_reward_scale_and_clip():
    _, out = play(registry_wrap(reward_scale=0.5), [0] * 4)
    np.testing.assert_allclose(out.reward[:, 0], [0.5, 1.0, 1.5, 2.0])
    _, out = play(registry_wrap(reward_scale=-0.5, reward_clip=1.2), [0] * 4)
    np.testing.assert_allclose(out.reward[:, 0], [-0.5, -1.0, -1.2, -1.2])


def registry_wrap(**settings):
    return wrappers.wrap(Count(), **settings)


def test_time_limit_truncates_and_a_natural_end_wins():
    _, out = play(wrappers.TimeLimit(Count(ends=10), 4), [0] * 8)
    np.testing.assert_array_equal(out.truncated[:, 0], [0, 0, 0, 1, 0, 0, 0, 1])
    assert not out.terminated.any()
    _, out = play(wrappers.TimeLimit(Count(ends=4), 4), [0] * 4)
    np.testing.assert_array_equal(out.terminated[:, 0], [0, 0, 0, 1])
    assert not out.truncated.any()
    assert wrappers.TimeLimit(Count(cuts=3), 9).spec.max_episode_steps == 3


def test_time_limit_counts_decisions_not_repetitions():
    env = registry_wrap(action_repeat=2, time_limit=3)
    _, out = play(env, [0] * 3)
    np.testing.assert_array_equal(out.truncated[:, 0], [0, 0, 1])
    assert env.spec.max_episode_steps == 3 and float(out.next_obs[2, 0, 0]) == 6


def test_frame_stack_is_a_field_of_the_spec_only():
    plain, stacked = registry.make("CartPole-v1"), registry.make("CartPole-v1", stack=4)
    assert stacked.spec.stack == 4 and stacked.spec.observation == plain.spec.observation
    _state, obs = stacked.init(jax.random.key(0), 2)
    assert obs.shape == (2, 4)
    with pytest.raises(ConfigError, match=r"env\.stack"):
        registry.make("probe/dict", stack=2)


@tree.settings
class Level(wrappers.Wrapper):
    """Counts the ends of each environment for good, and shows how many there were as the first
    entry of its observation."""

    def _seen(self, obs, ends):
        return obs.at[:, 0].set(ends)

    def reset(self, noise):
        state, obs = self.env.reset(noise)
        ends = jnp.zeros(len(obs))
        return (state, Lasting(ends)), self._seen(obs, ends)

    def restart(self, noise, state):
        inner, ends = state
        fresh, obs = self.env.restart(noise, inner)
        return (fresh, ends), self._seen(obs, ends.value)

    def transition(self, noise, state, action):
        inner, ends = state
        inner, outcome = checked_transition(self.env, noise, inner, action)
        ends = ends.value + (outcome.terminated | outcome.truncated)
        return (inner, Lasting(ends)), outcome._replace(next_obs=self._seen(outcome.next_obs, ends))

    def unwrap_state(self, state):
        return state[0]


LASTING = {
    "below wrappers with a state": lambda: wrappers.RewardScale(
        wrappers.TimeLimit(wrappers.StickyActions(Level(Count(ends=2)), 0.5), 9), 2.0
    ),
    "bare": lambda: Level(Count(ends=2)),
    "twice": lambda: Level(wrappers.TimeLimit(Level(Count(ends=9)), 2)),
    "repeated": lambda: wrappers.ActionRepeat(Level(Count(ends=4)), 2),
}


@pytest.mark.parametrize("make", family(LASTING.values(), 1), ids=LASTING)
def test_lasting_state_outlives_episodes_in_every_wrapper(make):
    """Episodes of two steps: the count goes on, also to where the next observation is made; all
    else begins anew."""
    env = make()
    obs, out = play(env, [1] * 7)
    np.testing.assert_array_equal(obs[:, 0, 0], [0, 1, 1, 2, 2, 3, 3])
    ended = np.asarray(out.terminated | out.truncated)[:, 0]
    np.testing.assert_array_equal(ended, [0, 1, 0, 1, 0, 1, 0])
    report = check_env(env, num_envs=2, num_steps=20)
    assert report.longest == 2


@pytest.mark.matrix("test_lasting_state_outlives_episodes_in_every_wrapper")
def test_lasting_state_outlives_fresh_rollouts_and_manual_resets():
    env = registry.make("CartPole-v1", max_steps_in_episode=5)
    algo = jf.OpenES(directions=2, num_steps=16, hidden=(2,)).bind(env.spec)
    run = tree.as_float32(iteration.Run(Level(env), algo, 10.0))

    @jax.jit
    def ends(key):
        state = iteration.init(run, key)
        first, _ = iteration.iterations(run, state, jnp.int32(0), 1, True)
        second, _ = iteration.iterations(run, first, jnp.int32(1), 1, True)
        return [x.env[1].value for x in (state, first, second)]

    before, first, second = ends(jax.random.key(0))
    assert not before.any() and (first >= 3).all() and (second >= first + 3).all()

    outside = jf.to_gymnasium(Level(env))
    outside.reset(seed=0)
    for ended in (1, 2):
        done = False
        while not done:
            _, _, terminated, truncated, _ = outside.step(0)
            done = terminated or truncated
        assert outside.reset()[0][0] == ended
    assert outside.reset(seed=0)[0][0] == 0  # a seed begins everything anew


def test_a_wrapper_without_inner_state_is_refused():
    @tree.settings
    class Unsaid(Level):
        restart, unwrap_state = wrappers.Wrapper.restart, wrappers.Wrapper.unwrap_state

    env = wrappers.TimeLimit(Unsaid(Count(ends=2)), 9)
    with pytest.raises(ConfigError, match="count: unwrap_state of a wrapper"):
        play(env, [1] * 3)


def test_a_users_wrapper_has_settings_of_its_own():
    @jf.settings
    class Gain(wrappers.Wrapper):
        gain: float = 2.0
        shown: bool = True

        def transition(self, noise, state, action):
            state, outcome = super().transition(noise, state, action)
            return state, outcome._replace(reward=self.gain * outcome.reward)

    env = Gain(registry.make("CartPole-v1"), shown=False)
    np.testing.assert_array_equal(play(env, [0, 1])[1].reward, 2.0)
    assert [2.0 in jax.tree.leaves(env), env.shown, env.env.spec] == [True, False, env.spec]


def test_defaults_leave_the_environment_alone():
    env = Count()
    assert wrappers.wrap(env) is env


def test_floats_are_leaves_that_can_be_swept():
    env = registry.make("CartPole-v1", reward_scale=2.0, sticky_actions=0.1)
    assert 2.0 in jax.tree.leaves(env) and 0.1 in jax.tree.leaves(env)
    many = jax.tree.map(lambda x: jnp.full(3, x, jnp.float32), env)
    rewards = jax.vmap(lambda e: play(e, [0, 1])[1].reward)(many)
    np.testing.assert_allclose(rewards, 2.0)


def test_render_passes_through():
    env = registry.make("CartPole-v1", time_limit=5, sticky_actions=0.1, reward_scale=0.1,
                        action_repeat=2)
    state, _ = env.init(jax.random.key(0), 2)
    assert env.render(jax.tree.map(lambda x: np.asarray(x)[0], state)).shape == (208, 400, 3)
    assert env.drawing.frame == env.render and env.drawing.page is None
    assert wrappers.RewardScale(Count(), 2.0).drawing is None


def test_a_wrapper_with_its_own_noise():
    @jf.settings
    class Black(wrappers.Wrapper):
        env: jf.Env

        def render(self, state):
            return np.zeros((4, 4, 3), np.uint8)

    for inner in (Count(), registry.make("CartPole-v1")):
        assert wrappers.TimeLimit(Black(inner), 5).drawing.frame((None, 0)).shape == (4, 4, 3)


def test_all_wrappers_together_conform():
    env = registry.make(
        "CartPole-v1", action_repeat=2, sticky_actions=0.25, stack=2, reward_scale=0.5,
        reward_clip=0.8, time_limit=30
    )
    report = check_env(env, num_envs=4)
    assert report.longest <= 30


@pytest.mark.parametrize(
    "settings",
    [
        {"action_repeat": 0}, {"action_repeat": 1.5}, {"action_repeat": True},
        {"sticky_actions": -0.1},
        {"sticky_actions": 1.0}, {"sticky_actions": float("nan")}, {"stack": 0}, {"stack": "2"},
        {"reward_scale": 0.0},
        {"reward_scale": float("inf")}, {"reward_clip": 0.0}, {"reward_clip": -1.0},
        {"reward_clip": "1"},
        {"time_limit": 0}, {"time_limit": -5}, {"time_limit": 2.0}, {"time_limit": 501},
    ],
    ids=str,
)  # fmt: skip
def test_bad_settings_name_the_argument(settings):
    (name,) = settings
    with pytest.raises(ConfigError, match=f"env.{name}"):
        registry.make("CartPole-v1", **settings)
