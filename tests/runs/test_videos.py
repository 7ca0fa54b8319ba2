"""Videos of the agent in training: when there is one, where it goes, and that the run is as
without."""

from __future__ import annotations

import io
import signal
import threading
import time
import types

import jax
import numpy as np
import pytest
from PIL import Image

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.drawn import Drawn, at_once
from helpers.matrix import family
from jaxrl_fast.engine.backend import Film
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.errors import MissingExtraError
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.runs import pictures
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.report import run_report as report
from jaxrl_fast.runs.signals import Interrupted
from jaxrl_fast.runs.videos import FIRST, Filming, Videos

AT_ONCE = Dependencies(filming=Filming(at_once))


class Seen(Sink):
    def __init__(self):
        self.clips, self.messages, self.outcome = [], [], None

    def ended(self, outcome):
        self.outcome = outcome

    def video(self, clip):
        self.clips.append(clip)

    def message(self, text):
        self.messages.append(text)


class Lamp(Drawn):
    light = 40


class Ends(Seen):
    """Calls a function when the training has ended."""

    def __init__(self, then):
        super().__init__()
        self.then = then

    def status(self, text):
        if text == "drawing":
            self.then()


def train(out=None, env=None, **settings):
    """Train in the programs of `unbroken("ppo")`."""
    return tools.train("ppo", out, env, **dict(
        total_steps=640, video_share=1, progress=False, dependencies=AT_ONCE) | settings)


@pytest.mark.parametrize(("every", "steps"),
                         family([(0, [320, 640]), (192, [192, 320, 384, 576, 640]),
                                 (100, [128, 256, 320, 384, 512, 640])], [192]))
def test_videos_come_at_evaluations_and_at_their_interval(every, steps, tmp_path):
    sink = Seen()
    train(tmp_path / "run", video_every=every, sinks=[sink])
    assert [clip.env_steps for clip in sink.clips] == steps
    files = sorted((tmp_path / "run/videos").iterdir())
    assert [int(file.stem) for file in files] == steps
    for clip, file in zip(sink.clips, files, strict=True):
        assert clip.path == file and file.read_bytes() == clip.gif
        with Image.open(file) as image:
            assert image.size == clip.size and image.n_frames > 5


def test_a_run_in_memory_hands_its_videos_to_sinks():
    sink = Seen()
    train(video_every=0, sinks=[sink])
    assert (
        [clip.path for clip in sink.clips] == [None, None] and sink.clips[0].gif.startswith(b"GIF8")
    )


def read_mp4(path, monkeypatch):
    """Return what the file says of itself, and its frames, as bytes."""
    import imageio_ffmpeg

    # or it forks Python beside JAX's threads
    monkeypatch.setenv("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    about, *frames = imageio_ffmpeg.read_frames(path)
    return about, frames


@pytest.mark.video
def test_videos_are_mp4_files_and_tensorboard_has_a_gif(tmp_path, monkeypatch):
    sink = Seen()
    train(tmp_path / "run", video_every=0, video_format="mp4", sinks=[sink])
    assert sorted(path.name for path in (tmp_path / "run/videos").iterdir()) == [
        "000000000320.mp4", "000000000640.mp4"]
    clip = sink.clips[-1]
    assert (
        clip.format == "mp4" and clip.path.read_bytes() == clip.mp4 and clip.gif.startswith(b"GIF8")
    )
    # a browser plays it before it has all of it
    assert clip.mp4.index(b"moov") < clip.mp4.index(b"mdat")
    about, frames = read_mp4(clip.path, monkeypatch)
    with Image.open(io.BytesIO(clip.gif)) as image:
        assert about["size"] == clip.size == image.size and len(frames) >= image.n_frames > 5
    assert about["codec"] == "h264" and "data:video/mp4;base64," in report(tmp_path / "run")


@pytest.mark.video
@pytest.mark.parametrize(("height", "width"), [(32, 48), (33, 47)])
def test_an_mp4_has_the_frames_at_their_speed(height, width, tmp_path, monkeypatch):
    frames = [np.full((height, width, 3), 25 * i, np.uint8) for i in range(10)]
    about, found = read_mp4(pictures.Video(frames, 12.5).save(tmp_path / "new/a.mp4"), monkeypatch)
    found = [np.frombuffer(frame, np.uint8).mean() for frame in found]
    assert about["size"] == (width + width % 2, height + height % 2) and about["fps"] == 12.5
    np.testing.assert_allclose(found, [25 * i for i in range(10)], atol=3)


@pytest.mark.parametrize("env", ["CartPole-v1", "gym:CartPole-v1"])
def test_mp4_without_its_package_names_the_extra(env, modules, nothing_compiles, tmp_path):
    modules(imageio_ffmpeg=None)
    with pytest.raises(MissingExtraError,
                       match=r"an MP4 video needs the extra \[video\]: pip install "
                             r"'jaxrl_fast\[video\]'"):
        train(tmp_path / "run", jf.make(env), video_every=0, video_format="mp4", seeds=2)
    assert not (tmp_path / "run").exists()


def test_a_run_is_the_same_with_videos(unbroken):
    whole, _ = unbroken("ppo")
    filmed = tools.train("ppo", video_every=64)
    tools.assert_same(filmed.state, whole.state)
    assert tools.through_json(filmed.history) == tools.through_json(whole.history)


@pytest.fixture
def held():
    """(event, how to draw): every film waits for the event, on its own thread."""
    event = threading.Event()

    def film(*args):
        assert threading.current_thread().daemon  # or a film that hangs would hold the process
        assert event.wait(120)
        return pictures.film(*args)

    # a shell's background ignores it
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield event, Filming(film=film)
    signal.signal(signal.SIGINT, found)
    event.set()


@pytest.mark.parametrize(("every", "left"), [(64, "8 videos were"), (256, "1 video was")])
def test_a_video_that_is_due_too_early_is_left_out(every, left, held, tmp_path):
    event, filming = held
    sink = Ends(event.set)
    train(tmp_path / "run", video_every=every, sinks=[sink],
          dependencies=Dependencies(filming=filming))
    assert [clip.env_steps for clip in sink.clips] == [every, 640]
    assert sink.messages == [f"{left} left out: the one before was still being drawn"]


@pytest.mark.matrix("test_a_run_that_ends_early_does_not_wait_for_a_film_that_hangs")
def test_a_run_does_not_wait_for_ever_for_its_last_video(held, tmp_path):
    sink = Seen()
    told = r"a video is left out: not drawn within \d+\.\d s"
    with pytest.warns(UserWarning, match=told) as found:
        run = train(tmp_path / "run", jf.make(Lamp), video_every=0, sinks=[sink], host_timeout=1.0,
                    dependencies=Dependencies(filming=held[1]))
    assert run.over and (tmp_path / "run/result.json").is_file() and len(found) == 1
    assert not sink.clips and sink.outcome == "finished"


def test_the_result_is_written_before_the_last_video(tmp_path):
    def film(*args):
        end = time.monotonic() + 120
        while not (tmp_path / "run/result.json").is_file():
            assert time.monotonic() < end
            time.sleep(0.01)
        return pictures.film(*args)

    train(tmp_path / "run", video_every=0, sinks=[sink := Seen()],
          dependencies=Dependencies(filming=Filming(film=film)))
    assert [clip.env_steps for clip in sink.clips] == [320, 640]


def test_a_signal_ends_the_wait_for_the_last_video(held, tmp_path):
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    with pytest.raises(Interrupted), pytest.warns(UserWarning, match="a video is left out"):
        train(tmp_path / "run", video_every=0, sinks=[Ends(timer.start)],
              dependencies=Dependencies(filming=held[1]))
    assert (tmp_path / "run/result.json").is_file()


def fail(run, rows):
    if run.env_steps == 384:
        raise ZeroDivisionError("of the hook")


def interrupt(run, rows):
    if run.env_steps == 384:
        signal.raise_signal(signal.SIGINT)


ENDS = pytest.mark.parametrize(("hook", "error", "outcome"), [
    (fail, ZeroDivisionError, "failed"), (interrupt, Interrupted, "interrupted"),
])  # fmt: skip


@ENDS
def test_a_run_that_ends_early_hands_over_the_video_in_work(hook, error, outcome, held, tmp_path):
    """The video of 320 steps is in work when the hook, at 384, ends the run."""
    event, filming = held
    let = lambda run, rows: event.set() if run.env_steps == 384 else None
    sink = Seen()
    with pytest.raises(error):
        train(tmp_path / "run", video_every=0, sinks=[sink], hooks=[let, hook],
              chunk_seconds=1e-9,
              dependencies=Dependencies(filming=filming._replace(patience=60.0)))
    (clip,) = sink.clips
    assert clip.env_steps == 320 and clip.path.read_bytes() == clip.gif and sink.outcome == outcome
    if error is Interrupted:
        run = jf.resume(tmp_path / "run", sinks=[sink])
        assert run.over and [clip.env_steps for clip in sink.clips] == [320, 640]


def test_the_best_member_is_filmed():
    seen = []
    film = lambda env, algo, agent, *rest: (
        seen.append(agent) or pictures.film(env, algo, agent, *rest))
    with tools.evaluations({5: [0.1, 0.9, 0.3], 10: [0.9, 0.2, 0.1]}.__getitem__):
        run = (
            train(seeds=3, video_every=0, dependencies=Dependencies(filming=Filming(at_once, film)))
        )
    want = run.agent(0).state.params
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), seen[-1].params, want))
    assert not jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), seen[0].params, want))


@ENDS
def test_a_run_that_ends_early_does_not_wait_for_a_film_that_hangs(hook, error, outcome, held,
                                                                   tmp_path):
    sink = Seen()
    with pytest.raises(error), pytest.warns(
        UserWarning, match=r"a video is left out: not drawn within 0\.[2-9] s"
    ):
        train(tmp_path / "run", video_every=0, sinks=[sink], hooks=[hook], chunk_seconds=1e-9,
              dependencies=Dependencies(filming=held[1]._replace(patience=0.2)))
    assert not sink.clips and sink.outcome == outcome
    assert bool(jf.load(tmp_path / "run", "last")) if error is Interrupted else True


def test_a_video_that_fails_is_a_warning_and_the_last_one():
    with pytest.warns(UserWarning, match="no more videos of this run: division by zero") as found:
        run = train(video_every=64,
                    dependencies=Dependencies(filming=Filming(at_once, film=lambda *args: 1 / 0)))
    assert run.over and len(found) == 1


def test_an_environment_without_pictures_is_refused(tmp_path):
    with pytest.raises(jf.ConfigError, match="video_every must be None, got 0: .* has no pictures"):
        train(tmp_path / "run", jf.make("probe/constant-reward"), video_every=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("every", [0, 320])
def test_the_agent_at_the_end_is_filmed_without_evaluations(every, tmp_path):
    sink = Seen()
    train(tmp_path / "run", video_every=every, eval_every=0, sinks=[sink])
    assert [clip.env_steps for clip in sink.clips] == [320, 640][not every:]


def test_a_finished_run_is_not_filmed_again(tmp_path):
    train(tmp_path / "run", video_every=0)
    jf.resume(tmp_path / "run", sinks=[sink := Seen()])
    assert not sink.clips
    (tmp_path / "run/videos/000000000640.gif").unlink()  # as of a run that was killed then
    jf.resume(tmp_path / "run", sinks=[sink])
    assert [clip.env_steps for clip in sink.clips] == [640]


class Clocks:
    """A run of one row a second, whose videos take `cost` seconds of the run's time each."""

    def __init__(self, cost, rows, **settings):
        self.now, self.spent, self.seen, self.begun = 0.0, 0.0, Seen(), []
        config = RunConfig(video_every=10, eval_every=0, **settings)
        grid = types.SimpleNamespace(row=1, steps=10, rows=rows)
        lanes = types.SimpleNamespace(agent=lambda member: 0.0, members=np.zeros(1, int))
        env = jf.make("CartPole-v1")
        self.run = types.SimpleNamespace(
            config=config, grid=grid, env=env, lanes=lanes, rows=0, env_steps=0, out=None,
            history=[], live=[0], over=False, setup=lambda member: (None, env))  # fmt: skip

        def film(*args):
            self.begun.append(self.now)
            self.spent += cost
            return Film([np.zeros((2, 2, 3), np.uint8)])

        self.videos = Videos(self.run, [self.seen], Filming(at_once, film), lambda: self.now)
        self.videos.share.cost = lambda: self.spent

    def train(self):
        """Train in chunks that stop where the videos say, else of three rows."""
        while not self.run.over:
            rows = min([3, *(stop - self.run.rows for stop in self.videos.stops())])
            self.now += rows
            self.run.rows += rows
            self.run.env_steps = 10 * self.run.rows
            self.run.over = self.run.rows >= self.run.grid.rows
            self.videos.look(False, rows == 1)
            if len(self.begun) > 1:  # the first may take longer than expected
                assert self.spent <= self.videos.share.share * self.now + 1e-9
        during = len(self.begun)
        self.videos.end(0.0)
        return during


@pytest.mark.parametrize(("cost", "share", "rows"), [
    (0.5, 0.01, 500), (0.5, 0.05, 500), (5.0, 0.01, 500), (0.5, 1.0, 20)])  # fmt: skip
def test_videos_take_their_share_of_the_run(cost, share, rows):
    clocks = Clocks(cost, rows, video_share=share)
    during = clocks.train()
    first = 1 if share == 1 else FIRST["gif"] / share
    assert clocks.begun[0] == pytest.approx(first, abs=3)
    fitting = min(share * rows / cost, rows - 1)
    assert 0.9 * fitting - 1 <= during <= fitting
    assert clocks.begun[-1] == clocks.now and len(clocks.seen.clips) == during + 1
    said = [text for text in clocks.seen.messages if "videos take at most" in text]
    told = (
        f"videos take at most {100 * share:g}% of the run's time: the one due by 30 steps is left "
        "out (--video-share 1, or video_share=1, lifts the limit)"
    )
    assert said == ([] if share == 1 else [told]) and clocks.seen.messages == said


@pytest.mark.matrix("tests/runs/test_live_pictures.py::"
                    "test_a_live_picture_of_host_environments_is_an_episode")
def test_host_environments_are_filmed(tmp_path):
    train(tmp_path / "run", jf.make(Lamp), video_every=0)
    files = sorted((tmp_path / "run/videos").iterdir())
    assert len(files) == 2
    with Image.open(files[0]) as image:
        brightness = [image.seek(i) or int(np.asarray(image.convert("RGB")).max())
                      for i in range(image.n_frames)]
    assert brightness == [0, 40, 80, 120, 160, 200]


@pytest.mark.parametrize("steps", family([1, 51, 50, 49, 101], 2))
def test_a_film_ends_with_the_episode(steps):
    """Whatever part of a call of the program its last step is; the last picture is the end."""
    env = jf.make("Pendulum-v1", time_limit=steps)
    algo = jf.PPO(hidden=(8,)).bind(env.spec)
    film = lambda most: pictures.film(env, algo, jax.jit(algo.init)(jax.random.key(0)),
                                      jax.random.key(1), most).frames
    frames = film(500)
    assert len(frames) == steps + 1
    cut = film(45)
    assert len(cut) == min(45, steps + 1) and all((a == b).all()
                                                  for a, b in zip(frames, cut, strict=False))
