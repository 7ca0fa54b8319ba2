"""Counts of compiled programs, on small texts in XLA's form, and rows of the report."""

from __future__ import annotations

import sys
from pathlib import Path

import _aot_compile as compile_
import _aot_hlo as hlo
import _aot_rows as rows
import _aot_targets as targets
import _aot_thunks as thunks
import jax
import jax.numpy as jnp
import pytest
from _aot_programs import Program
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl_fast.errors import ConfigError

DATA = Path(__file__).resolve().parent / "data/small_program"
HLO, THUNKS = (DATA / "hlo.txt").read_text(), (DATA / "thunks.txt").read_text()


@pytest.fixture(scope="module")
def program():
    module, sequence = hlo.parse(HLO), thunks.parse(THUNKS)
    thunks.annotate(sequence, module)
    return module, sequence


def test_loops_multiply_the_launches_inside(program):
    total = thunks.count(program[1])
    assert total["launches"] == 1 + 3 * (
        16 * 3 + (1 + 1) + 1 + 1
    )  # an unknown loop counts one turn, and its condition
    assert total["graphs"] == 3 * 16 and total["in_graphs"] == 3 * 16 * 3
    assert total["loose"] == total["launches"] - total["in_graphs"]
    assert total["syncs"] == 3 * 2  # an unknown trip count and a branch


def test_a_launch_belongs_to_the_function_that_traced_it(program):
    parts = {
        name.partition(":")[2]: n
        for name, n in thunks.count(program[1]).items()
        if name.startswith("part:")
    }
    assert parts == {"rollout": 3 * 16, "physics": 3 * 16 * 2, "update": 3, "rest": 1 + 3 * 3}


def test_a_branch_meets_its_computations_in_order():
    """XLA writes "false_branch" above the computation of true."""
    module = hlo.parse(
        HLO.replace(
            "%loop_sine_fusion = f32[2]{0} fusion(%a.3), kind=kLoop",
            "%loop_sine_fusion = f32[2]{0} fusion(%a.3), kind=kLoop, metadata={stack_frame_id=5}",
        )
    )
    sequence = thunks.parse(THUNKS)
    thunks.annotate(sequence, module)
    (branch,) = [
        one for one in thunks.within(sequence[1].inside["body"]) if one.kind == "kConditional"
    ]
    assert [one.part for one in branch.inside["false_branch"]] == ["update"]


def test_an_empty_branch_has_no_thunks():
    """XLA of JAX 0.11 says so, in a line that is neither a thunk nor the name of a sequence."""
    lines = ("001: kConditional  [source | sink]", "  false_branch:",
             "    002: kCopy [source | sink] kCopy", "  true_branch:", "    No thunks.")
    (branch,) = thunks.parse("\n".join(lines))
    assert {name: len(side) for name, side in branch.inside.items()} == {
        "false_branch": 1, "true_branch": 0}


def test_a_triton_kernel_is_lowered_for_an_absent_card():
    """JAX 0.11 has to be told which card."""
    card = targets.parse("h100")
    like = jax.ShapeDtypeStruct((32,), jnp.int32)
    copy = pl.pallas_call(lambda source, target: triton.store(target, triton.load(source)),
                          out_shape=like, compiler_params=triton.CompilerParams(num_warps=1))
    text = compile_.lower(Program(jax.jit(copy), (like,), None), card.platform, card).as_text()
    assert "xla.gpu.triton" in text


def test_kinds_of_launches(program):
    kinds = thunks.count(program[1])
    assert (
        kinds["kind:product"] == 48
        and kinds["kind:copy"] == 48 + 3
        and kinds["kind:fusion"] == 1 + 3 * (16 + 1 + 1 + 1)
    )


def test_an_iteration_is_a_share_of_the_training_loop():
    found = compile_.launches(THUNKS, hlo.parse(HLO), 3)
    assert found["launches"] == 16 * 3 + 4 and found["syncs"] == 2 and found["graphs"] == 16
    assert found["around"] == {"launches": 1, "syncs": 0}
    assert found["waits"] == ["jit(train)/while/body/late", "jit(train)/while/body/branch"]
    assert compile_.launches(THUNKS, hlo.parse(HLO), None)["launches"] == 157


def test_a_branch_counts_with_its_larger_side(program):
    (branch,) = [
        one for one in thunks.within(program[1][1].inside["body"]) if one.kind == "kConditional"
    ]
    assert (
        thunks.count([branch])["launches"] == 1
        and thunks.count(branch.inside["true_branch"])["launches"] == 0
    )


def test_nothing_waits_inside_of_a_graph():
    inside = THUNKS.replace("\n", "\n    ").rstrip()
    sequence = thunks.parse(
        "000: kCommandBuffer [source | sink]\n    " + inside.replace("    condition:", "condition:")
    )
    module = hlo.parse(HLO)
    thunks.annotate(sequence, module)
    total = thunks.count(sequence)
    assert (
        total["syncs"] == total["loose"] == 0
        and total["graphs"] == 1
        and thunks.waits(sequence) == []
    )


def test_other_thunks_than_the_module_has_are_refused():
    with pytest.raises(thunks.MismatchError, match="main must have the loops of its thunks"):
        thunks.annotate(thunks.parse("000: kCopy [source | sink] kCopy"), hlo.parse(HLO))


def test_stacks_name_functions_from_the_innermost(program):
    (dot,) = [one for one in program[0].computations["fused_dot"] if one.op == "dot"]
    names = [f.function for f in program[0].stack(dot.frame)]
    assert names == ["update_all.<locals>.one", "update_all", "make_train.<locals>.train"]
    assert program[0].stack(0) == []


@pytest.mark.parametrize(
    ("functions", "part"),
    [
        (
            ["_where", "rows", "init", "_collect", "update_all", "train"],
            "update",
        ),  # the outermost one counts
        (["gae", "PolicyGradient.prepare", "take_in", "iteration"], "returns"),
        (["make_train.<locals>.train.<locals>._update_step.<locals>._env_step"], "rollout"),
        (["_update_step.<locals>._calculate_gae.<locals>._get_advantages"], "returns"),
        (["DQN.update", "DQN.train_iteration.<locals>.do_updates"], "update"),
        (["Recollect"], "rest"),
    ],
)
def test_parts_of_an_iteration(functions, part):
    assert thunks.part_of([hlo.Frame("/lib/x.py", name) for name in functions]) == part


@pytest.mark.parametrize(("file", "op_name", "part"), [
    ("/lib/site-packages/brax/math.py", "jit(train)/vmap()/mul", "physics"),
    ("/src/jaxrl_fast/ops/lowering.py", "rl.environment/physics/vmap()/while/body/mul", "physics"),
    ("/src/jaxrl_fast/ops/lowering.py", "rl.environment/vmap()/mul", "rollout"),
])  # fmt: skip
def test_physics_counts_the_launches_of_an_engines_step(file, op_name, part):
    """A rewritten step has none of the engine's frames, but our scope."""
    stack = [hlo.Frame(file, "scan"), hlo.Frame("/lib/x.py", "_collect")]
    assert thunks.part_of(stack, op_name) == part


def test_products_by_operands_and_precision(program):
    assert hlo.products(program[0]) == {("f32", "default"): 1, ("f32", "highest"): 1}
    assert hlo.products(program[0], library=True) == {("f32", "highest"): 1}


def test_tensor_cores_are_read_from_ptx():
    ptx = """.visible .entry gemm_fusion_dot_1(
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f2};
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f2};
.visible .entry gemm_fusion_dot_2(
  wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1;
.visible .entry loop_add_fusion(
  fma.rn.f32 %f1, %f2, %f3, %f4;
"""
    assert hlo.tensor_cores(ptx) == {"tf32": 1, "bf16": 1}


def test_collectives_and_callbacks(program):
    assert hlo.collectives(program[0]) == {"all-reduce": 1} and hlo.callbacks(HLO) == 0
    assert hlo.callbacks('custom-call(), custom_call_target="xla_ffi_python_cpu_callback"') == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100", ("h100", "cuda", 1)),
        ("a100:8", ("a100:8", "cuda", 8)),
        ("v5e", ("v5e:2x2", "tpu", 4)),
    ],
)
def test_names_of_targets(name, expected):
    target = targets.parse(name)
    assert (target.name, target.platform, targets.chips(target)) == expected


@pytest.mark.parametrize("name", ["h1000", "h100:0", "h100:2x2", "v5e:4", "", "cpu"])
def test_unknown_targets_are_refused(name):
    with pytest.raises(
        ConfigError, match="target must be one of 'a100', 'h100', 'h200', 'v5e', 'v6e'"
    ):
        targets.parse(name)


def test_a_missing_compiler_is_named_with_its_pip_command(monkeypatch):
    for plugin in (name for names in targets.PLUGINS.values() for name in names):
        monkeypatch.setitem(sys.modules, plugin, None)
    for name, extra in (("h200", "cuda12"), ("v6e", "tpu")):
        with pytest.raises(ConfigError, match=rf"pip install -e '.\[{extra}\]'"):
            targets.parse(name).devices()


def test_a_card_is_described_in_the_compilers_form():
    text = targets.config(targets.GPUS["a100"])
    assert "core_count: 108\n" in text and "cuda_compute_capability { major: 8 }" in text
    assert "shared_memory_per_block_optin: 166912\n" in text and "ACCELERATED" not in text


def measured(launches, syncs=0.0, **more):
    return {
        "program": "ppo_4", "target": "h100", "unit": "launches", "launches": launches,
        "syncs": syncs, "waits": ["late"],
        "collectives": {}, "arguments": 2**20, "temporaries": 0, "products": {}, "compile_s": 7.4,
    } | more  # fmt: skip


def test_more_launches_waits_or_collectives_are_worse():
    old = measured(100.0)
    assert rows.worse(measured(101.0), old) == [] == rows.worse(measured(50.0), old)
    assert "must launch at most 100, got 110" in rows.worse(measured(110.0), old)[0]
    assert "got 0.5: late" in rows.worse(measured(100.0, 0.5), old)[0]
    assert len(rows.worse(measured(100.0, collectives={"all-reduce": 2}), old)) == 1


def test_a_row_stands_beside_the_better_peer(tmp_path):
    peers = {"PureJaxRL": measured(400.0), "rejax": measured(300.0)}
    one = rows.beside(measured(100.0, rollout=60), peers, 0.3)
    assert (one["peer"], one["peer_value"]) == ("rejax", 300.0)
    assert "0.33" in rows.line(one) and "0.30" in rows.line(one)
    assert rows.beside(measured(1.0), {}, None)["wanted"] is None


def test_a_report_replaces_rows_of_the_same_program_and_target(tmp_path):
    path = tmp_path / "report.jsonl"
    rows.write(path, [measured(100.0), measured(90.0, target="a100")])
    path.write_text(path.read_text() + '{"program": "cut o')
    rows.write(path, [measured(80.0)])
    assert {key: one["launches"] for key, one in rows.read(path).items()} == {
        ("ppo_4", "h100"): 80.0,
        ("ppo_4", "a100"): 90.0,
    }
