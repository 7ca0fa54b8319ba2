"""Settings: what is a leaf, what is static, and what a bad value is told."""

from __future__ import annotations

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast import errors, tree
from jaxrl_fast.algorithms import algorithm_class, list_algorithms
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs.native.source import SOURCE
from jaxrl_fast.envs.wrappers import Common
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import check_settings, help_of, setting, type_name
from jaxrl_fast.registry import import_object
from jaxrl_fast.sweeps.selection import PBT, Halving


@tree.settings
class Example:
    rate: float = setting(0.1, "step size", low=0, open_low=True)
    share: float = setting(0.5, low=0, high=1)
    size: int = setting(4, low=2)
    switch: bool = False
    widths: tuple[int, ...] = setting((8, 8))
    mode: str = setting("a", choices=("apple", "a", "b"))
    fixed: float = setting(1.0, static=True)

    def __post_init__(self):
        check_settings(self)


BAD = [
    ("rate", 0, "finite number in (0, inf)"),
    ("rate", -1.0, "(0, inf)"),
    ("rate", math.nan, "finite number"),
    ("rate", math.inf, "finite number"),
    ("rate", "fast", "a number"),
    ("rate", None, "a number"),
    ("rate", True, "a number"),
    ("rate", np.float32(-2), "(0, inf)"),
    ("share", 1.5, "[0, 1]"),
    ("share", -0.1, "[0, 1]"),
    ("size", 1, "an integer from 2"),
    ("size", 2.0, "an integer"),
    ("size", True, "an integer"),
    ("size", 2**31, "to 2147483647"),
    ("switch", 1, "True or False"),
    ("switch", "yes", "True or False"),
    ("widths", (8, 0), "positive integers"),
    ("widths", (8, 1.5), "positive integers"),
    ("widths", 8, "positive integers"),
    ("mode", "aple", "did you mean 'apple'?"),
    ("fixed", math.nan, "finite number"),
]


@pytest.mark.parametrize(("name", "value", "valid"), BAD)
def test_a_bad_value_is_named_with_its_valid_values(name, value, valid):
    with pytest.raises(ConfigError) as caught:
        Example(**{name: value})
    message = str(caught.value)
    assert (
        message.startswith(f"{name} must be ") and f", got {value!r}" in message
        and valid in message
    )
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 2


def test_good_values_become_plain_python():
    made = Example(rate=1, share=np.float32(1), size=np.int64(2), switch=np.bool_(True),
                   widths=[3, 4])
    assert (type(made.rate), type(made.share), type(made.size)) == (float, float, int)
    assert made.switch is True and made.widths == (3, 4)
    assert hash(Example()) == hash(Example()) and Example() == Example()


def test_a_plain_field_has_no_bound():
    @dataclasses.dataclass(frozen=True)
    class Plain:
        level: int = 0
        lives: int = 3
        start: tuple[int, ...] = (0, 2)
        offset: int = setting(0)

    for obj in (Plain(), Plain(level=-1, lives=0, start=[-3], offset=-2)):
        check_settings(obj)
    with pytest.raises(ConfigError, match=r"lives must be an integer.*got 0\.5"):
        check_settings(Plain(lives=0.5))
    with pytest.raises(ConfigError, match=r"start must be a tuple of integers, got \(1\.5,\)"):
        check_settings(Plain(start=(1.5,)))


ANNOTATED = """
import typing
import jax
from jaxrl_fast import tree
from jaxrl_fast.fields import check_settings, setting

@tree.settings
class Mine:
    rate: float = 0.5
    array: jax.Array = 1.0
    anything: typing.Any = 2.0
    size: int = setting(3)
    widths: tuple[int, ...] = setting((8, 8))
    older: typing.Tuple[int, ...] = setting((8, 8))
    network: str | tuple = "auto"

    def __post_init__(self):
        check_settings(self)
"""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
def test_annotations_are_read_as_types_and_as_text(first):
    names: dict = {"__name__": __name__}
    exec(compile(first + ANNOTATED, "mine.py", "exec", dont_inherit=True), names)
    mine = names["Mine"]
    assert jax.tree.leaves(mine()) == [0.5, 1.0, 2.0]
    assert mine(widths=[4]).widths == mine(older=[4]).older == (4,)
    for bad in ({"rate": "x"}, {"size": 0}, {"widths": 8}, {"widths": (0,)}, {"older": (1.5,)}):
        with pytest.raises(ConfigError):
            mine(**bad)
    kinds = [type_name(f) for f in dataclasses.fields(mine)]
    assert kinds == ["float", "Array", "Any", "int", "tuple[int, ...]", "tuple[int, ...]",
                     "str | tuple"]


def test_floats_are_leaves_and_the_rest_is_static():
    leaves, structure = jax.tree.flatten(Example())
    assert leaves == [0.1, 0.5]
    assert structure == jax.tree.structure(Example(rate=0.2))
    for other in (Example(size=5), Example(switch=True), Example(widths=(8,)), Example(mode="b"),
                  Example(fixed=2.0)):
        assert structure != jax.tree.structure(other)


def test_a_sweep_needs_no_second_trace_and_tracers_pass_the_checks():
    traces = []

    @jax.jit
    def double(example):
        traces.append(1)
        return 2 * example.rate

    for rate in (0.1, 0.7, 3.0):
        assert float(double(Example(rate=rate))) == pytest.approx(2 * rate)
    assert len(traces) == 1
    batch = Example(rate=jnp.array([0.1, 0.2]), share=jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(jax.vmap(double)(batch), [0.2, 0.4])
    assert dataclasses.replace(batch, size=8).size == 8
    # a placeholder of a tree transformation is not looked at
    jax.tree.map(lambda _: object(), batch)


def test_check_float_and_int_edges():
    errors.check_float("x", 0.0, 0.0, 1.0)
    errors.check_float("x", 1, 0.0, 1.0)
    # an array is a leaf of a sweep: not looked at
    errors.check_float("x", jnp.float32(-5), 0.0, 1.0)
    errors.check_int("n", np.int32(1))
    with pytest.raises(ConfigError, match=r"x must be .*\(0, 1\], got 0.0"):
        errors.check_float("x", 0.0, 0.0, 1.0, open_low=True)
    with pytest.raises(ConfigError, match=r"n must be .*got 3\.0"):
        errors.check_int("n", 3.0)


def test_nearest_ignores_case_and_refuses_distant_names():
    assert (
        errors.nearest("cartpole-v1", ["CartPole-v1", "Acrobot-v1"])
        == "; did you mean 'CartPole-v1'?"
    )
    assert errors.nearest("zzz", ["CartPole-v1"]) == ""
    assert errors.nearest(3, []) == ""


def test_errors_have_their_exit_codes():
    assert errors.RunError("x").exit_code == 1 and errors.NonFiniteError("x").exit_code == 3
    missing = errors.MissingExtraError("W&B", "wandb")
    assert "pip install 'jaxrl_fast[wandb]'" in str(missing) and isinstance(missing, ImportError)


CLASSES = [*map(algorithm_class, list_algorithms()), *map(import_object, SOURCE.names.values()),
           Common, RunConfig, PBT, Halving]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_help_of_a_setting_is_the_string_below_it(cls):
    """An editor shows that one; .ci/types/hover.py asks pyright."""
    named = [field for field in dataclasses.fields(cls) if field.init and "low" in field.metadata]
    assert [field.name for field in named if not help_of(cls, field.name)] == []
    assert [field.name for field in named if field.metadata.get("help")] == []


class Heir(Example):
    """Inherits help, and gives its own."""

    size: int = setting(8, low=2)
    """rows of the table,
    in a second line too"""
    switch: bool = True


Heir = tree.settings(Heir)


def test_help_comes_from_the_string_or_the_argument_or_the_class_above():
    assert help_of(Heir, "size") == "rows of the table, in a second line too"
    assert help_of(Heir, "rate") == help_of(Example, "rate") == "step size"
    assert help_of(Heir, "switch") == help_of(Example, "size") == ""
    made = dataclasses.make_dataclass("Made", [("x", int, setting(3, "a prompt's"))],
                                      namespace={"__module__": "nowhere"})
    assert help_of(made, "x") == "a prompt's"


@jf.settings
class WithSpec(jf.SingleEnv):
    spec: jf.EnvSpec = jf.EnvSpec("with-spec", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2), 5)
    name: str = "with-spec"
    size: int = 3

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step_one(self, key, state, action):
        return state + 1, jnp.zeros(1), 1.0, state >= self.size, False


@pytest.mark.parametrize("call", [
    lambda: jf.make(WithSpec, foo=1), lambda: jf.make(WithSpec, spek=1), lambda: WithSpec(nam=1),
    lambda: jf.PPO(spek=1),
])  # fmt: skip
def test_what_an_object_is_is_no_setting_that_an_error_offers(call):
    with pytest.raises(jf.ConfigError, match="must be a setting of") as caught:
        call()
    assert not {"spec", "name", "'spec'?", "'name'?"} & set(re.split(r"[(), ]", str(caught.value)))


def test_an_environment_whose_spec_is_a_field_keeps_it_out_of_config_json(tmp_path):
    settings = jf.envs.registry.settings_of(jf.envs.own.name_of(WithSpec))
    assert not {"spec", "name"} & set(settings) and settings["size"] == 3
    run = jf.train(jf.PPO(num_envs=4, num_steps=8, num_minibatches=1, num_epochs=1, hidden=(4,)),
                   jf.make(WithSpec), total_steps=64, eval_every=0, eval_episodes=2,
                   tensorboard=False, out=tmp_path / "run", progress=False)
    assert run.env_steps == 64 and jf.load(tmp_path / "run").env.size == 3
