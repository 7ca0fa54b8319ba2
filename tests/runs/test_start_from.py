"""Runs that begin with a trained agent: whose parameters, what begins anew, and what does not
fit."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.runs.start_from import Given, fit_start, read_start

FEW = dict(total_steps=64, horizon=tools.TOTAL, eval_every=0)


@pytest.mark.parametrize("name", family(
    ["ppo", "pqn", "dqn", "sac", "td3", "crossq", "es", "apg"],
    ["ppo", "crossq"]))
def test_an_agent_around_its_own_parameters_is_itself(name):
    """Targets, optimizers and statistics are what `init` makes of these parameters; ours are of
    another key."""
    algo = tools.algorithm(name).bind(tools.environment(name).spec)

    @jax.jit
    def both(key):
        agent = algo.init(key)
        return agent, algo.begin(agent.params, getattr(agent, "moments", ()))

    tools.assert_same(*both(jax.random.key(1)))


def test_every_source_begins_with_the_same_agent(unbroken, tmp_path):
    """A run directory, the run, its agent and the state of that; a rate of zero shows the
    parameters as they came."""
    run, out = unbroken("ppo")
    still = tools.algorithm("ppo", learning_rate=0.0)
    agent = jf.load(out)
    begun = tools.train(still, start_from=str(out), **FEW).state.agent
    tools.assert_same(begun.params, agent.state.params)
    assert (
        begun.moments.count == agent.state.moments.count + 64
        and begun.opt_state[1].count == 64 // 32 * 4
    )
    last, whole = run.agent().state, Given(agent.state.params, agent.state.moments)
    for source, expected in ((out, whole), (agent, whole), (agent.state, whole),
                             (run, Given(last.params, last.moments))):
        tools.assert_same(fit_start(read_start(source), still.bind(run.env.spec)), expected)
    alone = tools.train(still, start_from=jax.tree.map(np.float64, agent.state.params),
                        **FEW).state.agent
    tools.assert_same(alone.params, begun.params)
    assert alone.moments.count == 64


def test_every_member_begins_with_the_given_agent_and_a_resume_does_not(unbroken, tmp_path):
    """config.json names the source, which a run that has begun no longer needs."""
    source = tmp_path / "source"
    shutil.copytree(unbroken("ppo")[1], source)
    settings = dict(start_from=source, seeds=2, eval_every=0)
    whole = tools.train("ppo", tmp_path / "whole", total_steps=128, **settings)
    tools.train("ppo", tmp_path / "half", total_steps=64, horizon=128, **settings)
    assert (
        json.loads((tmp_path / "half" / "config.json").read_text())["run"]["start_from"]
        == str(source)
    )
    shutil.rmtree(source)
    tools.assert_same(tools.state(tools.resume(tmp_path / "half", 128)), tools.state(whole))


def test_a_run_in_memory_is_recorded_with_its_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = tools.train("ppo", "first", **FEW)
    tools.train("ppo", "second", start_from=run, **FEW)
    content = json.loads((tmp_path / "second" / "config.json").read_text())["run"]
    assert content["start_from"] == f"<parameters in memory of {tmp_path / 'first'}>"


def test_parameters_in_memory_are_not_in_config_json(unbroken, tmp_path):
    params = unbroken("ppo")[0].agent().state.params
    tools.train("ppo", tmp_path / "run", start_from=params, **FEW)
    content = json.loads((tmp_path / "run" / "config.json").read_text())["run"]
    assert content["start_from"] == "<parameters in memory>"
    with pytest.raises(jf.ConfigError, match="start_from must be a run directory.*in memory"):
        jf.train(tools.algorithm("ppo"), tools.environment(),
                 **{k: v for k, v in content.items() if v is not None})


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("ppo", {"hidden": (4,)},
     r"^start_from.params\['policy'\].*\['kernel'\] must be float32 \(4, 2\), got float32 \(8, "
     r"2\)"),
    ("ppo", {"hidden": (8, 8)},
     r"^start_from.params\['torso'\].*_1'.* must be float32 \(2, 8\), got nothing"),
    ("dqn", {"learning_starts": 8},
     r"^start_from.params\['torso'\].* must be float32 \(8,\), got float32 \(2, 8\)"),
    ("ppo", {"normalize_observations": False},
     "^normalize_observations must be True, got False: .* normalised"),
])  # fmt: skip
def test_misfits_are_refused_before_compiling(name, settings, message, unbroken, tmp_path, request):
    out = unbroken("ppo")[1]
    request.getfixturevalue("nothing_compiles")
    with pytest.raises(jf.ConfigError, match=message) as refused:
        tools.train(tools.algorithm(name, **settings), tmp_path / "run", start_from=out, **FEW)
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


def test_bad_sources_are_refused(unbroken, tmp_path):
    algo, (run, out) = tools.algorithm("ppo"), unbroken("ppo")
    sources = [
        (tmp_path / "none", "start_from.*an existing run directory"),
        (tmp_path, "start_from must be a run directory, with a config.json"),
        ({}, r"start_from.params\['\w+'\].* got nothing"),
        ({"torso": "text"}, "start_from.params"),
        (jax.tree.map(lambda x: x * np.nan, run.agent().state.params),
         "start_from.params.* must be finite, got nan"),
    ]
    for source, message in sources:
        with pytest.raises(jf.ConfigError, match=message):
            tools.train(algo, start_from=source, **FEW)
    env, sweep = tools.environment(), dict(grid={"algo.learning_rate": [1e-3]},
                                           out=tmp_path / "sweep", **FEW)
    with pytest.raises(jf.ConfigError, match="start_from.*a run directory"):
        jf.sweep(algo, env, start_from=run, **sweep)
    with pytest.raises(jf.ConfigError, match=r"start_from.params.* got float32 \(8, 2\)"):
        jf.sweep(tools.algorithm("ppo", hidden=(4,)), env, start_from=out, **sweep)
    assert not (tmp_path / "sweep").exists()


def test_an_algorithm_that_cannot_begin_says_so():
    @jf.settings
    class Mine(jf.PPO):
        def begin(self, params, moments=()):
            return jf.Algorithm.begin(self, params, moments)

        def init(self, key):
            return jf.PPO.begin(self, self.networks.init(key, np.zeros((1, 4), np.float32)))

    algo = Mine().bind(tools.environment().spec)
    with pytest.raises(jf.ConfigError,
                       match=r"start_from.*Mine has no method begin\(params, moments\)"):
        fit_start(Given({}, None), algo)
