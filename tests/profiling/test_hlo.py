"""Reading optimized HLO: parts from scopes, arithmetic and bytes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxrl_fast.ops.scopes import LOSS, POLICY, scope
from jaxrl_fast.profiling import hlo
from jaxrl_fast.profiling.hlo import Cost

TEXT = """HloModule jit_f, is_scheduled=true

%fused (p: f32[100,8], i: s32[]) -> f32[8] {
  %p = f32[100,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,8]{1,0} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={1,8}, \
metadata={op_name="a/rl.sample/x"}
  %flat = f32[8]{0} bitcast(%row)
  %tanh.1 = f32[8]{0} tanh(%flat), metadata={op_name="a/rl.policy/tanh"}
  ROOT %mul = f32[8]{0} multiply(%tanh.1, %tanh.1), metadata={op_name="a/rl.policy/mul"}
}

%write (q: f32[100,8], u: f32[1,8], j: s32[]) -> f32[100,8] {
  %q = f32[100,8]{1,0} parameter(0)
  %u = f32[1,8]{1,0} parameter(1)
  %j = s32[] parameter(2)
  ROOT %dus = f32[100,8]{1,0} dynamic-update-slice(%q, %u, %j, %j), \
metadata={op_name="a/rl.store/y"}
}

%body (c: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %c = (s32[], /*index=1*/f32[4,8]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %x = f32[4,8]{1,0} get-tuple-element(%c), index=1
  %dot.3 = f32[4,4] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={1}, \
metadata={op_name="rl.loss/transpose(jvp())"}
  %copy.4 = f32[4,4]{0,1} copy(%dot.3)
  ROOT %out = (s32[], f32[4,8]{1,0}) tuple(%n, %x)
}

%cond (c2: (s32[], f32[4,8])) -> pred[] {
  %c2 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %lt = pred[] constant(true)
}

ENTRY %main (a: f32[100,8], b: f32[4,8], k: s32[]) -> f32[8] {
  %a = f32[100,8]{1,0} parameter(0)
  %b = f32[4,8]{1,0} parameter(1)
  %k = s32[] parameter(2)
  %t = (s32[], f32[4,8]{1,0}) tuple(%k, %b)
  %while.1 = (s32[], f32[4,8]) while(%t), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  %w.2 = f32[100,8]{1,0} fusion(%a, %b, %k), kind=kLoop, calls=%write
  ROOT %f.1 = f32[8]{0} fusion(%a, %k), kind=kLoop, calls=%fused, metadata={op_name="a/rl.sample/x"}
}
"""


@pytest.fixture(scope="module")
def module():
    return hlo.parse(TEXT)


@pytest.mark.parametrize(
    ("op_name", "part"),
    [
        ("jit(f)/while/body/add", None),
        ("jit(f)/rl.store/while/body/rl.policy/MLP/tanh", "policy"),
        ("jit(f)/rl.loss/jvp(MLP)/tanh", "forward"),
        ("jit(f)/rl.loss/transpose(jvp(MLP))/mul", "backward"),
        ("jit(f)/rl.loss/transpose(jvp(rl.preprocess))/mul", "backward"),
        ("jit(f)/rl.loss/jvp(rl.preprocess)/mul", "preprocess"),
        ("jit(f)/rl.loss/rl.optimizer/sub", "optimizer"),
        ("jit(f)/rl.loss/transpose", "forward"),
    ],
)
def test_the_innermost_scope_and_the_transform_name_the_part(op_name, part):
    assert hlo.part_of(op_name) == part


def test_a_fusion_has_the_part_of_most_of_its_work_not_of_its_name(module):
    assert module.part("f.1") == "policy"
    assert module.part("w.2") == "store"


def test_a_copy_belongs_to_the_part_of_its_operand(module):
    assert module.part("copy.4") == "backward"
    assert module.part("while.1") == "other"


def test_products_count_two_operations_a_term_and_loops_their_turns(module):
    assert module.cost("dot.3") == Cost(2 * 4 * 4 * 8, 4 * (32 + 32 + 16))
    turn = module.cost("dot.3").bytes + module.cost("copy.4").bytes
    assert module.cost("while.1") == Cost(5 * 256, 5 * turn)


def test_only_the_moved_rows_of_large_arrays_count(module):
    assert module.cost("f.1").bytes == 4 * 8 + 4 + 4 * 8  # a row, its index, the result
    assert module.cost("w.2").bytes == 4 * 8 + 4 + 4 * 8  # the row read and written, its place
    assert module.cost("f.1").flops == 16


def test_kernels_of_a_gpu_are_found_by_their_names(module):
    assert module.kernels["f_1"] == "f.1"


def test_a_compiled_program_has_its_scopes_and_its_arithmetic():
    def f(w, x):
        with scope(POLICY):
            y = jnp.tanh(x @ w)
        with scope(LOSS):
            return jax.grad(lambda v: jnp.sum(jnp.tanh(y @ v) ** 2))(w)

    w, x = jnp.ones((32, 32)), jnp.ones((16, 32))
    module = hlo.parse(jax.jit(f).lower(w, x).compile().as_text())
    flops: dict[str, float] = {}
    for one in module.instructions.values():
        if "dot" in one.op:
            part = module.part(one.name)
            flops[part] = flops.get(part, 0) + module.flops(one)
    product = 2 * 16 * 32 * 32
    assert flops == {"policy": product, "forward": product, "backward": product}


def test_scopes_change_no_compiled_instruction():
    def compiled(named):
        def f(x):
            with scope(POLICY) if named else jax.named_scope("other"):
                return jnp.tanh(x @ x).sum()

        text = jax.jit(f).lower(jnp.ones((8, 8))).compile().as_text()
        bodies = hlo.parse(text).computations.values()
        return [[(one.op, one.arrays, one.operands) for one in body] for body in bodies]

    assert compiled(True) == compiled(False)
