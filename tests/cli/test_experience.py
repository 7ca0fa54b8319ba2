"""Old experience in new runs, from the command line: kept, mixed in, started from, and learned from
alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
import types

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.cli import command as cli
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import (
    UniformMemory,
    episodes_to_rows,
    hold,
    open_memory,
    rows_of,
    save_memory,
)

ENV = "probe/constant-reward"  # every step ends an episode and gives 1
TINY = ["--algo.num-envs", "4", "--algo.hidden", "8", "--algo.learning-starts", "64",
        "--algo.buffer-size", "2_000",
        "--algo.learning-rate", "1e-2", "--algo.discount", "0.9", "--eval-episodes", "2",
        "--no-tensorboard", "--no-pictures"]  # fmt: skip
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with a run of DQN in it and its replay, and `tens.npz`: steps that gave 10."""
    here = tmp_path_factory.mktemp("experience")
    assert cli.main(
        ["train", "dqn", ENV, "--total-steps", "400", "--out", str(here / "run"), *TINY]) == 0
    assert cli.main(["experience", str(here / "run"), str(here / "replay")]) == 0
    steps, env = 200, jf.make(ENV).spec
    obs = np.ones((steps, *env.observation.shape), env.observation.dtype)
    flags = {"terminations": np.ones(steps, bool), "truncations": np.zeros(steps, bool)}
    np.savez(here / "tens.npz", observations=obs, actions=np.arange(steps) % 2,
             rewards=np.full(steps, 10.0), **flags)
    shuffled = {"observations": obs, "next_observations": obs, "actions": np.arange(steps) % 2,
                "rewards": np.full(steps, 10.0)}
    np.savez(here / "shuffled.npz", terminations=np.ones(steps, bool), **shuffled)
    (here / "empty.npz").touch()
    with open(here / "array.npz", "wb") as file:
        np.save(file, obs)
    for name in ("tens", "shuffled"):
        assert cli.main(
            ["experience", str(here / f"{name}.npz"), str(here / name), "--environment", ENV]) == 0
    return here


def test_a_replay_is_kept(kept, run_cli, tmp_path):
    found = open_memory(kept / "replay")
    rows = rows_of(found)
    assert found.w == 100 and rows.reward.shape == (100, 4) and (rows.reward == 1).all()
    code, out, _ = run_cli("experience", str(kept / "run"), str(tmp_path / "again"))
    assert code == 0 and "400 steps" in out and "--experience" in out
    same = jf.experience(kept / "run")
    np.testing.assert_array_equal(rows_of(same).obs, rows.obs)


def test_a_dataset_of_stacks_takes_the_environment_that_stacks(run_cli, tmp_path):
    env, steps = jf.make("Breakout-MinAtar").spec, 12
    whole = np.zeros((steps, *env.observation.shape[:-1], 2 * env.observation.shape[-1]),
                     env.observation.dtype)
    arrays = {"observations": whole, "next_observations": whole, "actions": np.zeros(steps, int),
              "rewards": np.zeros(steps)}
    np.savez(tmp_path / "stacks.npz", terminations=np.zeros(steps, bool), **arrays)
    words = ["experience", str(tmp_path / "stacks.npz"), str(tmp_path / "kept"), "--environment",
             "Breakout-MinAtar"]
    code, _, err = run_cli(*words)
    assert code == 2 and "observations" in err
    code, out, _ = run_cli(*words, "--env.stack", "2")
    assert code == 0 and "12 steps" in out
    code, _, err = run_cli(*words, "--env.stak", "2")
    assert code == 2 and "--env.stack" in err
    # the rewards of a dataset stay what they are
    code, _, err = run_cli(*words, "--env.reward-clip", "0.5")
    assert code == 2 and "--env.reward-clip" in err
    code, _, err = run_cli(*words[:3], "--env.stack", "2")
    assert code == 2 and "--environment" in err


def value(run) -> float:
    return (
        float(np.mean(np.asarray(
            run.algo.action_values(run.agent().state.params, np.ones((1, 1), np.float32)))))
    )


@pytest.mark.parametrize(("data", "fraction", "expected"), family([
    ("tens", 1.0, (9.0, 10.5)), ("tens", 0.5, (4.5, 6.5)), ("tens", 0.0, (1.2, 6.0)),
    ("shuffled", 0.5, (4.5, 6.5)),
], lambda data, fraction, expected: (data, fraction) == ("tens", 0.5)))  # fmt: skip
def test_mixed_runs_learn_from_both_parts(kept, data, fraction, expected):
    """The data's steps gave ten times what the environment does."""
    algo = jf.DQN(num_envs=4, hidden=(16,), learning_starts=64, buffer_size=2_000,
                  learning_rate=1e-2, discount=0.9,
                  target_period=10, batch_size=64, anneal_learning_rate=True)  # fmt: skip
    steps = 400 if fraction == 1 else 1_600
    run = jf.train(algo, jf.make(ENV), steps, eval_every=0, eval_episodes=4,
                   experience=str(kept / data),
                   experience_fraction=fraction)  # fmt: skip
    low, high = expected
    assert low < value(run) < high
    if fraction == 1:
        # updates, and none played
        assert run.env_steps == 400 and np.isnan(run.history[-1].metrics["episode_return"]).all()


@pytest.mark.parametrize(
    "switch", ["--algo.prioritized", pytest.param("--algo.n-step=2", marks=pytest.mark.slow)])
def test_offline_from_the_command_line(kept, run_cli, tmp_path, switch):
    """Stopped and gone on with it is the run that never stopped, and its agent plays where the data
    is gone."""
    data = tmp_path / "data"
    shutil.copytree(kept / "replay", data)
    flags = ["--experience", str(data), "--experience-fraction", "1", switch, "--seeds", "2",
             "--log-every", "40", *TINY]
    whole = ["train", "dqn", ENV, "--total-steps", "200", "--horizon", "200", "--out",
             str(tmp_path / "a"), *flags]
    code, out, err = run_cli(*whole)
    assert code == 0, err
    assert "200 updates a member" in out
    half = ["train", "dqn", ENV, "--total-steps", "80", "--horizon", "200", "--out",
            str(tmp_path / "b"), *flags]
    assert run_cli(*half)[0] == 0
    assert run_cli("train", "--resume", str(tmp_path / "b"), "--total-steps", "200",
                   "--no-tensorboard")[0] == 0
    rows = (
        [[json.loads(x)["loss"] for x in (
            tmp_path / name / "metrics.jsonl").read_text().splitlines()] for name in "ab"]
    )
    assert rows[0] == rows[1] and len(rows[0]) >= 5
    code, _, err = run_cli("experience", str(tmp_path / "a"), str(tmp_path / "c"))
    assert code == 2 and "a run that fills a replay" in err
    shutil.rmtree(data)
    assert run_cli("eval", str(tmp_path / "a"), "--episodes", "2")[0] == 0
    code, _, err = run_cli("train", "--resume", str(tmp_path / "a"), "--total-steps", "400")
    assert code == 2 and "layout.json" in err
    shutil.copytree(kept / "tens", data)  # another experience under the same name
    code, _, err = run_cli("train", "--resume", str(tmp_path / "a"), "--total-steps", "400")
    assert code == 2 and "it has been rewritten" in err


@pytest.mark.parametrize(
    "selection", family(
        [jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, every=40), jf.Halving(2)], 1))
def test_offline_members_are_selected_by_their_evaluations(kept, selection):
    algo = jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=2_000)
    rates = {"algo.learning_rate": [1e-4, 1e-3, 1e-2, 1e-1]}
    more = dict(population=rates) if isinstance(selection, jf.Halving) else dict(seeds=4)
    settings = dict(log_every=20, eval_every=20, eval_episodes=2, selection=selection,
                    experience=str(kept / "replay"),
                    experience_fraction=1.0) | more  # fmt: skip
    run = jf.train(algo, jf.make(ENV), 200, **settings)
    name = "kept" if isinstance(selection, jf.Halving) else "parent"
    assert any(name in row.metrics for row in run.history)
    assert len(run.lanes) == (1 if isinstance(selection, jf.Halving) else 4)
    with pytest.raises(ConfigError, match="eval_every must be .*got 0.*offline"):
        jf.train(algo, jf.make(ENV), 200, **settings | {"eval_every": 0})


@pytest.mark.matrix("test_offline_members_are_selected_by_their_evaluations")
def test_members_of_a_population_share_the_experience(kept):
    algo = jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=2_000, prioritized=True)
    run = jf.train(algo, jf.make(ENV), 200, eval_every=0, eval_episodes=2,
                   experience=str(kept / "replay"),
                   population={"algo.priority_exponent": [0.3, 0.9]})  # fmt: skip
    assert np.isfinite(run.eval_return).all() and len(jf.experience(run, 1).store.tree) > 1


@pytest.mark.matrix("test_mixed_runs_learn_from_both_parts")
@pytest.mark.parametrize("fraction", [pytest.param(0.0, marks=pytest.mark.slow), 0.5])
def test_host_environments_learn_from_experience(tmp_path, fraction):
    algo = jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=2_000, prioritized=True)
    settings = dict(eval_every=0, eval_episodes=2)
    save_memory(tmp_path / "kept",
                jf.experience(jf.train(algo, jf.make("CartPole-v1"), 400, **settings)))
    more = dict(experience=str(tmp_path / "kept"), experience_fraction=fraction)
    run = jf.train(algo, jf.make("gym:CartPole-v1"), 400, **settings, **more)
    assert np.isfinite(run.eval_return).all() and jf.experience(run).w == (100 if fraction else 200)


def test_the_plan_counts_the_experience(kept):
    plan = lambda **more: jf.plan(jf.DQN(num_envs=4, learning_starts=64, buffer_size=2_000),
                                  jf.make(ENV), 500, **more)
    with_it, without = plan(experience=str(kept / "replay")), plan()
    size = tree.nbytes(open_memory(kept / "replay").store)
    assert with_it.settings - without.settings == size
    assert (
        plan(experience=str(kept / "replay"), experience_fraction=1.0).state.get("replay", 0) == 0)


def without_its_arrays(folder, place):
    """Return a copy that holds the layout alone."""
    shutil.copytree(folder, place)
    shutil.rmtree(place / "store")
    with pytest.raises(ConfigError, match="must be a whole memory"):
        open_memory(place)
    return place


@pytest.mark.parametrize("data", family(["replay", "shuffled"], ["shuffled"]))
def test_a_plan_reads_only_the_layout(kept, tmp_path, capsys, data):
    """Members that differ, and the programs too."""
    folder = str(without_its_arrays(kept / data, tmp_path / data))
    algo = jf.DQN(num_envs=4, learning_starts=64, buffer_size=2_000, prioritized=True)
    for fraction in (0.5, 1.0):
        more = dict(experience=folder, experience_fraction=fraction,
                    population={"algo.discount": [0.5, 0.9]})
        assert jf.plan(algo, jf.make(ENV), 500, **more).fits
    assert cli.main(["plan", "dqn", ENV, "--experience", folder, "--compile", *TINY[:-2]]) == 0
    assert "compiled temporaries" in capsys.readouterr().out


@pytest.mark.parametrize("fraction", family([0.5, 1.0, 0.0], 2))
def test_a_run_that_cannot_fit_is_refused_before_experience_is_read(
    kept, run_cli, device_memory, tmp_path, fraction
):
    algo, out = (
        jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=2_000), tmp_path / "x")
    more = dict(experience=str(without_its_arrays(kept / "tens", tmp_path / "tens")),
                experience_fraction=fraction)
    device_memory(5_000)
    for train, settings in ((jf.train, more), (jf.sweep, more | {"grid": {"algo.n_step": [1, 2]}})):
        with pytest.raises(ConfigError, match="memory must be at most the 4.9 KiB"):
            train(algo, jf.make(ENV), 500, out=out, **settings)
    flags = ["--experience", more["experience"], "--experience-fraction", str(fraction), "--out",
             str(out), *TINY[:-2]]
    for command in (["train", "dqn", ENV],
                    ["sweep", "dqn", ENV, "--grid", "algo.discount=0.5,0.9"]):
        code, _, err = run_cli(*command, *flags)
        assert code == 2 and "at most the 4.9 KiB" in err, err
    assert not out.exists()


def test_the_suggested_size_fits_with_experience(kept, device_memory):
    """Experience is laid out in the size of the suggested buffer."""
    plan = lambda size: jf.plan(jf.DQN(
        num_envs=4, hidden=(8,), learning_starts=64, buffer_size=size), jf.make(ENV), 500,
                                experience=str(kept / "replay"),
                                experience_fraction=0.0)  # fmt: skip
    device_memory(plan(20_000).need // 2)
    assert not plan(20_000).fits and plan(plan(20_000).remedies()["buffer_size"]).fits


@pytest.mark.matrix("test_offline_members_are_selected_by_their_evaluations")
def test_a_halved_run_resumes_in_memory_for_its_members(kept, device_memory, tmp_path):
    """Halving has dropped the others: they are no longer planned."""
    algo, settings = jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=2_000), dict(
        log_every=20, eval_every=20, eval_episodes=2, selection=jf.Halving(2),
        experience=str(kept / "replay"),
        experience_fraction=0.5, population={"algo.learning_rate": [1e-4, 1e-3, 1e-2, 1e-1]},
    )  # fmt: skip
    run = jf.train(algo, jf.make(ENV), 400, out=tmp_path / "run", tensorboard=False, **settings)
    plan = jf.plan(algo, jf.make(ENV), 400, **settings)
    device_memory((plan.need + plan.of_size(len(run.lanes)).need) // 2)
    assert not jf.plan(algo, jf.make(ENV), 400, **settings).fits
    assert jf.resume(tmp_path / "run").env_steps == run.env_steps


def test_minari_episodes(kept, run_cli, tmp_path, modules):
    steps = 6
    episode = types.SimpleNamespace(
        observations=np.ones((steps + 1, 1)), actions=np.zeros(steps, np.int64),
        rewards=np.ones(steps),
        terminations=np.arange(steps) == steps - 1, truncations=np.zeros(steps, bool),
    )  # fmt: skip

    def load_dataset(name):
        if name == "broken-v0":
            return types.SimpleNamespace(
                iterate_episodes=lambda: map(int, ["a file that is not whole"]))
        if name != "mine-v0":
            raise FileNotFoundError("no such dataset")
        return types.SimpleNamespace(iterate_episodes=lambda: iter([episode] * 3))

    modules(minari=types.SimpleNamespace(load_dataset=load_dataset))
    code, _, err = run_cli("experience", "minari:mine-v0", str(tmp_path / "m"), "--environment",
                           ENV)
    assert code == 0, err
    assert rows_of(open_memory(tmp_path / "m")).reward.sum() == 3 * steps
    for name, why in (("other-v0", "no such dataset"), ("broken-v0", "a file that is not whole")):
        code, _, err = run_cli("experience", f"minari:{name}", str(tmp_path / "n"), "--environment",
                               ENV)
        assert code == 2 and "minari list local" in err and why in err
    modules(minari=None)
    code, _, err = run_cli("experience", "minari:mine-v0", str(tmp_path / "n"), "--environment",
                           ENV)
    assert code == 2 and "[minari]" in err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("experience", "SOURCE must be given, got none"),
        ("experience {here}/run {here}/replay", "does not exist yet"),
        ("experience {here}/run {here}/run/seed-0",
         "FOLDER must be a folder outside of other runs, such as {here}/seed-0"),
        ("experience {here}/tens.npz {here}/run/data/x --environment CartPole-v1",
         "{here}/run is that of a run"),
        ("experience {here}/none {tmp}/x", "an existing run directory"),
        ("experience {here}/run {tmp}/x --member 3", "member must be an integer from 0 to "),
        ("experience {here}/run {tmp}/x --environment CartPole-v1", "the run has its own"),
        ("experience {here}/tens.npz {tmp}/x", "--environment"),
        ("experience {here}/tens.npz {tmp}/x --environment CartPole-v1", "observations"),
        ("experience {here}/none.npz {tmp}/x --environment CartPole-v1", "an existing .npz file"),
        ("experience {here}/run/config.json {tmp}/x", "an existing run directory"),
        ("train dqn probe/constant-reward --experience {here}/none", "layout.json"),
        ("train dqn CartPole-v1 --experience {here}/replay", "as CartPole-v1 has it"),
        ("train ppo CartPole-v1 --experience {here}/replay",
         "an algorithm that learns from replay"),
        ("train dqn probe/constant-reward --experience {here}/replay --experience-fraction 1.5",
         "[0, 1]"),
        ("train dqn probe/constant-reward --experience {here}/replay --experience-fraction 0.001",
         "both parts"),
        ("train dqn probe/constant-reward --experience {here}/replay --groups 2", "groups"),
        ("train dqn probe/constant-reward --experience-fraction 1",
            "experience_fraction must be left out without experience, got 1"),
        ("train dqn probe/constant-reward --experience {here}/tens --experience-fraction 0 "
         "--algo.buffer-size 16 "
         "--algo.batch-size 4", "buffer_size"),
        ("experience {here}/empty.npz {tmp}/x --environment CartPole-v1", "a whole .npz file"),
        ("experience {here}/array.npz {tmp}/x --environment CartPole-v1", "a whole .npz file"),
        ("train dqn gym:CartPole-v1 --experience {here}/replay --experience-fraction 1",
            "experience_fraction must be below 1, got 1"),
    ],
)  # fmt: skip
def test_bad_experience(kept, run_cli, tmp_path, argv, expected):
    before = {x.name for x in (kept / "run").iterdir()}
    code, _, err = run_cli(*argv.format(here=kept, tmp=tmp_path).split())
    assert code == 2 and expected.format(here=kept) in err, err
    assert not (tmp_path / "x").exists() and {x.name for x in (kept / "run").iterdir()} == before


def test_actions_that_do_not_exist(tmp_path):
    env, other = jf.make("Acrobot-v1"), jf.make("CartPole-v1")
    flags = np.zeros(20, bool)
    episode = dict(observations=np.zeros((20, 4)), actions=np.arange(20) % 3, rewards=flags)
    episode |= dict(terminations=flags, truncations=flags)
    three = dataclasses.replace(other.spec, action=env.spec.action)
    save_memory(tmp_path / "x", hold(UniformMemory(8, 1, 1, 1), episodes_to_rows([episode], three)))
    with pytest.raises(ConfigError, match="experience.action must be in .*got '0 to 2'"):
        jf.train(jf.DQN(), other, 500, experience=tmp_path / "x", experience_fraction=1.0)


def test_a_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match="experience must be .*got 3"):
        jf.train(jf.DQN(), jf.make(ENV), 500, experience=3)
    with pytest.raises(ConfigError, match="experience must be a folder that save_memory has"):
        jf.train(jf.DQN(), jf.make(ENV), 500, experience=tmp_path)
