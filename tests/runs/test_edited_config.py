"""config.json that was edited after its run is refused by resume and load, with the keys."""

from __future__ import annotations

import dataclasses
import json
import shutil
import warnings
from pathlib import Path

import flax.linen as nn
import jax.numpy as jnp
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.networks.layers import has_bytes_in_vectors
from jaxrl_fast.runs.checkpoints import settings
from jaxrl_fast.runs.checkpoints.store import Checkpoints


class Net(nn.Module):
    width: int = 8
    scale: float = 1.0

    @nn.compact
    def __call__(self, obs):
        return nn.tanh(self.scale * nn.Dense(self.width)(obs.reshape((obs.shape[0], -1))))


@jf.settings
class Lever(jf.SingleEnv):
    """Reward for the first action, times `worth`; observations are vectors of bytes."""

    worth: float = 1.0

    spec = jf.EnvSpec("lever", jf.Box(0, 255, (3,), jnp.uint8), jf.Discrete(2), 3)

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros(3, jnp.uint8)

    def step_one(self, key, state, action):
        time, seen = state + 1, jnp.full(3, action, jnp.uint8)
        return time, seen, self.worth * (action == 0), jnp.bool_(False), time >= 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(algorithm's settings, environment) -> a fresh copy of a run of half its horizon."""
    base, done = tmp_path_factory.mktemp("trained"), {}

    def get(to, env="CartPole-v1", **own):
        key = repr((env, own))
        if key not in done:
            done[key] = base / str(len(done))
            made = jf.make(env, max_steps_in_episode=30) if isinstance(env, str) else env
            tools.train(tools.algorithm("ppo", **own), done[key], made, total_steps=tools.HALF,
                        horizon=tools.TOTAL)
        shutil.copytree(done[key], to)
        return to

    return get


def edit(run: Path, *sections: str, **changes) -> None:
    file = run / "config.json"
    content = part = json.loads(file.read_text())
    for name in sections:
        part = part[name]
    part |= changes
    file.write_text(json.dumps(content))


def refusals(run: Path) -> list[str]:
    """The messages of resume and load, one line each."""
    found = []
    for read in (lambda: tools.resume(run, tools.TOTAL), lambda: jf.load(run),
                 lambda: jf.load(run, "last"), lambda: jf.load(run, "best")):
        with pytest.raises(jf.ConfigError) as error:
            read()
        assert "\n" not in str(error.value)
        found.append(str(error.value))
    return found


@pytest.mark.parametrize(("sections", "changes", "says"), [
    (["run"], {"seed": 7}, "seed is 7 there and was 0 in training"),
    (["run"], {"eval_mode": "sample"}, 'eval_mode is "sample" there and was "greedy" in training'),
    (["run"], {"groups": 2},
     "it samples in 2 groups (mesh, groups) and in training in 1 group"),
    (["algorithm", "settings"], {"activation": "relu"},
     'algo.activation is "relu" there and was "tanh" in training'),
    (["algorithm", "settings"], {"learning_rate": 0.5, "discount": 0.9},
     "algo.learning_rate is 0.5 there and was 0.0003 in training, algo.discount is 0.9 there and"),
    (["algorithm", "settings"], {"num_epochs": 3}, "algo.num_epochs is 3 there and was 2"),
    (["environment", "settings"], {"max_steps_in_episode": 99},
     "env.max_steps_in_episode is 99 there and was 30 in training"),
    (["environment", "settings"], {"gravity": 20.0},
     "env.gravity is 20.0 there and was 9.8 in training"),
    (["environment", "settings"], {"reward_scale": 2.0},
     "env.reward_scale is 2.0 there and was 1.0 in training"),
    (["environment"], {"settings": {}},
     "env.max_steps_in_episode is 500 there and was 30 in training"),
])  # fmt: skip
def test_an_edited_setting_is_named_with_both_values(sections, changes, says, trained, tmp_path):
    run = trained(tmp_path / "run")
    before = sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*") if p.name != "config.json")
    edit(run, *sections, **changes)
    for message in refusals(run):
        assert says in message and "Put the old values back. Then a new run" in message, message
        assert "train --config RUN/config.json FLAGS --start-from RUN`" in message, message
        assert str(run / "config.json") in message and "checkpoints/" in message, message
    after = sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*") if p.name != "config.json")
    assert [x for x in after if x[0].is_file()] == [x for x in before if x[0].is_file()]


def test_many_edits_are_counted(trained, tmp_path):
    run = trained(tmp_path / "run")
    edit(run, "algorithm", "settings", learning_rate=0.5, discount=0.9, activation="relu",
         num_epochs=3, hidden=[16])
    edit(run, "run", seed=1)
    assert all(message.count(" in training") == settings.MOST and "2 more differ" in message
               for message in refusals(run))


@pytest.mark.parametrize(("sections", "changes"), family([
    (["run"], {"checkpoint_minutes": 60.0, "chunk_seconds": 0.5, "pictures": False}),
    (["run"], {"keep_checkpoints": 1, "eval_episodes": 2, "on_nan": "mark"}),
    (["run"], {"total_steps": tools.TOTAL, "batching": "map", "unroll": 2, "tuned": False}),
    (["environment", "settings"], {"gravity": 9.8, "stack": 1}),  # the defaults
    (["algorithm", "settings"], {"discount": 0.99}),
], 1))  # fmt: skip
def test_settings_of_speed_and_logs_may_be_edited(sections, changes, trained, tmp_path):
    run = trained(tmp_path / "run")
    edit(run, *sections, **changes)
    jf.load(run), jf.load(run, "last")
    assert tools.resume(run, tools.TOTAL).env_steps == tools.TOTAL


def test_settings_of_a_resume_stay_allowed_afterwards(trained, tmp_path):
    """A new end, horizon and placement are in config.json, and the next resume takes them."""
    run = trained(tmp_path / "run")
    tools.resume(run, tools.TOTAL, horizon=2 * tools.TOTAL, devices="all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tools.resume(run, 2 * tools.TOTAL)
        jf.load(run)


def test_a_field_of_a_network_and_of_an_environment_object_is_named(trained, tmp_path):
    run = trained(tmp_path / "run", Lever(), network=Net())
    edit(run, "algorithm", "settings", "network", "fields", scale=2.0)
    edit(run, "environment", "object", "fields", worth=-1.0)
    for message in refusals(run):
        assert "algo.network.scale is 2.0 there and was 1.0 in training" in message
        assert "env.worth is -1.0 there and was 1.0 in training" in message


def test_a_moved_class_is_the_same_setting(trained, tmp_path):
    """A script's class that became a module's, or one that moved within its package."""
    run = trained(tmp_path / "run", Lever(), network=Net())
    algo, env, config, _ = jf_config(run)
    written = settings.settings_of(algo, env, config)
    assert written["algo.network"] == {"class": f"{__name__}:Net"}
    for path, same in (("__main__:Net", True), (f"{__name__}.inner:Net", True),
                       (f"{__name__}:Other", False), ("renamed:Net", True),
                       ("jaxrl_fast.networks:Net", False)):
        found = settings.differences(written | {"algo.network": {"class": path}}, algo, env, config)
        assert (found == []) == same, path


def test_an_environment_s_moved_class_is_the_same_environment(trained, tmp_path):
    algo, _, config, _ = jf_config(trained(tmp_path / "run"))
    env = jf.make(Lever)
    named = lambda env, name: [x.name for x in settings.differences(
        settings.settings_of(algo, env, config) | {"environment": name}, algo, env, config)]
    assert settings.settings_of(algo, env, config)["environment"] == f"{__name__}:Lever"
    assert named(env, "__main__:Lever") == named(env, "renamed:Lever") == []
    assert named(env, "renamed:Other") == named(env, "gym:Lever") == ["environment"]
    assert named(jf.make("CartPole-v1"), "gymnax:CartPole-v1") == ["environment"]


def test_names_of_two_libraries_are_no_moved_class():
    assert not settings._same_name("gym:CartPole-v1", "gymnax:CartPole-v1")
    assert settings._same_name("levers:Lever", "levers:Lever")


def test_an_edited_mesh_is_told_as_groups(trained, tmp_path):
    """The file holds no groups of its own if `mesh` was edited to null."""
    algo, env, config, _ = jf_config(trained(tmp_path / "run"))
    written = {settings.KEY: settings.settings_of(algo, env, config) | {"groups": 2}}
    with pytest.raises(jf.ConfigError, match=r"samples in 1 group \(mesh, groups\) and in training "
                                             "in 2 groups"):
        settings.check_settings(tmp_path / "config.json", tmp_path, written, algo, env, config)


@pytest.mark.parametrize(("one", "other"), [
    ([1.0] * 200, [1] * 200),
    ([0.1 * i for i in range(90)], [float(jnp.float32(0.1 * i)) for i in range(90)]),
    ([{"class": "nets_a:Net"}] * 40, [{"class": "renamed.inner:Net"}] * 40),
])  # fmt: skip
def test_long_values_are_compared_by_their_meaning(one, other):
    short = settings._short
    assert short(one).keys() == {"digest"} and short(one) == short(other) != short(one[:-1])


def test_long_values_that_differ_have_other_digests():
    pairs = [([1] * 200, [True] * 200), ([0.1] * 200, [0.2] * 200),
             ([{"class": "nets:Net"}] * 40, [{"class": "jaxrl_fast.nets:Net"}] * 40)]
    assert all(settings._short(a) != settings._short(b) for a, b in pairs)


def test_a_newer_setting_is_no_edit(trained, tmp_path):
    """A checkpoint of a version that lacks a setting, and one that had another default."""
    run = trained(tmp_path / "run")
    algo, env, config, _ = jf_config(run)
    written = settings.settings_of(algo, env, config)
    for name in ("algo.normalize_reward", "ahead", "env.max_steps_in_episode"):
        older = {key: x for key, x in written.items() if key != name}
        found = settings.differences(older, algo, env, config)
        assert [x.name for x in found] == ["env.max_steps_in_episode"] * name.startswith("env.")


def jf_config(run: Path):
    from jaxrl_fast.runs import config_json

    return config_json.load(run)


def test_a_selection_is_compared_by_its_settings(trained, tmp_path):
    run = trained(tmp_path / "run")
    algo, env, config, _ = jf_config(run)
    pbt = jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-2"})
    of = lambda selection: settings.settings_of(algo, env,
                                                dataclasses.replace(config, selection=selection))
    named = lambda one, other: [
        x.name for x in settings.differences(of(one), algo, env,
                                             dataclasses.replace(config, selection=other))]
    assert named(pbt, pbt) == named(None, None) == []
    assert named(pbt, dataclasses.replace(pbt, fraction=0.5)) == ["selection.fraction"]
    assert "selection" in named(pbt, None) and named(None, pbt) == ["selection"]
    assert "selection" in named(pbt, jf.Halving(1))


def test_a_long_value_is_told_without_its_content(trained, tmp_path):
    algo, env, config, _ = jf_config(trained(tmp_path / "run"))
    rates = [1e-3 / (i + 1) for i in range(60)]
    of = lambda rates: dataclasses.replace(config, population={"algo.learning_rate": rates})
    written = {settings.KEY: settings.settings_of(algo, env, of(rates))}
    with pytest.raises(jf.ConfigError, match="population is another value there and was another"):
        settings.check_settings(tmp_path / "config.json", tmp_path, written, algo, env,
                                of(rates[::-1]))


def without_settings(run: Path) -> None:
    """As an older version wrote the checkpoints."""
    for file in run.rglob("meta/metadata"):
        content = json.loads(file.read_text())
        assert content.pop(settings.KEY)
        file.write_text(json.dumps(content))
    for file in run.rglob("checksums.json"):
        file.unlink()


def test_checkpoints_of_older_versions_load_and_gain_the_settings(trained, tmp_path):
    run = trained(tmp_path / "run")
    without_settings(run)
    edit(run, "run", eval_mode="sample")
    jf.load(run), jf.load(run, "last")
    tools.resume(run, tools.TOTAL)
    edit(run, "run", eval_mode="greedy")
    with pytest.raises(jf.ConfigError, match="eval_mode is"):
        jf.load(run, "last")


def test_runs_of_older_versions_on_vectors_of_bytes_are_refused(trained, tmp_path):
    """Their networks saw these on another scale: they would play worse, silently."""
    run = trained(tmp_path / "run", Lever(), network=Net())
    jf.load(run)
    without_settings(run)
    assert all("vectors of bytes" in text and "Train the run again" in text
               for text in refusals(run))


@pytest.mark.matrix("test_runs_of_older_versions_on_vectors_of_bytes_are_refused")
def test_a_sweep_does_not_go_on_beside_members_on_another_scale(tmp_path):
    grid = {"algo.hidden": [(4,), (8,)]}
    sweep = lambda: jf.sweep(tools.algorithm("ppo"), Lever(), tools.HALF, grid=grid,
                             out=tmp_path / "sweep", progress=False)
    sweep()
    part, other = sorted(path.parent for path in (tmp_path / "sweep").rglob("checkpoints"))
    without_settings(part)
    shutil.rmtree(other)
    with pytest.raises(jf.ConfigError, match="older versions scale vectors of bytes differently"):
        sweep()


@pytest.mark.parametrize(("space", "changed"), [
    (jf.Box(0, 255, (), jnp.uint8), True), (jf.Box(0, 16, (2,), jnp.uint8), True),
    (jf.Dict({"ram": jf.Box(0, 255, (3,), jnp.uint8)}), True),
    (jf.Box(0, 1, (3,), jnp.uint8), False), (jf.Box(0, 15, (3,), jnp.uint8), False),
    (jf.Box(0, 255, (8, 8, 1), jnp.uint8), False), (jf.Box(0, 255, (3,), jnp.int32), False),
    (jf.Dict({"x": jf.Discrete(2), "action_mask": jf.Box(0, 255, (3,), jnp.uint8)}), False),
])  # fmt: skip
def test_only_bytes_on_another_scale_are_refused(space, changed):
    assert has_bytes_in_vectors(space) == changed


def test_the_metadata_holds_the_settings_of_both_kinds(trained, tmp_path):
    run = trained(tmp_path / "run")
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        for which in ("last", "best"):
            found = checkpoints.meta(which, checkpoints.latest(which))[settings.KEY]
            assert found["seed"] == 0 and found["algo.num_envs"] == 4
            assert found["environment"] == "CartPole-v1" and "total_steps" not in found


def test_eval_and_resume_on_the_command_line_end_with_code_2(trained, tmp_path, run_cli):
    run = trained(tmp_path / "run")
    edit(run, "run", seed=3)
    for line in (["eval", str(run), "--episodes", "2"], ["train", "--resume", str(run)],
                 ["export", str(run), "--out", str(tmp_path / "policy")]):
        code, _, err = run_cli(*line)
        assert code == 2 and err.count("\n") == 1 and "seed is 3 there and was 0" in err, err


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e400"])
def test_a_number_that_json_lacks_is_damage(number, trained, tmp_path):
    trained(tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    content = json.loads(file.read_text())
    content["versions"]["jaxrl_fast"] = 0.125
    file.write_text(json.dumps(content).replace("0.125", number))
    with pytest.raises(jf.ConfigError, match=f"damaged .*{number} is no number of JSON"):
        tools.resume(tmp_path / "run", tools.TOTAL)
