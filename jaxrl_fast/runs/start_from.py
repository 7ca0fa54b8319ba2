"""Training from given parameters: their source, and their fit to the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import distributed, values
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.start_text import IN_MEMORY
from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.reading import read_member
from jaxrl_fast.runs.rundir import run_path
from jaxrl_fast.types import RunState

ORDER = ("best", "last")  # checkpoints of a run directory


class Given(NamedTuple):
    """Start of an agent; NumPy leaves."""

    params: Any
    moments: Any  # statistics of observations; None for parameters alone


def start_of(config: RunConfig, source: Any, algo: Algorithm) -> Given | None:
    """Return the start of a new run's agents, or None; raises ConfigError for a misfit.

    source: the object given to `train`, or a start; None: `config.start_from` names it.
    """
    if config.start_from is None:
        return None
    if distributed.several():
        raise ConfigError("start_from", config.start_from, "None with several processes")
    if source is None:
        if config.start_from.startswith(IN_MEMORY):
            raise ConfigError("start_from", config.start_from, "a run directory, or parameters in "
                              "a call of train: this config.json has none")
        source = Path(values.path("start_from", config.start_from))
    return fit_start(read_start(source), algo)


def read_start(source: Any) -> Given:
    """Return parameters and statistics, if any, of a run, an agent, its state or a tree."""
    if isinstance(source, Path):
        folder = run_path("start_from", source)
        if not (folder / "config.json").is_file():
            raise ConfigError("start_from", str(source), "a run directory, with a config.json")
        state = read_member(folder, ORDER, None, ())[3]
        source = state.agent if isinstance(state, RunState) else state
    elif callable(getattr(source, "agent", None)):  # a run, of one program or of seeds in turn
        source = source.agent().state
    elif isinstance(source, Agent):
        source = source.state
    if hasattr(source, "params"):
        return Given(source.params, getattr(source, "moments", ()))
    if jax.tree_util.all_leaves([source]):
        raise ConfigError("start_from", source,
                          "a run directory, a run, an Agent or parameters (agent.state.params)")
    return Given(source, None)


def fit_start(given: Given, algo: Algorithm) -> Given:
    """Return a start in the shapes and dtypes of an algorithm's agents.

    Raises ConfigError for a start that does not fit, or agents without `params`.
    """
    like = jax.eval_shape(lambda: algo.init(jax.random.key(0)))
    if not hasattr(like, "params"):
        raise ConfigError("start_from", algo.name,
                          "None: the agents of this algorithm have no `params`")
    jax.eval_shape(algo.begin, like.params, getattr(like, "moments", ()))  # raises if it cannot
    params, moments = _fit("start_from.params", given.params, like.params), given.moments
    own = getattr(like, "moments", ())
    if moments is None:
        return Given(params, None)
    normalized, normalizes = bool(jax.tree.leaves(moments)), bool(jax.tree.leaves(own))
    if normalized != normalizes:
        which = "normalised observations" if normalized else "observations as they are"
        why = f"{normalizes}: the parameters of start_from are for {which}"
        raise expected("normalize_observations", str(normalized), why)
    return Given(params, _fit("start_from.moments", moments, own))


def _fit(name: str, tree: Any, like: Any) -> Any:
    """Return the leaves of `tree`, found by path, as a tree like `like`."""
    by_path = lambda tree: {jax.tree_util.keystr(path): x
                            for path, x in jax.tree.leaves_with_path(tree)}
    wanted, found = by_path(like), {path: np.asarray(x) for path, x in by_path(tree).items()}
    shown = lambda x: "nothing" if x is None else f"{x.dtype} {tuple(x.shape)}"
    both = [path for path in wanted if path in found]
    for path in both:
        want, got = wanted[path], found[path]
        floats = all(jnp.issubdtype(x.dtype, jnp.floating) for x in (want, got))
        if want.shape != got.shape or not (floats or want.dtype == got.dtype):
            raise expected(f"{name}{path}", shown(want), shown(got))
        if floats and not np.isfinite(got).all():
            raise expected(f"{name}{path}", "finite", f"{got[~np.isfinite(got)][0]} in it")
    for path in [*wanted, *found]:
        if path not in both:
            raise expected(f"{name}{path}", shown(wanted.get(path)), shown(found.get(path)))
    leaves = [found[path].astype(want.dtype) for path, want in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
