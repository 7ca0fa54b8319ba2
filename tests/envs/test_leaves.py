"""Every leaf that docs/physics.md names for randomised physics changes what an agent sees, on the
backend it is named for.

Read or not is found by tracing (test_physics.py); this computes. One environment and one step by
default, for a step on each backend takes up to a minute to compile.
"""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast import random
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.physics import randomize

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "physics.md"
# Where each of them is not 0 and read.
DRIVEN = ("gravity", "actuator.gear", "actuator.gain", "link.inertia.mass")
SOFT = (*DRIVEN, "geom_friction", "link.inertia.i", "ang_damping", "link.constraint_vel_damping",
        "link.constraint_ang_damping")
MJX = ("opt.gravity", "geom_friction", "body_mass", "body_inertia", "body_ipos", "dof_damping",
       "dof_armature", "jnt_stiffness", "actuator_gear", "actuator_gainprm")
CASES = [
    ("spring", "brax/halfcheetah",
     (*SOFT, "link.constraint_stiffness", "link.constraint_limit_stiffness")),
    ("spring", "brax/hopper", ("vel_damping",)),
    ("positional", "brax/halfcheetah", SOFT),
    ("positional", "brax/hopper", ("vel_damping",)),
    ("generalized", "brax/halfcheetah",
     (*DRIVEN, "geom_friction", "link.inertia.i", "dof.damping", "dof.stiffness", "dof.armature")),
    ("mjx", "brax/halfcheetah", MJX),
    ("Playground", "playground/CheetahRun", tuple(x for x in MJX if x != "body_ipos")),
    ("Playground", "playground/FishSwim", ("actuator_biasprm", "body_ipos")),
]  # fmt: skip


def documented() -> dict[str, set[str]]:
    """Backend -> the leaves that the table names for it."""
    found: dict[str, set[str]] = {}
    table = DOCUMENT.read_text().partition("| | leaves |")[2].partition("\n\n")[0]
    for backends, leaves in re.findall(r"^\| (\S.*?) \| (`.*?) \|$", table, re.M):
        for backend in backends.replace("`", "").split(", "):
            found.setdefault(backend, set()).update(re.findall(r"`(.*?)`", leaves))
    return found


def test_the_table_lists_the_tested_leaves():
    tested: dict[str, set[str]] = {}
    for backend, _, leaves in CASES:
        tested.setdefault(backend, set()).update(leaves)
    assert documented() == tested


def play(env, steps, variants):
    """Observations [variants, steps, 1, ...] from one start, under the same actions; variant v with
    the model of t = v."""
    actions = random.uniform(jax.random.key(1), (steps, 1, *env.spec.action.shape), -1.0, 1.0)

    def one(t):
        def step(state, action):
            state, outcome = env.transition((), state, action)
            return state, outcome.next_obs

        return jax.lax.scan(step, env.init(jax.random.key(0), 1, t)[0], actions)[1]

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(variants)))


def changes(name, settings, leaves, steps=20):
    """Leaf -> how far it moves an observation, times 0.5 and alone."""

    def one_at_a_time(key, model, t):
        values, structure = jax.tree.flatten(model)
        places = list(randomize._paths(model))
        for i, leaf in enumerate(leaves):
            values[places.index(leaf)] *= jnp.where(t == i + 1, 0.5, 1.0)
        return jax.tree.unflatten(structure, values)

    obs = play(registry.make(name, randomize=one_at_a_time, **settings), steps, 1 + len(leaves))
    assert np.isfinite(obs).all()
    return {leaf: np.abs(x - obs[0]).max() for leaf, x in zip(leaves, obs[1:], strict=True)}


@pytest.mark.matrix("tests/envs/test_physics.py::test_leaves_read_in_nested_programs_are_found")
def test_leaves_of_springs():
    moved = changes("brax/inverted_pendulum", {"backend": "spring"}, DRIVEN, steps=5)
    assert min(moved.values()) > 1e-3, moved


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("backend", "name", "leaves"),
    [pytest.param(*c, marks=pytest.mark.playground) if c[0] == "Playground" else c for c in CASES],
)
def test_documented_leaves(backend, name, leaves):
    settings = {} if backend == "Playground" else {"backend": backend}
    # as it is documented
    registry.make(name, randomize=", ".join(f"{leaf}=0.9:1.1" for leaf in leaves), **settings)
    moved = changes(name, settings, leaves)
    assert min(moved.values()) > 1e-3, moved
