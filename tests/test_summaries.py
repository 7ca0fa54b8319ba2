"""A notebook's text for the last line of a cell: a few lines with the object's name and its
result."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.html import parsed, text
from jaxrl_fast.engine.evaluate import Evaluation
from jaxrl_fast.fields import changed_settings
from jaxrl_fast.logs.sinks import Row
from jaxrl_fast.sweeps.comparison import Entry
from jaxrl_fast.sweeps.results import SweepResult
from jaxrl_fast.tree import bytes_text, describe
from jaxrl_fast.types import Mean

SWEEP = SweepResult(
    Path("runs/x"),
    {"base": {"algorithm": {"name": "ppo"}, "environment": {"name": "CartPole-v1"}, "run": {
        "total_steps": 10_000}}},
    [{"algo.learning_rate": 10.0**-i, "algo.hidden": [64] * 500} for i in range(64)], [0, 1],
    np.stack([np.arange(64.0), np.full(64, np.nan)], axis=1), {}, [[[], []]] * 64,
)  # fmt: skip


def things(unbroken) -> dict:
    """name -> (what it is, words of its short form)."""
    session, run = unbroken("dqn")
    large = jnp.zeros((300, 64, 4))
    return {
        "run": (session,
                ("dqn", "CartPole-v1", "1,280 of 1,280 steps", "mean return", "steps/s", str(run))),
        "loaded": (jf.load(run), ("dqn", "CartPole-v1", "mean return", "Discrete")),
        "agent": (session.agent(), ("dqn", "CartPole-v1", "mean return")),
        "sweep": (SWEEP,
                  ("ppo", "CartPole-v1", "64 configurations", "10,000", "1. algo.learning_rate",
                   "IQM 31.5", "runs/x")),
        "compared": ([Entry("ppo x", Path("runs/x"), "x", 10, np.ones(1000))] * 5,
                     ("ppo x", "IQM 1 of 1000 seeds")),
        "experience": (jf.experience(session), ("256 rows", "obs float32[4]", "UniformMemory")),
        "state": (session.state, ("agent=<", "arrays", "kB", "key=")),
        "members": (session.prepared.members.first, ("gravity=9.8", "DQN")),
        "agent's state": (session.state.agent, ("params=<", "target=<")),
        "log": (session.history, ("env_steps=64", "episode_return: [")),
        "rollout": (jf.Trajectory(jf.Timestep(*[large] * 6), (), large, large),
                    ("first_obs=float32[300, 64, 4]",)),
        "evaluation": (jf.load(run).evaluate(4), ("4 episodes: return",)),
        "settings with arrays": (jf.PPO(learning_rate=jnp.zeros(1000)),
                                 ("PPO(", "learning_rate=float32[1000]")),
        "environments": (jf.list_environments(), ("native: CartPole-v1", "more")),
        "plan": (jf.plan(tools.algorithm("dqn"), session.env), ("dqn on", "replay")),
        "physics": (tools.environment("td3"), ("toy/ball", "->", "Box(low=-1.0")),
        "wide space": (jf.Box(tuple(range(1000)), 1e4, (1000,)),
                       ("Box(low=(0.0, 1.0, ... 999.0), high=10000.0, shape=(1000,)",)),
    }


def test_short_forms_name_the_run_and_its_result(unbroken):
    for name, (thing, words) in things(unbroken).items():
        began = time.perf_counter()
        text = repr(thing)
        assert time.perf_counter() - began < 1, name
        assert len(text) <= 2_000, (name, len(text))
        assert all(word in text for word in words), (name, text)


def test_pages_of_a_notebook_are_well_formed_and_say_the_same(unbroken):
    settings = len(jf.PPO.__signature__.parameters) - 1  # without `spec`
    for name in ("run", "sweep", "plan", "settings with arrays", "physics"):
        thing, _ = things(unbroken)[name]
        page, pictures = parsed(thing._repr_html_())
        shown = "".join(page.itertext())
        assert len(pictures) == (name == "run"), name
        words = {
            "run": ("dqn on CartPole-v1", "1,280 of 1,280 steps", "mean return", "target_period",
                    "total_steps", "Discrete(n=2)"),
            "sweep": ("64 configurations with 2 seeds", "31.50", "44 more in table.csv", "runs/x"),
            "plan": ("dqn on", "replay", "total", "checkpoints: at most"),
            "settings with arrays": ("PPO (ppo)", "float32[1000]", "the optimizer's step size",
                                     f"all {settings} settings"),
            "physics": ("test/ball", "Box(low=-1.0"),
        }[name]
        assert all(word in shown for word in words), (name, shown[:2000])


def test_pages_escape_their_texts():
    env = jf.make("CartPole-v1")
    assert "settings have their defaults" in text(jf.PPO()._repr_html_())
    shown = jf.make(Marked())._repr_html_()
    assert "<b>" in text(shown) and "<b>" not in shown
    assert (
        "gravity9.0" in text(jf.make("CartPole-v1", gravity=9.0)._repr_html_())
        and "gravity" not in env._repr_html_()
    )


def test_settings_that_differ_from_their_defaults():
    assert changed_settings(jf.PPO()) == {} and changed_settings(
        jf.PPO(num_envs=3, clip_value=False)) == {
        "num_envs": 3, "clip_value": False}  # fmt: skip
    assert list(changed_settings(jf.PPO(learning_rate=jnp.float32(3e-4)))) == ["learning_rate"]


@jf.settings
class Marked(type(jf.make("CartPole-v1"))):
    """An environment whose name a page must escape."""

    @property
    def spec(self):
        return dataclasses.replace(super().spec, name="a <b> & c")


def test_a_run_without_results_has_a_short_form(unbroken):
    found = []
    run = tools.train("ppo", total_steps=128, eval_every=0,
                      hooks=[lambda session, rows: found.append(repr(session))])
    assert "not evaluated at the end\n" in found[0] and "in memory" in found[0]
    assert f"mean return {run.eval_return[0]:,.4g} at the end" in found[-1]


@pytest.mark.parametrize("settings", [{}, {"num_envs": 8, "hidden": (4,)}, {"clip_value": False}])
def test_the_text_of_settings_has_the_changed_ones(settings):
    text = repr(jf.PPO(**settings))
    assert eval(text, {"PPO": dict}) == settings
    assert eval(text, {"PPO": jf.PPO}) == jf.PPO(**settings)


@pytest.mark.parametrize(("name", "settings", "text"), [
    ("CartPole-v1", {"gravity": 9.0}, "CartPole(gravity=9.0)"),
    ("gym:CartPole-v1", {"stack": 2}, "GymnasiumEnv(stack=2, id='CartPole-v1')"),
    ("Catch-bsuite", {}, "<GymnaxEnv: Catch-bsuite, Box("),
])  # fmt: skip
def test_environments_have_short_texts(name, settings, text):
    assert repr(jf.make(name, **settings)).startswith(text)


def test_traced_and_donated_arrays_have_short_forms():
    seen = []

    def look(x):
        seen.extend([repr(Mean.of(x)), repr(Evaluation(x, x, x)), repr(jf.DQN(learning_rate=x))])
        return x

    x = jax.jit(look, donate_argnums=0)(jnp.float32(1.0))
    assert (
        seen[0] == "Mean(total=float32[], count=float32[])" and "learning_rate=float32[]" in seen[2]
    )
    x.delete()
    assert describe(x) == "float32[]" and describe(jax.ShapeDtypeStruct((2,), "int8")) == "int8[2]"
    assert describe(jax.random.key(0)).startswith("key<")
    assert (
        describe((1, 2)) == "(1, 2)" and describe("name") == "'name'"
        and describe(np.float32(0.1)) == "0.1"
    )
    assert repr(Row(1, 0.0, 0.0, {})) == "Row(env_steps=1, no episode; 0 metrics)"


@pytest.mark.parametrize(("size", "text"),
                         [(999, "999 B"), (1_000, "1 kB"), (36_814, "36.8 kB"), (2.5e9, "2.5 GB")])
def test_bytes_in_decimal_units(size, text):
    assert bytes_text(int(size)) == text
