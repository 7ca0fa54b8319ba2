"""An agent as a function of observations that remembers its episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from jaxrl_fast.runs.agent import Agent


class Player:
    """Plays with an agent: `player(obs)` is the next action. Players share no memory.

    Call `reset` where episodes end: an agent with frame stacks or recurrent state begins anew.
    """

    def __init__(self, agent: Agent, deterministic: bool = True, seed: int = 0):
        self.agent, self.deterministic = agent, deterministic
        self._key, self._calls = jax.random.key(seed), 0
        self._state: Any = None
        self._ended: Any = None

    def __call__(self, obs: Any) -> Any:
        """Return the action for an observation or batch [B, ...], as `Agent.act` does."""
        key = None if self.deterministic else jax.random.fold_in(self._key, self._calls)
        action, self._state = self.agent.predict(obs, self._state, self._ended,
                                                 self.deterministic, key)
        self._calls, self._ended = self._calls + 1, None
        return action

    def reset(self, ended: Any = None) -> None:
        """Begin new episodes. ended: bool [B], where one ended; None: all, of any number."""
        if ended is None:
            self._state, self._ended = None, None
        else:
            self._ended = np.asarray(ended) | (False if self._ended is None else self._ended)

    def __repr__(self) -> str:
        return f"<Player of {self.agent!r}>"
