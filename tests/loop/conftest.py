"""The unbroken runs that others are compared with, trained once."""

from __future__ import annotations

import jax
import loop_tools as tools
import pytest

jax.devices()  # started before a test asks for several seeds, so that this process keeps the devices that it has


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
def singles():
    """name -> sessions of single runs with seeds 0, 1, 2 to the middle of the horizon."""
    done = {}

    def get(name):
        if name not in done:
            done[name] = [
                tools.train(name, seed=i, total_steps=tools.HALF, horizon=tools.TOTAL, eval_every=0) for i in range(3)
            ]
        return done[name]

    return get
