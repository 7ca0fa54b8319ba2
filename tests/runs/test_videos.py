"""Videos of the agent in training: when there is one, where it goes, and that the run is as without."""

from __future__ import annotations

import types

import gymnasium
import jax
import numpy as np
import pytest
from PIL import Image

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs import pictures, videos

TINY = dict(num_envs=4, num_steps=8, hidden=(8,), num_epochs=1)


class Immediate:
    """An executor that works in `submit`."""

    def __init__(self, *args, **kwargs):
        pass

    def submit(self, function, *args):
        done = videos.Future()
        try:
            done.set_result(function(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, **kwargs):
        pass


class Late(Immediate):
    """An executor whose work takes until someone waits for it."""

    def submit(self, function, *args):
        return types.SimpleNamespace(done=lambda: False, result=lambda: function(*args))


class Seen(Sink):
    def __init__(self):
        self.clips, self.messages = [], []

    def video(self, clip):
        self.clips.append(clip)

    def message(self, text):
        self.messages.append(text)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(videos, "ThreadPoolExecutor", Immediate)


def train(out=None, env=None, **settings):
    settings = dict(total_steps=640, log_every=64, eval_every=320, eval_episodes=2, pictures=False, progress=False) | settings
    return jf.train(jf.PPO(**TINY), env or jf.make("CartPole-v1"), out=out, **settings)


@pytest.mark.parametrize(("every", "steps"), [(0, [320, 640]), (192, [192, 320, 384, 576, 640]), (100, [128, 256, 320, 384,
    512, 640])])  # fmt: skip
def test_videos_come_at_evaluations_and_every_so_often(every, steps, at_once, tmp_path):
    sink = Seen()
    train(tmp_path / "run", video_every=every, sinks=[sink])
    assert [clip.env_steps for clip in sink.clips] == steps
    files = sorted((tmp_path / "run/videos").iterdir())
    assert [int(file.stem) for file in files] == steps
    for clip, file in zip(sink.clips, files, strict=True):
        assert clip.path == file and file.read_bytes() == clip.gif
        with Image.open(file) as image:
            assert image.size == clip.size and image.n_frames > 5


def test_a_run_in_memory_hands_its_videos_to_sinks(at_once):
    sink = Seen()
    train(video_every=0, sinks=[sink])
    assert [clip.path for clip in sink.clips] == [None, None] and sink.clips[0].gif.startswith(b"GIF8")


def test_a_run_is_the_same_with_videos(unbroken):
    whole, _ = unbroken("ppo")
    filmed = tools.train("ppo", video_every=64)
    tools.assert_same(filmed.state, whole.state)
    assert tools.through_json(filmed.history) == tools.through_json(whole.history)


def test_a_video_that_is_due_too_early_is_left_out(monkeypatch):
    monkeypatch.setattr(videos, "ThreadPoolExecutor", Late)
    sink = Seen()
    train(video_every=64, sinks=[sink])
    assert [clip.env_steps for clip in sink.clips] == [64]
    assert sink.messages == ["9 videos were left out: the one before was still being drawn"]


def test_a_video_that_fails_is_a_warning_and_the_last_one(monkeypatch, at_once):
    monkeypatch.setattr(pictures, "film", lambda *args: 1 / 0)
    with pytest.warns(UserWarning, match="no more videos of this run: division by zero") as found:
        run = train(video_every=64)
    assert run.over and len(found) == 1


def test_the_best_member_is_filmed(monkeypatch, at_once):
    seen = []
    monkeypatch.setattr(videos.Videos, "_draw", lambda self, steps, algo, env, agent: seen.append(agent) or self.run)
    with tools.evaluations({5: [0.1, 0.9, 0.3], 10: [0.9, 0.2, 0.1]}.__getitem__):
        run = tools.train("ppo", seeds=3, eval_every=320, total_steps=640, video_every=0)
    want = run.agent(0).state.params
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), seen[-1].params, want))
    assert not jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), seen[0].params, want))


def test_an_environment_without_pictures_is_refused(tmp_path):
    with pytest.raises(jf.ConfigError, match="video_every must be None, got 0: .* has no pictures"):
        train(tmp_path / "run", jf.make("probe/constant-reward"), video_every=0)
    assert not (tmp_path / "run").exists()


class Lamp(gymnasium.Env):
    """Five steps; its picture is as bright as the step."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 5, False, {}

    def render(self):
        return np.full((4, 4, 3), 40 * self.t, np.uint8)


def test_host_environments_are_filmed(at_once, tmp_path):
    train(tmp_path / "run", jf.make(Lamp), video_every=0)
    files = sorted((tmp_path / "run/videos").iterdir())
    assert len(files) == 2
    with Image.open(files[0]) as image:
        brightness = [image.seek(i) or int(np.asarray(image.convert("RGB")).max()) for i in range(image.n_frames)]
    assert brightness == [0, 40, 80, 120, 160, 200]


@pytest.mark.parametrize("steps", [1, 49, 50, 51, 101])
def test_a_film_ends_with_the_episode(steps):
    """Whatever part of a call of the program its last step is; the last picture is the end."""
    env = jf.make("Pendulum-v1", time_limit=steps)
    algo = jf.PPO(hidden=(8,)).bind(env.spec)
    film = lambda most: pictures.film(env, algo, algo.init(jax.random.key(0)), jax.random.key(1), most).frames
    frames = film(500)
    assert len(frames) == steps + 1
    cut = film(45)
    assert len(cut) == min(45, steps + 1) and all((a == b).all() for a, b in zip(frames, cut, strict=False))
