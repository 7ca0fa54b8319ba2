"""Precision of products on an accelerator, read from programs traced for CUDA and for a TPU."""

from __future__ import annotations

import collections

import jax
import jax.numpy as jnp
import pytest
from test_launches import ON_A_CPU, equations, log_row

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.engine import iteration
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import stacking
from jaxrl_fast.ops.precision import in_force
from jaxrl_fast.runs import config_json
from jaxrl_fast.tree import as_float32
from jaxrl_fast.types import Clock, Outcome

HIGHEST, HIGH, DEFAULT = (
    (x,) * 2 for x in (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGH, jax.lax.Precision.DEFAULT)
)
BF16 = jax.lax.DotAlgorithmPreset.BF16_BF16_F32
# on a GPU: "high" is float32 to XLA's kernels
OF_TORSOS = {"highest": HIGHEST, "tf32": DEFAULT, "bf16": BF16}
ON_A_TPU = OF_TORSOS | {"tf32": HIGH}
PRODUCTS = ("dot_general", "conv_general_dilated")
pytestmark = pytest.mark.usefixtures("every_platform")


def products(jaxpr, platform: str = "cuda", width: int | None = None) -> collections.Counter:
    """{precision: products}; width: only those with an axis of this size."""
    found = [e for e in equations(jaxpr, platform) if e.primitive.name in PRODUCTS]
    axes = lambda e: {n for v in (*e.invars, *e.outvars) for n in v.aval.shape}
    return collections.Counter(e.params["precision"]
                               for e in found if width is None or width in axes(e))


@pytest.mark.parametrize(("name", "precision"), family([
    *((name, "bf16") for name in ON_A_CPU), ("ppo", "tf32"), ("dqn", "tf32"), ("ppo", "highest"),
    ("dqn", "highest"),
], lambda name, precision: (name, precision) == ("ppo", "highest")
   or (name in ("dqn", "sac", "es", "apg") and precision == "bf16")))  # fmt: skip
def test_a_training_program_holds_no_product_of_unstated_precision(name, precision):
    """Torsos as the setting says; heads, optimizers (Muon), search steps and the sum tree in
    float32."""
    row = log_row(name, precision=precision)
    counts = products(row)
    linear = name == "ars"  # no torso
    assert set(counts) == ({HIGHEST} if linear else {HIGHEST, OF_TORSOS[precision]})
    on_a_tpu = products(row, "tpu")
    assert set(on_a_tpu) == ({HIGHEST} if linear else {HIGHEST, ON_A_TPU[precision]})
    if precision == "tf32":  # a GPU multiplies some by terms under "highest"
        assert on_a_tpu[HIGHEST] < products(log_row(name), "tpu")[HIGHEST] == on_a_tpu.total()


PARTS = dict.fromkeys(ON_A_CPU, (1, 1)) | {  # products of `act` in (torsos, heads)
    "ars": (0, 1), "iqn": (1, 2), "rainbow": (1, 2),  # the last: dueling
    "apex": (2, 4),  # dueling, for the action and for its first priority
}  # fmt: skip


@pytest.mark.parametrize("name", family(PARTS, ["ppo", "sac", "ars", "iqn", "apex"]))
def test_heads_multiply_in_float32(name):
    env = tools.environment(name)
    algo = tools.algorithm(name, precision="bf16").bind(env.spec)
    agent = jax.eval_shape(algo.init, jax.random.key(0))
    act = lambda agent, noise: algo.act(algo.acting(agent), algo.init_carry(3),
                                        stacking.example(algo.spec, (3,)), noise,
                                        Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0)),
                                        "greedy")  # fmt: skip
    noise = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], algo.draw(jax.random.key(0), 1, 3)))
    # a GPU multiplies some by terms
    counts = products(jax.make_jaxpr(act)(agent, noise).jaxpr, "tpu")
    assert (counts[BF16], counts[HIGHEST], counts.total()) == (*PARTS[name], sum(PARTS[name]))


@jf.settings
class Turning(jf.Env):
    """Turns a vector by a matrix: an environment with products of 5 x 5."""

    spec = jf.EnvSpec("turning", jf.Box(-9.0, 9.0, (5,)), jf.Discrete(2), 10)

    def reset(self, noise):
        x = jax.vmap(lambda key: jax.random.normal(key, (5,)))(noise) @ jnp.eye(5)
        return (x, jnp.zeros(len(x), jnp.int32)), x

    def transition(self, noise, state, action):
        x, t = state[0] @ jnp.eye(5), state[1] + 1
        return (x, t), Outcome(x, x[:, 0] * action, jnp.zeros(len(x), bool), t >= 10)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_environments_multiply_in_float32(platform):
    env = Turning()
    run = as_float32(Run(env, tools.algorithm("ppo", precision="bf16").bind(env.spec), 100.0))
    state = jax.eval_shape(lambda: iteration.init(run, jax.random.key(0)))
    row = (
        jax.make_jaxpr(
            lambda state: iteration.iterations(run, state, jnp.int32(0), 1, True))(state).jaxpr
    )
    turns = [e.params["precision"]
             for e in equations(row, platform) if e.primitive.name == "dot_general"
             and e.invars[1].aval.shape == (5, 5)]  # fmt: skip
    assert turns and set(turns) == {HIGHEST}
    assert (
        set(products(jax.make_jaxpr(lambda: env.init(jax.random.key(0), 3))().jaxpr)) == {HIGHEST})


def test_physics_multiply_in_float32():
    env = jf.make("brax/inverted_pendulum")
    state, _ = jax.eval_shape(lambda: env.init(jax.random.key(0), 2))
    noise = jax.eval_shape(lambda: env.draw(jax.random.key(0), 4, 2, jnp.int32(0)))
    step = lambda state, noise: env.step(noise.at(0), state, jnp.zeros((2, 1)))
    for program in (jax.make_jaxpr(step)(state, noise),
                    jax.make_jaxpr(lambda: env.init(jax.random.key(0), 2))()):
        counts = products(program.jaxpr)
        assert counts and set(counts) == {HIGHEST}


@pytest.mark.parametrize("precision", OF_TORSOS)
def test_convolutions_multiply_as_the_torso(precision):
    """Operands are cast to bfloat16: XLA's convolutions take no such precision. Gradients too."""
    env = jf.make("Breakout-MinAtar")
    algo = jf.DQN(hidden=(8,), precision=precision).bind(env.spec)
    params, obs = (
        jax.eval_shape(algo.init, jax.random.key(0)).params, stacking.example(algo.spec, (3,)))
    grads = (
        jax.make_jaxpr(
            jax.grad(lambda params: algo.networks.features(params, obs).sum()))(params).jaxpr
    )
    for platform, asked in (("cuda", OF_TORSOS), ("tpu", ON_A_TPU)):
        found = [e
                 for e in equations(grads, platform) if e.primitive.name == "conv_general_dilated"]
        kinds = {(e.invars[0].aval.dtype.name, e.invars[1].aval.dtype.name) for e in found}
        kind = "bfloat16" if precision == "bf16" else "float32"
        assert len(found) == 2 and kinds == {(kind, kind)}
        assert {e.params["precision"] for e in found} == {asked[precision]}
    names = {e.outvars[0].aval.dtype.name for e in grads.eqns}
    assert names <= {"float32", "bool", "int32", "uint8"}


def test_a_cpu_gives_the_same_bits_under_every_precision():
    env = jf.make("Breakout-MinAtar")
    algos = [jf.DQN(hidden=(8,), precision=precision).bind(env.spec) for precision in OF_TORSOS]
    params = algos[0].init_params(jax.random.key(0))
    obs = jax.random.uniform(jax.random.key(1), (5, 10, 10, 4))
    step = lambda algo: jax.jit(
        jax.value_and_grad(lambda params: jnp.square(algo.action_values(params, obs)).sum())
    )(params)
    first, *others = map(step, algos)
    for other in others:
        tools.assert_same(first, other)


@pytest.mark.parametrize("value", ["float32", "", None, 32])
def test_other_precisions_are_refused(value):
    with pytest.raises(ConfigError,
                       match="precision must be one of 'highest', 'tf32', 'bf16', got"):
        jf.PPO(precision=value)


@pytest.mark.matrix("test_older_runs_keep_their_precision")
def test_a_run_names_the_precision_in_force(tmp_path):
    run = tools.train(tools.algorithm("ppo", precision="bf16"), tmp_path / "run", total_steps=64,
                      eval_every=0)
    content = config_json.read_config(run.out.path)
    assert (
        content["algorithm"]["settings"]["precision"] == "bf16"
        and content["products"] == "products in float32"
    )
    plan = str(jf.plan(run.algo, run.env, 64))
    assert "products in float32" in plan.splitlines()
    assert in_force("bf16", "gpu") == "torsos multiply in bfloat16, all else in float32"
    assert in_force("highest", "tpu") == "products in float32 (six passes of bfloat16)"


def test_older_runs_keep_their_precision():
    """They multiply in TF32 on a GPU, where JAX chose it, and on a CPU in float32 either way."""
    entry = config_json.encode_algorithm(jf.PPO())
    del entry["settings"]["precision"]
    assert config_json.decode_algorithm(entry).precision == "tf32"
    assert (
        config_json.decode_algorithm(config_json.encode_algorithm(jf.PPO())).precision == "highest")
