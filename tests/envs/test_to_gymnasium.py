"""Our environments behind Gymnasium's classes: its own checkers, its own vectors as the reference,
and the device's side."""

from __future__ import annotations

import importlib
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import jaxrl_fast as jf
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.envs.api import Env, checked_transition
from jaxrl_fast.envs.export.spaces import to_space
from jaxrl_fast.envs.export.stepper import MODES
from jaxrl_fast.envs.host.gymnasium_spaces import space_of
from jaxrl_fast.envs.resets import EveryStep, OnEnd, Pool, Resets
from jaxrl_fast.errors import MissingExtraError
from jaxrl_fast.types import Outcome

QUIET = 4


@tree.settings
class Toy(Env):
    """Ends by action 2 (terminated) or after four steps (truncated); nothing is random.
    Observation: time, last action.

    As a dict it says which actions are legal: after an action not the same one.
    """

    masked: bool = False

    @property
    def spec(self):
        obs = jf.Box((0.0, -1.0), (4.0, 2.0), (2,))
        if self.masked:
            obs = jf.Dict.of(seen=obs, action_mask=jf.Box(0.0, 1.0, (3,), jnp.bool_))
        return jf.EnvSpec("toy", obs, jf.Discrete(3), QUIET)

    def _observe(self, state):
        seen = jnp.stack(state, axis=-1).astype(jnp.float32)
        return (
            {"seen": seen, "action_mask": state[1][:, None] != jnp.arange(3)} if self.masked
            else seen
        )

    def reset(self, noise):
        state = (jnp.zeros(noise.shape[:1], jnp.int32), jnp.full(noise.shape[:1], -1, jnp.int32))
        return state, self._observe(state)

    def transition(self, noise, state, action):
        state = (state[0] + 1, action)
        terminated = action == 2
        return state, Outcome(
            self._observe(state), 1.0 + action.astype(jnp.float32), terminated,
            (state[0] >= QUIET) & ~terminated
        )


@tree.settings
class Lottery(Env):
    """One step an episode; each begins with a number of its own."""

    resets: Resets = EveryStep()

    @property
    def spec(self):
        return jf.EnvSpec("lottery", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2), 1)

    def draw_reset(self, key, shape):
        return jax.random.uniform(key, (*shape, 1))

    def reset(self, noise):
        return noise, noise

    def transition(self, noise, state, action):
        ended = jnp.ones(action.shape, bool)
        return state, Outcome(state, jnp.ones(action.shape), ended, ~ended)


def sample(envs, seed, steps):
    """Actions [steps, ...] from the space itself."""
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(steps)]


def play(envs, actions, **reset):
    """(first observation, then what every step returned)"""
    return [envs.reset(**reset), *(envs.step(a) for a in actions)]


def same(a, b):
    return data_equivalence(a, b, exact=True)


# What Gymnasium itself says

CHECKED = {
    "CartPole-v1": {},
    "Pendulum-v1": {"time_limit": 7},
    "Breakout-MinAtar": {"stack": 2, "sticky_actions": 0.25},
    "Catch-bsuite": {},
    "probe/multi-discrete": {},
    "probe/masked": {},
}


@pytest.mark.parametrize("name", family(CHECKED, ["CartPole-v1", "Pendulum-v1", "probe/masked"]))
def test_gymnasium_check_env(name):
    env = jf.to_gymnasium(jf.make(name, **CHECKED[name]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore",
                                ".*(infinity. This is probably too|symmetric and normalized).*")
        warnings.filterwarnings("ignore", ".*(pkg_resources|Deprecat).*")
        check_env(env)
    assert env.spec.max_episode_steps == jf.make(name, **CHECKED[name]).spec.max_episode_steps


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("masked", [False, True], ids=["array", "dict"])
def test_a_vector_equals_gymnasiums_of_single_environments(masked, mode):
    """Every observation, flag and info of `SyncVectorEnv` over our single environments, whose
    resets it does itself."""
    env = Toy(masked)
    ours = jf.to_gymnasium(env, 5, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: jf.to_gymnasium(env)] * 5,
                           autoreset_mode=AutoresetMode[mode.upper()])
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    assert (
        ours.observation_space == theirs.observation_space
        and ours.action_space == theirs.action_space
    )
    assert ours.single_observation_space == theirs.single_observation_space
    assert same(ours.reset(seed=3), theirs.reset(seed=3))
    ended = 0
    for action in sample(ours, 0, 14):
        (obs, reward, *rest), (obs_, reward_, *rest_) = ours.step(action), theirs.step(action)
        assert same(obs, obs_) and same(rest, rest_), (rest, rest_)
        assert reward.dtype == np.float32 and same(reward, reward_.astype(np.float32))
        over = rest[0] | rest[1]
        ended += over.sum()
        if mode == "disabled" and over.any():
            masks = {"reset_mask": over}
            assert same(ours.reset(options=masks), theirs.reset(options=dict(masks)))
            assert masks.keys() == {"reset_mask"}
    assert ended > 10


def test_episode_statistics():
    """`next_step` is what Gymnasium's wrapper counts right; `same_step` is counted as its own
    vectors are."""
    def count(envs):
        envs = RecordEpisodeStatistics(envs)
        rows = play(envs, [np.zeros(2, np.int64)] * 9, seed=0)
        return [(r[4]["episode"]["r"].tolist(), r[4]["episode"]["l"].tolist())
                for r in rows[1:] if "episode" in r[4]]

    assert (
        count(jf.to_gymnasium(Toy(), 2, autoreset_mode="next_step")) == [([4.0, 4.0], [4, 4])] * 2)
    theirs = SyncVectorEnv([lambda: jf.to_gymnasium(Toy())] * 2,
                           autoreset_mode=AutoresetMode.SAME_STEP)
    assert count(jf.to_gymnasium(Toy(), 2)) == count(theirs)
    single = gymnasium.wrappers.RecordEpisodeStatistics(jf.to_gymnasium(Toy()))
    assert play(single, [1, 0, 2], seed=0)[-1][4]["episode"]["r"] == 2 + 1 + 3


@pytest.mark.parametrize(
    ("name", "settings"),
    family([
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"time_limit": 3, "action_repeat": 2}),
        ("probe/multi-discrete", {}),
        ("probe/masked", {}),
        ("FrozenLake-misc", {}),
        ("Breakout-MinAtar", {"stack": 2}),
    ], ["Pendulum-v1", "probe/masked"]),
)
def test_shapes_and_types_of_a_vector(name, settings):
    env = jf.make(name, **settings)
    envs = jf.to_gymnasium(env, 3)
    rows = play(envs, sample(envs, 1, 5), seed=2)
    assert all(row[0] in envs.observation_space for row in rows)
    for _, reward, terminated, truncated, infos in rows[1:]:
        assert (reward.shape, reward.dtype) == ((3,), np.float32)
        assert {(x.shape, x.dtype.name) for x in (terminated, truncated)} == {((3,), "bool")}
        assert isinstance(infos, dict) and not (terminated & truncated).any()
        for i in np.flatnonzero(terminated | truncated):
            assert infos["final_obs"][i] in envs.single_observation_space
    arrays = jax.tree.leaves([row[0] for row in rows]) + [x for row in rows[1:] for x in row[1:4]]
    assert all(x.flags.writeable for x in arrays)


# Transitions, resets and randomness


def test_steps_equal_the_environments_steps():
    """The successors of CartPole, ends and time limit included, and new starts that were not there
    before."""
    env = jf.make("CartPole-v1", max_steps_in_episode=12)
    transition = jax.jit(lambda state, action: checked_transition(env, (), state, action)[1])
    envs = jf.to_gymnasium(env, 16)
    obs, _ = envs.reset(seed=1)
    time, starts, truncations = np.zeros(16, np.int32), [obs], 0
    for action in sample(envs, 0, 30):
        expected = jax.device_get(transition((obs, time), action))
        obs, reward, terminated, truncated, infos = envs.step(action)
        over = terminated | truncated
        np.testing.assert_array_equal(terminated, expected.terminated)
        np.testing.assert_array_equal(truncated, expected.truncated)
        successor = obs.copy()
        if over.any():
            successor[over] = np.stack(infos["final_obs"][over])
            starts.append(obs[over])
        np.testing.assert_allclose(successor, expected.next_obs, rtol=1e-5, atol=1e-6)
        assert reward.tolist() == [1.0] * 16
        assert ("final_obs" in infos) == bool(over.any())
        time, truncations = np.where(over, 0, time + 1), truncations + truncated.sum()
    starts = np.concatenate(starts)
    assert len(starts) > 40 and truncations > 0
    assert np.abs(starts).max() <= 0.05 and len(np.unique(starts, axis=0)) == len(starts)


@pytest.mark.parametrize(("mode", "ends"), [("same_step", [3, 6, 9]), ("next_step", [3, 7, 11])])
def test_when_the_next_episode_begins(mode, ends):
    envs = jf.to_gymnasium(jf.make("probe/reward-at-end", length=3, stack=2), 2,
                           autoreset_mode=mode)
    # row 3, after the end, is zeros
    frame = lambda *times: np.eye(4, 3, dtype=np.float32)[list(times)].reshape(-1)
    first, episode = frame(0, 0), [frame(0, 0), frame(0, 1), frame(1, 2), frame(2, 3)]
    rows = play(envs, [np.zeros(2, np.int32)] * 11, seed=0)
    np.testing.assert_array_equal(rows[0][0], [first] * 2)
    assert [i for i, row in enumerate(rows) if i and row[2].all()] == ends
    for i, (obs, reward, terminated, _, infos) in enumerate(rows[1:], 1):
        at = i % 3 if mode == "same_step" else i % 4
        np.testing.assert_array_equal(obs, [episode[at]] * 2)
        assert reward.tolist() == [float(i in ends)] * 2 and terminated.tolist() == [i in ends] * 2
        assert ("final_obs" in infos) == (mode == "same_step" and i in ends)
        if "final_obs" in infos:
            np.testing.assert_array_equal(np.stack(infos["final_obs"]), [frame(2, 3)] * 2)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_a_seed_is_an_episode(num_envs):
    """Start and everything that happens after it, and across more than one block of randomness."""
    env = jf.make("CartPole-v1", sticky_actions=0.5, theta_threshold_radians=1e6, x_threshold=1e6)
    envs = jf.to_gymnasium(env, num_envs)
    actions = sample(envs, 0, 70)
    first, other, again = (play(envs, actions, seed=s) for s in (7, 8, 7))
    assert same(first, again) and not same(first[0], other[0])
    following = play(envs, actions)
    assert not same(following[0], first[0])
    envs.reset(seed=7)
    for action in actions:
        envs.step(action)
    assert same(play(envs, actions), following)
    assert same(play(jf.to_gymnasium(env, num_envs), actions, seed=7), first)


def test_without_a_seed_objects_differ():
    starts = [jf.to_gymnasium(Lottery(), 2).reset()[0] for _ in range(2)]
    assert not same(*starts)


@pytest.mark.parametrize(("resets", "starts"),
                         family([(OnEnd(), 128), (Pool(5), 5), (Pool(), 2), (EveryStep(), 128)],
                                2))
def test_every_episode_is_a_new_one(resets, starts):
    """Steps are drawn 64 at a time, in two environments: a pool is drawn anew for each 64 of
    them."""
    envs = jf.to_gymnasium(Lottery(resets), 2)
    seen = np.stack([row[0] for row in play(envs, [np.zeros(2, int)] * 200, seed=0)])[1:, :, 0]
    blocks = [set(seen[i : i + 64].reshape(-1).tolist()) for i in (0, 64, 128)]
    assert [len(b) for b in blocks] == [starts] * 3
    assert len(set.union(*blocks)) == 3 * len(blocks[0])


def test_a_mask_resets_some_environments():
    envs = jf.to_gymnasium(jf.make("CartPole-v1"), 4, autoreset_mode="next_step")
    actions = sample(envs, 0, 3)
    before = play(envs, actions, seed=0)[-1][0]
    mask = np.array([True, False, False, True])
    after, _ = envs.reset(options={"reset_mask": mask})
    assert same(after[~mask], before[~mask]) and (np.abs(after[mask]) <= 0.05).all()
    untouched = play(envs, [*actions, actions[0]], seed=0)[-1][0]
    play(envs, actions, seed=0)
    envs.reset(options={"reset_mask": mask})
    assert same(envs.step(actions[0])[0][~mask], untouched[~mask])


@pytest.mark.parametrize("mode", MODES)
def test_a_mask_resets_some_environments_in_every_mode(mode):
    """Resets come in the middle of an episode and right after its end; stacks begin anew too."""
    envs = jf.to_gymnasium(jf.make("probe/reward-at-end", length=3, stack=2), 2,
                           autoreset_mode=mode)
    frame = lambda *times: np.eye(4, 3, dtype=np.float32)[list(times)].reshape(-1)
    go, first = np.zeros(2, int), {"reset_mask": np.array([True, False])}
    play(envs, [go] * 2, seed=0)
    np.testing.assert_array_equal(envs.reset(options=first)[0], [frame(0, 0), frame(1, 2)])
    obs, _, terminated, *_ = envs.step(go)
    last = frame(0, 0) if mode == "same_step" else frame(2, 3)
    np.testing.assert_array_equal(obs, [frame(0, 1), last])
    assert terminated.tolist() == [False, True]
    np.testing.assert_array_equal(envs.reset(options={"reset_mask": ~first["reset_mask"]})[0],
                                  [frame(0, 1), frame(0, 0)])
    np.testing.assert_array_equal(envs.step(go)[0], [frame(1, 2), frame(0, 1)])


def test_legal_actions():
    env = jf.to_gymnasium(jf.make("probe/masked"))
    for seed in range(5):
        _, info = env.reset(seed=seed)
        assert env.step(env.action_space.sample(info["action_mask"]))[1] >= 0
    envs = jf.to_gymnasium(jf.make("probe/masked"), 8)
    obs, infos = envs.reset(seed=0)
    assert infos["_action_mask"].all() and infos["action_mask"].dtype == np.int8
    np.testing.assert_array_equal(infos["action_mask"], obs["action_mask"])
    assert (envs.step(envs.action_space.sample(tuple(infos["action_mask"])))[1] >= 0).all()


# The device's side


def test_views_stay_valid_and_the_state_is_donated():
    envs = jf.to_gymnasium(jf.make("CartPole-v1"), 64, copy=False)
    kept = []
    obs, _ = envs.reset(seed=0)
    for action in sample(envs, 0, 70):
        carry = envs._stepper.carry
        obs, reward, terminated, truncated, infos = envs.step(action)
        assert all(x.is_deleted() for x in jax.tree.leaves(carry)), "the state was not donated"
        final = infos.get("final_obs", [])
        row = [obs, reward, terminated, truncated, *(x for x in final if x is not None)]
        kept.append((row, [np.copy(x) for x in row]))
    assert all(np.array_equal(x, y) for views, copies in kept
               for x, y in zip(views, copies, strict=True))
    assert not obs.flags.writeable


def test_one_program_a_step():
    env = jf.make("CartPole-v1", sticky_actions=0.25)
    envs = [jf.to_gymnasium(env) for _ in range(2)]
    for one in envs:
        for seed in (None, 1, None):
            play(one, sample(one, 0, 8), seed=seed)
    programs = envs[0]._stepper.programs
    assert envs[1]._stepper.programs is programs
    assert programs.step._cache_size() == 1 and programs.refill._cache_size() == 1
    at = envs[0]._stepper
    jaxpr = str(jax.make_jaxpr(programs.step.__wrapped__)(at.carry, at.seen, at.noise,
                                                          np.zeros(1, np.int32)))
    assert "callback" not in jaxpr and "threefry" not in jaxpr and "random_bits" not in jaxpr


def test_pictures_show_the_state_after_the_last_step():
    env = jf.make("CartPole-v1", time_limit=3)
    single = jf.to_gymnasium(env, render_mode="rgb_array")
    obs, *_ = play(single, [1, 1, 1], seed=0)[-1]
    # the last state, not a new one
    np.testing.assert_array_equal(single.render(), env.render(((obs, 3), 3)))
    envs = jf.to_gymnasium(env, 2, render_mode="rgb_array")
    obs, _ = envs.reset(seed=0)
    before = envs.render()
    np.testing.assert_array_equal(before[1], env.render(((obs[1], 0), 0)))
    for action in np.ones((2, 2), np.int64):
        envs.step(action)
    assert len(before) == 2 and before[0].dtype == np.uint8 and not np.array_equal(
        before[0], envs.render()[0])
    assert jf.to_gymnasium(jf.make("probe/dict")).metadata["render_modes"] == []
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert jf.to_gymnasium(env).render() is None


# Spaces

SPACES = [
    jf.Discrete(3),
    jf.MultiDiscrete((2, 5)),
    jf.Box(-1.0, 0.5, (2, 3)),
    jf.Box((0.0, -float("inf")), (1.0, float("inf")), (2,)),
    jf.Box(0, 255, (4, 4, 1), jnp.uint8),
    jf.Box(0, 1, (3,), jnp.bool_),
    jf.Dict.of(a=jf.Box(0.0, 1.0, (1,)), b=jf.Dict.of(c=jf.Discrete(2))),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_go_both_ways(space):
    there = to_space(space)
    assert space_of(there) == space and to_space(space_of(there)) == there
    if getattr(space, "bounded", True):  # else ours draws normal numbers
        assert jax.device_get(space.sample(jax.random.key(0))) in there


def test_a_stack_repeats_the_bounds():
    space = to_space(jf.Box((0.0, -1.0), (1.0, 2.0), (2,)), 3)
    assert space.low.tolist() == [0, -1] * 3 and space.high.tolist() == [1, 2] * 3


# Mistakes

CART, PENDULUM = lambda n=None: jf.to_gymnasium(jf.make("CartPole-v1"), n), lambda: jf.to_gymnasium(
    jf.make("Pendulum-v1"), 2)
WRONG = [
    ("shape", CART, [0], "action.shape must be (), got (1,)"),
    ("range", CART, 2, "action must be from 0 to 1, got 2"),
    ("text", CART, "left", "action.dtype must be "),
    ("vector shape", lambda: CART(3), [0, 1], "actions.shape must be (3,), got (2,)"),
    ("vector dtype", lambda: CART(3), [0.0, 1.0, 0.0],
     "actions.dtype must be one that goes into int32, got 'float64'"),
    ("vector range", lambda: CART(3), [0, 1, -1], "actions[2] must be from 0 to 1, got -1"),
    ("wraps in int32", lambda: CART(3), [0, 2**32, 0],
     "actions[1] must be from 0 to 1, got 4294967296"),
    ("lists of several lengths", lambda: CART(2), [[0], [0, 1]],
     "actions must be an array of shape (2,)"),
    ("box range", PENDULUM, [[0.0], [2.5]], "actions[1, 0] must be from -2.0 to 2.0, got 2.5"),
    ("box nan", PENDULUM, [[np.nan], [0.0]], "actions[0, 0] must be from -2.0 to 2.0, got nan"),
    ("multi-discrete", lambda: jf.to_gymnasium(jf.make("probe/multi-discrete")), [0, 2, 0],
        "action[1] must be from 0 to 1, got 2"),
]


@pytest.mark.parametrize(("make", "action", "says"),
                         [pytest.param(*w[1:], id=w[0].replace(" ", "-")) for w in WRONG])
def test_wrong_actions(make, action, says):
    envs = make()
    first = envs.reset(seed=0)
    with pytest.raises(jf.ConfigError) as error:
        envs.step(action)
    assert says in str(error.value)
    right = np.zeros(envs.action_space.shape, envs.action_space.dtype)
    expected = play(make(), [right], seed=0)
    assert same([first, envs.step(right)], expected)  # nothing happened


def test_convertible_actions_are_accepted():
    envs, expected = CART(2), play(CART(2), [[1, 0]], seed=0)
    for action in (np.array([1, 0], np.uint8), jnp.array([1, 0]), (1, 0), np.array([True, False])):
        assert same(play(envs, [action], seed=0), expected)


def test_the_order_of_calls():
    single, envs = jf.to_gymnasium(Toy(), render_mode=None), jf.to_gymnasium(
        Toy(), 2, autoreset_mode="disabled")
    for one, action in ((single, 2), (envs, [2, 0])):
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
            one.step(action)
        one.reset(seed=0)
        one.step(action)
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
            one.step(action)
        one.reset()
        one.step(action)
        one.close(), one.close()
        for call in (one.reset, lambda one=one, action=action: one.step(action)):
            with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
                call()
    with pytest.raises(gymnasium.error.ResetNeeded):
        CART(2).reset(options={"reset_mask": np.ones(2, bool)})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"seed": -1}, "got -1"),
        ({"seed": [1, 2]}, "got [1, 2]"),
        ({"options": {"low": 1}}, "options['low'] must be left out, got 1: reset_mask is known"),
        ({"options": {"reset_mask": np.zeros(2, bool)}}, "somewhere True"),
        ({"options": {"reset_mask": [1, 0]}}, "a bool array of shape (2,)"),
    ],
)
def test_wrong_resets(arguments, says):
    envs = CART(2)
    with pytest.raises(jf.ConfigError) as error:
        envs.reset(**arguments)
    assert says in str(error.value)


def test_environments_that_are_not_exported():
    with pytest.raises(jf.ConfigError,
                       match="env must be an environment on the device, .*: this one steps on the "
                             "host; "):
        jf.to_gymnasium(jf.make("gym:CartPole-v1"))
    with pytest.raises(jf.ConfigError,
                       match="env must be an environment of this library, such as "):
        jf.to_gymnasium(gymnasium.make("CartPole-v1"))


def test_without_gymnasium(monkeypatch, modules):
    modules(gymnasium=None)
    monkeypatch.delitem(sys.modules, "jaxrl_fast.envs.export.to_gymnasium")
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxrl_fast\[gymnasium\]'"):
        importlib.import_module("jaxrl_fast.envs.export.to_gymnasium")


# Stable-Baselines3


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_stable_baselines_learns():
    """The unchanged PPO of Stable-Baselines3, on single environments that it vectorizes itself."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env as check_for_sb3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)  # threads that wait for each other take minutes on a busy machine
    settings = {"n_epochs": 4, "learning_rate": 3e-3, "seed": 0, "device": "cpu"}
    for name, policy in {"probe/named-action": "MlpPolicy",
                         "probe/dict": "MultiInputPolicy"}.items():
        env = jf.to_gymnasium(jf.make(name))
        check_for_sb3(env)
        envs = make_vec_env(lambda name=name: jf.to_gymnasium(jf.make(name)), 4, seed=0)
        model = PPO(policy, envs, n_steps=64, batch_size=64, **settings).learn(3_000)
        score, _ = evaluate_policy(model, envs, 40)
        assert score > 0.9, (name, score)
    model = PPO("MlpPolicy", jf.to_gymnasium(jf.make("CartPole-v1")), n_steps=512,
                **settings).learn(6_000)
    score, _ = evaluate_policy(model, jf.to_gymnasium(jf.make("CartPole-v1", time_limit=200)), 5)
    assert score > 100, score  # a random one: 22
