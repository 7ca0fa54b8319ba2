"""The unbroken runs that others are compared with, trained once."""

from __future__ import annotations

import os
from unittest import mock

import jax
import loop_tools as tools
import pytest

jax.devices()  # started before a test asks for several seeds, so that this process keeps the devices that it has


@pytest.fixture(scope="session")
def as_users_have_it():
    """A context in which programs are compiled as users have them, not quickly (tests/conftest.py)."""
    options = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
    if "fusion_emitters" in os.environ["XLA_FLAGS"]:
        options["xla_cpu_use_fusion_emitters"] = True
    compile = jax.stages.Lowered.compile
    as_then = lambda lowered, own=None: compile(lowered, options | (own or {}))
    return lambda: mock.patch.object(jax.stages.Lowered, "compile", as_then)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory):
    """name of an algorithm -> (session, run directory) of the whole run."""
    done = {}

    def get(name):
        if name not in done:
            out = tmp_path_factory.mktemp("unbroken") / name
            done[name] = tools.train(name, out), out
        return done[name]

    return get


@pytest.fixture(scope="session")
def singles(as_users_have_it):
    """name -> sessions of single runs with seeds 0, 1, 2 to the middle of the horizon, compiled as users have them."""
    done = {}

    def get(name):
        if name not in done:
            with as_users_have_it():
                done[name] = [
                    tools.train(name, seed=i, total_steps=tools.HALF, horizon=tools.TOTAL, eval_every=0) for i in range(3)
                ]
        return done[name]

    return get
