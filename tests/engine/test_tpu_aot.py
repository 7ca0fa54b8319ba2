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
    "sac": dict(num_envs=4, buffer_size=4096, learning_starts=256, hidden=(64,),
                critic_hidden=(64,)),
}
HBM = 16 * 2**30  # of a v5e chip; a v6e chip has 32


@pytest.fixture(scope="module", autouse=True)
def compilers():
    import _aot_targets

    _aot_targets.prepare()


def chunk(name, target, members, env_devices=1):
    import _aot_compile
    import _aot_programs as aot
    import _aot_targets as targets

    env = jf.make("Pendulum-v1" if name == "sac" else "CartPole-v1")
    work = aot.Work(jf.preset(name, env.spec.name, **SMALL[name]), env, 20_000, members,
                    env_devices)
    place = targets.parse(target)
    return _aot_compile.compiled(aot.build("chunk", work, place), place)


@pytest.mark.parametrize("target", ["v5e:2x2", "v6e:2x2"])
@pytest.mark.parametrize("name", SMALL)
def test_a_population_is_one_module_without_collectives(name, target):
    found = chunk(name, target, 16)
    assert (found["modules"], found["collectives"], found["callbacks"]) == (1, {}, 0)
    assert 0 < found["arguments"] + found["temporaries"] < HBM


def test_along_the_environments_only_sums_are_sent():
    assert set(chunk("ppo", "v5e:2x2", 4, env_devices=2)["collectives"]) == {"all-reduce"}


def test_a_frame_of_atari_is_one_module_and_its_branches_stay(tmp_path):
    """A TPU skips rare work as a CPU does: code in RAM, words, pixels, writes to the TIA."""
    import _aot_compile
    import _aot_programs as aot
    import _aot_targets as targets
    import jax
    import jax.numpy as jnp

    from jaxrl_fast.envs.atari import machine, state

    target = targets.parse("v5e:2x2")
    place = jax.sharding.SingleDeviceSharding(target.devices()[0])

    def array(*shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    def lanes(kind):
        return kind(*[array(8)] * len(kind._fields))

    parts = map(lanes, (state.Cpu, state.Riot, state.Tia, state.Cart, state.View))
    screens = array(8, 2, 250, state.WIDTH, dtype=jnp.uint8)
    ram = array(8, state.RAM, dtype=jnp.uint8)
    m = state.Machine(*parts, ram, screens, *[array(8)] * 6)
    args = m, lanes(state.Inputs), state.Rom(*[array(4096)] * 3)
    program = aot.Program(jax.jit(machine.frame), args, None)
    found = _aot_compile.compiled(program, target, tmp_path)
    assert (found["modules"], found["collectives"], found["callbacks"]) == (1, {}, 0)
    assert (tmp_path / found["digest"] / "hlo.txt").read_text().count(" conditional(") >= 4


ASKED = {
    "highest": {("f32", "highest")},
    "tf32": {("f32", "high")},
    "bf16": {("bf16", "default"), ("f32", "default")},  # a float32 operand is rounded as it is read
}
TORSOS = {
    "ppo": ("CartPole-v1", dict(num_envs=8, num_steps=16, hidden=(32,))),
    "dqn": ("Breakout-MinAtar",
            dict(num_envs=8, buffer_size=4096, learning_starts=256, hidden=(32,))),
    "physics": ("brax/inverted_pendulum", dict(num_envs=8, num_steps=4, hidden=(32,))),
}


@pytest.mark.parametrize("precision", ASKED)
@pytest.mark.parametrize("name", TORSOS)
def test_products_of_a_compiled_program_round_as_named(name, precision, tmp_path):
    """Torsos as the setting says; physics and heads in float32, by six passes of bfloat16."""
    import _aot_compile
    import _aot_hlo as hlo
    import _aot_programs as aot
    import _aot_targets as targets

    env, settings = TORSOS[name]
    algo = (jf.DQN if name == "dqn" else jf.PPO)(precision=precision, **settings)
    target = targets.parse("v5e:2x2")
    program = aot.build("chunk", aot.Work(algo, jf.make(env), 20_000, 4), target)
    found = _aot_compile.compiled(program, target, tmp_path)
    products = list(
        hlo.each_product(hlo.parse((tmp_path / found["digest"] / "hlo.txt").read_text())))
    of_torsos = [
        p for p in products if "MLP" in p.op_name or "CNN" in p.op_name or "conv" in p.op_name]
    others = [p for p in products if p not in of_torsos]
    assert {p[:2] for p in others} == {("f32", "highest")}
    assert of_torsos and {p[:2] for p in of_torsos} <= ASKED[precision]
