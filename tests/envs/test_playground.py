"""MuJoCo Playground's dm_control suite, which is not in [dev]."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jaxrl_fast as jf
from jaxrl_fast.envs import playground_adapter, registry
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.testing import check_env

needs_playground = pytest.mark.playground


def test_a_missing_playground_says_what_to_install(monkeypatch):
    monkeypatch.setattr(playground_adapter, "installed", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'jaxrl_fast\[playground\]'"):
        registry.make("playground/CartpoleBalance", episode_length=7)
    row = registry.list_environments()["playground/CartpoleBalance"]
    assert row.source == "playground" and not row.installed and "[playground]" in row.install


@needs_playground
def test_only_the_suite_is_imported(tmp_path):
    code = (
        "import sys; import jaxrl_fast as jf; env = jf.make('playground/PendulumSwingup', episode_length=9);"
        "assert env.spec.max_episode_steps == 9 and env.spec.action.shape == (1,), env.spec;"
        "bad = [m for m in sys.modules if 'locomotion' in m or 'manipulation' in m or m == 'mujoco_playground'];"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == "" and list(tmp_path.iterdir()) == []


@needs_playground
def test_the_names_are_those_of_the_suite():
    suite = playground_adapter._suite("playground/PointMass")
    assert {playground_adapter.PREFIX + name for name in suite.ALL_ENVS} == set(playground_adapter.NAMES)
    assert jf.make("playground/CartpoleBalance", ctrl_dt=0.02, sim_dt=0.005).env.n_substeps == 4


@needs_playground
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("playground/CartpoleBalanc", {}, "did you mean 'playground/CartpoleBalance'"),
        ("playground/G1JoystickFlatTerrain", {}, "dm_control suite"),
        ("playground/CartpoleBalance", {"backend": "mjx"}, "env.backend = 'mjx'"),
        ("playground/CartpoleBalance", {"ctrl_dt": 0.001}, "env.ctrl_dt = 0.001"),
        ("playground/CartpoleBalance", {"sim_dt": 0}, "env.sim_dt = 0"),
        ("playground/CartpoleBalance", {"ctrl_dt": 0.01, "sim_dt": 0.004}, "a multiple of env.sim_dt = 0.004"),
        ("playground/CartpoleBalance", {"randomize": "body_mas=1:2"}, "there are"),
    ],
)
def test_bad_input(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        registry.make(name, **settings)


@needs_playground
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", playground_adapter.NAMES)
def test_all_conform(name):
    assert check_env(jf.make(name, episode_length=24), num_envs=4).truncated > 0
