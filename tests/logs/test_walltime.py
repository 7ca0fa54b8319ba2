"""The clock of a run: every moment belongs to one activity, and speed, shares and pictures are made
of it."""

from __future__ import annotations

import time

import pytest

import jaxrl_fast as jf
from helpers import counters
from helpers import runs as tools
from helpers.drawn import Drawn
from helpers.matrix import family
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import episodes_of_all, host_episodes, plan_grid
from jaxrl_fast.logs.progress import ProgressSink
from jaxrl_fast.logs.walltime import WallTime, shares
from jaxrl_fast.runs.rundir import RunDir

counters.register()


class Time:
    """A clock that goes only when it is told to."""

    def __init__(self):
        self.at = 100.0

    def __call__(self):
        return self.at


def test_every_moment_belongs_to_one_activity():
    time = Time()
    clock = WallTime("compile", 97.0, time)
    time.at += 2
    assert clock.switch("train") == "compile" and clock.spent("compile") == 5.0
    time.at += 1
    with clock.during("evaluate"):
        time.at += 4
        with pytest.raises(ValueError), clock.during("compile"):
            time.at += 8
            raise ValueError
        time.at += 16
    time.at += 32
    assert clock.seconds() == {"compile": 13.0, "train": 33.0, "evaluate": 20.0}
    assert clock.spent("train", "wait") == 33.0 and sum(clock.seconds().values()) == time.at - 97.0


def test_laps_are_separate():
    time = Time()
    clock, laps = WallTime("a", now=time), []
    for i in range(6):
        time.at += 1
        clock.switch("ab"[i % 2])
        time.at += i
        laps.append(clock.lap())
    assert [sum(lap.values()) for lap in laps] == [1 + i for i in range(6)]
    assert sum(lap["a"] for lap in laps) == clock.seconds()["a"]


def test_shares_sum_to_one():
    """Whatever actors elsewhere tell of: a rollout that began long before the row is at most the
    row."""
    learner = {"learn": 1.0, "wait": 2.0, "evaluate": 4.0, "train": 0.5, "log": 0.25, "write": 0.25}
    for actors in ({"environments": 3.0, "inference": 2.0, "waiting": 3.0},
                   {"environments": 30.0, "transfer": 10.0}, {}):
        found = {name: mean.total / mean.count for name, mean in shares(learner, actors).items()}
        assert sum(v for k, v in found.items() if "learner" in k) == pytest.approx(1.0)
        assert (
            sum(v for k, v in found.items() if "actors" in k) == pytest.approx(1.0)
            and min(found.values()) >= 0.0
        )
    assert found["time_learner_updates"] == 1.5 / 8 and found["time_learner_writes"] == 0.5 / 8


@pytest.mark.parametrize("where", family(["device", "host"], ["host"]))
def test_a_run_logs_its_time_shares(where, tmp_path, monkeypatch):
    """Rows' steps over rows' seconds are the result's speed, its parts are the whole, pictures
    included, and resumed runs add up."""
    monkeypatch.setattr(RunDir, "draw", lambda *_: time.sleep(0.5))
    algo = tools.algorithm("ppo", num_steps=16, num_epochs=1, normalize_observations=False)
    env = jf.make(f"gym:{counters.ID}") if where == "host" else tools.environment()
    run, settings = tmp_path / "run", dict(total_steps=512, log_every=64, eval_every=256,
                                           horizon=512, pictures=True)
    tools.train(algo, run, env, **settings)
    before = tools.read(run / "result.json")
    assert before["seconds"]["write"] > 0.5
    session = tools.resume(run, 768)
    result = tools.read(run / "result.json")
    assert set(result["seconds"]) == {"compile", "train", "evaluate", "write"} and min(
        result["seconds"].values()) > 0
    assert sum(result["seconds"].values()) == pytest.approx(result["wall_seconds"])
    assert all(result["seconds"][name] > before["seconds"][name] for name in ("compile", "train"))
    rows = [row for row in session.history if row.steps_per_second > 0]
    # those in which environments opened
    assert len(rows) == len(session.history) - (2 if where == "host" else 0)
    seconds = sum(64 / row.steps_per_second for row in rows)
    assert 64 * len(rows) / seconds == pytest.approx(result["steps_per_second"], rel=1e-3)
    assert (
        seconds == pytest.approx(session.progress.train_seconds, rel=1e-3)
        and seconds < result["seconds"]["train"] + 1e-3
    )
    for row in session.history if where == "host" else ():
        for who in ("actors", "learner"):
            assert (
                sum(v[0] for k, v in row.metrics.items() if k.startswith(f"time_{who}"))
                == pytest.approx(1.0, abs=1e-3)
            )


@pytest.mark.parametrize("length, between, nth, last",
                         [(10.0, 12, 1, 125), (100.0, 5, 4, 12), (30.0, 8, 2, 41),
                          (1.0, 125, 1, 128), (None, 5, 99, 5), (1e6, 5, 99, 5)])
def test_evaluations_on_the_host_are_a_share_of_the_steps(length, between, nth, last):
    """Each an eighth of the steps since the one before, and the last an eighth of all; what a user
    names is played: the number of episodes, and five at least each `eval_every`."""
    algo = tools.algorithm("ppo", num_envs=4, num_steps=25).bind(tools.environment().spec)
    grid = plan_grid(algo, RunConfig(10_000))
    assert episodes_of_all(RunConfig(10_000), grid, lambda _: length) == [
        0 if i % nth else between for i in range(1, 10)] + [last]
    each = [max(5, int(1000 / 8 / length)) if length else 5] * 9
    for config in (RunConfig(10_000, eval_every=1_000), RunConfig(10_000, target_return=1.0)):
        expected = [min(x, 128) for x in each] + [last]
        assert episodes_of_all(config, grid, lambda _: length) == expected
    named = RunConfig(10_000, eval_episodes=77)
    assert episodes_of_all(named, grid, lambda _: length) == [77] * 10
    assert host_episodes(RunConfig(10_000), grid, 10, length, last=True) >= 5  # a hook's end
    config = RunConfig(10_000, eval_every=0)
    assert host_episodes(config, plan_grid(algo, config), 100, length) == last


@pytest.mark.parametrize(("length", "some"), [
    (lambda row: 10 + 2 * row, True), (lambda row: 25 * row, False),
    (lambda row: 260 - 2.5 * row, True), (lambda row: 90 if row % 20 else 130, True),
], ids=["growing", "fast", "falling", "noisy"])
def test_evaluations_are_a_share_of_the_steps_whatever_the_lengths_do(length, some):
    algo = tools.algorithm("ppo", num_envs=4, num_steps=25).bind(tools.environment().spec)
    config = RunConfig(10_000)
    found = episodes_of_all(config, plan_grid(algo, config), length)[:-1]
    steps = sum(n * length(row) for n, row in zip(found, range(10, 100, 10), strict=True))
    assert steps <= 10_000 / 8 and any(found) == some


class Forty(Drawn):
    length = 40


def test_a_run_leaves_evaluations_out_until_they_fit(tmp_path):
    """Five episodes take an eighth of 1,600 steps."""
    algo = tools.algorithm("ppo", num_envs=4, num_steps=16, num_epochs=1,
                           normalize_observations=False)
    train = lambda out, steps: tools.train(algo, out, jf.make(Forty), total_steps=steps,
                                           horizon=3200, eval_every=None, eval_episodes=None)
    run = train(tmp_path / "run", 3200)
    assert run.curve("eval_return")[0].tolist() == [1600, 3200] and run.eval_episodes == 10
    train(tmp_path / "half", 1280)
    again = tools.resume(tmp_path / "half", 3200)  # the end of the half has an evaluation
    assert again.curve("eval_return")[0].tolist() == [1280, 2880, 3200]


class Seen(ProgressSink):
    def __init__(self):
        super().__init__(10_000)
        self.messages, self.counts = [], []

    def message(self, text):
        self.messages.append(text)

    def evaluating(self, played, episodes):
        self.counts.append((played, episodes))
        super().evaluating(played, episodes)


def test_fewer_episodes_warn_once_and_are_logged(tmp_path):
    algo, seen = tools.algorithm("ppo", num_steps=16, num_epochs=1,
                                 normalize_observations=False), Seen()
    settings = dict(log_every=64, eval_every=256, tensorboard=False)
    session = jf.train(algo, jf.make(f"gym:{counters.ID}"), 512, out=tmp_path / "run", sinks=[seen],
                       **settings)
    rows = [row for row in session.history if "eval_return" in row.metrics]
    played = [int(row.metrics["eval_episodes"][0]) for row in rows]
    assert len(rows) == 2 and all(5 <= n < 128 for n in played) and all(
        row.metrics["eval_length"] > 0 for row in rows)
    assert (
        tools.read(tmp_path / "run" / "result.json")["eval_episodes"] == session.eval_episodes
        == played[-1]
    )
    assert len(seen.messages) == 1 and "128" in seen.messages[0]
    assert seen.counts[: played[0] + 1] == [(i, played[0]) for i in range(played[0] + 1)]
