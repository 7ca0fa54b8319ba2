"""SAC with an update a step in one Pendulum, two layers of 256 units and batches of 256."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from jaxrl_fast.bench.race import Contestant, Loop
from jaxrl_fast.bench.theirs import typed_key

STARTS = 300  # random steps before the first update
COMMON = {"learning_starts": STARTS, "batch_size": 256, "buffer_size": 100_000}


def ours(jf: Any, count: int) -> Contestant:
    """`count` updates after the random steps, which are timed too."""
    widths = {"hidden": (256, 256), "critic_hidden": (256, 256)}
    algo = jf.SAC(num_envs=1, updates_per_iteration=1, **widths, **COMMON)
    build = lambda: jf.make_train(algo, jf.make("Pendulum-v1"), total_steps=count + STARTS)
    return Contestant("jaxrl_fast", count, build, typed_key)


def peer(name: str, module: str, count: int) -> Loop:
    """`count` updates of SBX or Stable-Baselines3, whose interfaces are the same."""

    def build() -> Callable[[], Any]:
        settings = {"policy_kwargs": {"net_arch": [256, 256]}} | COMMON
        model = importlib.import_module(module).SAC("MlpPolicy", "Pendulum-v1", **settings)
        model.learn(2 * STARTS)
        return lambda: model.learn(count, reset_num_timesteps=False)

    return Loop(name, count, build)
