"""A run is prepared once: no layer builds the members, plans the grid or describes config.json a
second time."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest

import jaxrl_fast as jf
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import plan_grid
from jaxrl_fast.engine.members import build
from jaxrl_fast.engine.memory_plan import memory_plan
from jaxrl_fast.engine.placement import population_of
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.memory import load_experience, save_memory
from jaxrl_fast.runs.description import add_content, describe
from jaxrl_fast.runs.rundir import RunDir

WORK = (prepare, build, plan_grid, population_of, memory_plan, describe)
ONCE = {function.__name__: 1 for function in WORK}
TINY = "--algo.num-envs 4 --algo.num-steps 16 --algo.hidden 8 --eval-episodes 2 --no-preset"
PPO = jf.PPO(num_envs=4, num_steps=16, hidden=(8,))


@contextlib.contextmanager
def counted(*functions: Callable) -> Iterator[Counter]:
    """Counts of calls in this thread, by names of Python's functions, from Python's profiler."""
    calls, names = Counter(), {id(function.__code__): function.__name__ for function in functions}

    def look(frame, event, _):
        name = names.get(id(frame.f_code))
        if name and event == "call":
            calls[name] += 1

    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_the_profiler_counts():
    def one():
        return 1

    with counted(one) as calls:
        one(), one()
    one()
    assert calls == {"one": 2}


def test_the_command_line_prepares_once(run_cli, tmp_path):
    out, flags = str(tmp_path / "run"), (*TINY.split(), "--total-steps", "192")
    with counted(*WORK) as calls:
        code, _, err = run_cli("train", "ppo", "CartPole-v1", *flags, "--no-tensorboard", "--out",
                               out)
    assert code == 0, err
    assert calls == Counter(ONCE)
    with counted(*WORK) as calls:
        code, _, err = run_cli("plan", "ppo", "CartPole-v1", *flags)
    assert code == 0, err
    assert calls == Counter(ONCE | {"describe": 0})
    with counted(*WORK) as calls:
        code, _, err = run_cli("train", "--resume", out, "--total-steps", "256", "--horizon", "256",
                               "--no-tensorboard")
    assert code == 0, err
    # the rows stay where the old end had them
    assert calls == Counter(ONCE | {"describe": 0, "plan_grid": 2})
    assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["total_steps"] == 256


@pytest.mark.matrix("test_the_command_line_prepares_once")
def test_seeds_in_turn_are_prepared_together(tmp_path):
    env = jf.make("gym:CartPole-v1", vectorization="sync")
    with counted(*WORK) as calls:
        run = jf.train(PPO, env, 128, seeds=2, out=tmp_path / "run", tensorboard=False,
                       eval_episodes=2, progress=False)
    assert (
        (calls["prepare"], calls["build"], calls["plan_grid"], calls["population_of"])
        == (1, 1, 1, 1)
    )
    assert calls["describe"] == 3  # a config.json each, and that of both
    assert run.env_steps == 128 and (tmp_path / "run" / "seed-1" / "result.json").exists()


@pytest.mark.matrix("test_the_command_line_prepares_once")
def test_a_sweep_builds_each_configuration_once(tmp_path):
    settings = dict(grid={"algo.learning_rate": [1e-3, 1e-2]}, eval_episodes=2, eval_every=0,
                    devices=1)
    with counted(*WORK) as calls:
        found = jf.sweep(PPO, jf.make("CartPole-v1"), 128, out=tmp_path / "sweep", **settings)
    assert found.final.shape == (2, 1) and (calls["build"], calls["prepare"]) == (2, 1)


@pytest.mark.matrix("test_the_command_line_prepares_once")
def test_experience_is_read_once_for_all_members(tmp_path):
    algo, env = (
        jf.DQN(num_envs=4, hidden=(8,), learning_starts=64, buffer_size=2_000),
        jf.make("CartPole-v1")
    )
    run = jf.train(algo, env, 200, eval_every=0, eval_episodes=2, progress=False)
    save_memory(tmp_path / "kept", jf.experience(run))
    population = {"algo.learning_rate": [1e-4, 1e-3, 1e-2]}
    config = RunConfig(total_steps=200, experience=str(tmp_path / "kept"), experience_fraction=0.5,
                       population=population)
    with counted(load_experience) as calls:
        made = prepare(algo, env, config)
    assert calls == {"load_experience": 1}
    shared = made.members.first.experience
    assert all(x is y
               for x, y in zip(jax.tree.leaves(shared),
                               jax.tree.leaves(made.members.run.experience), strict=True))


def test_functions_of_a_prepared_run_take_no_parts_of_it():
    """A run's algorithm, environment and settings enter a layer in one parcel."""
    parts = {"algo", "env", "config", "members", "grid", "population"}
    found = {}
    for file in Path(jf.__file__).parent.rglob("*.py"):
        functions = [
            n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef)]
        found |= {(file.stem, f.name): {a.arg for a in (*f.args.args, *f.args.kwonlyargs)}
                  for f in functions}
    handed = {name: own for name, own in found.items() if own & {"prepared", "sweep"}}
    assert (
        {("train", "begin"), ("rundir", "create"), ("programs", "__init__"), ("parts", "split")}
        <= handed.keys()
    )
    assert not {name: own & parts for name, own in handed.items() if own & parts}


def test_a_seed_differs_in_its_settings_alone():
    config = RunConfig(total_steps=128, seeds=3, seed=5)
    both = prepare(PPO, jf.make("gym:CartPole-v1", vectorization="sync"), config,
                   {"imports": ["x"]})
    one = both.seed(2)
    assert (one.config.seed, one.config.seeds, one.about) == (7, 1, {"imports": ["x"]})
    assert (
        one.members is both.members and one.grid is both.grid and one.population is both.population)
    assert add_content(one).content["run"]["seed"] == 7
    assert add_content(both).content["run"]["seeds"] == 3


def test_settings_that_config_json_cannot_hold_train_in_memory_only(tmp_path):
    @jf.settings
    class Local(jf.PPO):
        pass

    made = prepare(Local(num_envs=4, num_steps=16, hidden=(8,)), jf.make("CartPole-v1"),
                   RunConfig(total_steps=128))
    assert made.plan.need > 0
    with pytest.raises(jf.ConfigError, match="a class of a module"):
        RunDir.create(tmp_path / "run", made)
    assert not (tmp_path / "run").exists()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.config = RunConfig()


def test_some_members_on_fewer_places():
    made = prepare(PPO, jf.make("CartPole-v1"),
                   RunConfig(128, population={"algo.learning_rate": [1e-3, 1e-2, 1e-1]}))
    assert made.take([0, 1, 2]) is made
    two = made.take([0, 2])
    assert two.population.size == 2
    for taken, rates in ((made, [1e-3, 1e-2, 1e-1]), (two, [1e-3, 1e-1]), (made.take([1]), 1e-2)):
        assert taken.members.run.algo.learning_rate == pytest.approx(rates)


def test_a_sweep_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(jf.ConfigError,
                       match="actors must be .*got 2: CartPole-v1 is on the device"):
        jf.sweep(PPO, jf.make("CartPole-v1"), 128, grid={"algo.num_epochs": [1, 2]},
                 out=tmp_path / "x", actors=2)
    assert not (tmp_path / "x").exists()
