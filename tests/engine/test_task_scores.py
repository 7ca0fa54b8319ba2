"""Logs and evaluations count the task's own rewards and ends where the learner's differ."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast import tree
from jaxrl_fast.envs import wrappers
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.testing import check_env
from jaxrl_fast.types import EnvSpec, Lasting, Outcome

LIFE, LIVES, POINTS = 3, 2, 10.0  # steps of a life, lives of a game, points of a step
GAME = LIFE * LIVES


@tree.settings
class Lives(Env):
    """Points that the learner sees clipped, and lives that end its episodes."""

    early: bool = False  # the game is over within an episode: a mistake
    points: bool = True

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("Lives", Box(0, 1, (1,)), Discrete(2), LIFE)

    def draw_reset(self, key, shape, t=None):
        return jax.random.uniform(key, shape)

    def reset(self, noise):
        return (Lasting(jnp.zeros(noise.shape, jnp.int32)), noise), self._seen(noise)

    def transition(self, noise, state, action):
        time, start = state[0].value + 1, state[1]
        over = time % GAME == (GAME - 1 if self.early else 0)
        reward = jnp.ones(time.shape)
        outcome = Outcome(self._seen(start), reward, time % LIFE == 0, jnp.zeros(time.shape, bool))
        return (Lasting(time), start), outcome._replace(
            info={"steps": time % GAME}, score=POINTS * reward if self.points else (), over=over)

    def _seen(self, start):
        return start[:, None]


def _rows(env: Env) -> dict[str, np.ndarray]:
    algo = jf.PPO(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1, hidden=(4,))
    _, metrics = jf.make_train(algo, env, total_steps=2 * 4 * 6, log_every=2 * 4 * 3)(
        jax.random.key(0))
    return {name: np.asarray(values) for name, values in metrics.items()}


def test_rows_count_whole_games_and_their_points():
    rows = _rows(Lives())
    assert rows["episode_return"].tolist() == [GAME * POINTS] * 2
    assert rows["episode_length"].tolist() == [GAME] * 2
    assert rows["steps_end"].tolist() == [0.0, 0.0]  # at the ends of games, not of lives


def test_ends_of_games_count_the_learners_rewards_without_points():
    assert _rows(Lives(points=False))["episode_return"].tolist() == [GAME] * 2


def test_evaluations_count_points():
    algo = jf.PPO(num_envs=2, hidden=(4,)).bind(Lives().spec)
    play = lambda key: jf.evaluate(Lives(), algo, algo.init(key), key, episodes=2)
    found = jax.jit(play)(jax.random.key(0))
    assert found.ret.tolist() == [LIFE * POINTS] * 2


def _after(env: Env, steps: int) -> Outcome:
    state, _ = env.init(jax.random.key(0), 2)
    noise = env.draw(jax.random.key(1), steps, 2, jnp.int32(0))
    for i in range(steps):
        state, _, outcome = env.step(noise.at(i), state, jnp.zeros(2, jnp.int32))
    return outcome


def test_wrappers_of_rewards_leave_points():
    outcome = _after(wrappers.RewardClip(wrappers.RewardScale(Lives(), 7.0), 2.0), 1)
    assert outcome.reward.tolist() == [2.0] * 2 and outcome.score.tolist() == [POINTS] * 2


def test_repeated_actions_add_points_up_to_the_learners_end():
    outcome = _after(wrappers.ActionRepeat(Lives(), 5), 2)
    assert outcome.score.tolist() == [LIFE * POINTS] * 2
    assert outcome.over.all()


def test_a_time_limit_ends_the_game():
    assert not _after(Lives(), 2).over.any()
    assert _after(wrappers.TimeLimit(Lives(), 2), 2).over.all()


def test_a_game_that_is_over_within_an_episode_is_refused():
    with pytest.raises(AssertionError, match="`Outcome.over` is set in a step that ends no"):
        check_env(Lives(early=True), 2, 12)


@pytest.mark.parametrize(("field", "value"), [("score", jnp.ones(3)), ("over", jnp.ones(2))])
def test_a_wrong_form_is_refused(field, value):
    class Wrong(Lives):
        def transition(self, noise, state, action):
            state, outcome = super().transition(noise, state, action)
            return state, outcome._replace(**{field: value})

    with pytest.raises(ConfigError, match=f"Lives: {field} must be"):
        _after(tree.settings(Wrong)(), 1)
