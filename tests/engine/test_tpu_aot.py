"""Populations compiled by the real TPU compiler, without a TPU:

    pip install -e '.[dev,tpu]'
    JAX_PLATFORMS=cpu ALLOW_MULTIPLE_LIBTPU_LOAD=1 pytest -m tpu_aot -n0
"""

from __future__ import annotations

import pytest

import jaxrl_fast as jf

pytestmark = [pytest.mark.tpu_aot, pytest.mark.timeout(900)]
SMALL = {
    "ppo": dict(num_envs=8, num_steps=16),
    "dqn": dict(num_envs=8, buffer_size=4096, learning_starts=256, hidden=(64,)),
    "sac": dict(num_envs=4, buffer_size=4096, learning_starts=256, hidden=(64,), critic_hidden=(64,)),
}
HBM = 16 * 2**30  # of a v5e chip; a v6e chip has 32


@pytest.mark.parametrize("topology", ["v5e:2x2", "v6e:2x2"])
@pytest.mark.parametrize("name", SMALL)
def test_a_population_is_one_module_without_collectives(name, topology):
    import aot_report as aot

    env = jf.make(aot.ENVIRONMENTS.get(name, "CartPole-v1"))
    algo = jf.preset(name, env.spec.name, **SMALL[name])
    program = aot.chunk_for(aot.topology(topology), algo, env, 16, steps=20_000)
    found = aot.report(aot.lower(*program, "tpu").compile())
    assert (found["modules"], found["collectives"], found["callbacks"]) == (1, 0, 0)
    assert 0 < found["arguments"] + found["temporaries"] < HBM


def test_along_the_environments_only_sums_are_sent():
    import re

    import aot_report as aot

    algo = jf.preset("ppo", "CartPole-v1", **SMALL["ppo"])
    devices = aot.topology("v5e:2x2")
    program = aot.chunk_for(devices, algo, jf.make("CartPole-v1"), 4, steps=20_000, env_devices=2)
    kinds = set(re.findall(aot.COLLECTIVES, aot.lower(*program, "tpu").compile().as_text()))
    assert kinds == {"all-reduce"}
