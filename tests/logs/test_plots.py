"""Intervals against tables, the curves that are drawn, and the trained agent as a GIF."""

import itertools

import jax
import numpy as np
import pytest
from PIL import Image

from helpers import fresh
from helpers.matrix import family
from jaxrl_fast.algorithms.ppo import PPO
from jaxrl_fast.cli.ladder import command as cli_ladder
from jaxrl_fast.cli.ladder import rungs as ladder
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs import plots, time_plot
from jaxrl_fast.runs import pictures as record
from jaxrl_fast.tree import settings


def rows(members=4, count=30, every_eval=10, null=()):
    found = []
    for i in range(count):
        values = [None if (i, m) in null else 10.0 * i + m for m in range(members)]
        row = {"env_steps": 1000 * (i + 1), "wall_seconds": 1.0, "steps_per_second": 1e5,
               "episode_return": values}
        if every_eval and i % every_eval == every_eval - 1:
            row["eval_return"] = [10.0 * i + m + 5 for m in range(members)]
        found.append(row)
    return found


def test_trailing_mean_against_a_loop():
    values = np.random.default_rng(1).normal(size=(40, 3))
    values[np.random.default_rng(2).random((40, 3)) < 0.5] = np.nan
    for window in (1, 2, 7, 100):
        for r in range(40):
            for k in range(3):
                few = values[max(0, r - window + 1) : r + 1, k]
                few = few[np.isfinite(few)]
                expected = few.mean() if few.size else np.nan
                np.testing.assert_allclose(plots._trailing_mean(values, window)[r, k], expected,
                                           atol=1e-12)


def test_a_member_keeps_its_last_value_over_gaps():
    nan = np.nan
    values = np.array([[nan, 1], [2, nan], [nan, nan], [nan, 4]])
    np.testing.assert_array_equal(plots._held(values), [[nan, 1], [2, 1], [nan, nan], [2, 4]])


@pytest.fixture
def drawn(monkeypatch):
    """The first axes of each figure that was saved."""
    from matplotlib.figure import Figure

    found = []
    original = Figure.savefig
    monkeypatch.setattr(Figure, "savefig",
                        lambda self, *a, **k: (found.append(self.axes[0]), original(self, *a, **k)))
    return found


def test_learning_curve_shows_mean_band_members_and_evaluations(tmp_path, drawn):
    null = {(5, m) for m in range(4)} | {(0, 1)}
    path = plots.learning_curve({"ppo CartPole-v1": rows(null=null)},
                                tmp_path / "new" / "curve.png")
    image = Image.open(path)
    assert image.format == "PNG" and image.size[0] > 800
    assert [p.name for p in path.parent.iterdir()] == ["curve.png"]  # no temporary file stays
    (axes,) = drawn
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    members = [line.get_xydata() for line in axes.lines if line.get_linewidth() < 1]
    assert [len(m) for m in members] == [29, 28, 29, 29]  # null rows are left out of the thin lines
    mean = lines["mean of 4 members"]
    assert len(mean) == 29 and 6000 not in mean[:, 0]  # the row in which no member had a value
    np.testing.assert_allclose(mean[-1], (30000, np.mean([290, 291, 292, 293])))
    np.testing.assert_allclose(lines["evaluation"], [[10000, 96.5], [20000, 196.5], [30000, 296.5]])
    texts = [t.get_text() for t in axes.get_legend().get_texts()]
    assert "range of the members" in texts and axes.get_title(loc="left") == "ppo CartPole-v1"


def test_runs_are_overlaid_in_their_own_colours(tmp_path, drawn):
    runs = {"a": rows(3), "b": rows(1, 250), "c": rows(2, every_eval=0)}
    plots.learning_curve(runs, tmp_path / "curve.png")
    (axes,) = drawn
    thick = {line.get_label(): line.get_color() for line in axes.lines if line.get_linewidth() == 2}
    assert (
        set(thick) == {"a (3 members)", "b (1 member)", "c (2 members)"}
        and len(set(thick.values())) == 3
    )
    assert len(axes.figure.legends[0].get_texts()) == 3


LONG = (
    "hidden (512, 256, 128), learning_rate 0.0003, gae_lambda 0.95, normalize_observations True, "
    "clip_ratio 0.2, seed "
)
FOLDER = (
    "ppo brax/inverted_double_pendulum (/home/somebody/experiments/2026-11-25/" + "x" * 150
    + "/run-"
)


@pytest.mark.parametrize("label", family(["a", LONG, FOLDER], [FOLDER]))
def test_long_labels_are_folded_and_nothing_is_cut_off(label, tmp_path, drawn):
    plots.learning_curve({f"{label}{i}": rows(2) for i in range(14)}, tmp_path / "curve.png",
                         title=f"the best of {label}")
    figure = drawn[0].figure
    figure.draw_without_rendering()
    parts = [figure.legends[0], drawn[0].title, drawn[0]._left_title]
    boxes = [part.get_window_extent() for part in parts]
    assert all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= figure.bbox.x1 and b.y1 <= figure.bbox.y1
               for b in boxes)
    assert drawn[0].get_window_extent().height > 400  # the picture grows by its legend
    texts = "".join(t.get_text() for t in figure.legends[0].get_texts())
    assert (
        texts.replace("\n", "").replace(" ", "").count(label.replace(" ", "")) == 14 or label == "a"
    )
    looks = {(line.get_color(), line.get_linestyle())
             for line in drawn[0].lines if line.get_linewidth() == 2}
    assert len(looks) == 14


def test_intervals_are_cut_at_the_range_and_show_every_evaluation(tmp_path, drawn):
    """Two seeds of a task that gives 500 at most, and a first evaluation far below all of
    training."""
    found = rows(2, every_eval=0)
    for i, row in enumerate(found):
        row["episode_return"] = [500.0, 100.0 + 10 * i]
    found[0]["eval_return"], found[20]["eval_return"] = [-300.0, -280.0], [500.0, 250.0]
    plots.learning_curve({"a": found}, tmp_path / "curve.png")
    (axes,) = drawn
    drawn_y = [path.vertices[:, 1] for c in axes.collections
               for path in c.get_paths() if len(path.vertices)]
    low, high = np.concatenate(drawn_y).min(), np.concatenate(drawn_y).max()
    assert high == 500 and low == -300
    assert axes.get_ylim()[0] < -300 and 500 < axes.get_ylim()[1] < 600


def test_rungs_of_the_ladder_have_distinct_colours(tmp_path, drawn):
    found = [ladder.Climb(rung, rate=10.0 + i, curve=[(60.0, 100, -20.0), (120.0, 200, -19.0)])
             for i, rung in
             enumerate(ladder.RUNGS)]  # fmt: skip
    cli_ladder.draw(found, tmp_path / "ladder.png")
    above, below = drawn[0].figure.axes
    bars = [patch.get_facecolor() for patch in above.patches]
    assert len(set(bars)) == len(bars) == len(ladder.RUNGS)
    # the solve's line
    assert len({line.get_color() for line in below.lines}) == len(ladder.RUNGS) + 1
    cli_ladder.draw([ladder.Climb(rung, rate=10.0) for rung in ladder.RUNGS],
                    tmp_path / "rates.png")
    assert len(drawn[1].figure.axes) == 1  # no empty half where no game has ended


def test_any_logged_metric_and_smoothing(tmp_path, drawn):
    plots.learning_curve({"a": rows()}, tmp_path / "speed.svg", metric="steps_per_second")
    assert "<svg" in (tmp_path / "speed.svg").read_text()
    plots.learning_curve({"a": rows(1, 10)}, tmp_path / "smooth.png", smooth=4)
    mean = next(line for line in drawn[1].lines if line.get_linewidth() == 2)
    np.testing.assert_allclose(mean.get_ydata()[-1], np.mean([60, 70, 80, 90]))
    assert "mean of 4 rows" in drawn[1].get_ylabel()


def test_a_run_without_a_finished_episode_still_gets_a_picture(tmp_path, drawn):
    empty = (
        [{"env_steps": 10, "wall_seconds": 0.1, "steps_per_second": 1.0,
          "episode_return": [None, None]}]
    )
    plots.learning_curve({"a": empty}, tmp_path / "curve.png")
    assert [t.get_text() for t in drawn[0].texts] == ["no episode_return yet"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "episode_retrun"}, ["episode_retrun", "did you mean 'episode_return'"]),
        ({"path": "curve.gif"}, ["curve.gif", ".png"]),
        ({"smooth": 0}, ["smooth must be ", "got 0"]),
        ({"rows_by_run": {}}, ["at least one run"]),
        ({"rows_by_run": {"a": []}}, ["'a'", "at least one row"]),
    ],
)
def test_bad_arguments_of_learning_curve(tmp_path, change, words):
    arguments = {"rows_by_run": {"a": rows()}, "path": "curve.png", **change}
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(ConfigError) as error:
        plots.learning_curve(**arguments)
    assert all(word in str(error.value) for word in words)
    assert not list(tmp_path.iterdir())


def pictures(count, size=(60, 80)):
    """A square that moves over white."""
    found = []
    for i in range(count):
        frame = np.full((*size, 3), 255, np.uint8)
        frame[20:30, i % 70 : i % 70 + 10] = (64, 111, 184)
        found.append(frame)
    return found


def read_gif(path):
    image, frames, milliseconds = Image.open(path), [], []
    for i in range(image.n_frames):
        image.seek(i)
        frames.append(np.asarray(image.convert("RGB")))
        milliseconds.append(image.info["duration"])
    return image, frames, milliseconds


def test_gif_holds_the_pictures_exactly(tmp_path):
    frames = pictures(40)
    path = record.rollout_gif(frames, tmp_path / "new" / "rollout.gif", fps=25)
    image, back, milliseconds = read_gif(path)
    assert image.info["loop"] == 0
    np.testing.assert_array_equal(np.stack(back), np.stack(frames))  # few colours: none is changed
    assert set(milliseconds[:-1]) == {40} and milliseconds[-1] > 500
    assert path.stat().st_size < 20_000


def test_gif_of_a_long_episode_keeps_its_speed(tmp_path):
    _, back, milliseconds = read_gif(record.rollout_gif(pictures(1500), tmp_path / "a.gif", fps=50))
    assert len(back) == 500 and set(milliseconds[:-1]) == {60}


def test_gif_is_thinned_until_it_is_small(tmp_path):
    noise = list(np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3)).astype(np.uint8))
    path = record.rollout_gif(noise, tmp_path / "a.gif", max_bytes=100_000)
    assert path.stat().st_size <= 100_000
    assert sum(read_gif(path)[2][:-1]) + 30 * 2 >= 30 * 35  # as long as before


def test_gif_refuses_other_arrays(tmp_path):
    for frames in ([], [np.zeros((4, 4), np.uint8)], [np.zeros((4, 4, 3))],
                   pictures(1) + pictures(1, (8, 80))):
        with pytest.raises(ConfigError, match="frames"):
            record.rollout_gif(frames, tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="fps"):
        record.rollout_gif(pictures(2), tmp_path / "a.gif", fps=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(120)
def test_record_plays_one_episode_of_the_trained_policy(tmp_path):
    states = []

    @settings
    class Watched(CartPole):
        def render(self, state):
            states.append(state)
            return super().render(state)

    @settings
    class Unseen(CartPole):
        def render(self, state):
            return None

    env = Watched()
    algo = PPO(num_envs=4, num_steps=8, hidden=(8,)).bind(env.spec)
    agent = jax.jit(algo.init)(jax.random.key(0))
    # A policy that always pushes to the right: the pole falls in about ten steps.
    params = {**agent.params, "policy": jax.tree.map(lambda x: x * 0, agent.params["policy"])}
    params["policy"]["params"]["bias"] = np.array([0.0, 1.0], np.float32)
    frames = record.film(env, algo, agent._replace(params=params), jax.random.key(3),
                         max_steps=50).frames
    assert 8 <= len(frames) <= 13
    # one environment, on the host
    assert all(isinstance(x, np.ndarray) and x.shape == (4,) for x, _ in states)
    # one episode, from its first state
    assert [int(time) for _, time in states] == list(range(len(frames)))
    # ever faster to the right
    assert all(a[1] < b[1] for (a, _), (b, _) in itertools.pairwise(states))
    fallen = [abs(x[2]) > env.theta_threshold_radians for x, _ in states]
    assert fallen == [False] * (len(frames) - 1) + [True]  # the state that ended it is the last one
    assert record.rollout_gif(frames, tmp_path / "a.gif").stat().st_size < 100_000
    assert len(
        record.film(env, algo, agent._replace(params=params), jax.random.key(3), max_steps=4).frames
    ) == 4
    assert record.film(Unseen(), algo, agent, jax.random.key(3)).frames is None


def test_drawing_leaves_pyplot_alone(tmp_path):
    """matplotlib comes only when something is drawn, and without the global state of pyplot."""
    code = (
        "import sys; from jaxrl_fast import plots; assert 'matplotlib' not in sys.modules; "
        "rows = [{'env_steps': 1, 'wall_seconds': 1, 'steps_per_second': 1, 'r': [1.0, 2.0]}]; "
        "plots.learning_curve({'a': rows}, sys.argv[1], 'r'); assert 'matplotlib.pyplot' not in "
        "sys.modules"
    )
    fresh.check(code, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_the_time_plot(tmp_path, drawn):
    """Shares of the actors above, of the learner below; rows without them (a warm-up's, a device's)
    are left out."""
    rows = [{"env_steps": 100}] + [
        {"env_steps": 200 * i, "time_learner_updates": [0.25 * i], "time_learner_waits": [None],
         "time_actors_waiting": [0.5]}
        for i in (1, 2)
    ]
    assert time_plot.time_use(rows[:1], tmp_path / "none.png") is None and not (
        tmp_path / "none.png").exists()
    path = time_plot.time_use(rows, tmp_path / "time.png")
    actors, learner = drawn[0].figure.axes
    labels = lambda axes: [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels(actors) == ["environments 0%", "transfer 0%", "inference 0%", "waiting 50%"]
    parts = ["learning 38%", "evaluating 0%", "writing 0%", "compiling 0%", "waiting 0%"]
    assert labels(learner) == parts and learner.get_xlim() == (200, 400)
    top = learner.collections[0].get_paths()[0].vertices
    assert sorted(set(top[:, 1])) == [0.0, 0.25, 0.5] and Image.open(path).size[0] > 300
