"""EnvPool itself: its environments through the conformance kit, beside the raw pool, and in
training."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.cli import command as cli
from jaxrl_fast.testing import check_env
from jaxrl_fast.testing.host import play as played

pytestmark = [pytest.mark.envpool, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("name", "steps"), [
    ("envpool:CartPole-v1", 80), ("envpool:Pendulum-v1", 210), ("envpool:Pong-v5", 40),
    ("envpool:Ant-v5", 60), ("envpool:MountainCar-v0", 210), ("envpool:FrozenLake-v1", 60),
])  # fmt: skip
def test_envpool_conforms(name, steps):
    check_env(jf.make(name), num_envs=3, num_steps=steps)


@pytest.mark.parametrize(("name", "steps"), [
    ("envpool:CartPole-v1", 80), ("envpool:Pendulum-v1", 210), ("envpool:Pong-v5", 40),
    ("envpool:Ant-v5", 60),
])  # fmt: skip
def test_conformance_of_the_asynchronous_pool(name, steps):
    check_env(jf.make(name, batch_size=2), num_envs=6, num_steps=steps)


def raw(name: str, num_envs: int, seed: int, **settings):
    import envpool

    return envpool.make_gymnasium(name, num_envs=num_envs, seed=seed, **settings)


def test_steps_equal_the_raw_pools():
    """Steps are equal until the first end of each environment: the raw pool shows the new episode a
    step later."""
    env, num_envs = jf.make("envpool:CartPole-v1"), 4
    rng = np.random.default_rng(0)
    with closing(env.open(num_envs, 7)) as vector, closing(raw("CartPole-v1", num_envs, 7)) as pool:
        obs, (theirs, _) = vector.reset(), pool.reset()
        np.testing.assert_array_equal(obs, theirs)
        alive = np.ones(num_envs, bool)
        for _ in range(60):
            action = rng.integers(0, 2, num_envs).astype(np.int32)
            vector.send(action)
            step = vector.receive()
            theirs, reward, terminated, truncated, _ = pool.step(action)
            # terminal observations among them
            np.testing.assert_array_equal(step.next_obs[alive], theirs[alive])
            np.testing.assert_array_equal(step.reward[alive], reward[alive])
            np.testing.assert_array_equal((step.terminated | step.truncated)[alive],
                                          (terminated | truncated)[alive])
            ended = step.terminated | step.truncated
            assert (np.abs(step.obs[ended]) <= 0.05).all() and (
                step.obs[~ended] == step.next_obs[~ended]).all()
            alive &= ~ended
        assert not alive.any()


@pytest.mark.parametrize(("name", "settings", "shape"), [
    ("CarRacing-v3", {}, (96, 96, 3)), ("Pong-v5", {"gray_scale": False}, (84, 84, 3)),
    ("Pong-v5", {}, (84, 84, 1)),
])  # fmt: skip
def test_channels_come_last(name, settings, shape):
    env = jf.make(f"envpool:{name}", **settings)
    assert env.spec.observation.shape == shape
    own = settings if name == "CarRacing-v3" else settings | {"stack_num": 1}
    with closing(env.open(2, 7)) as vector, closing(raw(name, 2, 7, **own)) as pool:
        obs, (theirs, _) = vector.reset(), pool.reset()
        np.testing.assert_array_equal(obs, theirs if name == "CarRacing-v3"
                                      else theirs.transpose(0, 2, 3, 1))
        assert vector.render().shape == (3 * shape[0], 3 * shape[1], 3)


def test_time_limits_truncate():
    env = jf.make("envpool:Pendulum-v1")
    with closing(env.open(2, 0)) as vector:
        vector.reset()
        for i in range(200):
            vector.send(np.zeros((2, 1), np.float32))
            step = vector.receive()
            assert not step.terminated.any() and step.truncated.all() == (i == 199)
        assert not np.array_equal(step.obs, step.next_obs) and step.over.all()


def test_lives_end_episodes_for_the_learner_alone():
    env, num_envs = jf.make("envpool:Breakout-v5", episodic_life=True), 2
    rng, lost, over, score = np.random.default_rng(1), 0, 0, 0.0
    with closing(env.open(num_envs, 3)) as vector:
        vector.reset()
        for _ in range(600):
            vector.send(rng.integers(0, env.spec.action.n, num_envs).astype(np.int32))
            step = vector.receive()
            lost, over = lost + int(step.terminated.sum()), over + int(step.over.sum())
            score += float(step.score.sum())
    assert lost == pytest.approx(5 * over, abs=5 * num_envs) and lost > over > 0
    assert score > 0


@pytest.mark.parametrize("episodic_life", [False, True])
def test_asynchronous_environments_play_the_same_games(episodic_life):
    """The same actions bring every environment the same rows, in whichever order they come."""
    waiting = jf.make("envpool:Breakout-v5", episodic_life=episodic_life)
    ours, theirs = (played(env, 4, 700, 3)
                    for env in (dataclasses.replace(waiting, batch_size=2), waiting))
    ended = 0
    for (seen, _, step), (other, _, expected) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(seen, other)
        for name in ("obs", "next_obs", "reward", "score", "terminated", "truncated", "over"):
            np.testing.assert_array_equal(getattr(step, name), getattr(expected, name),
                                          err_msg=name)
        ended += int(step.terminated.sum())
    assert ended > (30 if episodic_life else 4)


@pytest.mark.parametrize(("actors", "ahead"), [(1, 0), (2, 0), (2, 1)])
def test_a_run_is_repeatable(actors, ahead):
    settings = dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=32,
                    hidden=(4,))
    run = lambda: jf.train(
        jf.DQN(**settings), jf.make("envpool:CartPole-v1"), 256, eval_every=0, eval_episodes=2,
        actors=actors, ahead=ahead
    )
    first, second = run(), run()
    for a, b in zip(jax.tree.leaves(first.state.agent), jax.tree.leaves(second.state.agent),
                    strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.eval_return == second.eval_return


def test_pixels_from_the_command_line(tmp_path, capsys):
    """Stacked where the agent looks, held once in the replay; and gone on with."""
    line = (
        "train dqn envpool:Pong-v5 --total-steps 96 --algo.num-envs 2 --algo.num-steps 4 "
        "--algo.learning-starts 32"
    )
    line += " --algo.buffer-size 256 --algo.batch-size 4 --algo.hidden 4 --eval-episodes 1"
    line += " --eval-mode sample --no-tensorboard"
    line += " --env.img-height 42 --env.img-width 42 --env.max-episode-steps 30"
    assert cli.main([*line.split(), "--out", str(tmp_path / "run")]) == 0
    assert cli.main(
        ["train", "--resume", str(tmp_path / "run"), "--total-steps", "192", "--no-tensorboard"]
    ) == 0
    assert "return" in capsys.readouterr().out
    found = jf.experience(tmp_path / "run")
    assert (
        found.rows.obs.shape[2:] == (42, 42, 1) and found.rows.obs.dtype == np.uint8
        and found.memory.stack == 4
    )
