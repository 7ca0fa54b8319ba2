"""Advice from shares, and what a trial of it reports."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

import jaxrl_fast as jf
from jaxrl_fast.doctor.facts import Limits
from jaxrl_fast.engine.config import run_config
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.profiling import report
from jaxrl_fast.profiling.advice import Case, Suggestion, advise, amdahl
from jaxrl_fast.profiling.parts import Part, Profile
from jaxrl_fast.profiling.timing import Timing
from jaxrl_fast.profiling.trials import Trial, try_suggestion

PPO = jf.PPO(num_envs=8, num_steps=16)
TIMING = Timing(1.0, 0.0, (0.01, 0.01, 0.01), 10, 128)
GPU = Limits("H100", {"float32": 4e13, "tf32": 4e14, "bf16": 7e14}, 2e12, 5e-6, 2e-5, 3e-6)


def profile(limits=None, **sides):
    """Profile of shares, {side: {part: share}}."""
    parts = [
        Part(name, side, share, share / 100, 1e9, 1e6, 10, "arithmetic", 0.5)
        for side, shares in sides.items()
        for name, share in shares.items()
    ]
    return Profile("ppo", "CartPole-v1", "cpu", "trace", TIMING, tuple(parts), limits)


def case(found, algo=PPO, env="CartPole-v1", settings=(), **config):
    return Case(found, prepare(algo, jf.make(env), run_config(50_000, config)), "cpu",
                dict(settings))


def named(of):
    return {one.name: one for one in advise(of)}


def test_the_largest_share_comes_first():
    learning = profile(program={"environment": 0.1, "forward": 0.4, "backward": 0.5})
    found = advise(case(learning))
    assert found[0].name == "num_minibatches"
    assert found[0].flags == ("--algo.num-minibatches", "2") and not found[0].same
    assert found[0].bound == pytest.approx(1 / (0.1 + 0.9 / 2))
    stepping = profile(program={"environment": 0.7, "policy": 0.2, "forward": 0.1})
    assert [one.name for one in advise(case(stepping))][:2] == ["num_envs", "unroll"]
    assert named(case(stepping))["num_envs"].flags == ("--algo.num-envs", "16")


def test_parts_that_save_less_than_five_percent_are_left_alone():
    assert advise(case(profile(program={"random": 0.98, "environment": 0.02}))) == ()
    assert "unroll" not in named(case(profile(program={"environment": 1.0}), unroll=2))


@pytest.mark.parametrize(
    ("algo", "shares", "name", "flags"),
    [
        (jf.DQN(), {"sample": 0.5, "forward": 0.4}, "num_steps", ("--algo.num-steps", "2")),
        (jf.DQN(prioritized=True), {"sample": 0.5}, "prioritized", ("--no-algo.prioritized",)),
        (jf.DQN(updates_per_iteration=4, batch_size=32), {"backward": 0.9}, "updates_per_iteration",
         ("--algo.updates-per-iteration", "2", "--algo.batch-size", "64")),
        (PPO, {"host": 0.5, "forward": 0.3}, "chunk_seconds", ("--chunk-seconds", "4")),
    ],
)  # fmt: skip
def test_suggestions_of_a_program(algo, shares, name, flags):
    assert named(case(profile(program=shares), algo))[name].flags == flags


def test_precision_helps_a_part_near_the_limit_of_products():
    gpu = profile(GPU, program={"forward": 0.4, "backward": 0.6})
    found = named(case(gpu))["precision"]
    assert found.flags[0] == "--algo.precision" and found.bound > 5
    slow = dataclasses.replace(
        gpu, parts=tuple(dataclasses.replace(p, roof="starts") for p in gpu.parts))
    assert "precision" not in named(case(slow))


def test_resets_come_from_a_smaller_pool():
    found = profile(program={"reset": 0.6, "environment": 0.4})
    assert "reset_pool" not in named(case(found))
    pooled = named(case(found, settings={"reset_pool": 0}))["reset_pool"]
    # 8 // 4 is no smaller
    assert "reset_pool" not in named(case(found, settings={"reset_pool": 2}))
    afresh = named(case(found, settings={"reset_pool": 0, "resets": "every_step"}))["reset_pool"]
    assert afresh.flags == ("--env.resets", "pool", *pooled.flags)
    assert pooled.flags == ("--env.reset-pool", "2")


def test_members_of_one_device_have_two_layouts():
    found = case(profile(program={"forward": 1.0}), seeds=2, devices=1)
    same = {one.flags for one in advise(found) if one.same}
    assert same == {("--batching", "map"), ("--batching", "vmap")}


def test_actors_and_learner_wait_for_each_other():
    shares = {
        "actors": {"environment": 0.3, "policy": 0.2, "waiting": 0.5},
        "learner": {"forward": 0.2, "backward": 0.3, "waiting": 0.5},
    }
    here = case(profile(**shares), env="gym:CartPole-v1", settings={"vectorization": "sync"})
    found = named(here)
    assert found["ahead"].flags == ("--ahead", "1") and found["ahead"].bound == pytest.approx(2)
    assert found["actors"].bound == pytest.approx(amdahl(0.2))
    assert found["vectorization"].same and "unroll" not in found
    ahead = case(profile(**shares), env="gym:CartPole-v1", ahead=1, actors=2)
    assert not {"ahead", "actors"} & set(named(ahead))


class Run:
    def __init__(self, rates):
        self.rates = iter(rates)

    def timing(self, seconds):
        return dataclasses.replace(TIMING, calls=(128 / next(self.rates),))


ONE = Suggestion("unroll", "the loop takes 50%", ("--unroll", "4"), 1.5, same=True)


def test_a_trial_compares_in_turns():
    base, other = Run([100, 50, 100, 100, 100]), Run([120, 60, 120, 240, 120])
    trial = try_suggestion(ONE, base, lambda: contextlib.nullcontext(other), 1.0)
    assert (
        trial.gain == pytest.approx(1.2)
        and (trial.before, trial.after) == pytest.approx((100, 120))
    )
    assert trial.text == "1.20 times, measured (100 to 120 steps/s)"


def test_a_refused_trial_says_why():
    def refused():
        raise ConfigError("num_minibatches", 3, "a divisor of 128")

    trial = try_suggestion(ONE, Run([]), refused, 1.0)
    assert (
        trial.gain is None
        and trial.text == "refused (num_minibatches must be a divisor of 128, got 3)"
    )


def test_advice_has_the_line_to_type():
    typed = lambda flags: " ".join(["jaxrl-fast train ppo CartPole-v1", *flags])
    told = report.advice_lines([ONE], [], typed)
    assert (
        "1. at most 1.5 times: the loop takes 50%\n     jaxrl-fast train ppo CartPole-v1 --unroll 4"
        in told
    )
    changed = report.advice_lines([dataclasses.replace(ONE, same=False)], [], typed)
    assert "; learns differently" in changed
    assert report.advice_lines([], [], typed) == "no setting is known to save much here"


def test_suggestions_that_were_slower_are_apart():
    trial = lambda gain: Trial(ONE, 100, 100 * (gain or 0), gain, "" if gain else "no room")
    lines = report.advice_lines([ONE], [trial(1.2), trial(None), trial(0.9), trial(0.5)], " ".join)
    heads = [line for line in lines.splitlines() if not line.startswith(" ")]
    assert heads == ["Faster", "Slower"]
    assert lines.index("no room") < lines.index("Slower") < lines.index("0.90 times")
    assert report.advice_lines([ONE], [trial(0.5)], " ".join).startswith("Slower\n")


def test_the_table_and_the_picture_show_each_side(tmp_path):
    found = profile(actors={"environment": 0.6, "waiting": 0.4}, learner={"forward": 1.0})
    lines = report.table(found).splitlines()
    assert lines[0] == "ppo on CartPole-v1, cpu: 10.0 ms an iteration of 128 steps, 12,800 steps/s"
    parts = [line.split()[0] for line in lines[1:]]
    assert parts == ["actors", "environment", "waiting", "learner", "loss"]
    assert lines[2].split()[2:] == ["60.0%", "6.00", "ms", "1.00", "GFLOP", "1.00", "MB", "10",
                                    "50%", "arithmetic"]
    assert report.picture(found, tmp_path / "profile.png").stat().st_size > 5_000


def test_a_gpu_unrolls_by_itself():
    found = case(profile(program={"environment": 1.0}))
    assert "unroll" in named(found) and "unroll" not in named(
        dataclasses.replace(found, platform="gpu"))


def test_a_suggestion_that_a_trial_cannot_time_is_not_tried():
    one = Suggestion("chunk_seconds", "fewer calls", ("--chunk-seconds", "4"), 1.6, timed=False)
    trial = try_suggestion(one, None, lambda: pytest.fail("was opened"), 1.0)
    assert trial.gain is None and trial.text.startswith("at most 1.6 times, not measured")
