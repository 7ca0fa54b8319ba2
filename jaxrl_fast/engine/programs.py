"""The compiled programs of a run: init, warm-up, chunk, evaluation, snapshot."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import distributed, runtime, tree
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.chunks import Chunk, chunk, warmup
from jaxrl_fast.engine.evaluate import judge
from jaxrl_fast.engine.grid import ROWS
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.population import Population
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.streams import evaluation_key
from jaxrl_fast.logs.reports import Reported
from jaxrl_fast.logs.walltime import WallTime
from jaxrl_fast.types import RunState

COMPILING = "compile"  # name of threads in which XLA compiles
CORES_TO_SPARE = 4  # of a CPU, to compile an evaluation beside a chunk
# bytes of a state above which the plan is checked before anything compiles: XLA aborts the process
# for sizes that overflow its integers
LARGE = 2**33


def compiling() -> bool:
    """Return whether XLA compiles in the background; the end of the process would wait for it."""
    return any(thread.name.startswith(COMPILING) for thread in threading.enumerate())


def begin(run: Run, agent: Any, params: Any, moments: Any) -> Any:
    """Return an agent with given parameters in place of `agent`'s; moments None: `agent`'s."""
    moments = getattr(agent, "moments", ()) if moments is None else moments
    return tree.strong(tree.copy(run.algo.begin(params, moments)))


class Scores(NamedTuple):
    """Results of an evaluation, of one member or [lanes]."""

    ret: Any  # mean return
    fault: Any  # the worst of all episodes, see `rollout.fault`
    largest: Any  # of the agent's parameters, NaN without `params`
    length: Any = None  # mean steps of an episode, on the host
    episodes: Any = None  # number, if not the settings'


def largest_parameter(agent: Any) -> jax.Array:
    """Return the largest magnitude among parameters; statistics may be any number."""
    leaves = [x for x in jax.tree.leaves(getattr(agent, "params", ()))
              if jnp.issubdtype(x.dtype, jnp.floating) and x.size]
    largest = [jnp.max(jnp.abs(x)).astype(jnp.float32) for x in leaves]
    return functools.reduce(jnp.maximum, largest) if largest else jnp.float32(jnp.nan)


def forget_episodes(run: Run, moved: tuple[Any, jax.Array]) -> Any:
    """Return the agent of (agent, fresh), without its knowledge of episodes where `fresh`."""
    agent, fresh = moved
    return jax.tree.map(lambda new, old: jnp.where(fresh, new, old), run.algo.seam(agent), agent)


class Context:
    """State that a run's programs share with its loop.

    clock: of the main thread. reported: of host environments. history: log rows so far. latest:
    rows in the making. stopping: returns the number of the signal that asks the run to stop, or
    None.
    """

    def __init__(self, reported: Reported | None = None,
                 stopping: Callable[[], int | None] = lambda: None):
        self.clock, self.history, self.latest = WallTime("compile"), [], ()
        self.reported, self.stopping = reported or Reported(), stopping


def unpadded(p: Population, x: Any) -> Any:
    return x if p.size == p.padded or p.size == 1 else jax.tree.map(lambda leaf: leaf[: p.size], x)


class Functions(dict):
    """The functions that `Programs` compiles, by name; a `dict` has no weak references."""


_alive: weakref.WeakValueDictionary[tuple, Functions] = weakref.WeakValueDictionary()
_latest: list[Functions] = []


def functions(*kind: Any) -> Functions:
    """Return the functions of a kind of run: the same while a run of the kind lives.

    The functions of the latest run are kept. JAX finds a program by its function, so the next run
    of the same kind traces, lowers and compiles nothing. With the functions go their programs.
    """
    found = _alive.get(kind) or _alive.setdefault(kind, _made(*kind))
    _latest[:] = [found]
    return found


def _made(
    p: Population, swept: tuple[int, ...], row: int, rows: int, episodes: int,
    mode: str, structure: Any
) -> Functions:
    """Return new functions. structure, rows: of the run and `ROWS`; they only tell kinds apart."""
    lift = functools.partial(p.lift, swept=swept)

    def score(run, member, rows):
        agent, root = member  # a member's own key: it scores like a single run with its seed
        score, fault = judge(run.env, run.algo, agent, evaluation_key(root, rows), episodes, mode)
        return Scores(jnp.mean(score.ret), jnp.max(fault), largest_parameter(agent))

    return Functions(
        init=lift(iteration.init),
        begin=lift(begin),
        warmup=lift(warmup),
        chunk=lift(lambda run, state, t0, n: chunk(run, state, t0, n, row)),
        evaluate=lift(score),
        snapshot=lambda x: tree.copy(unpadded(p, x)),
        move=lambda run, agent, index, fresh: lift(forget_episodes)(
            run, (tree.take(agent, index), fresh)),
    )


class Programs:
    """Everything that runs on the device, for one run or a population."""

    def __init__(self, prepared: Prepared, context: Context | None = None):
        members, config = prepared.members, prepared.config
        grid, population = prepared.grid, prepared.population
        self.prepared, self.grid, self.population, self.config = prepared, grid, population, config
        self.first, self.run = members.first, members.place(population)
        self.context = context or Context()
        self.clock = self.context.clock
        of_run = (
            grid.row, ROWS, config.most_episodes, config.eval_mode, jax.tree.structure(self.run)
        )
        self._functions = f = functions(population, members.swept, *of_run)
        state, own = population.state_sharding, population.sharding
        # otherwise clear
        where = lambda *x: (
            {"out_shardings": x if len(x) > 1 else x[0]} if population.env > 1 else {}
        )
        self._init = jax.jit(f["init"], **where(state))
        self._begin = jax.jit(f["begin"], **where(own))
        training = {"compiler_options": runtime.loop_options(population.platform,
                                                             config.parallel_loops)}  # fmt: skip
        training |= {"donate_argnums": 1} if config.donate else {}
        self._warmup = jax.jit(f["warmup"], **training, **where(state, own))
        self._chunk = jax.jit(f["chunk"], **training, **where(state, own, own))
        self._evaluate = jax.jit(f["evaluate"], **where(own))
        self._snapshot = jax.jit(f["snapshot"])
        self._move = jax.jit(f["move"], out_shardings=own)
        self._move_all = jax.jit(tree.take, out_shardings=state)
        self._compiled: dict[str, Any] = {}
        self._jobs: dict[str, Future] = {}
        self._pool: ThreadPoolExecutor | None = None

    def compile(self, keys: jax.Array, everything: bool = False) -> None:
        """Compile the programs of the first updates side by side, and usually the evaluation.

        A CPU of few cores compiles the evaluation later (unless `everything`). Raises ConfigError
        for a run that cannot fit the device; the first chunk does so for temporaries that do not.
        """
        with self.population.tracing():
            shapes = self._init.eval_shape(self.run, keys)
        state = self.population.abstract_state(shapes)
        zero, platform = self._scalar(0), self.population.platform
        if tree.nbytes(shapes) > LARGE:
            self.prepared.plan.check()
        self._start("init", self._init, self.run, keys, options=runtime.once_options(platform))
        self.prepared.plan.check()  # traces the rest meanwhile
        if self.grid.warmup:
            self._start("warmup", self._warmup, self.run, state)
        self._start("chunk", self._chunk, self.run, state, zero, zero)
        if everything or platform != "cpu" or runtime.cpu_count() >= CORES_TO_SPARE:
            self._start("evaluate", self._evaluate, self.run, (state.agent, state.key), zero)
        self._jobs["init"].result()

    def _start(self, name: str, fn: Any, *args: Any, options: dict[str, Any] | None = None) -> None:
        """Compile in the background, two at a time, in order of need; XLA releases the GIL."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix=COMPILING)
        self._jobs[name] = self._pool.submit(self._build, fn, args, options)

    def _build(self, fn: Any, args: tuple, options: dict[str, Any] | None = None) -> Any:
        with self.population.tracing():
            lowered = fn.lower(*args)
        return lowered.compile(options)

    def recompile_for_trace(self, state: RunState) -> None:
        """Compile the chunk anew if a profiler sees its instructions only so."""
        if options := runtime.traced_options(self.population.platform):
            with self.clock.during("compile"):
                args = self.run, state, self._scalar(0), self._scalar(0)
                self._compiled["chunk"] = self._build(self._chunk, args, options)

    def paused(self) -> AbstractContextManager:
        return nullcontext()

    def give_up(self) -> None:
        """Start no further compilation: the end of the process would wait for it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool, self._jobs = None, {name: job for name, job in self._jobs.items() if job.done()}

    def memory_analysis(self) -> dict[str, Any]:
        """Return XLA's sizes of started programs on one device, by name; waits for the compiler."""
        return {name: job.result().memory_analysis() for name, job in self._jobs.items()}

    def ready(self, name: str) -> None:
        if name in self._compiled or name not in self._jobs:
            return
        with self.clock.during("compile"):
            self._compiled[name] = self._jobs[name].result()
            if name == "chunk":  # before training; a later refusal would lose its result
                done = [job.result() for job in self._jobs.values() if job.done()
                        and not job.cancelled()]
                self.prepared.plan.compiled([program.memory_analysis() for program in done]).check()

    def _call(self, name: str, fn: Any, *args: Any) -> Any:
        self.ready(name)
        if name not in self._compiled:
            with self.clock.during("compile"):
                self._compiled[name] = self._build(fn, args)
        return self._compiled[name](*args)

    def _scalar(self, value: int) -> jax.Array:
        return distributed.put(np.int32(value), self.population.replicated)

    def init(self, keys: jax.Array) -> RunState:
        return self._call("init", self._init, self.run, keys)

    def begin(self, state: RunState, given: Any) -> RunState:
        """Return `state` with agents that begin with `given`, a `start_from.Given`."""
        params, moments = distributed.put(tuple(given), self.population.replicated)
        return state._replace(agent=self._call("begin", self._begin,
                                               self.run, state.agent, params, moments))

    def chunk(self, state: RunState, t0: int, rows: int) -> Chunk:
        """Run the warm-up (row 0 of the log), or at most `rows` log rows, from iteration t0."""
        if t0 < self.grid.warmup:
            state, metrics = self._call("warmup", self._warmup, self.run, state)
            return Chunk(state, distributed.together(metrics, self.population.replicated),
                         None, self.grid.warmup)
        state, *found = self._call("chunk", self._chunk, self.run, state,
                                   self._scalar(t0), self._scalar(rows))
        found = distributed.together(found, self.population.replicated)
        return Chunk(state, *found, t0 + rows * self.grid.row)

    def evaluate(self, state: RunState, rows: int, told: Callable[[int, int], None],
                 last: bool) -> Scores | None:
        """Evaluate each lane; keys depend on seed and row alone. None: left out, for its cost.

        told(episodes played, of all) is called. last: the run ends here, so nothing is left out.
        """
        told(0, self.config.most_episodes)
        scores = self._call("evaluate", self._evaluate, self.run, (state.agent, state.key),
                            self._scalar(rows))
        return self.population.members(distributed.fetch(scores, self.population.replicated))

    def snapshot(self, x: Any) -> Any:
        """Copy on the device, without the population's padding, safe from later donation."""
        return self._snapshot(x)

    def move(self, state: RunState, parent: np.ndarray, whole: np.ndarray) -> RunState:
        """Return `state` with agents of `parent` [size]; where `whole` [size], all but the key."""
        size, padded = self.population.size, self.population.padded
        index = lambda lanes: distributed.put(np.concatenate([lanes, np.arange(size, padded)]),
                                              self.population.replicated)
        if whole.any():
            cloned = self._move_all(state, index(np.where(whole, parent, np.arange(size))))
            state = cloned._replace(agent=state.agent, key=state.key)
        fresh = self.population.place((parent != np.arange(size)) & ~whole)
        return state._replace(agent=self._move(self.run, state.agent, index(parent), fresh))

    def change(self, leaf: int, values: np.ndarray) -> None:
        """Replace the values of a setting that every member has for itself, [size]."""
        leaves, structure = jax.tree.flatten(self.run)
        leaves[leaf] = self.population.place(np.asarray(values, leaves[leaf].dtype))
        self.run = jax.tree.unflatten(structure, leaves)

    def unpadded(self, x: Any) -> Any:
        return unpadded(self.population, x)

    def padded(self, x: Any) -> Any:
        return self.population.place(x, self.population.state_sharding if isinstance(x, RunState)
                                     else None)
