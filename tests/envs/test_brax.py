"""brax's environments: what is known of them without a rollout, and one of them played and trained
on.

What the adapter does is tested on a few lines that compile at once (test_physics.py); every
environment on every backend takes an hour to compile and is `slow`.
"""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxrl_fast as jf
from jaxrl_fast import tree
from jaxrl_fast.engine import iteration
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.physics import brax_adapter, mujoco_tools
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.runs import pictures
from jaxrl_fast.testing import check_env

pytestmark = pytest.mark.filterwarnings("error:Brax System")  # the adapter keeps it quiet
PENDULUM = "brax/inverted_pendulum"


@pytest.mark.matrix("tests/test_floors.py::test_a_native_run_imports_nothing_heavy")
def test_brax_is_imported_late_and_quietly(tmp_path):
    code = (
        "import sys; import jaxrl_fast as jf; rows = jf.list_environments();"
        "bad = {'brax', 'mujoco', 'mujoco_playground', 'flax'} & set(sys.modules); assert not bad, "
        "bad;"
        "assert rows['brax/ant'] == ('brax', True, rows['brax/ant'].install) and 'brax/swimmer' "
        "not in rows;"
        "import os; before = dict(os.environ); env = jf.make('brax/halfcheetah', episode_length=7);"
        "assert dict(os.environ) == before or {k for k in os.environ if k not in before} <= "
        "{'PYOPENGL_PLATFORM'};"
        "assert env.spec.max_episode_steps == 7 and env.spec.observation.shape == (17,), env.spec"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # MuJoCo would leave a log
    assert done.stdout == done.stderr == "" and list(tmp_path.iterdir()) == []


def test_settings_and_specs():
    env = jf.make("brax/ant", backend="generalized", ctrl_cost_weight=0.1,
                  healthy_z_range=[0.3, 0.9])
    assert env is jf.make("brax/ant", backend="generalized", ctrl_cost_weight=0.1,
                          healthy_z_range=(0.3, 0.9))
    assert env.env._ctrl_cost_weight == 0.1 and env.env._healthy_z_range == (0.3, 0.9)
    assert env.env is jf.make("brax/ant", backend="generalized", ctrl_cost_weight=np.float64(0.1),
                              healthy_z_range=tuple(np.array([0.3, 0.9]))).env  # fmt: skip
    assert env.env.backend == "generalized" and jf.make("brax/ant").env.backend == "spring"
    # static by identity: traced once
    assert jf.make("brax/ant", episode_length=5).env is jf.make("brax/ant").env
    spec = env.spec
    assert (spec.name, spec.max_episode_steps, spec.action.shape) == ("brax/ant", 1000, (8,))
    assert (spec.action.low, spec.action.high, spec.observation.shape) == (-1.0, 1.0, (27,))
    assert registry.settings_of("brax/ant")["reset_noise_scale"] == 0.1
    assert (
        "backend" in registry.settings_of(PENDULUM)
        and "kwargs" not in registry.settings_of(PENDULUM)
    )
    # made in a trace
    assert (
        jax.jit(lambda: jf.make("brax/reacher", episode_length=3).env.sys.gravity)().shape == (3,))
    assert isinstance(jf.make("brax/reacher", episode_length=3).env.sys.gravity, jax.Array)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("brax/antt", {}, "did you mean 'brax/ant'"),
        ("brax/swimmer", {}, "swimmer is broken in brax"),
        ("brax/fast", {}, "toy of brax's own unit tests"),
        ("brax/ant", {"backend": "sprin"},
         r"env.backend must be .*got 'sprin'; did you mean 'spring'"),
        ("brax/ant", {"ctrl_cost": 1.0},
         r"env.ctrl_cost must be .*got 1.0; did you mean 'ctrl_cost_weight'"),
        ("brax/ant", {"ctrl_cost_weight": "x"}, "env.ctrl_cost_weight must be .*got 'x'"),
        ("brax/ant", {"ctrl_cost_weight": float("nan")}, "env.ctrl_cost_weight must be .*got nan"),
        ("brax/ant", {"ctrl_cost_weight": jnp.float32(0.1)},
         "env.ctrl_cost_weight must be .*part of the program"),
        ("brax/ant", {"ctrl_cost_weight": np.array(0.1)},
         "env.ctrl_cost_weight must be .*part of the program"),
        ("brax/ant", {"ctrl_cost_weight": np.ones(2)},
         "env.ctrl_cost_weight must be .*part of the program"),
        ("brax/ant", {"healthy_z_range": (jnp.float32(0.1), 1.0)},
         "env.healthy_z_range must be 2 numbers"),
        ("brax/ant", {"reset_noise_scale": -1.0},
         r"env.reset_noise_scale must be .*\[0, inf\), got -1.0"),
        ("brax/ant", {"healthy_z_range": (1.0,)},
         r"env.healthy_z_range must be 2 numbers, got \(1.0,\)"),
        ("brax/ant", {"healthy_z_range": (float("nan"), 1.0)},
            r"env.healthy_z_range must be .*the lower first, got \(nan, 1.0\)"),
        ("brax/ant", {"healthy_z_range": (1.0, 0.2)},
         r"env.healthy_z_range must be .*the lower first, got \(1.0, 0.2\)"),
        ("brax/ant", {"healthy_z_range": (False, 1.0)},
         r"env.healthy_z_range must be 2 numbers, got \(False, 1.0\)"),
        ("brax/ant", {"randomize": "link.inertia.mass=0:0"},
         "factors above 0 for link.inertia.mass"),
        ("brax/ant", {"terminate_when_unhealthy": 1},
         "env.terminate_when_unhealthy must be .*got 1"),
        ("brax/ant", {"use_contact_forces": True}, "use_contact_forces not implemented"),
        ("brax/ant", {"episode_length": 2.5}, "env.episode_length must be .*got 2.5"),
        ("brax/ant", {"randomize": "geom_frction=1:2"}, "geom_friction"),
        (PENDULUM, {"randomize": "body_mass=1:2"},
         "env.randomize must be .*got 'body_mass'.*change nothing"),
        (PENDULUM, {"randomize": "dof.damping=1:2"},
         "generalized: .*dof.damping.*got 'dof.damping'.*change nothing"),
        ("brax/ant", {"randomize": "link.inertia.mass=1:2"},
         "spring .*to the power 0 .*generalized, or mjx and body_mass"),
        (PENDULUM, {"backend": "positional", "randomize": "link.inertia.i=1:2"},
         "positional .*power 0 .*body_inertia"),
    ],
)
def test_bad_input(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        registry.make(name, **settings)


def test_a_broken_or_missing_brax(monkeypatch, modules):
    def broken(name):
        raise AttributeError("module 'jax' has no attribute 'gone'")

    for cached in (brax_adapter._envs, brax_adapter.about):
        cached.cache_clear()
    monkeypatch.setattr(mujoco_tools, "import_quietly", broken)
    with pytest.raises(ConfigError,
                       match=r"can be imported, got 'brax/ant': pip install 'brax.*has no "
                             r"attribute 'gone'"):
        registry.make("brax/ant", episode_length=12)
    modules(brax=None)
    with pytest.raises(ConfigError, match="is installed, got 'brax/ant': pip install 'brax"):
        registry.make("brax/ant", episode_length=12)
    assert not registry.list_environments()["brax/ant"].installed


def test_physics_are_randomised_by_name():
    """Traced only: each environment has its own copy of the leaves that this backend reads."""
    env = jf.make(PENDULUM, randomize="link.inertia.mass=0.5:1.5, actuator.gear=0.8:1.2")
    state, _ = jax.eval_shape(lambda key: env.init(key, 5), jax.random.key(0))
    assert sorted(x.shape for x in state.varied) == [(5, 1), (5, 2)]


@pytest.mark.matrix("test_physics_are_randomised_by_name")
def test_a_function_may_change_masses():
    """Springs raise masses to a power that the model tells; ant's is 0."""

    def heavier(key, model, t):
        mass = model.link.inertia.mass * jax.random.uniform(key)
        return model.tree_replace({"link.inertia.mass": mass, "spring_mass_scale": 0.0})

    state, _ = jax.eval_shape(lambda key: jf.make("brax/ant", randomize=heavier).init(key, 2),
                              jax.random.key(0))
    assert [x.shape for x in state.varied] == [(2, 9)]


def test_the_adapter_steps_and_draws_as_brax_does():
    """Step by step what brax computes from the same state; pictures; the page; all of one
    environment and backend."""
    env = jf.make(PENDULUM)
    state, obs = jax.jit(env.init, static_argnums=1)(jax.random.key(0), 4)
    theirs = jax.jit(jax.vmap(env.env.step))
    ours = jax.jit(lambda state, action: env.transition((), state, action))
    for i in range(12):
        action = jax.random.uniform(jax.random.key(i), (4, 1), minval=-1.0, maxval=1.0)
        want = theirs(env.template.replace(
            pipeline_state=state.physics, obs=obs, reward=jnp.zeros(4), done=jnp.zeros(4),
            info=state.info
        ), action)  # fmt: skip
        state, outcome = ours(state, action)
        obs = outcome.next_obs
        for got, expected in ((state.physics, want.pipeline_state), (obs, want.obs),
                              (outcome.reward, want.reward)):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got,
                         expected)
        np.testing.assert_array_equal(outcome.terminated, want.done.astype(bool))
    one = jax.tree.map(lambda x: np.asarray(x)[0], state)
    page, dt = env.drawing.page, env.drawing.step_seconds
    assert (
        "<html" in page([one, one], dt) and "system" in page([one], dt)
        and dt == pytest.approx(env.env.dt)
    )
    wrapped = jf.make(PENDULUM, time_limit=5)
    assert (
        wrapped.drawing.page([(one, np.int32(0))], dt) == page([one], dt)
        and wrapped.drawing.step_seconds == dt
    )
    # three times as long between two states
    slower = jf.make(PENDULUM, time_limit=5, action_repeat=3, sticky_actions=0.1)
    held = ((one, np.zeros(1), np.bool_(False)), np.int32(0))
    assert slower.drawing.step_seconds == pytest.approx(3 * dt) == slower.env.drawing.step_seconds
    assert slower.drawing.page([held], 3 * dt) == page([one], 3 * dt) != page([one], dt)
    picture = env.render(one)
    if picture is None:
        pytest.skip("OpenGL does not work here")
    assert picture.shape == (180, 240, 3) and picture.dtype == np.uint8 and picture.std() > 5


def test_pictures_play_in_real_time(tmp_path):
    assert pictures.pace(None, 500) == (1, 30) and pictures.pace(None, 50) == (1, 10)
    assert (
        pictures.pace(0.05, 500) == (1, pytest.approx(20))
        and pictures.pace(0.02, 9) == (1, pytest.approx(50))
    )
    assert pictures.pace(0.0025, 500) == (8, pytest.approx(50)) and pictures.pace(0.015, 9) == (
        2, pytest.approx(100 / 3))
    assert pictures.pace(3.0, 500) == (1, 5.0)
    env = jf.make(PENDULUM, action_repeat=2)
    frames = [np.full((8, 8, 3), 40 * i, np.uint8) for i in range(6)]
    stride, fps = pictures.pace(env.drawing.step_seconds, len(frames))
    pictures.rollout_gif(frames[::stride], tmp_path / "rollout.gif", fps)
    assert Image.open(tmp_path / "rollout.gif").info["duration"] == pytest.approx(
        2000 * env.env.env.dt, abs=5)


def test_no_picture_without_opengl(monkeypatch):
    import mujoco

    def refuse(*args):
        raise RuntimeError("no display")

    mujoco_tools._renderer.cache_clear()
    monkeypatch.setattr(mujoco, "Renderer", refuse)
    assert mujoco_tools.picture(jf.make(PENDULUM).env.sys.mj_model, np.zeros(2),
                                np.zeros(2)) is None
    mujoco_tools._renderer.cache_clear()


@pytest.mark.slow
def test_one_iteration_of_ppo():
    env = jf.make(PENDULUM, episode_length=3)
    algo = (
        jf.PPO(num_envs=4, num_steps=8, hidden=(8,), num_minibatches=1, num_epochs=1).bind(env.spec)
    )
    run = tree.as_float32(iteration.Run(env, algo, 1.0))
    state, metrics = jax.jit(
        lambda key: iteration.iterations(run, iteration.init(run, key), jnp.int32(0), 1, True))(
        jax.random.key(0)
    )
    assert (
        metrics["episode_return"].total / metrics["episode_return"].count == 3.0
        and tree.all_finite(state.agent.params)
    )


@pytest.mark.matrix("test_the_adapter_steps_and_draws_as_brax_does")
def test_a_brax_environment_conforms():
    report = check_env(jf.make(PENDULUM, episode_length=24), num_envs=4)
    assert (
        report.terminated > 0 and report.truncated > 0 and report.longest == 24
        and report.random_resets
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", brax_adapter.BACKENDS)
@pytest.mark.parametrize("name", brax_adapter.NAMES)
def test_all_conform(name, backend):
    # so short that pendulums reach the limit before they fall
    report = check_env(jf.make(name, backend=backend, episode_length=8), num_envs=4)
    assert report.truncated > 0 and report.random_resets
