"""Learning to a score: whole runs with the tuned settings, as docs/benchmarks.md reports them (`pytest -m slow`)."""

from __future__ import annotations

import pytest

import jaxrl_fast as jf
from jaxrl_fast.presets import find_preset

# The score at which gymnasium counts CartPole-v1 as solved.
SOLVED = {"CartPole-v1": 475.0}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("algorithm", "environment"), [("ppo", "CartPole-v1"), ("dqn", "CartPole-v1")])
def test_a_preset_solves_its_environment(algorithm, environment, tmp_path):
    found = find_preset(algorithm, environment)
    run = jf.train(
        jf.preset(algorithm, environment), jf.make(environment), seeds=2, out=tmp_path / "run", tensorboard=False,
        **found.run,
    )  # fmt: skip
    assert (run.eval_return >= SOLVED[environment]).all(), run.eval_return
