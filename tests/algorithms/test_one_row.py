"""Normalisation over a single row or unit leaves nothing to learn from: refused, with the setting
that mends it."""

from __future__ import annotations

import pytest

import jaxrl_fast as jf

ALONE = [
    (jf.PPO, "normalize_advantage", dict(num_envs=1, num_steps=1, num_minibatches=1)),
    (jf.PPO, "normalize_advantage", dict(num_envs=8, num_steps=1, num_minibatches=8)),
    (jf.PPO, "normalize_advantage",
     dict(num_envs=2, num_steps=1, num_minibatches=2, recompute_advantage=True)),
    (jf.A2C, "normalize_advantage", dict(num_envs=1, num_steps=1, normalize_advantage=True)),
    (jf.IMPALA, "normalize_advantage",
     dict(num_envs=4, num_steps=1, num_minibatches=4, normalize_advantage=True)),
    (jf.CrossQ, "batch_size", dict(batch_size=1)),
    (jf.SAC, "critic_hidden", dict(critic_hidden=(8, 1), layer_norm=True)),
    (jf.PQN, "hidden", dict(hidden=(1,))),
]


@pytest.mark.parametrize(("cls", "name", "settings"), ALONE, ids=lambda x: getattr(x, "name", None))
def test_minibatches_of_one_row_are_refused_with_normalization(cls, name, settings):
    env = jf.make("Pendulum-v1" if cls in (jf.SAC, jf.CrossQ) else "CartPole-v1")
    with pytest.raises(jf.ConfigError, match=f"^{name}.*(zero|nothing)"):
        cls(**settings).bind(env.spec)
    cls(**settings
        | {name: {"normalize_advantage": False, "batch_size": 2}.get(name, (2,))}).bind(env.spec)
