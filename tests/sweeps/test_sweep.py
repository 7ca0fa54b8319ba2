"""Sweeps: members with settings of their own equal single runs, groups, waves, members that are
lost, results, resume."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import shutil
import types
from unittest import mock

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from helpers.notebook import Shell
from jaxrl_fast.cli import command as cli
from jaxrl_fast.engine import grid as jf_grid
from jaxrl_fast.engine import members
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.engine.programs import Programs
from jaxrl_fast.errors import ConfigError, MissingExtraError
from jaxrl_fast.logs import plots
from jaxrl_fast.memory import save_memory
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.sweeps import configurations, folder, opening
from jaxrl_fast.sweeps import sweep as sweeps
from jaxrl_fast.sweeps.parts import Sweep, split
from jaxrl_fast.sweeps.results import SweepResult, read_sweep

SETTINGS = dict(total_steps=tools.HALF, tensorboard=False) | tools.RUN
RATES = (1e-3, 1e-2, 1e38)  # the last one does not survive its first update


def stop_at(row):
    """A hook that interrupts a run."""

    def stop(session, rows):
        if session.rows >= row:
            raise KeyboardInterrupt

    return stop


def never(session, rows):
    """A hook of runs that must not train."""
    raise AssertionError(f"{session.out} is trained")


_ALIVE = {}  # programs of parts: sweeps of six members at different learning rates share them


@pytest.fixture(autouse=True, scope="module")
def _forget_parts():
    yield
    _ALIVE.clear()


def keep(session, rows):
    """A hook that keeps the programs of a part."""
    programs = session.lanes.programs
    _ALIVE[id(programs._functions)] = programs


def sweep(out, name="ppo", hooks=(), **settings):
    settings = {k: v for k, v in SETTINGS.items() if k != "tensorboard"} | settings
    return jf.sweep(tools.algorithm(name), tools.environment(name), out=out,
                    hooks=[keep, *hooks], **settings)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Three learning rates, one of which breaks, times two seeds times two sizes: two groups of six
    members."""
    out = tmp_path_factory.mktemp("sweep") / "x"
    return sweep(out, grid={"algo.learning_rate": RATES, "algo.num_epochs": [2, 1]}, seeds=2,
                 pictures=True)


@pytest.mark.matrix("test_the_command_line")
def test_groups_and_order(swept):
    content = json.loads((swept.path / "sweep.json").read_text())
    assert [p["configurations"] for p in content["parts"]] == [[0, 2, 4], [1, 3, 5]]
    assert (
        swept.configurations[1] == {"algo.learning_rate": 1e-3, "algo.num_epochs": 1}
        and swept.seeds == [0, 1]
    )
    assert swept.final.shape == (6, 2)


def test_arrays_with_named_axes(swept):
    values, axes = swept.array()
    assert axes == {"algo.learning_rate": sorted(RATES), "algo.num_epochs": [1, 2],
                    "seed": [0, 1]} and values.shape == (3, 2,
        2)
    for c, settings in enumerate(swept.configurations):
        at = [axes[name].index(value) for name, value in settings.items()]
        np.testing.assert_array_equal(values[*at], swept.final[c])
    steps, curve = swept.curve()
    rows, axes = swept.array("episode_return")
    assert (
        list(axes) == ["algo.learning_rate", "algo.num_epochs", "seed", "env_steps"]
        and axes["env_steps"] == list(steps)
    )
    # 1e-3 and two epochs come first among the configurations
    np.testing.assert_array_equal(rows[0, 1], curve[0])


def test_draws_that_fill_no_grid_are_one_axis():
    found = [{"algo.discount": 0.9, "algo.learning_rate": 1.0},
             {"algo.discount": 0.8, "algo.learning_rate": 2.0}]
    result = SweepResult(None, {}, found, [5], np.array([[1.0], [2.0]]), {}, [[[]], [[]]])
    values, axes = result.array()
    assert axes == {"configuration": [0, 1], "seed": [5]} and values.tolist() == [[1.0], [2.0]]


def test_members_are_the_single_runs(swept):
    """Bit for bit: one after the other on one device."""
    part = swept.path / "parts" / "00"
    for configuration, seed in ((0, 0), (2, 1)):
        algo = tools.algorithm("ppo",
                               **{k[5:]: v for k, v in swept.configurations[configuration].items()})
        single = tools.train(algo, seed=seed, total_steps=tools.HALF)
        member = (0, 2, 4).index(configuration) * 2 + seed
        rows = [{k: [v[member]] if isinstance(v, list) else v for k, v in row.items()}
                for row in tools.logged(part)]
        assert rows == tools.through_json(single.history)
        assert swept.final[configuration, seed] == pytest.approx(float(single.eval_return[0]))
        agent = jf.load(part, "last", member=member)
        tools.assert_same(agent.state, single.agent().state)
        assert float(agent.algo.learning_rate) == pytest.approx(
            swept.configurations[configuration]["algo.learning_rate"])


def test_a_non_finite_member_is_marked_and_the_others_continue(swept):
    rows = tools.logged(swept.path / "parts" / "00")
    first = next(i for i, row in enumerate(rows) if row["episode_return"][4] is None)
    assert all(values[4] is None for row in rows[first:]
               for k, values in row.items() if k != "env_steps")
    assert any(row["episode_return"][0] is not None for row in rows[first:])
    assert set(swept.lost) == {(4, 0), (4, 1), (5, 0), (5, 1)} and np.isnan(swept.final[4:]).all()
    assert all("steps" in why and ("nan" in why or "inf" in why or "finite" in why)
               for why in swept.lost.values())
    result = json.loads((swept.path / "parts" / "00" / "result.json").read_text())
    assert result["eval_return"][4:] == [None, None]
    assert [x["member"] for x in result["lost"]] == [4, 5]
    with pytest.raises(jf.NonFiniteError,
                       match=r"member 4 \(seed 0, algo.learning_rate = 1e\+38\)"):
        tools.train("ppo", total_steps=128, seeds=2, population={"algo.learning_rate": list(RATES)})


def test_a_run_without_live_members_ends():
    """As many members as a group of `swept`, so that they share its programs."""
    with pytest.raises(jf.NonFiniteError):
        tools.train("ppo", population={"algo.learning_rate": [1e38, 2e38, 3e38]}, seeds=2,
                    on_nan="mark")


def test_table_and_files(swept):
    table = swept.table()
    assert [row["rank"] for row in table] == list(range(1, 7))
    assert {row["configuration"] for row in table[-2:]} == {4, 5}
    assert all(a["iqm"] >= b["iqm"] for a, b in itertools.pairwise(table[:4]))
    # of two scores
    assert table[0]["iqm"] == pytest.approx(swept.final[table[0]["configuration"]].mean())
    with open(swept.path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["configuration"]) for row in rows] == [row["configuration"] for row in table]
    assert (
        float(rows[0]["seed_1"]) == pytest.approx(table[0]["scores"][1], rel=1e-6)
        and rows[-1]["iqm"] == ""
    )
    text = str(swept)
    assert "algo.learning_rate" in text and "lost" in text and len(text.splitlines()) == 8
    pictures = {p.name for p in swept.path.glob("*.png")}
    assert pictures == {
        "curves.png", "response-algo.learning_rate.png", "response-algo.num_epochs.png",
        "heat-algo.learning_rate-algo.num_epochs.png",
    }  # fmt: skip
    steps, values = swept.curve()
    assert values.shape == (6, 2, len(steps)) and list(steps) == [
        r["env_steps"] for r in tools.logged(swept.path / "parts/00")]
    again = read_sweep(swept.path)
    np.testing.assert_array_equal(again.final, swept.final)


def test_the_best_configuration_is_a_config(swept):
    from jaxrl_fast.runs import config_json as configs

    algo, env, run, _ = configs.load(swept.path / "best.json")
    best = swept.configurations[swept.best()]
    for name in ("learning_rate", "num_epochs"):
        assert getattr(algo, name) == best[f"algo.{name}"]
    assert (run.seeds, run.total_steps, run.on_nan, run.selection) == (2, tools.HALF, "stop", None)
    assert env is tools.environment()


@pytest.mark.matrix("test_members_are_the_single_runs")
def test_members_are_the_single_runs_in_the_code_that_users_run(tmp_path, as_users_have_it,
                                                                singles):
    rates = [RATES[1], tools.algorithm("ppo").learning_rate]
    with as_users_have_it():
        found = sweep(tmp_path / "x", grid={"algo.learning_rate": rates}, seeds=1,
                      horizon=tools.TOTAL, eval_every=0)
    single = singles("ppo")[0]
    assert found.final[1, 0] == single.eval_return[0]
    tools.assert_same(jf.load(found.path / "parts" / "00", "last", member=1).state,
                      single.agent().state)


def test_a_finished_sweep_is_not_repeated_and_another_is_refused(swept, monkeypatch):
    monkeypatch.setattr(plots, "save", lambda figure, path: path)  # pictures are drawn again
    same = dict(grid={"algo.learning_rate": RATES, "algo.num_epochs": [2, 1]}, seeds=2,
                pictures=True)
    np.testing.assert_array_equal(sweep(swept.path, hooks=[never], **same).final, swept.final)
    np.testing.assert_array_equal(sweeps.resume_sweep(swept.path, hooks=[never]).final, swept.final)
    with pytest.raises(jf.ConfigError, match="out must be .*this holds another sweep"):
        sweep(swept.path, grid={"algo.learning_rate": RATES}, seeds=2, pictures=True)


def test_a_stopped_sweep_resumes(swept, tmp_path):
    """Stopped in its first part after a checkpoint, and in its second before one: the same files in
    the end."""
    out = tmp_path / "x"
    settings = dict(grid={"algo.learning_rate": RATES, "algo.num_epochs": [2, 1]}, seeds=2,
                    checkpoint_minutes=1e-9)
    second = (
        lambda session, rows: stop_at(2)(session, rows) if session.out.path.name == "01" else None)
    for hook in (stop_at(5), second):
        with pytest.raises(KeyboardInterrupt):
            sweep(out, hooks=[hook], **settings)
    shutil.rmtree(out / "parts" / "01" / "checkpoints")
    found = sweeps.resume_sweep(out)
    np.testing.assert_array_equal(found.final, swept.final)
    for part in ("00", "01"):
        assert tools.logged(out / "parts" / part) == tools.logged(swept.path / "parts" / part)


@pytest.mark.matrix("tests/engine/test_populations.py::test_a_sweep_is_a_vmap_and_one_compile")
def test_settings_of_the_environment_are_swept_in_one_program(tmp_path):
    env = jf.make("Pendulum-v1", max_steps_in_episode=30)
    found = prepare(tools.algorithm("apg"), env,
                    RunConfig(640, population={"env.g": [5.0, 10.0]})).members
    names = members.leaf_names(found.first)
    assert [names[i] for i in found.swept] == ["env.g"] and len(found.swept) == 1
    run = tools.train("apg", env=env, total_steps=128, population={"env.g": [5.0, 10.0]})
    single = tools.train("apg", env=jf.make("Pendulum-v1", max_steps_in_episode=30, g=5.0),
                         total_steps=128)
    # a setting from a list is fused otherwise
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, run.population.member(run.state.agent, 0).params, single.state.agent.params)
    for row, alone in zip(run.history, single.history, strict=True):
        for name, value in alone.metrics.items():
            close(row.metrics[name][:1], value, err_msg=name)


def test_draws_depend_on_the_seed_alone():
    one = configurations.configurations_of(None, {"algo.discount": "uniform:0.9,0.99"}, 4, 0)
    two = configurations.configurations_of(
        {"algo.num_envs": [4, 8]},
        {"algo.learning_rate": "loguniform:1e-4,1e-2", "algo.discount": "uniform:0.9,0.99"}, 4, 0
    )
    assert len(two) == 8 and [c["algo.num_envs"] for c in two] == [4] * 4 + [8] * 4
    assert [c["algo.discount"] for c in two[:4]] == [c["algo.discount"] for c in two[4:]] == [
        c["algo.discount"] for c in one]
    other = configurations.configurations_of(None, {"algo.discount": "uniform:0.9,0.99"}, 4, 1)
    assert [c["algo.discount"] for c in other] != [c["algo.discount"] for c in one]


def test_a_sweep_beyond_the_memory_trains_in_waves(device_memory):
    """A sweep that does not fit is split into waves of configurations; a configuration that does
    not fit with all its seeds, by seeds."""
    algo, env = tools.algorithm("dqn"), tools.environment()
    rates = [{"algo.learning_rate": 10.0 ** -i} for i in range(5)]
    whole = Sweep(algo, env, RunConfig(total_steps=tools.HALF, seeds=3, **tools.RUN), {}, rates)
    need = jf.plan(algo, env, tools.HALF, seeds=9, **tools.RUN)
    for have, parts in (
        (None, [(5, 3)]), (need.need, [(3, 3), (2, 3)]), (need.of_size(3).need, [(1, 3)] * 5),
        (need.of_size(2).need, [(1, 2), (1, 1)] * 5),
    ):  # fmt: skip
        device_memory(have)
        found = split(whole)
        assert [(len(p.configurations), p.seeds) for p in found] == parts
        covered = [(c, p.seed + i) for p in found for c in p.configurations for i in range(p.seeds)]
        assert sorted(covered) == [(c, s) for c in range(5) for s in range(3)]
    device_memory(1000)
    with pytest.raises(jf.ConfigError, match="memory must be "):
        split(whole)


@pytest.mark.matrix("test_a_stopped_sweep_resumes")
def test_waves_and_a_resume_between_waves_change_nothing(tmp_path, monkeypatch):
    """Two configurations, the second cut by its seeds; stopped before the third part."""
    settings = dict(grid={"algo.learning_rate": [1e-3, 1e-2]}, seeds=2, total_steps=192,
                    eval_every=0)
    whole = sweep(tmp_path / "whole", **settings)
    parts = [sweeps.Part((0,), 0, 2), sweeps.Part((1,), 0, 1), sweeps.Part((1,), 1, 1)]
    monkeypatch.setattr(opening, "split", lambda *_: parts)
    begun = []

    def stop_in_the_third(session, rows):
        begun.append(session.out.path.name)
        if len(set(begun)) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "x", hooks=[stop_in_the_third], **settings)
    assert (
        np.isnan(sweeps.read_sweep(tmp_path / "x").final[1, 1])
        and list(dict.fromkeys(begun)) == ["00", "01", "02"]
    )
    begun.clear()
    note = lambda session, rows: begun.append(session.out.path.name)
    found = sweep(tmp_path / "x", hooks=[note], **settings)  # the same call goes on
    assert set(begun) == {"02"}
    np.testing.assert_allclose(found.final, whole.final)
    assert [[[r["env_steps"] for r in rows] for rows in seeds] for seeds in found.rows] == [
        [[r["env_steps"] for r in rows] for rows in seeds] for seeds in whole.rows
    ]
    assert (found.path / "table.csv").exists()


class LanesOf:
    """Four members, each in a lane; notes what `select` would have moved and kept."""

    def __init__(self, settings, exploit, shrink):
        self.members, self.settings, self.exploit, self.shrink = (
            np.arange(4), settings, exploit, shrink)

    def __len__(self):
        return len(self.members)


def test_a_member_lost_late_is_not_a_parent():
    """The earlier rows of the member are good; the member still counts as lost."""
    from types import SimpleNamespace

    from jaxrl_fast.logs.sinks import Row
    from jaxrl_fast.sweeps import selection

    rows = [Row(256, 0.0, 0.0, {"episode_return": np.array([9.0, 1.0, 2.0, 3.0])})]
    grid = SimpleNamespace(rows=8, planned_rows=8, row=1, steps=64,
                           env_steps=lambda rows: 64 * rows)
    settings = {"algo.learning_rate": np.full(4, 1e-2, np.float32)}
    taken = []
    lanes = LanesOf(settings, lambda parent, settings: taken.append(parent), taken.append)
    config = SimpleNamespace(members=4, seeds=1, seed=0, offline=False)
    session = SimpleNamespace(grid=grid, rows=4, history=[], lost={0: {}}, lanes=lanes,
                              config=config)
    jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, fraction=0.25).select(session, rows)
    assert taken[0].tolist() == [3, 1, 2, 3]  # the lost one takes over from the best of the others
    columns = selection.Halving(1).select(session, rows)
    assert taken[1] == [2, 3] and columns["kept"].tolist() == [0, 0, 1, 1]


def selecting(rows, **more):
    """A session of four members, at row 4 of 8, for `select`; what it moved and kept."""
    grid = types.SimpleNamespace(rows=8, planned_rows=8, row=1, steps=64,
                                 env_steps=lambda rows: 64 * rows)
    taken = []
    lanes = LanesOf({"algo.learning_rate": np.full(4, 1e-2)},
                    lambda parent, _: taken.append(parent.tolist()), taken.append)
    config = types.SimpleNamespace(members=4, seeds=1, seed=0, offline=False)
    found = types.SimpleNamespace(grid=grid, rows=4, history=rows[:-1], lost={}, lanes=lanes,
                                  config=config, taken=taken)
    vars(found).update(more)
    return found


def row_of(env_steps, *returns):
    return jf.Row(env_steps, 0.0, 0.0, {"episode_return": np.array(returns)})


def test_a_member_without_an_ended_episode_counts_by_its_last_value_or_the_median():
    """The member's last value counts, else the median; without any value no member is dropped or
    replaced."""
    pbt, halving, nan = (
        jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, fraction=0.25), jf.Halving(1), np.nan
    )
    before, now = row_of(64, 1.0, 1.0, nan, 9.0), row_of(256, 5.0, 6.0, nan, nan)
    s = selecting([before, now])
    pbt.select(s, [now])
    halving.select(selecting([before, now], taken=s.taken, lanes=s.lanes), [now])
    assert s.taken == [[3, 1, 2, 3], [1, 3]]  # fitness 5, 6, a hair below 6 (the median), 9
    moved = row_of(128, nan, nan, nan, nan)
    # what member 3 scored before is another agent's
    moved.metrics["parent"] = np.array([0, 1, 2, 0])
    alone = row_of(256, 7.0, nan, nan, nan)
    s = selecting([row_of(64, nan, nan, nan, 9.0), moved, alone])
    pbt.select(s, [alone])
    assert s.taken == [[0, 0, 2, 3]]  # only the first is known, so it is the parent
    nothing = row_of(256, nan, nan, nan, nan)
    s = selecting([nothing])
    pbt.select(s, [nothing])
    columns = halving.select(s, [nothing])
    assert s.taken == [] and columns["kept"].tolist() == [1, 1, 1, 1]
    with pytest.raises(ConfigError,
                       match=r"selection.metric must be .*episode_return.*got 'retrun'"):
        jf.Halving(1, metric="retrun").select(selecting([now]), [now])


@pytest.mark.parametrize("selection", [
    jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, metric="retrun"),
    jf.Halving(1, metric="eval_return"),  # nothing is evaluated between
])
def test_a_metric_that_no_row_will_have_is_refused_before_anything_is_written(selection, tmp_path):
    algo = jf.A2C(num_envs=2, num_steps=4, hidden=(4,))
    settings = dict(seeds=4, eval_every=0, selection=selection, out=tmp_path / "run")
    if isinstance(selection, jf.Halving):
        settings |= dict(seeds=1, population={"algo.learning_rate": [1e-3, 1e-2]})
    pbt = isinstance(selection, jf.PBT)
    members = {"members": 4} if pbt else {"grid": {"algo.learning_rate": [1e-3, 1e-2]}}
    valid = r"selection.metric must be a metric of the log \(.*entropy.*episode_return"
    with pytest.raises(ConfigError, match=valid):
        jf.train(algo, jf.make("CartPole-v1"), 2_000, **settings)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=valid):
        jf.sweep(algo, jf.make("CartPole-v1"), 2_000, out=tmp_path / "sweep", eval_every=0,
                 selection=selection, **members)
    assert not (tmp_path / "sweep" / "sweep.json").exists()


def test_a_lost_seed_counts_as_the_worst():
    # two configurations of two seeds, of which the second was lost
    now = row_of(256, 5.0, 9.0, 6.0, 6.0)
    s = selecting([now], lost={1: {}},
                  config=types.SimpleNamespace(members=4, seeds=2, seed=0, offline=False))
    jf.Halving(1).select(s, [now])
    assert s.taken == [[2, 3]]


def test_selections_do_not_depend_on_the_total():
    """A run in parts, or one that is prolonged, selects where the whole one does."""
    algo = tools.algorithm("ppo")
    plan = lambda total: jf_grid.plan_grid(
        algo, jf_grid.RunConfig(total_steps=total, horizon=tools.TOTAL, log_every=64))
    for chosen in (jf.Halving(2),
                   jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, every=128)):
        whole, part, longer = (chosen.boundaries(plan(total))
                               for total in (tools.TOTAL, tools.HALF, 2 * tools.TOTAL))
        assert whole == part == longer and max(whole) < plan(tools.TOTAL).rows


def test_a_part_that_is_lost_does_not_end_the_sweep(tmp_path, monkeypatch):
    """Waves of three configurations, in the programs of `swept`: the first breaks, the second is
    trained, and a resume begins nothing again."""
    rates = {"grid": {"algo.learning_rate": np.array([1e38, 2e38, 3e38, *RATES[:2], 1e-4])},
             "seeds": 2}
    with pytest.warns(UserWarning, match="part 1 of 2 is lost: .*learning_rate = [123]e\\+38"):
        found = sweep(tmp_path / "x", wave=6, **rates)
    lost = {(c, s) for c in range(3) for s in range(2)}
    assert (
        np.isnan(found.final[:3]).all() and np.isfinite(found.final[3:]).all()
        and set(found.lost) == lost
    )
    assert [len(p["configurations"]) for p in found.content["parts"]] == [3, 3]
    result = json.loads((found.path / "parts" / "00" / "result.json").read_text())
    assert result["eval_return"] == [None] * 6 and result["lost"][0]["member"] == 0
    assert str(sweeps.resume_sweep(found.path, hooks=[never])) == str(found)
    with pytest.raises(ConfigError, match="wave must be .*got 0"):
        sweep(tmp_path / "y", wave=0, **rates)
    with pytest.raises(ConfigError,
                       match="wave must be left out, got 2: .* are trained as they were cut"):
        sweep(found.path, wave=2, **rates)
    few = {"grid": {"algo.learning_rate": [1e38, *RATES[:2]]}, "seeds": 2}
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "z", hooks=[stop_at(1)], **few)
    monkeypatch.setattr(Programs, "compile", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "z", wave=2, **few)  # nothing was saved, so it is cut anew
    parts = json.loads((tmp_path / "z" / "sweep.json").read_text())["parts"]
    assert [p["configurations"] for p in parts] == [[0], [1], [2]]


def test_dropped_members_have_no_score(tmp_path):
    final = np.array([[500.0, 480.0], [np.nan, np.nan], [300.0, np.nan]])
    found = [{"algo.discount": x} for x in (0.9, 0.95, 1.0)]
    result = SweepResult(None, {}, found, [0, 1], final, {}, [[[], []]] * 3)
    np.testing.assert_array_equal(result.scores, [[500, 480], [np.nan, np.nan], [300, 300]])
    assert np.isnan(result.improvement(0, 1)).all() and result.improvement(0, 2)[0] == 1.0
    assert result.ranking() == [0, 2, 1] and result.table()[1]["iqm"] == 300


def test_numbers_of_numpy_in_a_grid():
    found = configurations.grid_of(
        {"algo.num_epochs": list(np.array([1, 2])), "algo.discount": [np.float32(0.5)]})
    assert found == [{"algo.num_epochs": 1, "algo.discount": 0.5},
                     {"algo.num_epochs": 2, "algo.discount": 0.5}]
    json.dumps(found)


PBT = dict(
    selection=jf.PBT(
        {"algo.learning_rate": "loguniform:1e-4,1e-1"}, every=128, fraction=0.4, resample=0.5
    ), members=6
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A population under PBT, unbroken."""
    out = tmp_path_factory.mktemp("pbt") / "x"
    return sweep(out, **PBT, seed=3, pictures=True)


def test_pbt_moves_agents_and_settings(trained):
    rows = tools.logged(trained.path / "parts" / "00")
    chosen = [row for row in rows if "parent" in row]
    assert [row["env_steps"] for row in chosen] == [128, 256, 384, 512]
    for before, after in ((row, rows[rows.index(row) + 1]) for row in chosen):
        parent, old, new = (
            before["parent"], before["algo.learning_rate"], after["algo.learning_rate"])
        moved = [i for i in range(6) if parent[i] != i]
        assert len(moved) == 2 and all(p not in moved for p in parent)
        assert all(new[i] == old[i] for i in range(6) if i not in moved)
        for i in moved:
            assert new[i] != old[parent[i]] and 1e-4 * 0.999 <= new[i] <= 1e-1 * 1.001
        line = [row for row in trained.lineage() if row["env_steps"] == before["env_steps"]]
        assert [(row["member"], row["parent"]) for row in line] == [(i, parent[i]) for i in moved]
        assert [row["algo.learning_rate"] for row in line] == [new[i] for i in moved]
    assert len(trained.lineage()) == 8
    assert (trained.path / "schedule-algo.learning_rate.png").exists() and (
        trained.path / "table.csv").exists()


def test_pbt_takes_the_best():
    """By hand: the two worst of five go, each for one of the two best, with a setting moved or
    drawn anew."""
    pbt = jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, fraction=0.4, resample=0.0,
                 factor=2.0)
    old = np.float32([1e-3, 2e-3, 4e-3, 9e-2, 1e-4])
    parent, new = pbt.plan(np.array([5.0, 1.0, np.nan, 9.0, 3.0]), {"algo.learning_rate": old},
                           np.random.default_rng(0))
    new = new["algo.learning_rate"]
    assert set(parent[[1, 2]]) <= {0, 3} and list(parent[[0, 3, 4]]) == [0, 3, 4]
    for i in (1, 2):
        assert any(np.isclose(new[i], min(x, 0.1))
                   for x in (2 * old[parent[i]], old[parent[i]] / 2))
    np.testing.assert_array_equal(new[[0, 3, 4]], old[[0, 3, 4]])
    seen = (
        {tuple(pbt.plan(np.arange(5.0), {"algo.learning_rate": old}, np.random.default_rng(s))[0])
         for s in range(20)}
    )
    assert len(seen) == 4  # both of the best are copied, independently


def test_pbt_resumes_bit_for_bit(trained, tmp_path):
    """Stopped right after a selection and between two; lineage, settings and agents are those of
    the unbroken run."""
    out, whole = tmp_path / "x", trained.path / "parts" / "00"
    for row in (4, 7):
        with pytest.raises(KeyboardInterrupt):
            sweep(out / str(row), hooks=[stop_at(row)], checkpoint_minutes=1e-9, **PBT, seed=3)
        sweeps.resume_sweep(out / str(row), progress=True, devices="all")
        part = out / str(row) / "parts" / "00"
        assert tools.logged(part) == tools.logged(whole)
        for member in (0, 4):
            tools.assert_same(jf.load(part, "last", member).state,
                              jf.load(whole, "last", member).state)


@pytest.mark.matrix("test_pbt_resumes_bit_for_bit")
def test_halving_resumes_bit_for_bit(tmp_path):
    """Stopped right after a rung and between two: the lanes that are left, and what they do."""
    settings = dict(grid={"algo.learning_rate": [1e-3, 2e-3, 4e-3, 8e-3]}, selection=jf.Halving(2),
                    eval_every=0)
    whole = sweep(tmp_path / "whole", **settings).path / "parts" / "00"
    for row in (3, 6):
        with pytest.raises(KeyboardInterrupt):
            sweep(tmp_path / str(row), hooks=[stop_at(row)], checkpoint_minutes=1e-9, **settings)
        part = sweeps.resume_sweep(tmp_path / str(row)).path / "parts" / "00"
        assert tools.logged(part) == tools.logged(whole)
        tools.assert_same(jf.load(part, "last").state, jf.load(whole, "last").state)


@pytest.mark.matrix("test_pbt_moves_agents_and_settings")
def test_pbt_replaces_lost_members():
    """A member that breaks takes over another's whole state, and has values again."""
    population = {"algo.learning_rate": [1e-3, 2e-3, 3e-3, 1e38]}
    selection = jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-1"}, every=128, fraction=0.25)
    run = tools.train("dqn", total_steps=tools.HALF, population=population, selection=selection,
                      on_nan="mark")
    lost = [row.metrics["loss"][3] for row in run.history[1:]]
    assert np.isnan(lost).any() and np.isfinite(lost[-1]) and not run.lost
    assert all(np.isfinite(x).all()
               for x in jax.tree.leaves((run.state.agent.params, run.state.env)))


@pytest.mark.parametrize("lost", family([False, True], [True]))
def test_pbt_leaves_returns_so_far_with_their_environments(lost):
    """An agent that moves forgets the discounted returns of its own environments, unless these move
    with it."""
    population = {"algo.learning_rate": [1e-3, 2e-3, 3e-3, 1e38 if lost else 4e-3]}
    seen = []
    copied = lambda s: jax.tree.map(np.array, (s.state.agent.rewards, s.state.obs))

    class Watched(jf.PBT):
        def select(self, run, rows):
            gone, before = list(run.lost), copied(run.lanes)
            found = super().select(run, rows)
            parent, members = found["parent"], run.lanes.members
            whole = np.isin(members, gone) & (parent != members)
            seen.append((parent, whole, before, copied(run.lanes)))
            return found

    selection = Watched({"algo.learning_rate": "loguniform:1e-4,1e-1"}, every=128, fraction=0.25)
    jf.train(tools.algorithm("impala", discount=0.9), tools.environment(), tools.HALF,
             population=population, selection=selection, on_nan="mark", **tools.RUN)
    assert len(seen) == 4 and seen[0][1].any() == lost
    for parent, whole, (rewards, obs), (after, obs_after) in seen:
        stays = parent == np.arange(4)
        assert (~stays).sum() == 1
        for i in range(4):
            np.testing.assert_array_equal(after.moments.m2[i], rewards.moments.m2[parent[i]])
            kept = stays[i] or whole[i]
            np.testing.assert_array_equal(after.running[i],
                                          rewards.running[parent[i]] if kept else 0.0)
            np.testing.assert_array_equal(obs_after[i], obs[parent[i] if whole[i] else i])
            assert rewards.running[parent[i]].any()


@pytest.mark.filterwarnings("error:invalid value")
def test_halving_shrinks_the_axis_and_keeps_the_other_members(tmp_path):
    rates = [1e-3, 2e-3, 4e-3]
    whole = tools.train("ppo", total_steps=tools.HALF, seeds=2,
                        population={"algo.learning_rate": rates})
    sizes = []
    watch = lambda run, rows: sizes.append((len(run.lanes), jax.tree.leaves(run.state)[0].shape[0]))
    found = sweep(tmp_path / "x", grid={"algo.learning_rate": rates}, seeds=2,
                  selection=jf.Halving(1, eta=3), hooks=[watch])
    assert list(dict.fromkeys(sizes)) == [(6, 6), (2, 2)]
    kept = [c for c in range(3) if np.isfinite(found.final[c]).all()]
    assert len(kept) == 1 and len(found.lost) == 4
    rows, expected = tools.logged(found.path / "parts" / "00"), tools.through_json(whole.history)
    best = [2 * kept[0], 2 * kept[0] + 1]
    for row, other in zip(rows, expected, strict=True):
        assert all([row[k][i] for i in best] == [v[i] for i in best]
                   for k, v in other.items() if k != "env_steps")
    np.testing.assert_array_equal(found.final[kept[0]], np.float32(whole.eval_return[best]))
    at_first = [i for i in range(6) if not rows[3]["kept"][i]]
    assert len(at_first) == 4 and all(rows[4]["episode_return"][i] is None for i in at_first)
    assert found.ranking()[0] == kept[0] and "dropped at 256 steps" in found.table()[-1]["lost"]
    agent = jf.load(found.path / "parts" / "00", "last", best[0])
    tools.assert_same(agent.state, whole.agent(best[0]).state)
    with pytest.raises(jf.ConfigError, match="member must be one that this checkpoint holds"):
        jf.load(found.path / "parts" / "00", "last", at_first[0])


BAD = {
    "unknown": (dict(grid={"algo.learning_rat": [1e-3, 1e-4]}),
                "did you mean 'algo.learning_rate'"),
    "no-part": (dict(grid={"learning_rate": [1e-3, 1e-4]}),
                "setting must be .*got 'learning_rate'"),
    "type": (dict(grid={"algo.learning_rate": [1e-3, "x"]}), "learning_rate must be .*got 'x'"),
    "range": (dict(grid={"algo.discount": [0.9, 1.5]}), "discount must be .*got 1.5"),
    "static-continuous": (dict(sample={"algo.num_envs": "uniform:1,8"}, members=3),
                          "integer:LOW,HIGH or choice"),
    "no-members": (dict(sample={"algo.discount": "uniform:0.9,1"}), "members must be .*got None"),
    "members-of-grid": (dict(grid={"algo.discount": [0.9, 0.99]}, members=3),
                        "members must be .*got 3"),
    "both": (dict(
        grid={"algo.discount": [0.9]}, sample={"algo.discount": "uniform:0,1"}, members=2
    ), "not in the grid too"),
    "empty": (dict(grid={"algo.discount": []}), "at least one value"),
    "twice": (dict(grid={"algo.discount": [0.9, 0.9]}), "values that differ"),
    "nothing": (dict(), "settings to compare"),
    "pbt-static": (dict(selection=jf.PBT({"algo.num_envs": "uniform:1,8"}), members=4),
                   "integer:LOW,HIGH or choice"),
    "pbt-grid": (dict(selection=jf.PBT({"algo.discount": "uniform:0.9,1"}), members=4, grid={
        "algo.discount": [1.0]}),
        "neither"),
    "pbt-one": (dict(selection=jf.PBT({"algo.discount": "uniform:0.9,1"}), members=1),
                "members must be .*got 1"),
    "halving-one": (dict(grid={"algo.discount": [0.9]}, selection=jf.Halving(2)),
                    "at least 2 for successive halving"),
    "halving-groups": (dict(grid={"algo.num_epochs": [1, 2]}, selection=jf.Halving(1)),
                       "one program for all members"),
    "sizes": (dict(grid={"algo.num_minibatches": [2, 5]}), "num_minibatches"),
    "setting": (dict(grid={"algo.discount": [0.9, 1.0]}, sedes=3), "sedes must be .*got 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_sweeps(name, tmp_path):
    settings, message = BAD[name]
    with pytest.raises(jf.ConfigError, match=message):
        sweep(tmp_path / "x", **settings)
    assert not (tmp_path / "x").exists()


def test_bad_priors_of_pbt():
    for priors, message in (
        ({}, "a mapping"), ({"algo.discount": "choice:1,2"}, "PBT multiplies"),
        ({"env.g": "uniform:1,2"}, "of the algorithm"),
    ):  # fmt: skip
        with pytest.raises(jf.ConfigError, match=message):
            jf.PBT(priors)


def test_a_population_that_needs_several_programs_is_refused():
    with pytest.raises(jf.ConfigError, match="algo.num_epochs is part of the program"):
        tools.train("ppo",
                    population={"algo.learning_rate": [1e-3, 1e-4], "algo.num_epochs": [1, 2]})
    with pytest.raises(jf.ConfigError, match="population must be "):
        tools.train("ppo", population={"algo.learning_rate": [1e-3], "algo.discount": [1.0, 0.9]})


TINY = [
    "CartPole-v1", "--no-preset", "--eval-episodes", "4", "--algo.num-envs", "4",
    "--algo.num-steps", "8", "--algo.num-minibatches", "2", "--algo.hidden", "8",
]  # fmt: skip


OF_SWEPT = [
    "--total-steps", "640", "--log-every", "64", "--eval-every", "320", "--algo.num-epochs", "2",
    "--algo.normalize-observations", "--env.max-steps-in-episode", "30",
]  # fmt: skip


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["sweep", "ppo", *TINY, *OF_SWEPT, "--seeds", "2", "--grid",
            "algo.learning-rate=1e-4,1e-3,1e-2", "--out", "x", "--no-pictures"]
    assert cli.main(line) == 0
    said = capsys.readouterr().out
    assert (
        "part 1 of 1: 6 members" in said and "IQM" in said
        and "jaxrl-fast train --config x/best.json" in said and "jaxrl-fast report x\n" in said
    )
    assert cli.main(["sweep", "--resume", "x"]) == 0 and "IQM" in capsys.readouterr().out
    runs = [f"r{i}" for i in range(2)]
    assert cli.main(["train", "--config", "x/best.json", "--no-tensorboard", "--no-pictures",
                     "--out", "r0"]) == 0
    shutil.copytree("r0", "r1")
    capsys.readouterr()
    assert cli.main(["compare", *runs, "--out", "c.png", "--csv", "c.csv"]) == 0
    said = capsys.readouterr().out
    assert "an interval of fewer than 6 seeds holds less than 95%" in said
    # the same run twice
    assert "P(better than next)" in said and "0.50" in said and (tmp_path / "c.png").exists()
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert (
        [r["better"] for r in rows] == ["0.5", ""] and rows[0]["iqm"] == rows[1]["iqm"]
        and rows[0]["seeds"] == "2"
    )
    assert rows[0]["environment"] == "CartPole-v1" and {r["path"] for r in rows} == set(runs)


def test_a_frame_has_a_row_a_configuration_and_seed(modules):
    modules(pandas=types.SimpleNamespace(DataFrame=lambda rows: rows))  # it is the user's
    found = types.SimpleNamespace(configurations=[{"algo.discount": 0.9}, {"algo.discount": 1.0}],
                                  seeds=[3, 4],
                                  final=np.array([[1.0, 2.0], [3.0, 4.0]]))  # fmt: skip
    rows = SweepResult.frame(found)
    assert [(r["configuration"], r["seed"], r["algo.discount"], r["eval_return"])
            for r in rows] == [
        (0, 3, 0.9, 1.0), (0, 4, 0.9, 2.0), (1, 3, 1.0, 3.0), (1, 4, 1.0, 4.0)
    ]  # fmt: skip
    modules(pandas=None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxrl_fast\[pandas\]'"):
        SweepResult.frame(found)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--grid", "algo.learning-rat=1,2"], "did you mean"),
        (["--grid", "algo.learning-rate"], "SETTING=VALUES"),
        (["--grid", "algo.learning-rate=a,b"], "a number"),
        (["--grid", "seed=1,2"], "a setting of the algorithm or the environment"),
        (["--sample", "algo.learning-rate=loguniform:1e-5,1e-2"],
         "members must be the number of settings to draw"),
        (["--pbt", "--members", "4"],
         "--sample must be given with --pbt, which changes its settings, got none"),
        (["--pbt-every", "4", "--grid", "algo.discount=0.9,1"],
         "--pbt-every must be left out without --pbt, got 4"),
        (["--pbt", "--halving", "2"],
         "one of --pbt, --halving and --optuna, got --pbt and --halving"),
        ([], "sweep must be given settings to compare, got none"),
    ],
)
def test_bad_command_lines(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", "ppo", *TINY, "--out", "x", *flags]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_bad_comparisons(tmp_path, capsys):
    assert (
        cli.main(["compare", str(tmp_path)]) == 2
        and "RUN must be given at least twice, got " in capsys.readouterr().err
    )
    assert cli.main(["compare", str(tmp_path), str(tmp_path / "none")]) == 2
    assert "an existing" in capsys.readouterr().err


def test_an_unfinished_checkpoint_is_ignored(tmp_path):
    """A part that was killed while its first one was being written begins again."""
    (tmp_path / "checkpoints" / "last" / "3.orbax-checkpoint-tmp").mkdir(parents=True)
    assert not RunDir(tmp_path).resumable and not RunDir(tmp_path / "absent").resumable
    (tmp_path / "checkpoints" / "last" / "3").mkdir()
    assert RunDir(tmp_path).resumable


@pytest.mark.parametrize(("section", "change", "says"), [
    ("run", {"eval_mode": "sample"}, 'eval_mode is "sample" there and was "greedy" in training'),
    ("algorithm", {"discount": 0.5}, "algo.discount is 0.5 there and was 0.99 in training"),
])  # fmt: skip
def test_an_edited_sweep_json_trains_no_other_parts(section, change, says, swept, tmp_path):
    """Its parts would have different settings."""
    out = tmp_path / "x"
    shutil.copytree(swept.path, out)
    shutil.rmtree(out / "parts" / "01")
    content = json.loads((out / "sweep.json").read_text())
    entry = content["base"][section]
    (entry if section == "run" else entry["settings"]).update(change)
    (out / "sweep.json").write_text(json.dumps(content))
    with pytest.raises(jf.ConfigError, match=says):
        sweeps.resume_sweep(out, hooks=[never])
    assert not (out / "parts" / "01").exists()


@pytest.mark.matrix("test_a_part_that_is_lost_does_not_end_the_sweep")
def test_ended_parts_do_not_need_their_experience(tmp_path):
    """The folder may be gone or changed; a part that is still to come needs the same rows."""
    folder, out = tmp_path / "replay", tmp_path / "x"
    settings = dict(total_steps=tools.HALF, tensorboard=False) | tools.RUN
    learn = lambda seed: jf.train(tools.algorithm("dqn"), tools.environment("dqn"), seed=seed,
                                  **settings | {"eval_every": 0})
    save_memory(folder, jf.experience(learn(0)))
    found = sweep(out, "dqn", grid={"algo.target_period": [2, 3]}, seeds=1, experience=str(folder),
                  pictures=False)
    shutil.rmtree(folder)
    np.testing.assert_array_equal(sweeps.resume_sweep(out, hooks=[never]).final, found.final)
    save_memory(folder, jf.experience(learn(1)))
    np.testing.assert_array_equal(sweeps.resume_sweep(out, hooks=[never]).final, found.final)
    shutil.rmtree(out / "parts" / "01")
    with pytest.raises(jf.ConfigError, match="experience must be"):
        sweeps.resume_sweep(out, hooks=[never])


@pytest.mark.parametrize("part", ["run", "algorithm"])
def test_a_setting_that_is_newer_than_the_folder_makes_no_other_sweep(part, swept, tmp_path):
    content = json.loads((swept.path / "sweep.json").read_text())
    entry = content["base"][part]
    settings = entry if part == "run" else entry["settings"]
    name = {"run": "pictures", "algorithm": "normalize_advantage"}[part]
    default = settings.pop(name)  # a setting that folders of older versions lack
    (tmp_path / "sweep.json").write_text(json.dumps(content))

    def with_value(value):
        changed = settings | {name: value}
        changed = changed if part == "run" else entry | {"settings": changed}
        return content | {"base": content["base"] | {part: changed}}

    assert folder.open_folder(tmp_path, with_value(default), ("parts",)) == content
    with pytest.raises(jf.ConfigError, match="this holds another sweep"):
        folder.open_folder(tmp_path, with_value(not default), ("parts",))


@pytest.mark.parametrize("watched", family([True, False], [False]))
def test_sweeps_and_resumed_runs_show_their_progress_in_a_notebook(
        watched, tmp_path, capsys, modules):
    shell = Shell() if watched else None
    modules(IPython=types.SimpleNamespace(get_ipython=lambda: shell, version_info=(8, 24)))
    sweep(tmp_path / "sweep", grid={"algo.learning_rate": [*RATES[:2], 1e-4]}, seeds=2)
    told = capsys.readouterr()
    assert "compiling" not in told.err and ("part 1 of 1" in told.out) == watched
    assert not watched or "640 / 640 steps" in shell.pages[-1]
    jf.resume(tmp_path / "sweep/parts/00", 768, 768, tensorboard=False)
    assert "compiling" not in capsys.readouterr().err
    assert not watched or "768 / 768 steps" in shell.pages[-1]
