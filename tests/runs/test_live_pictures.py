"""The newest picture in a notebook's cell: what it shows, what it costs, what it leaves alone."""

from __future__ import annotations

import base64
import io
import re
import signal
import types

import numpy as np
import pytest
from PIL import Image

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.drawn import Drawn, at_once
from helpers.matrix import family
from helpers.notebook import Shell
from jaxrl_fast import tree
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.logs.notebook import NotebookSink
from jaxrl_fast.memory import save_memory
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.live_pictures import EPISODE, STILL, LivePictures, Picture
from jaxrl_fast.runs.load import resume_run
from jaxrl_fast.runs.train import Around, start
from jaxrl_fast.runs.videos import FILMING, Filming

TINY = dict(num_envs=4, num_steps=8, hidden=(8,), num_epochs=1)


ALWAYS = Dependencies(filming=Filming(at_once, share=1e9, apart=0.0))  # a picture after every chunk


@pytest.fixture
def shell(modules):
    """A notebook."""
    found = Shell()
    # matplotlib reads the version
    modules(IPython=types.SimpleNamespace(get_ipython=lambda: found, version_info=(8, 24)))
    return found


def train(env=None, **settings):
    settings = dict(total_steps=640, log_every=64, eval_every=320, eval_episodes=2,
                    chunk_seconds=1e-9, progress=True, dependencies=ALWAYS) | settings
    return start(jf.PPO(**TINY), env or jf.make("CartPole-v1"), **settings)


def read(data) -> tuple[str, Image.Image]:
    """Return the kind of a published picture, and the picture."""
    kind, content = re.search(r"data:image/(\w+);base64,([^\"]+)", data["text/html"]).groups()
    return kind, Image.open(io.BytesIO(base64.b64decode(content)))


def test_the_cell_shows_an_environment_in_training(shell):
    run = train()
    datas, names, updates = zip(*shell.pictures, strict=True)
    assert len(set(names)) == 1 and updates == (False, *[True] * (len(updates) - 1))
    assert len(datas) >= 9 and all(read(data)[0] == "png" for data in datas)
    assert datas[-1]["text/plain"] == "an environment in training at 640 steps"
    drawn = run.env.render(tree.take(run.state.env, 0))
    assert np.array_equal(np.asarray(read(datas[-1])[1]), drawn)
    assert not np.array_equal(np.asarray(read(datas[0])[1]), drawn)


def test_the_best_member_is_shown(shell):
    with tools.evaluations({5: [0.1, 0.9, 0.3], 9: [0.9, 0.2, 0.1]}.__getitem__):
        run = tools.train("ppo", seeds=3, eval_every=320, total_steps=576, progress=True,
                          pictures=True, chunk_seconds=1e-9, dependencies=ALWAYS)
    drawn = [run.env.render(tree.take(run.state.env, (i, 0))) for i in range(3)]
    shown = np.asarray(read(shell.pictures[-1][0])[1])
    # by the evaluation of the last row
    assert [np.array_equal(shown, one) for one in drawn] == [True, False, False]


class Lamp(Drawn):
    light = 40


def test_a_live_picture_of_host_environments_is_an_episode(shell):
    train(jf.make(Lamp))
    kind, film = read(shell.pictures[-1][0])
    lights = [film.seek(i) or int(np.asarray(film.convert("RGB")).max())
              for i in range(film.n_frames)]
    assert kind == "gif" and lights == [0, 40, 80, 120, 160, 200]
    assert shell.pictures[-1][0]["text/plain"] == "the agent at 640 steps"


@pytest.mark.parametrize("algo", family(["ppo", "dqn"], ["ppo"]))
def test_a_run_is_the_same_with_pictures(algo, shell, unbroken):
    whole, _ = unbroken(algo)
    shown = tools.train(algo, progress=True, pictures=True, dependencies=ALWAYS)
    assert shell.pictures
    tools.assert_same(shown.state, whole.state)
    assert tools.through_json(shown.history) == tools.through_json(whole.history)


def test_an_interrupted_run_with_pictures_resumes_exactly(shell, unbroken, tmp_path):
    whole, _ = unbroken("ppo")
    stop = lambda run, rows: signal.raise_signal(signal.SIGINT) if run.rows == 3 else None
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tools.train("ppo", tmp_path / "run", hooks=[stop], chunk_seconds=1e-9,
                        progress=True, pictures=True, dependencies=ALWAYS)
        resumed = resume_run(tmp_path / "run", Around(progress=True, dependencies=ALWAYS))
    finally:
        signal.signal(signal.SIGINT, old)
    assert len({name for _, name, _ in shell.pictures}) == 2
    tools.assert_same(resumed.state, whole.state)


@pytest.mark.matrix("test_without_pictures_or_display_there_are_none")
def test_nothing_is_written(shell, tmp_path):
    for name, progress in (("with", True), ("without", False)):
        train(out=tmp_path / name, progress=progress, tensorboard=False)
    files = lambda name: sorted(path.name for path in (tmp_path / name).iterdir())
    assert shell.pictures and files("with") == files("without")


@pytest.mark.matrix("test_a_run_is_the_same_with_pictures")
def test_offline_training_shows_an_episode(shell, tmp_path):
    """Offline training has no environment to show."""
    algo = jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=1_024)
    env = jf.make("CartPole-v1")
    save_memory(tmp_path / "replay", jf.experience(jf.train(algo, env, 512, pictures=False)))
    start(algo, env, 64, experience=tmp_path / "replay", experience_fraction=1.0,
          chunk_seconds=1e-9, progress=True, dependencies=ALWAYS)
    assert read(shell.pictures[-1][0])[0] == "gif"
    assert shell.pictures[-1][0]["text/plain"].startswith("the agent at ")


@pytest.mark.parametrize(("env", "settings"), [
    ("probe/constant-reward", {}), ("CartPole-v1", {"pictures": False}),
    ("CartPole-v1", {"progress": False}),
])  # fmt: skip
def test_without_pictures_or_display_there_are_none(env, settings, shell):
    train(jf.make(env), **settings)
    assert not shell.pictures and "no live pictures" not in "".join(shell.pages)


def test_a_run_with_videos_shows_the_videos(shell):
    train(video_every=0, video_share=1)
    assert [data["text/plain"] for data, *_ in shell.pictures] == [
        "the agent at 320 steps", "the agent at 640 steps"]


@jf.settings
class Torn(CartPole):
    def render(self, state):
        raise OSError("no paint")


def test_a_picture_that_fails_is_a_note_in_the_cell(shell):
    run = train(Torn())
    assert run.over and not shell.pictures
    assert shell.pages[-1].count("no live pictures of this run: no paint") == 1


class Clocks:
    """Clocks of a run whose pictures take `cost` seconds each."""

    def __init__(self, env, cost):
        self.now = 0.0
        shell = Shell()
        cell = NotebookSink(1, [], shell)
        config = types.SimpleNamespace(pictures=True, video_every=None, members=1, offline=False)
        run = types.SimpleNamespace(config=config, env=env, env_steps=1, history=[], live=[0])
        self.begun = []

        def begin(member, text):
            self.begun.append(self.now)
            return draw

        def draw():
            self.spent += cost
            return Picture(b"", "png", "")

        self.spent = 0.0
        now = lambda: self.now
        self.pictures = LivePictures(run, [cell], Filming(at_once), now, now)
        self.pictures._begin, self.pictures.share.cost = begin, lambda: self.spent

    def until(self, seconds):
        while self.now < seconds:
            self.now += 0.5
            self.pictures.look()
        return self.begun


@pytest.mark.parametrize(("env", "expected"), [
    (jf.make("CartPole-v1"), STILL), (jf.make(Lamp), EPISODE)])  # fmt: skip
def test_the_first_picture_waits_for_its_share(env, expected):
    begun = Clocks(env, 0.0).until(100)
    assert begun[0] == pytest.approx(max(FILMING.apart, expected / FILMING.share), abs=0.5)
    assert np.diff(begun).min() >= FILMING.apart and len(begun) > 10


@pytest.mark.parametrize("cost", [0.01, 0.1, 5.0])
def test_pictures_take_their_share_of_the_run_at_most(cost):
    begun = Clocks(jf.make("CartPole-v1"), cost).until(2000)
    assert 3 <= len(begun) <= 2000 / FILMING.apart
    assert all(at * FILMING.share >= i * cost - 1e-9 for i, at in enumerate(begun[1:]))
