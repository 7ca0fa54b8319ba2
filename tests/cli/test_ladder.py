"""The ladder: its rungs, how long they are climbed, and what it prints. On an environment that
costs nothing."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import counters
from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.cli import command as cli
from jaxrl_fast.cli.ladder import command as cli_ladder
from jaxrl_fast.cli.ladder import rungs as ladder
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import ConfigError, MissingExtraError, NonFiniteError, RunError
from jaxrl_fast.runs.signals import Stopped

SMALL = dict(num_envs=2, num_steps=4, batch_size=8, buffer_size=256, learning_starts=64,
             hidden=(4,))
EASY = ladder.Rung("easy", "a counter", settings=SMALL, environment=f"gym:{counters.ID}",
                   run=dict(ahead=1), published=(10,
    20))


@pytest.fixture(autouse=True)
def counter():
    counters.register()


@pytest.mark.matrix("test_the_command_climbs_and_writes_the_ladder")
def test_a_rung_is_climbed_until_it_is_solved():
    """Every game of the counter scores above 18: it is solved where it is looked at after the
    hundredth game."""
    heard = []
    found = ladder.climb(ladder.Climb(EASY), None, say=lambda climb: heard.append(climb.solved))
    assert found.solved == found.seconds > 0 and found.steps < 20_000
    assert found.score >= ladder.SOLVED and heard[:-1] == [None] * (len(heard) - 1)


@pytest.mark.matrix("test_the_command_climbs_and_writes_the_ladder")
def test_a_rung_is_climbed_for_its_minutes(monkeypatch):
    clock = itertools.count(0.0, 0.2)  # a look at it takes 0.2 s
    monkeypatch.setattr(ladder, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = ladder.climb(ladder.Climb(dataclasses.replace(EASY, solved=1e9)), 6 / 60)
    assert found.solved is None and 6 <= found.seconds < 7
    assert found.curve[-1][1] <= found.steps and np.isfinite(found.rate)
    content = found.as_dict()
    assert content["frames_per_second"] == pytest.approx(4 * content["steps_per_second"], rel=1e-2)
    assert (
        content["published"] == {"steps_per_second": 10, "minutes": 20}
        and content["solved_seconds"] is None
    )


@pytest.mark.matrix("test_the_command_climbs_and_writes_the_ladder")
def test_a_rung_ends_when_its_learning_rate_is_zero():
    settings = SMALL | {"anneal_learning_rate": True}
    falling = dataclasses.replace(EASY, settings=settings, run=dict(horizon=400), solved=1e9)
    found = ladder.climb(ladder.Climb(falling), None)
    assert found.solved is None and 400 <= found.steps < 500


def test_the_solve_is_the_mean_of_a_hundred_games():
    found = ladder.Climb(EASY, seconds=7.0)
    ladder._look(found, [])
    assert not found.curve and np.isnan(found.score)
    ladder._look(found, [18.0] * 99)
    assert found.solved is None and found.score == 18.0
    ladder._look(found, [17.9] * 100)
    assert found.solved is None
    ladder._look(found, [16.0] * 50 + [20.0] * 50)
    assert found.solved == 7.0
    found.seconds = 9.0
    ladder._look(found, [20.0] * 100)
    assert found.solved == 7.0


PACKAGES = ("torch", "ale_py", "cv2", "envpool")


def test_rungs_are_chosen_by_name(modules):
    modules(**{name: name for name in PACKAGES})
    assert ladder.choose() == list(ladder.RUNGS)
    assert [r.name for r in ladder.choose(["both", "one"])] == ["both", "one"]
    with pytest.raises(ConfigError, match="rungs must be .*'torch', 'one'.*got 'bot'.*mean 'both'"):
        ladder.choose(["bot"])
    for package, extra, rungs in [
        ("torch", "torch", ["torch"]), ("cv2", "atari", ["one", "three", "actor"]),
        ("envpool", "envpool", ["envpool"]),
        ("ale_py", "atari", [r.name for r in ladder.RUNGS if r.name not in ("torch", "envpool")]),
    ]:  # fmt: skip
        modules(**{package: None})
        left_out = [r.name for r in ladder.RUNGS if ladder.needs(r) == extra]
        assert set(rungs) <= set(left_out) and not set(left_out) & {r.name for r in ladder.choose()}
        with pytest.raises(MissingExtraError, match=rf"jaxrl_fast\[{extra}\]"):
            ladder.choose([rungs[-1]])
        modules(**{package: package})


def test_a_ladder_without_rungs(tmp_path, modules, capsys):
    modules(**dict.fromkeys(PACKAGES))
    assert cli.main(["ladder", "pong", "--out", str(tmp_path / "l")]) == 2
    assert (
        "the ladder needs the extra [atari]" in capsys.readouterr().err
        and not list(tmp_path.iterdir())
    )


def accepted(rung):
    """Settings, environment and run of a rung fit together."""
    ladder.register()
    env = registry.make(rung.environment, **rung.env)
    assert env.spec.stack == rung.env.get("stack", 4)
    assert env.spec.observation.shape[-1] == 1 and env.spec.observation.dtype == np.uint8
    if rung.algorithm:
        algo = algorithm_class(rung.algorithm)(**rung.settings).bind(env.spec)
        backend_of(env).check(env, algo, RunConfig(**rung.run))


@pytest.mark.parametrize("rung", [r for r in ladder.RUNGS if r.environment.startswith("ale:")],
                         ids=lambda r: r.name)
def test_a_rung_is_a_run(rung):
    accepted(rung)


@pytest.mark.torch
def test_every_rung_is_a_run():
    for rung in ladder.choose():
        accepted(rung)


def test_the_command_climbs_and_writes_the_ladder(tmp_path, capsys):
    both = EASY, dataclasses.replace(EASY, name="other", published=None)
    cli_ladder.ladder(["pong", "--full", "--out", str(tmp_path / "l")], both)
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == cli_ladder.head() and lines[1].startswith("easy ")
        and lines[2].startswith("other ")
    )
    assert "10 steps/s, 20 min" in lines[1] and "a counter" in lines[2]
    content = json.loads((tmp_path / "l" / "ladder.json").read_text())
    assert (
        [r["rung"] for r in content["rungs"]] == ["easy", "other"]
        and content["rungs"][0]["solved_seconds"] > 0
    )
    assert (tmp_path / "l" / "ladder.png").stat().st_size > 5_000
    assert cli.main(["ladder", "pong", "--out", str(tmp_path / "l")]) == 2
    assert "a folder without an earlier ladder" in capsys.readouterr().err


def rungs(out):
    return [(r["rung"], r["steps"] > 0, r["ended"])
            for r in json.loads((out / "ladder.json").read_text())["rungs"]]


@pytest.mark.parametrize("error",
                         [NonFiniteError("no longer finite"), RuntimeError("no longer finite")],
                         ids=["ours", "any"])
def test_a_failed_rung_does_not_stop_the_ladder(error, tmp_path, capsys):
    climb = ladder.climb

    def failing(found, *args):
        if found.rung.name == "broken":
            raise error
        return climb(found, *args)

    broken = dataclasses.replace(EASY, name="broken")
    with pytest.raises(RunError, match="1 of 2 rungs failed: broken"):
        cli_ladder.ladder(["pong", "--full", "--out", str(tmp_path / "l")], (broken, EASY), failing)
    shown = capsys.readouterr()
    assert "no longer finite" in shown.out
    # the first that has a rate
    assert "  1.0  " in next(line for line in shown.out.splitlines() if line.startswith("easy "))
    (name, moved, ended), easy = rungs(tmp_path / "l")
    assert (
        (name, moved) == ("broken", False) and ended.endswith("no longer finite")
        and easy == ("easy", True, "")
    )
    with pytest.raises(type(error)):
        cli_ladder.ladder(["pong", "--full", "--out", str(tmp_path / "m")], (broken,), failing)


def test_a_rung_with_a_failing_environment(tmp_path):
    failing = dataclasses.replace(EASY, env=dict(fault="raises", at=40))
    with pytest.raises(RunError, match="the motor burnt out"):
        cli_ladder.ladder(["pong", "--full", "--out", str(tmp_path / "l")], (failing,))
    assert "the motor burnt out" in rungs(tmp_path / "l")[0][2]


@pytest.mark.parametrize("stop", ["ours", "plain", "terminated"])
def test_ctrl_c_keeps_the_ladder_so_far(stop, tmp_path):
    """Ctrl-C comes in the second rung, noted by the loop or, in PyTorch's rung, raised at once."""
    climb = ladder.climb

    def interrupted(found, minutes, seed, say):
        if found.rung.name == "easy":
            return climb(found, minutes, seed, say)
        if stop != "ours":
            found.reach(7, 1.0, False)
            signal.raise_signal(signal.SIGINT if stop == "plain" else signal.SIGTERM)
        return climb(found, minutes, seed,
                     lambda climb: climb.steps > 90 and os.kill(os.getpid(), signal.SIGINT))

    never = dataclasses.replace(EASY, name="never")
    name, code = ("SIGTERM", 143) if stop == "terminated" else ("SIGINT", 130)
    with pytest.raises(
        Stopped, match=f"stopped by {name} in the rung never; the finished part is in"
    ) as stopped:
        cli_ladder.ladder(
            ["pong", "--full", "--out", str(tmp_path / "l")], (EASY, never, EASY), interrupted
        )
    assert stopped.value.exit_code == code
    assert rungs(tmp_path / "l") == [("easy", True, ""), ("never", True, name)]


@pytest.mark.parametrize(("line", "says"), [
    ("", "pong must be given, got none"), ("pongg", "got 'pongg'; did you mean 'pong'"),
    ("pong --rungs nine", "got 'nine'"),
    ("pong --minutes 0", "minutes must be a finite number in (0, inf), got 0"),
    ("pong --minute 3", "did you mean '--minutes'"),
    ("pong --seed -1", "seed must be an integer from 0 to 4294967295, got -1"),
    ("pong --full --minutes 3", "--minutes must be left out with --full"),
])  # fmt: skip
def test_bad_input(line, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["ladder", *line.split()]) == 2
    assert says in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_rung_of_pytorch():
    rung = ladder.choose(["torch"])[0]
    found = ladder.climb(ladder.Climb(rung), 1.5)
    assert found.steps > 2_100 and found.rate > 0 and -21 <= found.score <= -10
