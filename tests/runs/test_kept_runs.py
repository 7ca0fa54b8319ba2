"""Runs in pickles and copies: agents, log rows and scores, without programs."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast.runs.result import KeptRun

OBS = np.zeros(4, np.float32)
WAYS = pytest.mark.parametrize("keep", [lambda run: pickle.loads(pickle.dumps(run)), copy.deepcopy],
                               ids=["pickle", "deepcopy"])


def small(env="CartPole-v1", **settings):
    return jf.train(tools.algorithm("ppo"), jf.make(env), 128,
                    **dict(eval_episodes=2, progress=False, log_every=32) | settings)


RUNS = {
    "one": small,
    "seeds": lambda: small(seeds=2),
    "population": lambda: small(population={"algo.learning_rate": [1e-3, 1e-4]}),
    "environments": lambda: small(population={"env.gravity": [9.8, 5.0]}),
    "in turn": lambda: small("gym:CartPole-v1", seeds=2),
}


@pytest.fixture(scope="module", params=RUNS)
def run(request):
    return RUNS[request.param]()


@WAYS
def test_a_kept_run_has_what_the_run_has(run, keep):
    kept = keep(run)
    assert type(kept) is KeptRun and repr(kept) == repr(run)
    assert kept._repr_html_() == run._repr_html_()
    np.testing.assert_array_equal(kept.eval_return, run.eval_return)
    for name in ("config", "path", "env_steps", "seconds", "lost", "live", "reached", "best_score",
                 "steps_per_second", "wall_seconds", "eval_episodes", "over"):
        assert getattr(kept, name) == getattr(run, name), name
    assert tools.through_json(kept.history) == tools.through_json(run.history)
    for a, b in zip(kept.curve("eval_return"), run.curve("eval_return"), strict=True):
        np.testing.assert_array_equal(a, b)
    assert kept.frame().equals(run.frame())
    assert type(kept.algo) is type(run.algo) and kept.env.spec.name == run.env.spec.name
    for member in (None, *range(run.config.members)):
        one, other = kept.agent(member), run.agent(member)
        tools.assert_same(one.state, other.state)
        assert one.act(OBS) == other.act(OBS) and one.score == other.score
        assert repr(one.algo) == repr(other.algo) and repr(one.env) == repr(other.env)


@WAYS
def test_a_kept_run_is_kept_again_and_starts_another(run, keep):
    kept = keep(keep(run))
    tools.assert_same(kept.agent(0).state, run.agent(0).state)
    begun = jf.train(tools.algorithm("ppo"), jf.make("CartPole-v1"), 32, start_from=kept,
                     eval_episodes=2, progress=False)
    assert begun.env_steps == 32


def test_a_kept_run_names_its_missing_attributes(run):
    kept = copy.deepcopy(run)
    with pytest.raises(AttributeError, match="a copy of a run has no 'state': the run has it"):
        _ = kept.state
    for name in ("out", "lanes", "progress", "prepared", "best"):
        with pytest.raises(AttributeError, match=f"a copy of a run has no '{name}'"):
            getattr(kept, name)
    with pytest.raises(AttributeError, match="object has no attribute 'nothing'"):
        _ = kept.nothing
    with pytest.raises(jf.ConfigError, match="run must be the run itself, to go on, got 'a copy'"):
        kept.resume()
    with pytest.raises(jf.ConfigError, match="member must be one that is here .*got 7"):
        kept.agent(7)
    with pytest.raises(jf.ConfigError, match="run must be one with `out`"):
        jf.experience(kept)


def test_a_copy_is_of_its_time():
    """A hook's copy does not change while the run goes on; a shallow one neither."""
    copies, shallow = [], []
    hooks = [lambda run, rows: copies.append(copy.deepcopy(run)),
             lambda run, rows: shallow.append(copy.copy(run))]
    run = small(hooks=hooks, chunk_seconds=1e-9)
    assert [len(kept.history) for kept in shallow] == [1, 2, 3, 4]
    assert all(getattr(shallow[0], name) is not getattr(run, name)
               for name in ("history", "lost", "reached"))
    steps = [kept.env_steps for kept in copies]
    assert steps == [32, 64, 96, 128] == [len(kept.history) * 32 for kept in copies]
    first, last = (tools.arrays(copies[i].agent(0).state.params) for i in (0, -1))
    assert any((first[name] != last[name]).any() for name in first)
    tools.assert_same(copies[-1].agent(0).state, run.agent(0).state)


def test_a_kept_run_of_a_directory_reads_it(tmp_path):
    run = tools.train("dqn", tmp_path / "run", total_steps=tools.HALF)
    kept = pickle.loads(pickle.dumps(run))
    assert kept.path == tmp_path / "run" and "in memory" not in repr(kept)
    tools.assert_same(jf.experience(kept).store, jf.experience(run.path).store)
    with pytest.raises(jf.ConfigError, match=r"jf.resume\('.*run'\)"):
        kept.resume()
    again = pickle.loads(pickle.dumps(jf.load(tmp_path / "run")))
    assert again.act(OBS) == jf.load(tmp_path / "run").act(OBS)


def test_a_lost_member_keeps_its_place():
    env = tools.Breaks(at=2.0)
    run = jf.train(tools.algorithm("ppo"), env, 256, population={"env.bad": [0.0, 1.0]},
                   on_nan="mark", eval_episodes=2, progress=False, log_every=32)
    kept = pickle.loads(pickle.dumps(run))
    assert list(kept.lost) == [1] == list(run.lost) and kept.live == [0]
    assert np.isnan(kept.eval_return[1]) and kept.agent().score == run.agent().score


def test_damage_of_a_seed_is_not_kept_silently():
    """A copy without the agent of an ended seed would look like one of an earlier time."""
    run = small("gym:CartPole-v1", seeds=2)

    def damaged():
        raise jf.ConfigError("checkpoint", "last", "a whole checkpoint")

    seed = dataclasses.replace(run.trained[1], make_agent=damaged)
    broken = dataclasses.replace(run, trained={0: run.trained[0], 1: seed})
    with pytest.raises(jf.ConfigError, match="checkpoint must be a whole checkpoint"):
        pickle.dumps(broken)
    lost = dataclasses.replace(seed, lost={"env_steps": 32, "reason": "NaN"})  # before any save
    kept = pickle.loads(pickle.dumps(dataclasses.replace(broken, trained=broken.trained
                                                         | {1: lost})))
    assert kept.lost == {1: lost.lost} and kept.agent().score == run.agent(0).score
    begun = pickle.loads(pickle.dumps(dataclasses.replace(run, trained={0: run.trained[0]})))
    with pytest.raises(jf.ConfigError, match=r"member must be one that is here \(0\), got 1"):
        begun.agent(1)
