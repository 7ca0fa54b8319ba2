"""Pictures of agents and of actions by hand, frames of results, and folders that are numbered."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as theirs
from PIL import Image

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.html import parsed
from jaxrl_fast.errors import ConfigError, MissingExtraError
from jaxrl_fast.runs.pictures import Video


@jf.settings
class Counting(jf.SingleEnv):
    """An environment whose picture is as bright as the sum of the actions; ends at 9, or after 20
    steps."""

    @property
    def spec(self):
        return jf.EnvSpec("counting", jf.Box(0.0, 100.0, (1,)), jf.Discrete(4), 20)

    def reset_one(self, key):
        return (jnp.int32(0), jnp.int32(0)), jnp.zeros(1)

    def step_one(self, key, state, action):
        total, time = state[0] + action, state[1] + 1
        return (total, time), total[None].astype(jnp.float32), 1.0, total >= 9, time >= 20

    def render(self, state):
        return np.full((4, 6, 3), state[0], np.uint8)


class Theirs(gymnasium.Env):
    """The same on the host, its actions counted from 5."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space, action_space = theirs.Box(-1, 100, (1,)), theirs.Discrete(4, start=5)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.total += int(action) - 5
        return np.full(1, self.total, np.float32), 1.0, self.total >= 9, False, {}

    def render(self):
        return np.full((4, 6, 3), self.total, np.uint8)


def brightness(video: Video) -> list[int]:
    return [int(frame.max()) for frame in video.frames]


def test_actions_by_hand_in_pictures():
    env = Counting()
    assert brightness(jf.show(env, [1, 2, 0, 3])) == [0, 1, 3, 3, 6]
    assert brightness(jf.show(env, np.array([3, 3, 3, 1, 1]))) == [0, 3, 6, 9]  # the end
    assert brightness(jf.show(env, [3, 3, 3])) == [0, 3, 6, 9]
    assert brightness(jf.show(env, 2)) == [0, 2]  # one action
    assert brightness(jf.show(jf.make(env, action_repeat=2), [1, 1])) == [0, 2, 4]


def test_actions_by_hand_on_the_host():
    env = jf.make(Theirs)
    assert brightness(jf.show(env, [6, 7, 5])) == [0, 1, 3, 3]
    assert brightness(jf.show(env, [8, 8, 8, 8])) == [0, 3, 6, 9]


def test_objects_that_cannot_be_shown_are_refused():
    with pytest.raises(ConfigError, match="env must be an environment"):
        jf.show("CartPole-v1", [0])
    with pytest.raises(ConfigError, match="actions must be"):
        jf.show(Counting(), [[0.5, 1.0]])
    with pytest.raises(ConfigError, match="one that is drawn"):
        jf.show(tools.environment("td3"),
                np.zeros((2, *tools.environment("td3").spec.action.shape)))
    with pytest.raises(ConfigError, match=r"agent must be a jf\.Agent, or a run, got 3"):
        Counting().play(3)


def test_a_run_shows_its_agent(unbroken, tmp_path):
    run, _ = unbroken("ppo")
    video = run.video()
    assert (
        repr(video).startswith("<Video: ") and "of 400 x 208" in repr(video)
        and 2 <= len(video.frames) <= 31
    )
    page, _ = parsed(video._repr_html_())
    assert page.get("src").startswith("data:image/gif;base64,R0lGOD")
    with Image.open(video.save(tmp_path / "new" / "a.gif")) as gif:
        # equal ones are one
        assert gif.size == (400, 208) and len(video.frames) - 2 <= gif.n_frames <= len(video.frames)
    with pytest.raises(ConfigError, match=r"path must be a name that ends with \.gif or \.mp4"):
        video.save(tmp_path / "a.webm")
    same = run.env.play(run), run.env.play(run.agent())
    assert all(len(x.frames) == len(video.frames) for x in same)
    heavier = jf.make("CartPole-v1", gravity=20.0)
    assert len(heavier.play(run, seed=1, max_steps=3).frames) == 3
    with pytest.raises(ConfigError, match="observation of the environment must be the agent's"):
        Counting().play(run)


def test_a_numbered_folder_is_new_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [tools.train("ppo", "auto", total_steps=64, seed=3) for _ in range(2)]
    assert [run.path.as_posix() for run in runs] == ["runs/ppo-CartPole-v1-s3-1",
                                                     "runs/ppo-CartPole-v1-s3-2"]
    grid = {"algo.learning_rate": [1e-3, 1e-2]}
    found = (
        [jf.sweep(
            tools.algorithm("ppo"), tools.environment(), 64, grid=grid, **tools.RUN
        ) for _ in range(2)]
    )
    assert [x.path.as_posix() for x in found] == ["sweeps/ppo-CartPole-v1-1",
                                                  "sweeps/ppo-CartPole-v1-2"]
    log = found[0].frame(log=True)
    assert (
        len(log) == 2 and set(log["algo.learning_rate"]) == {1e-3, 1e-2}
        and log["env_steps"].tolist() == [64, 64]
    )
    assert (
        {"configuration", "seed", "episode_return", "entropy"} <= set(log.columns)
        and log["entropy"].dtype == float
    )
    assert len(found[0].frame()) == 2 and "eval_return" in found[0].frame()


def test_a_frame_without_pandas_names_the_extra(unbroken, modules):
    modules(pandas=None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxrl_fast\[pandas\]'"):
        unbroken("ppo")[0].frame()
