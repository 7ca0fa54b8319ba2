"""Training on a probe, as one program; compiled without XLA's optimizations, for it runs a tenth of
a second."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl_fast as jf


def quick(fn, *args):
    """fn(*args) jitted; compiling is what costs here, so the backend does not optimize."""
    return jax.jit(fn).lower(*args).compile({"xla_backend_optimization_level": 0})(*args)


@pytest.fixture(scope="session")
def learn():
    """(algorithm, probe's name, steps) -> (bound algorithm, agent, known values, metrics)."""

    def run(algo, name, steps, **settings):
        env = jf.make(name, **settings)
        train = jf.make_train(algo, env, total_steps=steps, log_every=steps)
        state, metrics = quick(lambda key: train(key), jax.random.key(0))
        known = (
            env.known_values(float(getattr(algo, "discount", 1.0))) if hasattr(env, "known_values")
            else None
        )
        return algo.bind(env.spec), jax.tree.map(np.asarray, state.agent), known, metrics

    return run


@pytest.fixture(scope="session")
def compiled():
    return quick


@pytest.fixture(scope="session")
def single_files():
    """The folder of the programs that hold a whole algorithm each."""
    return Path(__file__).resolve().parents[2] / "scripts" / "single_file"


@pytest.fixture(scope="session")
def load(single_files):
    """name -> (the class of `scripts/single_file/NAME.py`, its module)."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"single_file_{name}",
                                                      single_files / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name.upper()), module

    return load
