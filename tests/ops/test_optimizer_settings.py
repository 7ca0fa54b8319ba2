"""optax's optimizers and schedules as settings: as objects, as text, and what is refused."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrl_fast as jf
from helpers import fresh
from helpers.matrix import family
from jaxrl_fast.algorithms import ALGORITHMS, algorithm_class
from jaxrl_fast.envs.native.cartpole import CartPole
from jaxrl_fast.ops import optim
from jaxrl_fast.ops import optimizer_settings as settings

WARMUP = (
    "join_schedules(schedules=[polynomial_schedule(init_value=0.0, end_value=0.1, power=1, "
    "transition_steps=10), cosine_decay_schedule(init_value=0.1, decay_steps=90)], boundaries=[10])"
)


def shown(value) -> str:
    """`value` as the name of a test: without addresses, which differ from one process to the
    next."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


SCHEDULES = {
    "constant_schedule(value=0.001)": optax.constant_schedule(1e-3),
    "constant_schedule(value=0.002)": optax.linear_schedule(2e-3, 0.0, 0),
    "polynomial_schedule(init_value=1.0, end_value=0.0, power=2, transition_steps=100)":
        optax.polynomial_schedule(1.0, 0.0, 2, 100),
    "cosine_decay_schedule(init_value=0.001, decay_steps=100)":
        optax.cosine_decay_schedule(1e-3, 100),
    "piecewise_constant_schedule(init_value=1.0, boundaries_and_scales={100: 0.1})":
        optax.piecewise_constant_schedule(1.0, {100: 0.1}),
    "exponential_decay(init_value=1.0, transition_steps=9, decay_rate=0.5, end_value=0.1)":
        optax.exponential_decay(1.0, 9, 0.5, end_value=0.1),
    WARMUP: optax.warmup_cosine_decay_schedule(0.0, 0.1, 10, 100),
    None: optax.cosine_onecycle_schedule(100, 1e-3),
}  # fmt: skip


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_every_algorithm_takes_schedules_and_optimizers(name):
    cls, text = algorithm_class(name), "cosine_decay_schedule(init_value=0.001, decay_steps=100)"
    rate = cls(learning_rate=optax.cosine_decay_schedule(1e-3, 100)).learning_rate
    assert rate.source == text
    if name != "ars":  # which follows no gradient
        assert cls(optimizer=optax.lion).optimizer == "lion"


@pytest.mark.parametrize(("text", "schedule"), SCHEDULES.items(), ids=lambda x: shown(x)[:20])
def test_a_schedule_of_optax_has_a_text_that_makes_it_again(text, schedule):
    kept = jf.PPO(learning_rate=schedule).learning_rate
    assert isinstance(kept.source, str) and kept.source == (text or kept.source)
    again = jf.PPO(learning_rate=kept.source).learning_rate
    assert again == kept and hash(again) == hash(kept) and not jax.tree.leaves(kept)
    for step in (0, 3, 10, 99, 1000):
        assert float(again(step)) == float(np.float32(schedule(step)))


def test_a_schedule_counts_the_steps_of_its_optimizer():
    """A schedule counts from the first update after warm-up, with a period only the updates that
    step."""
    from jaxrl_fast.types import Clock

    for period, first in ((1, 0), (1, 6), (2, 6), (3, 7)):
        taken = [u for u in range(first, 40) if u % period == 0]
        steps = [int(Clock(0, jnp.int32(u), 0.0, jnp.int32(first)).steps(period)) for u in taken]
        assert steps == list(range(len(taken)))
    clock = Clock(0, jnp.int32(8), jnp.float32(0.75), jnp.int32(4))
    # not annealed beside it
    assert float(clock.step_size(jf.PPO(learning_rate=lambda step: 0.5 * step))) == 2.0
    assert float(clock.step_size(jf.PPO(learning_rate=0.5))) == 0.125


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (optax.lion, "lion"),
        (optax.contrib.muon, "muon"),
        ("optax.contrib.muon", "muon"),
        ("adamw( weight_decay = 1e-4 )", "adamw(weight_decay=0.0001)"),
        (functools.partial(optax.adamw, weight_decay=np.float64(1e-4), mu_dtype=jnp.bfloat16),
         "adamw(weight_decay=0.0001, mu_dtype='bfloat16')"),
    ],
    ids=shown,
)  # fmt: skip
def test_an_optimizer_of_optax_is_kept_as_text(given, text):
    algo = jf.PPO(optimizer=given)
    assert algo.optimizer == text and algo == jf.PPO(optimizer=text)


def decay_of_matrices(params):
    return jax.tree.map(lambda x: x.ndim > 1, params)


NOTHING = lambda: optax.sgd(0.1)
BAD = {
    "made": (optax.adam(1e-3), "with its learning rate"),
    "a direction": (optax.scale_by_adam, "first parameter of scale_by_adam is 'b1'"),
    "no optimizer": (optax.clip, "first parameter of clip is 'max_delta'"),
    "a place": (functools.partial(optax.adam, 1e-3), "must be named"),
    "its own rate": (functools.partial(optax.adam, learning_rate=1e-3), "learning_rate"),
    "other numbers": (optax.lbfgs, "value_fn"),
    "unknown": ("adamm", "did you mean 'adam"),
    "positional": ("adam(1e-3)", "must be named"),
    "syntax": ("adam(", "never closed"),
    "code": ("__import__('os').system(command='x')", "no optimizer or schedule 'system'"),
    "setting": ("adamw(decay=1)", "decay"),
    "number": (3, "an optimizer as a function of the learning rate"),
    "no rate": (NOTHING, "0 positional arguments"),
    "a number back": (lambda rate: rate, "returns"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_optimizers_are_named(what):
    value, reason = BAD[what]
    with pytest.raises(jf.ConfigError) as refused:
        jf.PPO(optimizer=value)
    message = str(refused.value)
    assert message.startswith("optimizer") and reason in message and "\n" not in message


class Unhashable:
    """A schedule that cannot be a part of a program."""

    __hash__ = None

    def __call__(self, step):
        return 1e-3


@pytest.mark.parametrize(
    "value",
    ["1e-3", "adam", "cosine_decay_schedule(", optax.adam, lambda step: jnp.ones(3),
     lambda step: 1 if step < 3 else 2, Unhashable(), [1.0]],
    ids=shown,
)
def test_bad_learning_rates_are_named(value):
    for cls in (jf.PPO, jf.DQN, jf.SAC, jf.OpenES, jf.ARS, jf.APG):
        with pytest.raises(jf.ConfigError, match="^learning_rate.*a number"):
            cls(learning_rate=value)


def test_a_function_is_no_other_number():
    with pytest.raises(jf.ConfigError, match="discount"):
        jf.PPO(discount=optax.constant_schedule(0.9))


def test_settings_with_functions_start_no_backend():
    """With a backend, a population could no longer ask for a device a core."""
    code = """
import functools, optax
import jaxrl_fast as jf
from jaxrl_fast import runtime
jf.PPO(learning_rate=optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100),
       optimizer=functools.partial(optax.adamw, b1=0.8))
assert not runtime.backend_started()
"""
    fresh.check(code)


def test_a_rate_below_zero_is_zero():
    # beyond its end at step 2
    line = settings.schedule_setting("learning_rate", lambda step: 1.0 - 0.5 * step)
    np.testing.assert_array_equal([line(step) for step in range(5)], [1.0, 0.5, 0.0, 0.0, 0.0])


def test_an_optimizer_that_climbs_is_refused():
    env = jf.make("CartPole-v1").spec
    with pytest.raises(jf.ConfigError, match=r"optimizer.*descend.*scale_by_learning_rate"):
        jf.PPO(optimizer=lambda rate: optax.scale_by_adam()).bind(env)
    jf.PPO(optimizer=lambda rate: optax.chain(
        optax.scale_by_adam(), optax.scale_by_learning_rate(rate))).bind(env)


@pytest.mark.parametrize("rate", [1e-3, optax.linear_schedule(1e-3, 0.0, 100)],
                         ids=["number", "schedule"])
def test_an_optimizer_with_a_rate_of_its_own_is_refused(rate):
    """learning_rate would do nothing: a sweep over it would train equal members."""
    with pytest.raises(jf.ConfigError, match=r"optimizer must be a function that uses its "
                                             r"argument.*setting learning_rate"):
        jf.PPO(optimizer=lambda _: optax.adam(rate)).bind(jf.make("CartPole-v1").spec)


def test_an_optimizer_that_begins_at_rest_is_accepted():
    warm_up = lambda rate: optax.adam(lambda step: rate * jnp.minimum(step / 1000, 1.0))
    jf.PPO(optimizer=warm_up).bind(jf.make("CartPole-v1").spec)


def test_apply_refuses_optax_optimizers():
    params = {"w": jnp.ones(3)}
    with pytest.raises(jf.ConfigError, match="optim"):
        optim.apply(optax.adam(1e-3), 1e-3, params, params, optax.adam(1e-3).init(params))


class Replaced(jf.PPO):
    default_optimizer = property(lambda self: optax.adam(1e-3))


def test_a_class_whose_attribute_hides_a_setting_cannot_be_made():
    @jf.settings
    class Mine(jf.PPO):
        optimizer = property(lambda self: optax.adam(1e-3))

    class Larger(Mine):
        num_envs = 64

    @jf.settings
    class Heavy(CartPole):
        gravity = 20.0

    @jf.settings
    class Right(jf.PPO):
        num_envs: int = jf.setting(64)

    for cls, name in ((Mine, "optimizer"), (Larger, "num_envs"), (Heavy, "gravity")):
        with pytest.raises(jf.ConfigError,
                           match=f"^{name}.* class {cls.__name__}'.*{cls.__name__}"):
            cls()
    assert Right().num_envs == 64
    assert jax.tree.structure(Right()).unflatten(jax.tree.leaves(Right())) == Right()


def test_a_class_without_settings_is_refused():
    with pytest.raises(jf.ConfigError, match=r"@jf\.settings.*Replaced"):
        Replaced().bind(jf.make("CartPole-v1").spec)
    with pytest.raises(jf.ConfigError, match=r"default_optimizer.*jaxrl_fast\.ops\.optim"):
        jax.eval_shape(jf.settings(Replaced)().bind(jf.make("CartPole-v1").spec).init,
                       jax.random.key(0))


# Steps
# --------------------------------------------------------------------------------------------------

PARAMS = {
    "torso": {"kernel": jnp.linspace(-1, 1, 2 * 3 * 4).reshape(2, 3, 4),
              "bias": jnp.linspace(0.1, 1, 8).reshape(2, 4)},
    "head": jnp.linspace(1, 2, 6).reshape(3, 2),
}
APART = optim.View(lambda p: p | {"torso": optim.split(p["torso"], 2)},
                   lambda p, like: p | {"torso": optim.join(p["torso"])})


@pytest.mark.parametrize(
    "optimizer",
    family(["adamw(weight_decay=0.1)", "lion", "lamb(weight_decay=0.1)", "lars",
            "adafactor(min_dim_size_to_factor=2)", "muon", "novograd",
            settings.Partial(optax.adamw, (("mask", decay_of_matrices),))],
           lambda x: not isinstance(x, str) or x.startswith(("adamw", "adafactor", "muon"))),
    ids=shown,
)  # fmt: skip
def test_a_step_is_optaxs_on_each_layer(optimizer):
    """Packed or not, and whatever networks share a stack."""
    own = settings.optimizer_of(optimizer, 0.5, APART)
    tx = optax.chain(optax.clip_by_global_norm(0.5), settings.make(optimizer)(0.01))

    @jax.jit
    def ours(rate, grads):
        return own.step(rate, PARAMS, grads, own.init(PARAMS, rate))[0]

    @jax.jit
    def theirs(grads):
        apart = APART.to(PARAMS)
        updates, _ = tx.update(APART.to(grads), tx.init(apart), apart)
        return APART.back(optax.apply_updates(apart, updates), PARAMS)

    grads = jax.tree.map(lambda x: jnp.cos(7 * x), PARAMS)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    jax.tree.map(same, ours(jnp.float32(0.01), grads), theirs(grads))


def test_a_rate_that_a_later_clip_hides_is_used():
    settings.check_descends(lambda rate: optax.chain(optax.sgd(rate), optax.clip(1e-4)), 1e-3)


def test_rates_are_traced():
    rates = jnp.array([0.1, 0.01])
    own = settings.optimizer_of("adamw", None, APART)
    moved = (
        jax.vmap(lambda rate: own.step(rate, PARAMS, PARAMS, own.init(PARAMS, rate))[0]["head"]
                 - PARAMS["head"])(rates)
    )
    np.testing.assert_allclose(moved[0], 10 * moved[1], rtol=1e-3)
