"""Step a vector of Gymnasium's, in any of its auto-reset modes.

Some native vectors reset only in the step after an end and make a row of that reset, truncated and
without reward: `HostStep.real` is False there.
"""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np

from jaxrl_fast.envs.exact import ends, exact, misfit
from jaxrl_fast.envs.host.api import guarded
from jaxrl_fast.envs.host.gymnasium_spaces import PICTURE, own_form
from jaxrl_fast.envs.host.vector import HostStep, Vector, put
from jaxrl_fast.logs.reports import flat
from jaxrl_fast.tree import take

# entries that an end leaves in an info
NOT_NUMBERS = {name for key in ("final_obs", "final_info") for name in (key, f"_{key}")}
_STEPPED_BY = "_jaxrl_fast_vector"  # an environment's attribute: a weak reference to its vector


class GymnasiumVector(Vector):
    """A `gymnasium.vector.VectorEnv` in any auto-reset mode.

    Raises Misfit for an environment that an open vector steps already, as `lambda: env` returns it.
    """

    def __init__(self, vector: Any, seed: int, name: str = Vector.name):
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        from jaxrl_fast.envs.host import gymnasium_worker

        self.side = gymnasium_worker  # which needs Gymnasium
        self.steps_apart = isinstance(vector, AsyncVectorEnv)  # processes
        self.vector = self.side.quiet(vector) if self.steps_apart else vector
        self.seed, self.num_envs, self.name = seed, vector.num_envs, name
        self.mode = getattr(vector.metadata.get("autoreset_mode"), "name", "NEXT_STEP")
        self.encode = own_form(vector.single_observation_space, PICTURE).encode
        # a native one may write there again
        if not isinstance(vector, (AsyncVectorEnv, SyncVectorEnv)):
            encode = self.encode
            self.encode = lambda obs: jax.tree.map(np.array, encode(obs))
        self.decode = own_form(vector.single_action_space).decode
        self.resetting = np.zeros(self.num_envs, bool)  # by the next step, whatever its action
        self.over = np.zeros(self.num_envs, bool)  # in the last step
        self.obs: Any = None
        self.pending: Any = None
        self.stepped: list[Any] = []
        try:
            for env in vector.envs if isinstance(vector, SyncVectorEnv) else ():
                self._take(innermost(env))
        except BaseException:  # the environments are free for another try
            for env in self.stepped:
                vars(env).pop(_STEPPED_BY, None)
            raise

    def _take(self, env: Any) -> None:
        by = vars(env).get(_STEPPED_BY, lambda: None)()
        # a copy keeps the attribute
        if by is not None and any(env is other for other in by.stepped):
            raise misfit("the environment", "a new one at every call of its function",
                         "the same one again")
        vars(env)[_STEPPED_BY] = weakref.ref(self)
        self.stepped.append(env)

    @guarded
    def reset(self):
        self.obs = self.encode(self.vector.reset(seed=self.seed)[0])
        self.seed = None  # the environments' own random numbers continue
        self.resetting[:] = self.over[:] = False
        return self.obs

    @guarded
    def send(self, action):
        action = self.decode(action)
        if self.steps_apart:
            self.vector.step_async(action)
        else:
            self.pending = action

    @guarded
    def receive(self):
        if self.pending is None:
            found = self.vector.step_wait()
        else:
            found, self.pending = self.vector.step(self.pending), None
        obs, reward, terminated, truncated, info = found
        before, obs = self.obs, self.encode(obs)
        reward = np.array(exact(reward, np.float32, "rewards"))
        terminated, truncated = ends(terminated, truncated)
        ended, successors = terminated | truncated, obs
        if self.mode == "SAME_STEP" and ended.any():
            last = [info["final_obs"][i] for i in np.flatnonzero(ended)]
            successors = put(obs, ended, self.encode(jax.tree.map(lambda *x: np.stack(x), *last)))
        elif self.mode == "DISABLED" and ended.any():
            successors, obs = obs, self.encode(self.vector.reset(options={"reset_mask": ended})[0])
        real, over = None, ended
        if self.mode == "NEXT_STEP":
            real = ~self.resetting
            if self.resetting.any():
                successors = put(successors, self.resetting, take(before, self.resetting))
                reward = np.where(real, reward, np.float32(0))
                truncated = truncated | self.resetting
            self.resetting = ended
        self.obs, self.over = obs, over
        info = self._numbers(info, ended, real) if info else {}
        return HostStep(obs, successors, reward, terminated, truncated,
                        reward, over, real, info=info)

    def _numbers(self, info: dict[str, Any], ended: np.ndarray,
                 real: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the steps' reports, without those of resets."""
        final = info.get("final_info") if self.mode == "SAME_STEP" and ended.any() else None
        found = flat({k: v for k, v in info.items() if k not in NOT_NUMBERS}, self.num_envs)
        if final is not None:
            last = flat(final, self.num_envs)
            nothing = np.full(self.num_envs, np.nan)
            found = {k: np.where(ended, last.get(k, nothing), found.get(k, nothing))
                     for k in {**found, **last}}
        return found if real is None else {k: np.where(real, x, np.nan) for k, x in found.items()}

    def failed(self, error):
        apart = self.steps_apart and isinstance(error, (EOFError, OSError))
        return self.side.describe_death(self.vector) if apart else ""

    def kill(self):
        if self.steps_apart:
            self.side.kill(self.vector.processes)

    def close(self):
        for env in self.stepped:
            vars(env).pop(_STEPPED_BY, None)
        self.stepped.clear()
        if not self.steps_apart:
            return self.vector.close()
        self.kill()  # Gymnasium would first wait for dead processes
        for pipe in self.vector.parent_pipes:
            if pipe is not None:
                pipe.close()
        self.vector.closed = True

    @guarded
    def render(self):
        begun_again = self.mode != "NEXT_STEP" and self.over[0]
        if getattr(self.vector, "render_mode", None) is None or begun_again:
            return None
        try:
            found = self.vector.render()
        except NotImplementedError:
            return None
        found = found[0] if isinstance(found, (tuple, list)) else found
        return None if found is None else np.asarray(found)


def innermost(env: Any) -> Any:
    """Return the environment inside all of Gymnasium's wrappers."""
    import gymnasium

    while isinstance(env, gymnasium.Wrapper):
        env = env.env
    return env
