"""Code beside each Gymnasium environment, in this process or its own; light to import.

Gymnasium forwards the array that an environment returns: a later write would change the terminal
observation, and another shape would be flattened into shared memory. Ctrl-C, SIGTERM and SIGHUP
are for the process that saves the run, which ends the environments' processes by SIGKILL.
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
from jaxrl_fast.logs.info_names import of_key, within

ASKED_TO_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Checked(gymnasium.Wrapper):
    """Copies observations in their space's shape and dtype; checks rewards and ends.

    Keeps the numbers of an info, as floats: a vector of Gymnasium puts the values of a key into an
    array for the first one, which cuts fractions behind an int and fails for text.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._seen = env.observation_space  # the wrapper's own is looked up anew each time

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple:
        found = self.env.reset(seed=seed, options=options)
        if not (isinstance(found, (tuple, list)) and len(found) == 2
                and isinstance(found[1], dict)):
            raise misfit("the result of reset", "two values (observation, info), info a dict",
                         _form(found))
        return _copy(self._seen, found[0], "observations"), _numbers(found[1])

    def step(self, action: Any) -> tuple:
        found = self.env.step(action)
        if not (isinstance(found, (tuple, list)) and len(found) == 5
                and isinstance(found[4], dict)):
            form = "five values (observation, reward, terminated, truncated, info), info a dict"
            raise misfit("the result of step", form, _form(found))
        obs, reward, terminated, truncated, info = found
        if type(reward) is not float:
            reward = _scalar(reward, float, "rewards")
        if type(terminated) is not bool:
            terminated = _scalar(terminated, bool, "terminated")
        if type(truncated) is not bool:
            truncated = _scalar(truncated, bool, "truncated")
        seen = _copy(self._seen, obs, "observations")
        return seen, reward, terminated, truncated, _numbers(info) if info else info


def _numbers(info: dict[Any, Any]) -> dict[Any, Any]:
    """Return an info's numbers as floats, without any other value.

    Numbers of nested dicts get the names that `reports.flat` gives them.
    """
    found: dict[Any, Any] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            found |= {within(of_key(key), of_key(one)): x for one, x in _numbers(value).items()}
        elif isinstance(value, _AT_ONCE[float]) or (
            isinstance(value, np.ndarray) and not value.shape and value.dtype.kind in "biuf"
        ):
            with contextlib.suppress(OverflowError):  # an integer beyond floats
                found[key] = float(value)
    return found


def _form(found: Any) -> str:
    """Return `5 values, info NoneType`, or the type of a single value."""
    if not isinstance(found, (tuple, list)):
        return type(found).__name__
    return f"{len(found)} values" + (f", the last {type(found[-1]).__name__}" if found else "")


def _copy(space: Any, observation: Any, name: str) -> Any:
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or not observation.keys() >= space.spaces.keys():
            got = (
                f"a dict with {', '.join(map(str, observation))}" if isinstance(observation, dict)
                else _form(observation)
            )
            raise misfit(name, f"a dict with {', '.join(map(str, space.spaces))}", got)
        return {key: _copy(inner, observation[key], f"{name}[{key!r}]")
                for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(observation, (tuple, list)) or len(observation) != len(space.spaces):
            raise misfit(name, f"a tuple of {len(space.spaces)} values", _form(observation))
        return tuple(_copy(inner, observation[i], f"{name}[{i}]")
                     for i, inner in enumerate(space.spaces))
    found = np.array(observation)
    if found.shape != space.shape:
        raise ValueError(f"{name} of shape {list(found.shape)}, where their space has "
                         f"{list(space.shape)}")
    return found if found.dtype == space.dtype else exact(found, space.dtype, name)


# types that need no check
_AT_ONCE = {bool: (bool, np.bool_), float: (float, int, np.floating, np.integer, np.bool_)}


def _scalar(value: Any, kind: type, name: str) -> Any:
    """Return a bool or a float, also of an array with one entry."""
    if isinstance(value, _AT_ONCE[kind]):
        return kind(value)
    if np.size(value) != 1:
        raise misfit(name, "one value a step", f"an array of shape {list(np.shape(value))}")
    return exact(value, kind, name).item()


def make_env(
    create: Callable[..., Any], arguments: dict[str, Any], limit: int | None, checks: bool = False
) -> gymnasium.Env:
    """Return the environment of a user's class or function; limit: steps until truncation."""
    env = create(**arguments)
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"{create!r} makes {type(env).__name__}, not a gymnasium.Env")
    env = env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)
    return Checked(env) if checks else env


def quiet(vector: Any) -> Any:
    """Make a vector of processes raise errors without logging their traceback first."""
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
    """Run Gymnasium's worker with handlers that ignore signals; its children inherit no mask."""
    for number in ASKED_TO_STOP:
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED_TO_STOP)
    async_vector_env._async_worker(*args)


@contextlib.contextmanager
def block_signals() -> Iterator[None]:
    """Block signals in processes from their start, not only from `worker` on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@atexit.register
def _kill_all() -> None:
    """Kill the environments' processes at exit, before multiprocessing waits for them."""
    # by Gymnasium's name for them: a vector that is still opening is known by nothing else
    for process in multiprocessing.active_children():
        if process.name.startswith("Worker<AsyncVectorEnv>"):
            process.kill()


def kill(processes: list[Any], patience: float = 1.0) -> None:
    """Kill processes; one that cannot be killed (it waits for a disk) is left behind."""
    for process in processes:
        process.kill()
    deadline = time.monotonic() + patience
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def describe_death(vector: Any) -> str:
    """Describe the dead process of a vector, if any: Gymnasium only knows its closed pipe."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:  # the pipe closes before the process ends
        # read once: one may end between two reads
        codes = [process.exitcode for process in vector.processes]
        for process, pipe, code in zip(vector.processes, vector.parent_pipes, codes, strict=True):
            # a process that reported an error has no pipe
            if pipe is not None and code is not None:
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return f"the process of one of its environments died ({process.pid}, {how})"
        if any(code is not None for code in codes):
            break
        time.sleep(0.02)
    return ""
