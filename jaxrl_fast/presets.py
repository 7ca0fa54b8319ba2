"""Tuned settings per algorithm and environment, each with the score it reached (docs/benchmarks.md has the seeds)."""

from __future__ import annotations

import fnmatch
from typing import Any, NamedTuple

from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.algorithms.base import Algorithm


class Preset(NamedTuple):
    """`algo`: settings of the algorithm; `run`: settings of the run (total_steps, ...); `env`: of the environment."""

    name: str
    algo: dict[str, Any]
    run: dict[str, Any] = {}  # noqa: RUF012 - never written to
    env: dict[str, Any] = {}  # noqa: RUF012


# (algorithm, pattern of environment names) -> preset; the first match counts.
PRESETS: dict[tuple[str, str], Preset] = {
    ("ppo", "CartPole-v1"): Preset(
        "ppo/CartPole-v1",
        dict(num_envs=8, num_steps=64, num_epochs=8, num_minibatches=4, learning_rate=1e-3, gae_lambda=0.9,
             discount=0.98, entropy_coefficient=0.0),
        dict(total_steps=500_000),
    ),  # fmt: skip
}


def find_preset(algorithm: str, environment: str) -> Preset | None:
    """The preset for an algorithm on an environment, None where there is none."""
    environment = environment.removeprefix("gymnax:")
    for (name, pattern), preset in PRESETS.items():
        if name == algorithm and fnmatch.fnmatchcase(environment, pattern):
            return preset
    return None


def preset(algorithm: str, environment: str, **settings: Any) -> Algorithm:
    """A tuned algorithm, e.g. `jf.preset("ppo", "CartPole-v1")`; `settings` override; defaults where nothing is tuned."""
    from jaxrl_fast.config import build_algorithm

    found = find_preset(algorithm, environment)
    return build_algorithm(algorithm_class(algorithm), {**(found.algo if found else {}), **settings})
