"""Programs compiled for an absent GPU launch and wait no more than recorded:

    pip install -e '.[dev,cuda12]'
    JAX_PLATFORMS=cpu pytest -m gpu_aot -n0

A program takes 10 to 60 s of one core, and none where nothing has changed since the last session.
The record is docs/benchmarks/results/gpu_launches.jsonl; `scripts/aot_report.py --out` writes it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import _aot_compile
import _aot_rows as rows
import _aot_targets as targets
import pytest

pytestmark = [pytest.mark.gpu_aot, pytest.mark.timeout(900)]
RECORD = rows.read(
    Path(__file__).resolve().parents[2] / "docs/benchmarks/results/gpu_launches.jsonl"
)
KEEP = Path(tempfile.gettempdir()) / "jaxrl_fast-aot"


@pytest.fixture(scope="module", autouse=True)
def compilers():
    targets.prepare()


def compiled(name, target):
    import _aot_programs
    import _aot_table

    row = _aot_table.TABLE[name]
    return _aot_compile.compiled(_aot_programs.build(row.kind, row.work(), target), target, KEEP)


@pytest.mark.parametrize("name", [name for name, target in RECORD if target == "h100"])
def test_a_program_launches_and_waits_no_more_than_recorded(name):
    recorded = RECORD[name, "h100"]
    found = compiled(name, targets.parse("h100"))
    new = rows.row(name, recorded["what"], recorded["kind"], targets.parse("h100"), found, "")
    if new["versions"].partition(", ")[2] != recorded["versions"].partition(", ")[2]:
        pytest.skip(f"recorded with {recorded['versions']}, here are {new['versions']}")
    assert rows.worse(new, recorded) == []


def test_every_watched_program_is_recorded():
    import _aot_table

    assert {name for name, target in RECORD if target == "h100"} == set(_aot_table.TABLE)


@pytest.mark.parametrize("target", ["h100:4", "a100", "h200"])
def test_a_population_compiles_for_other_cards_and_several(target):
    found = compiled("ppo_chunk", targets.parse(target))
    assert (found["modules"], found["collectives"], found["callbacks"], found["syncs"]) == (
        1,
        {},
        0,
        0,
    )


def test_the_host_waits_for_a_loop_without_a_trip_count():
    """The counts find what they are for, in the compiler's own text."""
    import jax
    import jax.numpy as jnp
    from _aot_programs import Program

    def program(x):
        step = lambda i, x: jax.lax.while_loop(lambda x: x[0] > 1, lambda x: x * 0.5, x + i)
        return jax.lax.fori_loop(0, 5, step, x)

    target = targets.parse("h100")
    where = jax.sharding.SingleDeviceSharding(target.devices()[0])
    args = (jax.ShapeDtypeStruct((256,), jnp.float32, sharding=where),)
    found = _aot_compile.compiled(Program(jax.jit(program), args, 5), target)
    assert found["syncs"] == 1 and found["launches"] >= 2 and len(found["waits"]) == 1


SMALL = {
    "ppo": ("CartPole-v1", dict(num_envs=8, num_steps=16, hidden=(32,))),
    "dqn": ("Breakout-MinAtar",
            dict(num_envs=8, buffer_size=4096, learning_starts=256, hidden=(32,))),
    "physics": ("brax/inverted_pendulum", dict(num_envs=8, num_steps=4, hidden=(32,))),
}
ASKED = {
    "highest": {("f32", "highest")},
    "tf32": {("f32", "default")},
    "bf16": {("f32", "dot_bf16_bf16_f32"), ("bf16", "default")},  # the second: convolutions
}


@pytest.mark.parametrize("precision", ASKED)
@pytest.mark.parametrize("name", SMALL)
def test_products_of_a_compiled_program_round_as_named(name, precision):
    """Torsos as the setting says, in XLA's kernels and in libraries; physics and heads in
    float32."""
    import _aot_hlo as hlo
    import _aot_programs as aot

    import jaxrl_fast as jf

    env, settings = SMALL[name]
    algo = (jf.DQN if name == "dqn" else jf.PPO)(precision=precision, **settings)
    target = targets.parse("h100")
    program = aot.build("iteration", aot.Work(algo, jf.make(env), 20_000), target)
    found = _aot_compile.compiled(program, target, KEEP)
    products = list(hlo.each_product(hlo.parse((KEEP / found["digest"] / "hlo.txt").read_text())))
    of_torsos = [
        p for p in products if "MLP" in p.op_name or "CNN" in p.op_name or "conv" in p.op_name]
    others = [p for p in products if p not in of_torsos]
    assert {p[:2] for p in others} == {("f32", "highest")}
    assert of_torsos and {p[:2] for p in of_torsos} <= ASKED[precision]
    kernels = {kind for kind in found["products"] if kind.endswith(" kernels")}  # on tensor cores
    assert kernels == ({f"{precision} kernels"} if precision != "highest" else set())


def test_the_atari_kernel_keeps_its_lanes_in_registers(tmp_path):
    import _atari_sass

    facts, ptx = _atari_sass.build(4096, targets.parse("h100"), KEEP)
    found = _atari_sass.assemble(ptx, tmp_path / "kernel.cubin")
    assert found["spill_stores"] + found["spill_loads"] <= 64 and found["shared"] == 0
    assert found["registers"] <= 168  # of which a core holds twelve warps
    assert facts["launches"] <= 32 and facts["syncs"] == 0
    turn = _atari_sass.every_turn(_atari_sass.blocks(ptx.read_text()))
    assert 500 < sum(block.instructions for block in turn) <= 950
    assert 4 < sum(block.loads + block.stores for block in turn) <= 16
