"""Tiny runs that every test of the loop shares, and what it means for two of them to be the
same."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrl_fast as jf
from jaxrl_fast import random
from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.engine import programs
from jaxrl_fast.envs.api import LAST
from jaxrl_fast.logs import jsonl
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.train import start

TESTS = Path(__file__).parents[1]  # where a process of its own finds this package
SETTINGS = {
    "ppo": dict(num_envs=4, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(8,),
                normalize_observations=True),
    "dqn": dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64,
                hidden=(8,), n_step=2,
                target_period=3),
    "rainbow": dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64,
                    hidden=(8,),
                    num_atoms=11, v_min=0.0, v_max=30.0, target_period=3),
    "c51": dict(num_envs=1, updates_per_iteration=2, batch_size=8, buffer_size=256,
                learning_starts=64, hidden=(8,),
                # a replay ratio above 1
                num_atoms=11, v_min=0.0, v_max=30.0, prioritized=True, target_period=3),
    "qr_dqn": dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64,
                   hidden=(8,), num_quantiles=5,
                   target_period=3),
    "apex": dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64,
                 hidden=(8,), target_period=3),
    "iqn": dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64,
                hidden=(8,), num_fractions=4,
                num_act_fractions=4, num_cosines=4, prioritized=True, munchausen=True,
                reset_period=20, optimizer="lion"),
    "pqn": dict(num_envs=4, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(8,),
                optimizer=functools.partial(optax.adamw, weight_decay=0.1),
                learning_rate=optax.cosine_decay_schedule(1e-3, 90)),
    "impala": dict(num_envs=4, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(8,),
                   normalize_observations=True,
                   normalize_reward=True),
    "apg": dict(num_envs=4, num_steps=8, hidden=(8,), normalize_observations=True),
    "es": dict(directions=2, num_steps=16, hidden=(8,), normalize_observations=True),
    "ars": dict(directions=2, top_directions=1, num_steps=16, hidden=(),
                normalize_observations=True),
    "sac": dict(num_envs=4, num_steps=2, updates_per_iteration=2, batch_size=8, buffer_size=256,
                learning_starts=64,
                hidden=(8,), critic_hidden=(8,), n_step=2, policy_period=3,
                normalize_observations=True),
    "td3": dict(num_envs=4, num_steps=2, updates_per_iteration=2, batch_size=8, buffer_size=256,
                learning_starts=64,
                hidden=(8,), critic_hidden=(8,), policy_period=3, noise_correlation=0.5,
                normalize_observations=True,
                optimizer=optax.contrib.muon,
                learning_rate=optax.warmup_cosine_decay_schedule(0.0, 1e-3, 50, 300)),
    "tqc": dict(num_envs=4, num_steps=2, updates_per_iteration=2, batch_size=8, buffer_size=256,
                learning_starts=64,
                hidden=(8,), critic_hidden=(8,), num_quantiles=5, drop_quantiles=1,
                prioritized=True),
    "crossq": dict(num_envs=4, num_steps=2, updates_per_iteration=2, batch_size=8, buffer_size=256,
                   learning_starts=64,
                   hidden=(8,), critic_hidden=(8,), policy_period=3, norm_warmup=20),
}  # fmt: skip
TOTAL, HALF = 1280, 640  # the replay of 256 wraps around several times
RUN = dict(log_every=64, eval_every=320, eval_episodes=4, pictures=False)
# XLA flags that rounding depends on
BITS = ("optimization_level", "expensive_passes", "fusion_emitters", "split_count")
WALL = ("wall_seconds", "steps_per_second")


def ball(randomize: str = "part.mass=0.5:2", randomize_warmup: int = 100) -> jf.Env:
    """Physics: what an environment's masses are, and which resets it had from the pool, is in its
    state."""
    from helpers.ball import toy

    return toy(randomize, randomize_warmup, episode_length=9)


jf.register("test/ball", ball)


def algorithm(name: str, **settings: Any) -> jf.Algorithm:
    return algorithm_class(name)(**SETTINGS[name] | settings)


def environment(name: str = "ppo") -> jf.Env:
    """The one that every algorithm here plays, but for those that need another."""
    if name in ("td3", "crossq"):
        return jf.make("test/ball")
    return jf.make("Pendulum-v1" if name in ("apg", "sac", "tqc") else "CartPole-v1",
                   max_steps_in_episode=30)


_ALIVE: dict[tuple, Any] = {}  # the latest runs of each kind: while they live, so do its programs


def train(algo: str | jf.Algorithm, out: Any = None, env: jf.Env | None = None, **settings: Any):
    """A tiny run; without pictures, which other tests draw."""
    algo = algorithm(algo) if isinstance(algo, str) else algo
    env = env or environment(algo.name)
    kind = repr(algo), repr(env), settings.get("seeds")
    _ALIVE.pop(kind, None)
    call = start if "dependencies" in settings else jf.train
    _ALIVE[kind] = call(algo, env, out=out,
                        **dict(total_steps=TOTAL, tensorboard=False) | RUN | settings)
    if len(_ALIVE) > 16:
        del _ALIVE[next(iter(_ALIVE))]
    return _ALIVE[kind]


def resume(path: Any, *args: Any, **settings: Any):
    return jf.resume(path, *args, tensorboard=False, **settings)


def arrays(tree: Any) -> dict[str, np.ndarray]:
    """Every leaf by its path, on the host; typed keys as their data."""

    def one(x):
        x = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        return np.asarray(x)

    return {jax.tree_util.keystr(path): one(x) for path, x in jax.tree.leaves_with_path(tree)}


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit, NaN included; the same leaves, shapes and dtypes."""
    assert_same_arrays(arrays(a), arrays(b))


def assert_same_arrays(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys() and a
    for name, x in a.items():
        y = b[name]
        assert (x.shape, x.dtype) == (y.shape, y.dtype), name
        assert x.tobytes() == y.tobytes(), f"{name}: {x} is not {y}"


def assert_close(a: Any, b: Any) -> None:
    """Floats are equal to rounding; integers, flags and keys exactly."""
    assert_close_arrays(arrays(a), arrays(b))


def assert_close_arrays(
    a: dict[str, np.ndarray], b: dict[str, np.ndarray], rtol: float = 1e-3, atol: float = 1e-4
) -> None:
    assert a.keys() == b.keys() and a
    for name, x in a.items():
        if np.issubdtype(x.dtype, np.floating):
            np.testing.assert_allclose(x, b[name], rtol=rtol, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(x, b[name], err_msg=name)


def state(session: Any) -> Any:
    """The RunState, padding dropped."""
    return session.lanes.programs.unpadded(session.state)


def member(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def scores(returns: Any) -> Any:
    """The result of `Programs.evaluate` for evaluations with these returns."""
    returns = np.asarray(returns, np.float64)
    return programs.Scores(returns, np.zeros(len(returns), int), np.ones(len(returns)))


class Noting(programs.Programs):
    """Programs that append every chunk of rows, (first iteration, rows), to `started`."""

    def __init__(self, started: list[tuple[int, int]], prepared: Any, context: Any):
        super().__init__(prepared, context)
        self.started = started

    def chunk(self, state: Any, t0: int, rows: int) -> Any:
        self.started.extend([(t0, rows)] if t0 >= self.grid.warmup else [])  # not the warm-up
        return super().chunk(state, t0, rows)


def noting(started: list[tuple[int, int]]) -> Dependencies:
    """For `train(dependencies=...)`: note the chunks in `started`."""
    return Dependencies(programs=functools.partial(Noting, started))


@contextlib.contextmanager
def evaluations(score: Callable[[int], Any]) -> Iterator[None]:
    """Within the block an evaluation after `rows` log rows scores `score(rows)`, [members]."""
    found = lambda self, state, rows, **_: scores(score(rows))
    with mock.patch.object(programs.Programs, "evaluate", found):
        yield


def logged(run: Path | str) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, wall-clock fields aside."""
    rows = jsonl.read_jsonl(Path(run) / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k not in WALL} for row in rows]


def but_ends(rows: list[dict[str, Any]], *ends: int) -> list[dict[str, Any]]:
    """Rows without the evaluations at `ends`: a run that ended there and went on has one more."""
    return [{k: v for k, v in row.items()
             if not k.startswith("eval_") or row["env_steps"] not in ends} for row in rows]


def through_json(rows: Any) -> list[dict[str, Any]]:
    """Rows in memory in the same form."""
    return (
        [{"env_steps": row.env_steps, **{name: jsonl.numbers(v) for name, v in row.metrics.items()}}
         for row in rows]
    )


def subprocess_environment(**more: str) -> dict[str, str]:
    """The variables of this process; of its XLA flags only those that bits depend on, as they do on
    NPROC."""
    kept = [f for f in os.environ.get("XLA_FLAGS", "").split() if any(name in f for name in BITS)]
    flags = " ".join([*kept, more.pop("XLA_FLAGS", "")]).strip()
    return {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | (
        {"XLA_FLAGS": flags} if flags else {}) | more


def python(code: str, *args: Any, timeout: float = 150, **more: str) -> subprocess.CompletedProcess:
    """Run code in a process of its own, in the folder of the tests."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], cwd=TESTS,
        env=subprocess_environment(**more), timeout=timeout, capture_output=True, text=True,
    )  # fmt: skip


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@jf.settings
class Breaks(jf.Env):
    """Reward 1, cut every 4 steps; in training, from iteration `at` on, a share of the rewards is
    NaN.

    what: "observation" breaks those instead. tested: in evaluations, not in training. bad: 0 for
        none.
    """

    at: float = 10.0
    share: float = 1.0
    what: str = "reward"
    tested: bool = False
    bad: float = 1.0

    @property
    def spec(self):
        return jf.EnvSpec("test/breaks", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2), 4)

    def draw_reset(self, key, shape):
        return jnp.zeros(shape, jnp.int32)

    def reset(self, noise):
        return noise, jnp.ones((*noise.shape, 1))

    def draw_step(self, key, num_steps, num_envs, t):
        when = t == LAST if self.tested else (t >= self.at) & (t < LAST)
        bad = when & (random.uniform(key, (num_steps, num_envs)) < self.share) & (self.bad > 0)
        return jnp.where(bad, jnp.nan, 1.0)

    def transition(self, noise, state, action):
        time = state + 1
        one, seen = jnp.ones(time.shape), self.what == "observation"
        return time, jf.Outcome((noise if seen else one)[:, None], one if seen else noise, one < 0,
                                time >= 4)


@jf.settings
class Lengths(jf.Env):
    """Episodes of a random length, known from the state they begin with; reward 1 a step, so the
    return is the length."""

    longest: int = 60

    @property
    def spec(self):
        return jf.EnvSpec("test/lengths", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2), self.longest)

    def draw_reset(self, key, shape):
        return random.randint(key, shape, 1, self.longest + 1)

    def reset(self, noise):
        return (noise, jnp.zeros_like(noise)), jnp.ones((*noise.shape, 1))

    def transition(self, noise, state, action):
        length, time = state[0], state[1] + 1
        ended = time >= length
        return (length, time), jf.Outcome(
            jnp.ones((*time.shape, 1)), jnp.ones(time.shape), ended, jnp.zeros_like(ended)
        )
