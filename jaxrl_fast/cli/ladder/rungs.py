"""The rungs of the ladder: Pong, learned faster by each.

After the chapter "Ways to Speed up RL" of Lapan's "Deep Reinforcement Learning Hands-On": its rungs
as settings of this library, then others.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.algorithms.preset_table import PONG_IMAGES
from jaxrl_fast.algorithms.presets import find_preset
from jaxrl_fast.cli.ladder import torch_dqn
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import MissingExtraError, check_choice, check_float, check_seed
from jaxrl_fast.logs.jsonl import number
from jaxrl_fast.runs.train import start

FRAMES = 4  # raw frames of a step of the agent
SOLVED, GAMES = 18.0, 100  # mean score, over this many games in a row
HORIZON, LIMIT = 1_000_000, 50_000_000  # agent steps: of the schedules; at most
WRAPPED = "jaxrl_fast/WrappedPong-v0"

# The book's settings; a batch of 32 for every step of the agent.
_BOOK = dict(num_envs=1, batch_size=32, buffer_size=100_000, learning_starts=10_000, double=False,
             learning_rate=1e-4, target_period=1_000, epsilon_end=0.02, epsilon_fraction=0.1,
             hidden=(512,))  # fmt: skip
_WRAPPED = dict(environment=f"gym:{WRAPPED}", env=dict(stack=4))
_THREE = _BOOK | dict(num_envs=3, batch_size=96, target_period=333)
_SMALL = dict(img_height=42, img_width=42)
_VECTOR = _BOOK | dict(num_envs=16, num_steps=2, updates_per_iteration=8,
                       double=True, n_step=3, target_period=250)
_PQN = dict(num_envs=32, num_steps=32, num_epochs=2, num_minibatches=16,
            learning_rate=5e-4, epsilon_end=0.02,
            epsilon_fraction=0.1, return_lambda=0.65, hidden=(256,))  # fmt: skip
_TWO = dict(ahead=1, actors=2)
_PRESET = find_preset("ppo", "ale:Pong")


@dataclasses.dataclass(frozen=True)
class Rung:
    """One way to learn Pong."""

    name: str
    what: str
    algorithm: str = "dqn"
    settings: dict[str, Any] = dataclasses.field(default_factory=lambda: _BOOK)
    environment: str = "ale:Pong"
    env: dict[str, Any] = dataclasses.field(default_factory=dict)
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    published: tuple[int, int] | None = None  # the book's (steps a second, minutes to solve)
    solved: float = SOLVED  # mean score of 100 games that ends it


RUNGS = (
    Rung("torch", "PyTorch, one environment, Python wrappers", algorithm="",
         **_WRAPPED, published=(159, 105)),
    Rung("one", "ours, one environment, Python wrappers", **_WRAPPED,
         run=dict(ahead=0), published=(157, 115)),
    Rung("three", "three environments", settings=_THREE, **_WRAPPED,
         run=dict(ahead=0), published=(228, 44)),
    Rung("actor", "one environment, the actor apart", **_WRAPPED,
         run=dict(ahead=1), published=(402, 59)),
    Rung("native", "one environment, wrappers in C++", run=dict(ahead=0), published=(330, 40)),
    Rung("both", "three environments, wrappers in C++, the actor apart",
         settings=_THREE, run=dict(ahead=1), published=(409, 31)),
    Rung("vector", "16 environments, a quarter of the updates, double, three steps",
         settings=_VECTOR, run=_TWO),
    Rung("envpool", "the same by EnvPool", "dqn", _VECTOR, "envpool:Pong-v5", run=_TWO),
    Rung("small", "the same from pictures of 42 x 42, about their mean",
         settings=_VECTOR | PONG_IMAGES, env=_SMALL, run=_TWO),
    Rung("pqn", "PQN, no replay, 42 x 42", "pqn", _PQN | PONG_IMAGES,
         env=_SMALL, run=dict(actors=2)),
    Rung("ppo", "PPO's preset, 42 x 42", "ppo", _PRESET.algo, env=_PRESET.env,
         run=dict(horizon=_PRESET.run["total_steps"])),
)  # fmt: skip


@dataclasses.dataclass
class Climb:
    """The result of a rung. Seconds count from the start of its training, compiling included."""

    rung: Rung
    steps: int = 0
    seconds: float = 0.0
    rate: float = float("nan")  # agent steps a second while learning, after compiling
    solved: float | None = None  # seconds
    ended: str = ""  # reason, if neither solve nor time ended it
    since: tuple[int, float] | None = None  # (steps, seconds) at which learning was under way
    # (seconds, steps, mean score of 100 games)
    curve: list[tuple[float, int, float]] = dataclasses.field(default_factory=list)

    @property
    def score(self) -> float:
        return self.curve[-1][2] if self.curve else float("nan")

    def reach(self, steps: int, seconds: float, learning: bool) -> None:
        """Note steps and seconds; the rate counts from the first call with learning."""
        self.steps, self.seconds = steps, seconds
        if learning and self.since is None:
            self.since = steps, seconds
        if self.since is not None and steps > self.since[0]:
            self.rate = (steps - self.since[0]) / (seconds - self.since[1])

    def as_dict(self) -> dict[str, Any]:
        return {
            "rung": self.rung.name, "what": self.rung.what, "steps": self.steps,
            "seconds": number(self.seconds, 2), "steps_per_second": number(self.rate, 1),
            "frames_per_second": number(FRAMES * self.rate, 1), "score": number(self.score, 2),
            "solved_seconds": None if self.solved is None else number(self.solved, 2),
            "ended": self.ended,
            "published": self.rung.published
            and dict(zip(("steps_per_second", "minutes"), self.rung.published, strict=True)),
            "curve": [(number(t, 2), steps, number(score, 2)) for t, steps, score in self.curve],
        }  # fmt: skip


def choose(names: Sequence[str] = (), rungs: Sequence[Rung] = RUNGS) -> list[Rung]:
    """Return the rungs of these names, or all; raises ConfigError for an unknown or missing one."""
    known = {rung.name: rung for rung in rungs}
    for name in names:
        check_choice("rungs", name, known)
    chosen = [known[name] for name in names or known]
    for rung in chosen:
        missing = needs(rung)
        if missing and names:
            raise MissingExtraError(f"the rung {rung.name!r}", missing)
    return [rung for rung in chosen if not needs(rung)]


def needs(rung: Rung) -> str | None:
    """Return the extra that a rung needs and that is not installed."""
    there = lambda name: importlib.util.find_spec(name) is not None
    if not rung.algorithm and not there("torch"):
        return "torch"
    if rung.environment.startswith("envpool:"):
        return None if there("envpool") else "envpool"
    native = WRAPPED not in rung.environment
    return None if there("ale_py") and (native or there("cv2")) else "atari"


def check(minutes: float | None, seed: int) -> None:
    if minutes is not None:
        check_float("minutes", minutes, 0, open_low=True)
    check_seed("seed", seed)


def climb(found: Climb, minutes: float | None, seed: int = 0,
          say: Callable[[Climb], None] = lambda climb: None) -> Climb:
    """Train the rung of `found`, updating it, for `minutes`, or until it is solved (None)."""
    register()
    (_climb if found.rung.algorithm else _climb_torch)(found, minutes, seed, say)
    return found


def _climb(found, minutes, seed, say) -> None:
    rung, began = found.rung, time.perf_counter()

    def hook(run, rows):
        found.reach(run.env_steps, time.perf_counter() - began, learning=run.rows > 1)
        _look(found, run.lanes.programs.games)
        say(found)
        if _over(found, minutes):
            run.stop()

    settings = dict(rung.settings)
    if minutes is not None and "learning_starts" in settings:  # only timed
        settings["learning_starts"] = 2_000
    algo = algorithm_class(rung.algorithm)(**settings)
    env = registry.make(rung.environment, **rung.env)
    every = max(96, algo.steps_per_iteration)  # slow rungs make some dozen steps a second
    run = {"horizon": HORIZON} | rung.run
    limit = run["horizon"] if algo.anneal_learning_rate else LIMIT
    start(algo, env, limit, seed=seed, eval_every=0, eval_episodes=1,
          log_every=every, chunk_seconds=0.1, hooks=[hook],
          tensorboard=False, progress=False, **run)  # fmt: skip


def _climb_torch(found, minutes, seed, say) -> None:
    began = time.perf_counter()
    games: collections.deque = collections.deque(maxlen=GAMES)
    start = 10_000 if minutes is None else 2_000
    for steps, score in torch_dqn.play(_wrapped_stack, seed, start):
        if score is not None:
            games.append(score)
        if steps % 100 and score is None:
            continue
        found.reach(steps, time.perf_counter() - began, learning=steps >= start + 100)
        if score is not None:
            _look(found, games)
            say(found)
        if _over(found, minutes):
            break


def _look(found: Climb, games: Sequence[float]) -> None:
    """Note the mean score of the last games, and whether it solves the task."""
    if not games:
        return
    mean = float(np.mean(games))
    found.curve.append((found.seconds, found.steps, mean))
    if len(games) == GAMES and mean >= found.rung.solved and found.solved is None:
        found.solved = found.seconds


def _over(found: Climb, minutes: float | None) -> bool:
    return found.solved is not None or (minutes is not None and found.seconds >= 60 * minutes)


def register() -> None:
    """Register Pong behind Gymnasium's Python wrappers with Gymnasium."""
    import gymnasium

    if WRAPPED not in gymnasium.registry:
        gymnasium.register(WRAPPED, entry_point=make_wrapped_pong)


def make_wrapped_pong(render_mode: str | None = None) -> Any:
    """Return Pong with the preprocessing of Mnih et al. (2015) in Python: uint8 [84, 84]."""
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing

    env = gymnasium.make("ale_py:ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0,
                         render_mode=render_mode)
    return AtariPreprocessing(env, noop_max=30, frame_skip=FRAMES,
                              screen_size=84, grayscale_obs=True)


def _wrapped_stack() -> Any:
    from gymnasium.wrappers import FrameStackObservation

    return FrameStackObservation(make_wrapped_pong(), 4)
