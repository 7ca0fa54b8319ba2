"""Reports of environments beside the reward: in every log, from the device and from the host, under
names of their own."""

from __future__ import annotations

import json
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast.envs.host.gymnasium_vector import GymnasiumVector
from jaxrl_fast.envs.host.gymnasium_worker import make_env
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs import info_names, reports
from jaxrl_fast.logs.rows import RESERVED
from jaxrl_fast.types import Mean

SIZES = dict(num_envs=4, hidden=(8,))
PPO = jf.PPO(**SIZES, num_steps=20, num_minibatches=1, num_epochs=1)
DQN = jf.DQN(**SIZES, num_steps=4, buffer_size=256, learning_starts=64, batch_size=8)


def said(time, end):
    """An episode of 10 steps: `effort` is its step, `success` is 1 at its end, `late` is reported
    from step 6 on."""
    return {"effort": time, "success": end, "late": jnp.where(time > 5, 2.0 * time, jnp.nan),
            "entropy": 7, "episode_return": 5.0}


# Over its steps, and over its ends.
WANTED = {"effort": 5.5, "effort_end": 10.0, "success": 0.1, "success_end": 1.0, "late": 16.0,
          "late_end": 20.0,
          "env_episode_return": 5.0, "env_episode_return_end": 5.0}  # fmt: skip


@jf.settings
class Device(jf.SingleEnv):
    scale: float = 1.0

    @property
    def spec(self):
        return jf.EnvSpec("device", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2), 10)

    def reset_one(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step_one(self, key, time, action):
        time, end = time + 1, time == 9
        return (
            time, jnp.full(1, time / 10), 1.0, end, jnp.bool_(False),
            said(time, end) | {"scale": self.scale}
        )


class Host(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        # of a reset: nowhere in the log
        return np.zeros(1, np.float32), {"effort": 1e6, "text": "fresh"}

    def step(self, action):
        self.time += 1
        end = self.time == 10
        info = {k: v for k, v in said(self.time, end).items() if k != "late"} | {
            "text": "on", "place": np.zeros(3)}
        info |= {"success": np.bool_(end), "inner": {"x": 3}} | (
            {"late": 2.0 * self.time} if self.time > 5 else {})
        return np.zeros(1, np.float32), 1.0, end, False, info


def means(row):
    return {name: row.get(name) for name in WANTED}


@pytest.mark.parametrize(("algo", "env"), family([
    (PPO, Device()), (DQN, jf.make(Host)), pytest.param(DQN, Device(), marks=pytest.mark.slow),
    pytest.param(PPO, jf.make(Host), marks=pytest.mark.slow),
], 1))  # fmt: skip
def test_every_row_of_a_run_holds_the_reports(algo, env, tmp_path):
    steps = 400
    run = jf.train(algo, env, steps, log_every=80, eval_episodes=2, out=tmp_path / "run",
                   tensorboard=False, pictures=False)
    rows = [json.loads(line)
            for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) > 4
    for row in rows[1 if algo is DQN else 0 :]:  # the warm-up's row is 64 steps: no whole episodes
        assert means(row) == pytest.approx(WANTED, rel=1e-6), row
        assert row["episode_return"] == 10 and row.get("scale", 1.0) == 1.0
    named = {"entropy", "env_entropy"} & set(rows[-1])
    assert named == ({"entropy", "env_entropy"} if algo is PPO else {"entropy"})
    if isinstance(env, Device):
        assert set(rows[0]) - {"eval_return"} <= set(rows[-1])  # the same names in warm-up
    else:
        assert rows[-1]["inner_x"] == 3 and not {"text", "place", "final_obs"} & set(rows[-1])
    assert run.curve("success_end")[1][-1] == 1


@pytest.mark.matrix("test_every_row_of_a_run_holds_the_reports")
def test_members_and_make_train_log_their_own_reports():
    train = jf.make_train(PPO, Device(), 160, log_every=80)
    found = jax.jit(train)(jax.random.key(0))[1]
    assert {k: float(found[k][-1]) for k in WANTED} == pytest.approx(WANTED, rel=1e-6)
    run = jf.train(PPO, Device(), 160, population={"env.scale": [1.0, 3.0]}, eval_episodes=2)
    assert run.curve("scale")[1][-1].tolist() == [1, 3]


@pytest.mark.matrix("test_every_row_of_a_run_holds_the_reports")
def test_through_wrappers_and_whole_rollouts():
    env = jf.make(Device(), action_repeat=2, sticky_actions=0.1, reward_scale=2.0)
    metrics = jax.jit(jf.make_train(PPO, env, 80))(jax.random.key(0))[1]
    # of the last repetition
    assert float(metrics["effort"][0]) == 6.0 and float(metrics["success_end"][0]) == 1.0
    es = jf.algorithms.algorithm_class("ars")(directions=2, num_steps=10)
    assert float(
        jax.jit(jf.make_train(es, Device(), 160))(jax.random.key(0))[1]["success_end"][0]) == 1.0


def test_without_reports_the_program_is_the_same():
    @jf.settings
    class Silent(Device):
        def step_one(self, key, time, action):
            return super().step_one(key, time, action)[:5]

    @jf.settings
    class Empty(Device):
        def step_one(self, key, time, action):
            return *super().step_one(key, time, action)[:5], {}

    texts = [jax.jit(jf.make_train(PPO, env, 160)).lower(jax.random.key(0)).as_text()
             for env in (Silent(), Empty())]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("info", "message"), [
    ({"x": jnp.zeros(2)}, r"info\['x'\]"), ({3: 1.0, "y": 2.0}, "a name in info"),
    ({3: 1.0}, "a name in info"), ({"": 1.0}, "a name in info"), ({"x": {}}, "info"),
])  # fmt: skip
def test_reports_that_are_no_numbers_are_refused(info, message):
    @jf.settings
    class Wrong(Device):
        def step_one(self, key, time, action):
            return *super().step_one(key, time, action)[:5], info

    with pytest.raises((ConfigError, TypeError), match=message):
        jax.eval_shape(jf.make_train(PPO, Wrong(), 160), jax.random.key(0))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_auto_reset_of_gymnasium(mode):
    vector = GymnasiumVector(SyncVectorEnv([Host] * 2, autoreset_mode=mode), 0)
    vector.reset()
    tally = reports.Tally()
    for _ in range(43):
        vector.send(np.zeros(2, np.int32))
        found = vector.receive()
        tally.add(found.info, found.over)
    got = tally.take()
    count = 2 * (40 if mode is AutoresetMode.NEXT_STEP else 43)
    assert (
        got["effort"][1] == count and got["success"][2:].tolist() == [got["success"][3]] * 2
        and got["success"][3] in (6, 8)
    )
    assert (
        got["effort"][2] == 10 * got["effort"][3] and got["effort"][0] < 10 * count
        and got["late"][2] == 20 * got["late"][3]
    )
    assert got["late"][1] < count and not tally.take()


def test_report_names_are_unique():
    names = ["success", "success_end", "a/b", "a b", "time_x", "env_steps", "loss", "x",
             "x_end_end", "eval_return", "/bad", "seed"]
    found = reports.log_names(names, ["loss", "x_end"])
    all_of_them = [n + end for n in found.values() for end in ("", "_end")]
    assert (
        len(set(all_of_them)) == len(all_of_them)
        and not {"loss", "x_end", *RESERVED} & set(all_of_them)
    )
    assert (
        found["success"] == "success" and found["loss"] == "env_loss"
        and "/" not in "".join(all_of_them)
    )
    assert reports.log_names(reversed(names), ["x_end", "loss"]) == found


NUMBERS = st.recursive(
    st.integers(1, 9),
    lambda inner: st.dictionaries(
        st.sampled_from(["", "a", "b", "a_b", "a/b", "a_", "_", "_a", "x", "x_end", "loss",
                         "eval_return", "time_x", "3", 3, None,
                         ("a", 1), 3.5, True]), inner, max_size=4), max_leaves=6,
)  # fmt: skip


def arrays(x):
    return (
        {key: arrays(value) for key, value in x.items()} if isinstance(x, dict)
        else np.full(2, float(x))
    )


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(
    ["a", "a_b", "a/b", "x", "x_end", "loss", "env_loss", "", "3", 3]), NUMBERS, max_size=5))
def test_numbers_of_a_hosts_info_have_distinct_names(info):
    """Nested dicts, keys that are no strings, names that look alike: none overwrites another, or
    one of ours."""

    def leaves(x):
        return (
            [leaf for value in x.values() for leaf in leaves(value)] if isinstance(x, dict)
            else [float(x)]
        )

    found = reports.flat(arrays(info), 2)
    assert sorted(x[0] for x in found.values()) == sorted(leaves(info))
    names = reports.log_names(found, ["loss", "entropy"])
    all_of_them = [name + end for name in names.values() for end in ("", "_end")]
    assert (
        len(set(all_of_them)) == len(all_of_them)
        and not {"loss", "entropy", *RESERVED} & set(all_of_them)
    )
    assert all(re.fullmatch(r"[\w-]+", name) and not name.startswith("time_")
               for name in names.values())
    assert reports.log_names(reversed(found), ["loss", "entropy"]) == names


def test_plain_names_come_first():
    info = {"a_b": 1, "a": {"b": 2, 3: {"x": 5}}, "a/b": 3, 3: 4}
    found = reports.flat(arrays(info), 2)
    names = reports.log_names(found, ())
    named = {names[key]: x[0] for key, x in found.items()}
    assert named == {"a_b": 1, "env_a_b": 2, "env_env_a_b": 3, "3": 4, "a_3_x": 5}


def test_a_name_is_the_same_in_every_row():
    """A report that would have had the name comes later."""
    first = reports.log_names(["x_end"], ())
    named = reports.log_names(["x", "x_end", "y"], (), first)
    assert named == {"x_end": "x_end", "x": "env_x", "y": "y"}


def test_a_mask_needs_the_form_of_a_mask():
    info = {"x": np.array([1.0, 2.0]), "_x": np.array([True, False]), "y": np.zeros(2),
            "_y": np.array([5, 6])}
    found = reports.flat(info, 2)
    assert (
        set(found) == {"x", "y", "_y"} and np.isnan(found["x"][1])
        and found["_y"].tolist() == [5, 6]
    )


class Mixed(Host):
    """Reports values of another kind in every environment; `place` counts the environments."""

    def __init__(self, place):
        self.place = place

    def step(self, action):
        *found, _ = super().step(action)
        mixed = {
            "share": [0, 0.75][self.place], "kind": ["text", 2.0][self.place],
            "array": np.ones(3 + self.place), "wide": [1, 2**70][self.place],
            "beyond": [1, 10**400][self.place], "zero_d": np.array(1.5),
            "deep": {"share": [False, 0.5][self.place], 3: 5.0, "3": 6.0},
            "none": [None, 3][self.place],
            "form": [1.0, {"b": 2.0}][self.place], 3: {"c": 4.0},
        }
        return *found, mixed


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_numbers_survive_values_of_other_kinds_in_other_environments(mode):
    places = iter(range(2))
    make = lambda: make_env(lambda: Mixed(next(places)), {}, None, checks=True)
    vector = GymnasiumVector(SyncVectorEnv([make] * 2, autoreset_mode=mode), 0)
    vector.reset()
    vector.send(np.zeros(2, np.int32))
    found = {name: x.tolist() for name, x in vector.receive().info.items()}
    assert found["share"] == [0, 0.75] and found["wide"] == [1, 2.0**70]
    assert found["zero_d"] == [1.5, 1.5] and "array" not in found
    assert found[info_names.within("deep", "share")] == [0, 0.5]
    assert found[info_names.within("deep", info_names.of_key(3))] == [5, 5]
    assert found[info_names.within("deep", "3")] == [6, 6]
    form = info_names.within("form", "b")
    assert found[info_names.within(info_names.of_key(3), "c")] == [4, 4]
    for name, one in (("kind", [np.nan, 2]), ("beyond", [1, np.nan]), ("none", [np.nan, 3]),
                      ("form", [1, np.nan]), (form, [np.nan, 2])):
        np.testing.assert_array_equal(found[name], one)


@pytest.mark.parametrize("value", [3e38, -3e38, np.inf])
def test_huge_reports_do_not_end_a_run(value):
    info = {"x": jnp.full((4, 2), value), "y": jnp.ones((4, 2))}
    found = reports.statistics(info, jnp.ones((4, 2), bool))
    found = reports.metrics(found, reports.log_names(found, ()))
    tally = reports.Tally()
    tally.add({"x": np.full(2, value), "y": np.ones(2)}, np.ones(2, bool))
    for means in (found, reports.Reported().metrics([tally.take()], ())):
        assert float(means["x"].total) == float(means["x"].count) == 0 and means["y"].count > 0


def test_parts_of_a_row_add_up():
    whole, parts = reports.Tally(), []
    rng = np.random.default_rng(0)
    for _ in range(2):
        part = reports.Tally()
        for _ in range(5):
            info = {"a": np.where(rng.random(3) < 0.3, np.nan, rng.random(3)), "b": rng.random(3)}
            over = rng.random(3) < 0.3
            for tally in (whole, part):
                tally.add(info, over)
        parts.append(part.take())
    want, got = (reports.Reported().metrics([x], ()) for x in (whole.take(), reports.merged(parts)))
    assert want.keys() == got.keys() == {"a", "a_end", "b", "b_end"}
    for name in want:
        assert isinstance(got[name], Mean) and np.allclose(want[name], got[name])


class Renames(gymnasium.Env):
    """Reports "x y" alone until 48 steps of the process, then "x_y" beside it; both from the start
    where `steps` is 48.

    And "early" in its first 40 steps alone.
    """

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        Renames.steps += 1
        late = {"x_y": 2.0} if Renames.steps > 48 else {}
        early = {"early": 3.0} if Renames.steps <= 40 else {}
        return (
            np.zeros(1, np.float32), 1.0, Renames.steps % 8 == 0, False, {"x y": 1.0} | late | early
        )


@pytest.mark.matrix("test_every_row_of_a_run_holds_the_reports")
def test_report_names_survive_a_resume(tmp_path):
    gymnasium.register("JaxrlFastRenames-v0", entry_point=lambda **_: Renames(),
                       max_episode_steps=8)
    env = jf.make("gym:JaxrlFastRenames-v0", vectorization="sync")
    algo = jf.PPO(num_envs=2, hidden=(4,), num_steps=8, num_minibatches=1, num_epochs=1)
    more = dict(eval_every=0, eval_episodes=1, log_every=16, progress=False, tensorboard=False)
    Renames.steps = 0
    jf.train(algo, env, 96, out=tmp_path / "run", **more)
    run = jf.resume(tmp_path / "run", 128, tensorboard=False, progress=False)
    rows = [row.metrics for row in run.history]
    assert "env_x_y" not in rows[0] and "env_x_y" in rows[-1]
    # it has the column still
    assert np.ravel(rows[0]["early"])[0] == 3.0 and np.isnan(np.ravel(rows[-1]["early"])[0])
    assert (
        all(np.ravel(row["x_y"])[0] == 1.0 for row in rows)
        and np.ravel(rows[-1]["env_x_y"])[0] == 2.0
    )
