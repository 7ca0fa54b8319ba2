"""MuJoCo Playground's dm_control suite, which is not in [dev]."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.physics import playground_adapter
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.testing import check_env

needs_playground = pytest.mark.playground


def test_the_error_without_playground_names_the_package_to_install(modules):
    modules(mujoco_playground=None)
    with pytest.raises(ConfigError, match=r"pip install 'jaxrl_fast\[playground\]'"):
        registry.make("playground/CartpoleBalance", episode_length=7)
    row = registry.list_environments()["playground/CartpoleBalance"]
    assert row.source == "playground" and not row.installed and "[playground]" in row.install


@needs_playground
def test_only_the_suite_is_imported(tmp_path):
    code = (
        "import sys; import jaxrl_fast as jf; env = jf.make('playground/PendulumSwingup', "
        "episode_length=9);"
        "assert env.spec.max_episode_steps == 9 and env.spec.action.shape == (1,), env.spec;"
        "bad = [m for m in sys.modules if 'locomotion' in m or 'manipulation' in m or m == "
        "'mujoco_playground'];"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == "" and list(tmp_path.iterdir()) == []


@needs_playground
def test_the_names_match_the_suite():
    suite = playground_adapter._suite("playground/PointMass")
    assert {playground_adapter.PREFIX + name for name in suite.ALL_ENVS} == set(
        playground_adapter.NAMES)
    assert jf.make("playground/CartpoleBalance", ctrl_dt=0.02, sim_dt=0.005).env.n_substeps == 4


@needs_playground
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("playground/CartpoleBalanc", {}, "did you mean 'playground/CartpoleBalance'"),
        ("playground/G1JoystickFlatTerrain", {}, "dm_control suite"),
        ("playground/CartpoleBalance", {"backend": "mjx"}, "env.backend must be .*got 'mjx'"),
        ("playground/CartpoleBalance", {"ctrl_dt": 0.001}, "env.ctrl_dt must be .*got 0.001"),
        ("playground/CartpoleBalance", {"sim_dt": 0}, "env.sim_dt must be .*got 0"),
        ("playground/CartpoleBalance", {"sim_dt": jnp.float32(0.01)},
         "env.sim_dt must be .*part of the program"),
        ("playground/CartpoleBalance", {"ctrl_dt": 0.01, "sim_dt": 0.004},
         "a multiple of env.sim_dt = 0.004"),
        ("playground/CartpoleBalance", {"randomize": "body_mas=1:2"}, "there are"),
    ],
)
def test_bad_input(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        registry.make(name, **settings)


QUICK = "playground/CartpoleBalance"


@needs_playground
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [QUICK,
     *(pytest.param(x, marks=pytest.mark.slow) for x in playground_adapter.NAMES if x != QUICK)]
)
def test_a_step_equals_the_suites_step(name):
    """The suite keeps the whole State from step to step; ours gives zeros for the parts that a step
    overwrites."""
    env = jf.make(name)
    state, obs = jax.jit(env.init, static_argnums=1)(jax.random.key(0), 3)
    nothing = jax.tree.map(lambda x: jnp.zeros((3, *x.shape), x.dtype), env.template)
    begun = nothing.replace(**{env.physics_field: state.physics}, info=state.info, obs=obs)
    actions = jax.random.uniform(jax.random.key(1), (6, 3, *env.spec.action.shape), minval=-1.0)

    @jax.jit
    def theirs(state, actions):
        def step(state, action):
            state = jax.vmap(env.env.step)(state, action)
            return state, (state.obs, state.reward, state.done)

        return jax.lax.scan(step, state, actions)[1]

    @jax.jit
    def ours(state, actions):
        def step(state, action):
            state, outcome = env.transition((), state, action)
            return state, (outcome.next_obs, outcome.reward, outcome.terminated)

        return jax.lax.scan(step, state, actions)[1]

    got, want = ours(state, actions), theirs(begun, actions)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), got, want)
    assert np.std(jax.tree.leaves(want[0])[0], axis=0).max() > 0  # it moved


@needs_playground
def test_an_environment_is_drawn():
    env = jf.make(QUICK)
    state, _ = jax.jit(env.init, static_argnums=1)(jax.random.key(0), 1)
    one = jax.tree.map(lambda x: np.asarray(x)[0], state)
    picture = env.render(one)
    if picture is None:
        pytest.skip("OpenGL does not work here")
    assert picture.shape == (180, 240, 3) and picture.dtype == np.uint8 and picture.std() > 5
    # the cart aside, its pole down
    data = one.physics.replace(qpos=one.physics.qpos + np.float32([0.5, 1.0]))
    assert np.abs(env.render(one._replace(physics=data)).astype(int) - picture).max() > 50


@needs_playground
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", playground_adapter.NAMES)
def test_all_conform(name):
    assert check_env(jf.make(name, episode_length=24), num_envs=4).truncated > 0
