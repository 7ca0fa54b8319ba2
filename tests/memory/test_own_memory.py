"""A memory of a user's own in a run; `check_memory` judges the rest (tests/testing)."""

from __future__ import annotations

import pytest

import jaxrl_fast as jf
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import Memory, RolloutMemory


def kept(*names):
    """A subclass of Memory with these methods of `RolloutMemory`."""
    return type("Mine", (Memory,), {name: getattr(RolloutMemory, name) for name in names})


@pytest.mark.parametrize("missing", ["add", "plan", "fetch"])
def test_a_run_refuses_a_memory_without_a_method(missing, tmp_path):
    memory = kept(*{"add", "plan", "fetch"} - {missing})()

    @jf.settings
    class Mine(jf.PPO):
        def memory(self):
            return memory

    env = jf.make("probe/constant-reward")
    text = rf"Mine\.{missing} must be a method of the class, got the base's"
    with pytest.raises(ConfigError, match=text):
        jf.train(Mine(num_envs=4, num_steps=4), env, total_steps=16, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
