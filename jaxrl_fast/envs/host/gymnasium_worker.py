"""What runs beside each of Gymnasium's environments, in this process or in one of its own: light to import.

Gymnasium hands on whatever array an environment returns: one that it writes to again would change under the terminal
observation, and one of another shape is flattened into the memory that processes share.

A Ctrl-C, or a SIGTERM to all that belongs to a run, is for the process that saves it: those of the environments go on
until that one ends them, by SIGKILL, or is no more.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import async_vector_env

from jaxrl_fast.envs.exact import exact, misfit
from jaxrl_fast.errors import debugging

ASKED_TO_STOP = (signal.SIGINT, signal.SIGTERM)


class Checked(gymnasium.Wrapper):
    """Observations are copies, of their space's shape and dtype; rewards are numbers, ends True or False.

    Gymnasium's vectors would write them into arrays of the dtypes that are due, whatever becomes of them there.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._seen = env.observation_space  # the wrapper's own is looked up anew each time

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple:
        found = self.env.reset(seed=seed, options=options)
        if not (isinstance(found, (tuple, list)) and len(found) == 2 and isinstance(found[1], dict)):
            raise misfit("what reset returns", "two values (observation, info), info a dict", _form(found))
        return _copied(self._seen, found[0], ""), found[1]

    def step(self, action: Any) -> tuple:
        found = self.env.step(action)
        if not (isinstance(found, (tuple, list)) and len(found) == 5 and isinstance(found[4], dict)):
            form = "five values (observation, reward, terminated, truncated, info), info a dict"
            raise misfit("what step returns", form, _form(found))
        obs, reward, terminated, truncated, info = found
        if type(reward) is not float:
            reward = _scalar(reward, float, "rewards")
        if type(terminated) is not bool:
            terminated = _scalar(terminated, bool, "terminated")
        if type(truncated) is not bool:
            truncated = _scalar(truncated, bool, "truncated")
        return _copied(self._seen, obs, ""), reward, terminated, truncated, info


def _form(found: Any) -> str:
    """`5 values, info NoneType`, or what it is instead of values."""
    if not isinstance(found, (tuple, list)):
        return type(found).__name__
    return f"{len(found)} values" + (f", the last {type(found[-1]).__name__}" if found else "")


def _copied(space: Any, observation: Any, where: str) -> Any:
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or not observation.keys() >= space.spaces.keys():
            got = f"a dict with {', '.join(map(str, observation))}" if isinstance(observation, dict) else _form(observation)
            raise misfit(f"observations{where}", f"a dict with {', '.join(map(str, space.spaces))}", got)
        return {key: _copied(inner, observation[key], f"{where}[{key!r}]") for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(observation, (tuple, list)) or len(observation) != len(space.spaces):
            raise misfit(f"observations{where}", f"a tuple of {len(space.spaces)} values", _form(observation))
        return tuple(_copied(inner, observation[i], f"{where}[{i}]") for i, inner in enumerate(space.spaces))
    found = np.array(observation)
    if found.shape != space.shape:
        raise ValueError(f"observations{where} of shape {list(found.shape)}, where their space has {list(space.shape)}")
    return found if found.dtype == space.dtype else exact(found, space.dtype, f"observations{where}")


_AT_ONCE = {bool: (bool, np.bool_), float: (float, int, np.floating, np.integer, np.bool_)}  # what needs no look


def _scalar(value: Any, kind: type, name: str) -> Any:
    """A bool or a float; of an array with one entry too, which Gymnasium takes as well."""
    if isinstance(value, _AT_ONCE[kind]):
        return kind(value)
    if np.size(value) != 1:
        raise misfit(name, "one value a step", f"an array of shape {list(np.shape(value))}")
    return exact(value, kind, name).item()


def made(create: Callable[..., Any], arguments: dict[str, Any], limit: int | None) -> gymnasium.Env:
    """The environment that a user's class or function makes; `limit`: steps after which it is truncated."""
    env = create(**arguments)
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"{create!r} makes {type(env).__name__}, not a gymnasium.Env")
    return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)


def checked(create: Callable[..., Any], arguments: dict[str, Any], limit: int | None) -> gymnasium.Env:
    return Checked(made(create, arguments, limit))


def quiet(vector: Any) -> Any:
    """The same vector of processes, which raises what failed in one of them without logging its traceback first."""
    check, logger = getattr(vector, "_raise_if_errors", None), gymnasium.logger

    def raise_if_errors(successes: Any) -> None:
        level, logger.min_level = logger.min_level, logger.ERROR + 1
        try:
            check(successes)
        finally:
            logger.min_level = level

    if check is not None and not debugging():
        vector._raise_if_errors = raise_if_errors
    return vector


def worker(*args: Any) -> None:
    """Gymnasium's own, deaf to what asks a run to stop: by a handler, for programs that it starts would inherit a mask."""
    for number in ASKED_TO_STOP:
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED_TO_STOP)
    async_vector_env._async_worker(*args)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Processes that are started meanwhile are deaf from their first moment, not only from `worker` on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would unblock the signals when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@atexit.register
def _kill_all() -> None:
    """At the end of this process multiprocessing would ask them to end, and wait for them: they are killed before.

    By Gymnasium's name for them: whoever is still in the middle of opening a vector has nothing else to know them by.
    """
    for process in multiprocessing.active_children():
        if process.name.startswith("Worker<AsyncVectorEnv>"):
            process.kill()


def kill(processes: list[Any], patience: float = 1.0) -> None:
    """End them at once. One that not even this reaches (it waits for a disk) is left behind."""
    for process in processes:
        process.kill()
    deadline = time.monotonic() + patience
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def died(vector: Any, patience: float = 5.0) -> str:
    """Which process of a vector has ended without a word, if one has: Gymnasium only knows that its pipe is closed."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:  # its pipe closes some time before it is gone
        codes = [process.exitcode for process in vector.processes]  # once: one may end between two looks
        for process, pipe, code in zip(vector.processes, vector.parent_pipes, codes, strict=True):
            if pipe is not None and code is not None:  # one that reported what was raised has no pipe
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return f"the process of one of its environments died ({process.pid}, {how})"
        if any(code is not None for code in codes):
            break
        time.sleep(0.02)
    return ""
