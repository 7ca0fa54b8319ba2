"""`jf.evaluate`: an agent's returns, inside a program or in an environment of Gymnasium."""

from __future__ import annotations

import inspect
from typing import Any, overload

import jax
import numpy as np

from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine import evaluate as engine
from jaxrl_fast.engine.config import MODES
from jaxrl_fast.engine.evaluate import STEP_LIMIT, Evaluation
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.host import gymnasium_objects
from jaxrl_fast.errors import ConfigError, check_choice, check_int, check_seed, expected
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.types import RunState


@overload
def evaluate(
    env: Env, algo: Algorithm, agent: Any, key: jax.Array, episodes: int = 128,
    mode: str = "greedy", max_steps: int | None = None,
) -> Evaluation: ...  # fmt: skip
@overload
def evaluate(agent: Agent, env: Any, episodes: int = 10, seed: int = 0,
             mode: str = "greedy") -> Evaluation: ...
def evaluate(*args: Any, **named: Any) -> Evaluation:
    """Play `episodes` episodes with frozen parameters and statistics; pure.

    Inside a program: `evaluate(env, algo, agent, key, episodes=128, mode="greedy",
    max_steps=None)`, with the `agent` of a `RunState`. A trained one: `evaluate(agent, env,
    episodes=10, seed=0, mode="greedy")` plays a `jf.Agent` in an environment of `jf.make` or of
    Gymnasium. One of Gymnasium is reset and stepped as it is, and stays open.

    Args:
        key: of resets and drawn actions; `seed` is its number.
        mode: "greedy" or "sample".
        max_steps: of an episode; None: the environment's limit.

    Returns:
        `Evaluation`: return float32, length int32 and finished bool, each [episodes].

    Raises:
        ConfigError: an argument or space that does not fit.
    """
    first = args[0] if args else named.get("agent")
    play = _evaluate_agent if isinstance(first, Agent) else _evaluate_state
    try:
        inspect.signature(play).bind(*args, **named)
    except TypeError:
        hint = ""
        if callable(getattr(first, "agent", None)):
            hint = ": `run.agent()` is the agent of a run"
        elif isinstance(first, Environment) and any(isinstance(x, Agent) for x in args):
            hint = ": the agent comes first"
        got = ", ".join([*(type(x).__name__ for x in args), *(f"{key}=..." for key in named)])
        raise expected("evaluate", "called as evaluate(agent, env, episodes=10, seed=0, "
                       f"mode='greedy') or evaluate(env, algo, agent, key, ...){hint}",
                       f"evaluate({got})") from None
    return play(*args, **named)


def _evaluate_state(
    env: Env, algo: Algorithm, agent: Any, key: jax.Array, episodes: int = 128,
    mode: str = "greedy", max_steps: int | None = None,
) -> Evaluation:  # fmt: skip
    for name, value, kind in (("env", env, Env), ("algo", algo, Algorithm)):
        if not isinstance(value, kind):
            raise ConfigError(name, value, f"an {kind.__name__} of jaxrl_fast for an agent's "
                                           "state; a jf.Agent comes first")
    if isinstance(agent, (Agent, RunState)) or callable(getattr(agent, "agent", None)):
        raise ConfigError("agent", agent, "the agent's state: `agent.state` of a jf.Agent, "
                                          "`state.agent` of a RunState, `run.agent().state`")
    check_int("episodes", episodes, 1, 1_000_000)
    check_choice("mode", mode, MODES)
    if max_steps is not None:
        check_int("max_steps", max_steps)
    return engine.evaluate(env, algo, agent, key, episodes, mode, max_steps)


def _evaluate_agent(agent: Agent, env: Any, episodes: int = 10,
                    seed: int = 0, mode: str = "greedy") -> Evaluation:
    check_int("episodes", episodes, 1, 1_000_000)
    check_seed("seed", seed)
    check_choice("mode", mode, MODES)
    if isinstance(env, Environment):
        return agent.evaluate(episodes, seed, mode, env)
    if isinstance(env, type) or not gymnasium_objects.is_gymnasium(env):
        raise ConfigError("env", env,
                          "an environment of jf.make or an instance of one of Gymnasium")
    player = agent.player(mode == "greedy", seed)
    return Evaluation(*map(np.array, zip(*(_episode(player, env, None if i else int(seed))
                                           for i in range(episodes)), strict=True)))


def _episode(player: Any, env: Any, seed: int | None) -> tuple[np.float32, np.int32, bool]:
    """Play one episode -> (return, steps, whether it ended within STEP_LIMIT)."""
    player.reset()
    obs, _ = env.reset(seed=seed)
    total = 0.0
    for length in range(1, STEP_LIMIT + 1):
        action = player(obs)
        if length == 1 and not env.action_space.contains(action):
            raise expected("action space of the environment",
                           f"the agent's {player.agent.spec.action}", str(env.action_space))
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            return np.float32(total), np.int32(length), True
    return np.float32(total), np.int32(STEP_LIMIT), False
