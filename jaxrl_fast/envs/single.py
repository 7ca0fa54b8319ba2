"""Write one environment without a batch axis; `SingleEnv` batches it."""

from __future__ import annotations

from typing import Any

import jax

from jaxrl_fast import random
from jaxrl_fast.envs import checks
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.types import EnvSpec, Outcome, PyTree, keep_lasting


class SingleEnv(Env):
    """Base class of environments written as two functions of one episode, without a batch.

        reset_one(key)                -> (state, obs)
        step_one(key, state, action)  -> (state, obs, reward, terminated, truncated)

    Decorate the subclass with `@jf.settings`; its float fields are leaves. `step_one` gets a Box's
    action within its bounds and in its dtype, returns bool ends, and may return a sixth value, a
    dict of numbers for the log (`Outcome.info`). With a time limit `state` holds a step counter (or
    use `jf.envs.TimeLimit`). A part that outlives episodes is a `types.Lasting`; `restart_one` is
    `reset_one` after it.
    """

    _needs = ("spec", "reset_one", "step_one")

    def reset_one(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        raise NotImplementedError

    def restart_one(self, key: jax.Array, state: PyTree) -> tuple[PyTree, PyTree]:
        """Like `reset_one`, after the episode that ended in `state`; `types.Lasting` parts stay."""
        fresh, obs = checks.pair(self.spec, "reset_one", self.reset_one(key))
        return keep_lasting(state, fresh), obs

    def step_one(self, key: jax.Array, state: PyTree, action: PyTree) -> tuple:
        raise NotImplementedError

    def reset(self, noise: PyTree) -> tuple[PyTree, PyTree]:
        return jax.vmap(lambda key: checks.pair(self.spec, "reset_one", self.reset_one(key)))(noise)

    def restart(self, noise: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        restart = lambda key, state: checks.pair(self.spec, "restart_one",
                                                 self.restart_one(key, state))
        return jax.vmap(restart)(noise, state)

    def draw_step(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        return random.split(key, (num_steps, num_envs))

    def transition(self, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        def one(key, state, action):
            with checks.explain_errors(self.spec, "step_one"):
                return _parts(self.spec, self.step_one(key, state, action))

        state, *outcome = jax.vmap(one)(noise, state, action)
        return state, Outcome(*outcome)


def _parts(spec: EnvSpec, found: Any) -> tuple:
    """Return the six values of `step_one`, the last () if it returned five."""
    names = ("state", "obs", "reward", "terminated", "truncated")
    if not isinstance(found, tuple) or len(found) not in (5, 6):
        valid = f"five values ({', '.join(names)}), or a sixth, a dict of numbers"
        raise ConfigError(f"{spec.name}: step_one", checks.describe(found), valid)
    *values, info = found if len(found) == 6 else (*found, {})
    if not isinstance(info, dict):
        found = f"{spec.name}: the sixth value of step_one"
        raise ConfigError(found, checks.describe(info), "a dict of numbers")
    checks.check_names(spec, info)
    checks.numeric(spec, "step_one", **dict(zip(names, values, strict=True)), info=info)
    return *values, info or ()
