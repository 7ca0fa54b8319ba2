"""A value that is not finite ends the run at most a chunk late, is named, and leaves the last good
checkpoint."""

from __future__ import annotations

import importlib
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.actors import play
from jaxrl_fast.cli import command as cli
from jaxrl_fast.engine import rollout
from jaxrl_fast.engine.evaluate import judge
from jaxrl_fast.logs import jsonl
from jaxrl_fast.logs.rows import measure
from jaxrl_fast.logs.sinks import Sink
from jaxrl_fast.ops import distributions
from jaxrl_fast.runs.sentinel import Sanity
from jaxrl_fast.types import Mean

loop = importlib.import_module("jaxrl_fast.runs.loop")
NAMED = re.compile(
    r"(\w+) is (nan|inf|-inf) at ([\d,]+) environment steps in member (\d+) \(seed (\d+)\)")


class Collects(Sink):
    def __init__(self):
        self.rows, self.flushed, self.closed = [], 0, 0

    def write(self, row):
        self.rows.append(row)

    def flush(self):
        self.flushed += 1

    def close(self):
        self.closed += 1


def named(error) -> tuple[str, int, int, int]:
    metric, _, steps, member, seed = NAMED.search(str(error)).groups()
    return metric, int(steps.replace(",", "")), int(member), int(seed)


def test_metric_step_and_member_are_named_one_chunk_late():
    sink, chunks = Collects(), []
    with pytest.raises(jf.NonFiniteError) as error:
        tools.train("ppo", env=tools.Breaks(at=10), sinks=[sink], seed=7, chunk_seconds=1e-9,
                    eval_every=0, dependencies=tools.noting(chunks))
    metric, steps, member, seed = named(error.value)
    assert (steps, member, seed) == (12 * 32, 0, 7)  # iterations 10 and 11 are the sixth row
    assert error.value.exit_code == 3 and "checkpoint" not in str(error.value)
    assert [r.env_steps for r in sink.rows] == [64 * i for i in range(1, 7)]
    assert np.isnan(sink.rows[-1].metrics[metric]).all()
    assert all(np.isfinite(v).all() for r in sink.rows[:-1] for v in r.metrics.values())
    assert not any(name.endswith("/bad") for r in sink.rows for name in r.metrics)
    assert chunks[-1][0] <= 12 and len(chunks) == 7  # the next one was running when it was found
    assert sink.flushed >= 1 and sink.closed == 1


def test_the_non_finite_member_is_named():
    sink = Collects()
    with pytest.raises(jf.NonFiniteError) as error:
        tools.train("ppo", env=tools.Breaks(at=4, share=0.003), sinks=[sink], seeds=3, seed=5,
                    chunk_seconds=1e-9, eval_every=0)
    metric, steps, member, seed = named(error.value)
    last = sink.rows[-1]
    assert steps == last.env_steps and seed == 5 + member
    bad = np.isnan(last.metrics["episode_return"])
    assert bad[member] and not bad.all() and np.isnan(last.metrics[metric][member])
    assert all(np.isfinite(r.metrics["episode_return"]).all() for r in sink.rows[:-1])


@pytest.mark.parametrize("name", family(["ars", "es"]))
def test_a_diverged_candidate_is_detected(name):
    """Ranks could leave it out; nothing is left out silently."""
    sink = Collects()
    # no episode ends, so that its return would show it
    algo = tools.algorithm(name, directions=4, num_steps=3)
    with pytest.raises(jf.NonFiniteError) as error:
        tools.train(algo, env=tools.Breaks(at=12, share=0.01), sinks=[sink], chunk_seconds=1e-9,
                    eval_every=0)
    assert named(error.value)[0] == "best_candidate_return" and np.isnan(
        sink.rows[-1].metrics["candidate_return"]).all()
    assert np.isfinite(sink.rows[0].metrics["candidate_return"]).all()


@pytest.mark.parametrize(("name", "tested", "said"), family([
    # their returns do not show it
    ("es", False, "observations are not finite at 768 environment steps in member 0"),
    ("ppo", True,
     "observations in an evaluation are not finite at 320 environment steps in member 0"),
], ["ppo"]))  # fmt: skip
def test_observations_are_named(name, tested, said):
    """No loss needs to see the observations, and an action made of them looks like any other."""
    algo = tools.algorithm(name) if name == "ppo" else tools.algorithm(
        name, normalize_observations=False)
    with pytest.raises(jf.NonFiniteError, match=said):
        tools.train(algo, env=tools.Breaks(what="observation", tested=tested, at=11))


@pytest.mark.matrix("test_the_non_finite_member_is_named")
def test_a_member_that_breaks_in_evaluations_alone_is_lost(tmp_path):
    """The best agents of the others are kept; a loss of the last member ends the run."""
    run, env = tmp_path / "run", tools.Breaks(tested=True)
    s = tools.train("ppo", run, env=env, population={"env.bad": [0.0, 1.0, 0.0]}, on_nan="mark")
    assert s.lost == {1: {"env_steps": 320, "reason": "eval_return is nan"}} and s.best_score == 4.0
    assert np.isnan(s.eval_return[1]) and (s.eval_return[[0, 2]] == 4.0).all()
    assert np.isfinite(s.history[4].metrics["value_loss"]).all() and np.isnan(
        s.history[5].metrics["value_loss"][1])
    assert (jf.load(run, "best", member=2).evaluate(2).ret == 4.0).all()
    assert "3 members, seed 0, 1 of them lost" in repr(s)
    with pytest.raises(jf.NonFiniteError,
                       match="eval_return is nan at 1,280 environment steps in member 0"):
        tools.train("ppo", env=env, eval_every=0)  # at the end


@pytest.mark.matrix("test_observations_are_named")
@pytest.mark.parametrize("what", family(["observation", "reward"], ["observation"]))
def test_evaluations_and_make_train_report_non_finite_values(what, key):
    env = tools.Breaks(what=what, tested=True)
    algo = tools.algorithm("dqn").bind(env.spec)
    score = lambda key: judge(env, algo, algo.init(key), key, episodes=4)
    found, fault = jax.jit(score)(key)
    assert np.isnan(found.ret).all() and (fault == (1 if what == "observation" else 0)).all()
    train = jf.make_train(tools.algorithm("ppo"), env, 256, log_every=64, eval_every=128,
                          eval_episodes=2)
    assert jax.jit(train)(key)[1]["finite"].tolist() == [True, False, True, False]


def test_outputs_that_are_nan_are_no_action():
    """The first of several NaN is what argmax would take for the best."""
    values = jnp.array(
        [[0.0, 1.0, 0.5], [jnp.nan, 2.0, 1.0], [jnp.inf, -jnp.inf, 0.0], [0.0, 1.0, jnp.nan]])
    assert distributions.best(values).tolist() == [1, -1, 0, -1]
    assert distributions.Categorical(values).sample(jnp.zeros((4, 3))).tolist() == [1, -1, 0, -1]
    seen = {"raw": jnp.ones((4, 2)), "flags": jnp.ones((4, 3), bool)}
    assert rollout.fault(jf.Discrete(3), seen, distributions.best(values)).tolist() == [0, 2, 0, 2]
    seen["raw"] = seen["raw"].at[0, 1].set(-jnp.inf)
    assert rollout.fault(jf.Discrete(3), seen, distributions.best(values)).tolist() == [1, 2, 0, 2]
    box = jf.Box(-1.0, 1.0, (2,))
    acted = jnp.ones((3, 2)).at[2, 0].set(jnp.nan)
    assert rollout.fault(box, jnp.zeros((3, 4), jnp.uint8), acted).tolist() == [0, 0, 2]
    action, bad = play.playable(jf.Discrete(3), np.array([1, -1]))
    assert action.tolist() == [1, 0] and bad.tolist() == [False, True]
    action, bad = play.playable(box, np.array(acted))
    assert action[2].tolist() == [0, 1] and bad.tolist() == [False, False, True]
    assert play.playable(jf.Box(-4, 4, (1,), "int32"), np.array([[-3]]))[1] is None


def test_a_learning_rate_beyond_all_reason_is_said_once():
    """A loss of 1e17 is finite; the run goes on, and the member beside it is not spoken of."""
    with pytest.warns(UserWarning, match="has diverged") as said:
        s = tools.train("ppo", population={"algo.learning_rate": [1e-3, 1e10]}, total_steps=640)
    texts = [str(w.message) for w in said if "diverged" in str(w.message)]
    assert (
        len(texts) == 1 and "in member 1 (seed 0, algo.learning_rate = 1e+10)" in texts[0]
        and s.rows == 10
    )


@pytest.mark.parametrize(("metric", "values", "said"), [
    ("value_loss", [3.0, 4e5, 1e17], "value_loss is 1e+17"),
    ("value_loss", [1e11, 9e11], None),  # values of a million, before any episode has ended
    ("value_loss", [1e17, 1e17], "value_loss is 1e+17"),
    ("critic_loss", [2.0, np.nan], None),  # has an error of its own
    # a policy that has become certain, step by step
    ("entropy", [0.69, 0.2, 1e-4, 1e-9, 0.0], None),
    ("entropy", [0.02, 0.0, 0.0], "entropy is 0"),
    ("entropy", [0.0, 0.0], None),  # one legal action
    ("entropy", [-3.0, -40.0], None),  # of a density
    ("entropy", [1.4, 1e10], "entropy is 1e+10"),
    ("q_value", [1e17], None),
])  # fmt: skip
def test_senseless_values_are_detected(metric, values, said):
    sanity = Sanity(2)
    found = [sanity.look({metric: np.array([0.5, value])}) for value in values]
    assert [x for x in found if x] == ([{1: said}] if said else [])


def test_returns_bound_a_sensible_loss():
    sanity = Sanity(1)
    assert not sanity.look({"value_loss": np.array([1e17]), "episode_return": np.array([-1e6])})
    assert sanity.look({"the largest parameter": np.array([1e10])}) == {
        0: "the largest parameter is 1e+10"}
    assert not sanity.look({"value_loss": np.array([1e30])})  # once


@jf.settings
class Alarmed(jf.DQN):
    """In the last iteration of the row at 384 steps priorities turn NaN, or parameters do."""

    name = "alarmed"
    spoiled: float = 0.0  # above 0: parameters; both in one program

    def update(self, agent, batch, key, clock):
        agent, metrics, priority = super().update(agent, batch, key, clock)
        bad, own = clock.iteration == 47, jnp.asarray(self.spoiled) > 0
        spoil = lambda x: jnp.where(bad & own, jnp.nan, x)
        agent = agent._replace(params=jax.tree.map(spoil, agent.params))
        return agent, metrics, jnp.where(bad & ~own, jnp.nan, priority)


@pytest.mark.parametrize("spoiled", [0.0, 1.0], ids=["priorities", "parameters"])
def test_priorities_and_parameters_are_checked(spoiled):
    algo = Alarmed(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64,
                   hidden=(8,), prioritized=True, spoiled=spoiled)
    sink = Collects()
    with pytest.raises(
        jf.NonFiniteError,
        match=r"agent parameters or priorities are not finite at 384 environment steps in member 0"
    ):
        tools.train(algo, sinks=[sink], chunk_seconds=1e-9, eval_every=0)
    # no metric has shown it
    assert all(np.isfinite(v).all() for v in sink.rows[-1].metrics.values())


def test_a_return_is_named_before_the_losses_that_it_spoils():
    bad, good = Mean(np.array([np.nan]), np.array([1.0])), Mean(np.array([1.0]), np.array([1.0]))
    found = measure(64, {"approx_kl": bad, "entropy": good, "episode_return": bad}, {})
    assert [what for _, what in found.faults] == ["episode_return is nan", "approx_kl is nan"]
    assert list(found.metrics) == ["approx_kl", "entropy", "episode_return"]


def test_an_episode_that_has_not_ended_is_not_an_error():
    """0/0 is no return, not a bad one: null in the row."""
    none = Mean(np.zeros(2), np.array([0.0, 2.0]))
    found = measure(64, {"episode_return": none}, {})
    assert np.isnan(found.metrics["episode_return"][0]) and found.metrics["episode_return"][1] == 0
    assert not found.faults
    assert jsonl.numbers(found.metrics["episode_return"]) == [None, 0.0]
    session = tools.train("ppo", env=tools.Breaks(bad=0.0), total_steps=64, eval_every=0)
    assert (session.history[0].metrics["episode_return"] == 4).all()


def test_the_last_good_checkpoint_stays_usable(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(jf.NonFiniteError,
                       match="the last good checkpoint is .*checkpoints/last/5 ") as error:
        tools.train("ppo", run, env=tools.Breaks(at=10), checkpoint_minutes=1e-9,
                    chunk_seconds=1e-9, eval_every=128)
    rows = tools.logged(run)
    metric = named(error.value)[0]
    # what happened is in the log
    assert rows[-1]["env_steps"] == 384 and rows[-1][metric] == [None]
    agent = jf.load(run, "last")
    assert agent.iteration == 5 and all(np.isfinite(x).all()
                                        for x in jax.tree.leaves(agent.state.params))
    assert jf.load(run, "best").act(np.ones(1, np.float32)) in (0, 1)
    with pytest.raises(jf.NonFiniteError) as again:
        tools.resume(run)
    assert named(again.value) == named(error.value)
    assert tools.logged(run) == rows


def test_without_a_checkpoint_the_error_names_none_and_the_best_agent_is_saved(tmp_path):
    """The first save is due after minutes; the evaluations before the end are not lost."""
    best, none = tmp_path / "best", tmp_path / "none"
    with pytest.raises(jf.NonFiniteError,
                       match=r"; no checkpoint was due .* = 5\), the best agent "
                             r".*checkpoints.best$"):
        tools.train("ppo", best, env=tools.Breaks(at=10), chunk_seconds=1e-9, eval_every=128)
    assert jf.load(best).iteration == 2 and not (best / "checkpoints" / "last").exists()
    with pytest.raises(jf.NonFiniteError,
                       match=r"; no checkpoint was due before it \(checkpoint_minutes = 5\)$"):
        tools.train("ppo", none, env=tools.Breaks(at=10), chunk_seconds=1e-9, eval_every=0)
    assert not (none / "checkpoints").exists() and len(tools.logged(none)) == 6


@pytest.mark.matrix("test_metric_step_and_member_are_named_one_chunk_late")
def test_the_warm_up_is_checked_too(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(jf.NonFiniteError, match="at 64 environment steps in member 0") as error:
        tools.train("dqn", run, env=tools.Breaks(at=2))
    (row,) = tools.logged(run)
    assert row[named(error.value)[0]] == [None] and not any(name.endswith("/bad") for name in row)


def test_a_divergent_learning_rate():
    with pytest.raises(jf.NonFiniteError, match=r"environment steps in member 0 \(seed 0\)"):
        tools.train(tools.algorithm("ppo", learning_rate=1e38), env=tools.Breaks(bad=0.0),
                    eval_every=0)


MODULE = """
import jaxrl_fast as jf
from helpers.runs import Breaks
jf.register("Breaks-v0", Breaks)
"""


def test_the_command_line_exits_with_3(tmp_path, monkeypatch, capsys):
    (tmp_path / "loop_breaks_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        code = cli.main(
            ["train", "ppo", "Breaks-v0", "--import", "loop_breaks_module", "--total-steps", "1280",
             "--log-every", "64", "--algo.num-envs", "4", "--algo.num-steps", "8", "--algo.hidden",
             "8", "--algo.num-epochs", "2", "--algo.num-minibatches", "2",
             "--algo.normalize-observations", "--eval-every", "0", "--eval-episodes", "4",
             "--no-tensorboard", "--out", "run"]
        )  # fmt: skip
    finally:
        sys.modules.pop("loop_breaks_module", None)
    last = capsys.readouterr().err.splitlines()[-1]
    assert code == 3 and last.startswith("jaxrl-fast: error: ") and "Traceback" not in last
    assert named(last)[1:] == (384, 0, 0) and not (tmp_path / "run" / "result.json").exists()
