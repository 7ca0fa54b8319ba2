"""Environments on the host as `Vector`s: whatever their auto-reset mode, the true successors and
both kinds of end."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as theirs

import jaxrl_fast as jf
from helpers import counters as tools
from helpers.around import Around
from helpers.matrix import family
from jaxrl_fast import spaces, tree
from jaxrl_fast.actors import play
from jaxrl_fast.algorithms.presets import find_preset
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs import own
from jaxrl_fast.envs.host import api as host
from jaxrl_fast.envs.host import gymnasium_adapter
from jaxrl_fast.envs.host.gymnasium_spaces import own_form, space_of, spec_of
from jaxrl_fast.envs.host.vector import HostStep, Lives, Vector, Wrapped
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.runs import config_json
from jaxrl_fast.testing import check_env

tools.register()


def played(vector, num_steps, actions=None):
    """Rows (obs, HostStep) of random play; the first observation comes from a reset."""
    rng, obs, rows = np.random.default_rng(0), vector.reset(), []
    for _ in range(num_steps):
        action = rng.integers(0, 3, vector.num_envs)
        vector.send(action)
        step = vector.receive()
        rows.append((obs, action, step))
        obs = step.obs
    return rows


@pytest.mark.parametrize("kind", ["sync", "SAME_STEP", "DISABLED"])
def test_every_row_is_a_real_transition(kind):
    if kind == "sync":
        vector = jf.make(f"gym:{tools.ID}").open(3, 0)
    else:
        vector = gymnasium_adapter.GymnasiumVector(tools.Counters(3, kind), 0)
    for (obs, action, step), want in zip(played(vector, 40), tools.expected(40), strict=True):
        at, successor, reward, terminated, truncated = want
        np.testing.assert_array_equal(obs, [at] * 3)
        np.testing.assert_array_equal(step.next_obs, [successor] * 3)
        np.testing.assert_array_equal(step.reward, reward + action + 1)  # actions begin at 1 there
        assert (
            (step.terminated == terminated).all() and (step.truncated == truncated).all()
            and step.real is None
        )
        assert (
            (step.over == (terminated or truncated)).all()
            and step.obs.dtype == step.reward.dtype == np.float32
        )
        assert (step.next_obs is step.obs) == (not step.over.any())
    vector.close()


def test_a_reset_in_the_next_step_is_marked_and_nothing_else_changes():
    vector, found = gymnasium_adapter.GymnasiumVector(tools.Counters(2, "NEXT_STEP"), 0), []
    for obs, _, step in played(vector, 60):
        if step.real is None or step.real.all():
            found.append((tuple(obs[0]), tuple(step.next_obs[0]), bool(step.terminated[0]),
                          bool(step.truncated[0])))
        else:
            assert (
                not step.real.any() and step.truncated.all() and not step.terminated.any()
                and not step.over.any()
            )
            assert (step.reward == 0).all() and (step.score == 0).all()
            # the terminal observation, not the next episode's
            np.testing.assert_array_equal(step.next_obs, obs)
    assert (
        found == [(at, to, end, cut) for at, to, _, end, cut in tools.expected(len(found))]
        and len(found) > 40
    )


def test_replay_learns_truncated_steps_and_no_resets():
    vector = gymnasium_adapter.GymnasiumVector(tools.Counters(2, "NEXT_STEP"), 0)
    spec = jf.EnvSpec("counters", jf.Box(0.0, 99.0, (2,)), jf.Discrete(3), 4)
    algo = jf.DQN(num_envs=2, num_steps=40, buffer_size=160, batch_size=64, hidden=(4,),
                  truncation_interval=1).bind(spec)
    actor, steps, seen = play.begin(algo, vector.reset(), of=2), None, None
    agent, noise, clock = (
        jax.jit(algo.init)(jax.random.key(0)),
        jax.jit(lambda key: algo.draw(key, 40, 2))(jax.random.key(1)), play.start_clock())
    first = actor
    for i in range(40):
        actor, steps, action = play.step(algo, agent, actor, steps, seen, noise, clock, i, "random")
        vector.send(np.asarray(action))
        seen = play.Seen.of(vector.receive())
    _, trajectory = play.end(algo, first, actor, steps, seen, 39)
    memory = algo.memory()

    @jax.jit
    def learned(trajectory):
        rows = algo.prepare(agent, trajectory)
        mem = memory.add(memory.init(rows), rows, jnp.int32(0))
        plan = memory.plan(jax.random.key(2), 1, jnp.int32(1), clock)
        return memory.fetch(mem, tree.take(plan, 0))

    trajectory = jax.tree.map(np.asarray, trajectory)
    window, (row, env) = jax.tree.map(np.asarray, learned(trajectory))
    real, cut = ~trajectory.steps.reset_only[row, env], trajectory.steps.truncated[row, env]
    np.testing.assert_array_equal(window.weight, real)
    assert (real & cut).any() and (~real).any()
    # the episode's own next step, terminal ones left aside
    wanted = trajectory.steps.next_obs[row, env]
    alive = np.asarray(real & (window.boot > 0))
    np.testing.assert_array_equal(window.boot_obs[alive], wanted[alive])


def test_rewards_are_scaled_and_clipped_for_the_learner_alone():
    env = jf.make(f"gym:{tools.ID}", reward_scale=0.1, reward_clip=2.0)
    for training in (True, False):
        vector = env.open(1, 0, training=training)
        for _, action, step in played(vector, 9):
            assert step.score[0] % 10 == action[0] + 1
            want = min(0.1 * step.score[0], 2.0) if training else step.score[0]
            assert step.reward[0] == pytest.approx(want)


def test_a_lost_life_is_an_episode_for_the_learner_alone():
    class Game(Vector):
        num_envs = 2

        def reset(self):
            self.t, self.lives = 0, np.array([3, 3])
            return np.zeros((2, 1), np.float32)

        def send(self, action):
            pass

        def receive(self):
            self.t += 1
            over = np.array([False, self.t == 4])
            # the second one begins a new game with 3
            self.lives = np.array([[3, 3], [2, 3], [2, 2], [2, 3]][self.t - 1])
            obs, none = np.full((2, 1), self.t, np.float32), np.zeros(2, bool)
            return HostStep(obs, obs, np.ones(2, np.float32), over, none, np.ones(2, np.float32),
                            over)

    found = [step for _, _, step in played(Lives(Game()), 4)]
    assert [list(s.terminated) for s in found] == [[False, False], [True, False], [False, True],
                                                   [False, True]]
    assert [list(s.over) for s in found] == [[False, False]] * 3 + [[False, True]]


def test_the_spec_and_its_stand_in():
    env = jf.make(f"gym:{tools.ID}", stack=2)
    assert (
        env.spec.stack == 2 and env.spec.action == spaces.Discrete(3)
        and env.spec.max_episode_steps is None
    )
    assert env.spec.observation.shape == (2,) and env.spec.observation.dtype == np.float32
    stand_in = backend_of(env).placed(env, jf.PPO(), RunConfig())
    assert stand_in.spec == env.spec
    shapes = jax.eval_shape(lambda key: stand_in.init(key, 5)[1], jax.random.key(0))
    assert (shapes.shape, shapes.dtype) == ((5, 2), np.float32)
    on_device = jf.make("CartPole-v1")
    assert backend_of(on_device).placed(on_device, jf.PPO(), RunConfig()) is on_device


def test_the_two_kinds_are_siblings():
    for name, cls, runs_on in (("CartPole-v1", jf.Env, "device"),
                               (f"gym:{tools.ID}", jf.HostEnv, "host")):
        env = jf.make(name)
        assert [kind for kind in (jf.Env, jf.HostEnv) if isinstance(env, kind)] == [cls]
        assert isinstance(env, jf.envs.Environment) and env.runs_on == runs_on
        assert (
            hasattr(env, "init") == (runs_on == "device")
            and copy.deepcopy(env) == env == pickle.loads(pickle.dumps(env))
        )


def test_a_host_environment_by_its_class():
    """Made by the path of its class, or written to config.json as an object."""
    path = "jaxrl_fast.envs.host.gymnasium_adapter:GymnasiumEnv"
    assert own.find(path) is gymnasium_adapter.GymnasiumEnv
    env = gymnasium_adapter.GymnasiumEnv(id="CartPole-v1")
    written = config_json.encode_environment(env)
    assert written["object"]["class"] == path and config_json.decode_environment(written) == env


def test_an_error_of_a_property_is_not_hidden():
    class Unfinished(jf.HostEnv):
        def _spec(self):
            return self.not_there

    with pytest.raises(AttributeError, match="not_there"):
        _ = Unfinished().spec


def test_settings_are_the_constructor_s():
    assert (
        jf.make(
            "gym:CartPole-v1", max_episode_steps=7, sutton_barto_reward=True
        ).spec.max_episode_steps == 7
    )
    assert jf.make("gym:CartPole-v1") is jf.make("gym:CartPole-v1")
    assert jf.make("gym:CartPole-v1").spec.max_episode_steps == 500
    vector = jf.make("gym:CartPole-v1", max_episode_steps=3).open(2, 0)
    assert (
        [bool(s.truncated.all()) for _, _, s in played(_small(vector), 6)] == [False, False, True]
        * 2
    )


def test_a_module_in_the_name(tmp_path, monkeypatch):
    """The module is imported, also from the working directory, and registers its environment."""
    text = (
        "import gymnasium\ngymnasium.register('Temporary-v0', "
        "entry_point='helpers.counters:Counter')"
    )
    (tmp_path / "temporary_envs.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    env = jf.make("gym:temporary_envs:Temporary-v0", at=7)
    vector = env.open(2, 0)
    assert env.spec.action == spaces.Discrete(3) and vector.reset().tolist() == [[0, 0]] * 2
    assert jf.make("gym:ale_py:ALE/Pong-v5", frameskip=2).spec.observation.shape == (210, 160, 3)
    (tmp_path / "broken_envs.py").write_text("1 / 0")
    for name, message in (
        ("gym:temporary_envs:Temporay-v0", "did you mean 'gym:Temporary-v0'"),
        ("gym:no_such_module:Env-v0", "No module named 'no_such_module'"),
        ("gym:broken_envs:Env-v0", "a module that can be imported.*ZeroDivisionError"),
    ):
        with pytest.raises(ConfigError, match=message):
            jf.make(name)


def test_a_native_vector_that_is_not_the_single_environment():
    """ale-py's: its spaces, its settings, and pictures whose channels come first."""
    name = "gym:ale_py:ALE/Pong-v5"
    env = jf.make(name, vectorization="native", stack_num=1, noop_max=0,
                  max_num_frames_per_episode=80, stack=2)
    assert env.spec.observation.shape == (84, 84, 1) and env.spec.stack == 2
    rows = played(env.open(2, 0), 25)
    assert rows[0][0].shape == (2, 84, 84, 1) and sum(step.over.all() for _, _, step in rows) == 1
    with pytest.raises(ConfigError, match=r"env\.noop_max must be .*vectorization 'sync'.*got 0"):
        jf.make(name, noop_max=0)
    with pytest.raises(ConfigError, match=r"env\.max_episode_steps must be .*got 9"):
        jf.make(name, vectorization="native", max_episode_steps=9)
    assert (
        jf.make(
            "gym:CartPole-v1", vectorization="native", max_episode_steps=9
        ).spec.max_episode_steps == 9
    )


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_an_environment_that_ends_the_program(vectorization):
    gymnasium.register("Quits-v0", "helpers.counters:Counter", kwargs={"fault": "quits", "at": 2})
    try:
        vector = jf.make("gym:helpers.counters:Quits-v0", vectorization=vectorization).open(2, 0)
        message = (
            "SystemExit: licence lost" if vectorization == "sync"
            else "the process of one of .* died .*exit code 1"
        )
        with pytest.raises(host.HostError,
                           match=rf"^helpers\.counters:Quits-v0 failed in (send|receive): "
                                 rf"{message}"):
            played(vector, 3)
        vector.close()
    finally:
        del gymnasium.registry["Quits-v0"]


class Refused(gymnasium.Env):
    def __init__(self):
        raise ConnectionRefusedError("nobody listens at port 4000")


def test_a_refused_connection_is_no_dead_process():
    gymnasium.register("Refused-v0", Refused)
    try:
        with pytest.raises(host.HostError,
                           match="^Refused-v0 failed in spec: ConnectionRefusedError: nobody "
                                 "listens"):
            jf.make("gym:Refused-v0", vectorization="async")
    finally:
        del gymnasium.registry["Refused-v0"]


def _small(vector):
    """Two actions instead of three."""
    send = vector.send
    vector.send = lambda action: send(action % 2)
    return vector


def test_processes_and_seeds():
    """`async` gives what `sync` gives; another seed, another episode."""
    env = jf.make("gym:CartPole-v1", vectorization="async")
    vector = env.open(2, 3)
    try:
        found = played(_small(vector), 30)
    finally:
        vector.close()
    same = played(_small(jf.make("gym:CartPole-v1").open(2, 3)), 30)
    for (a, _, x), (b, _, y) in zip(found, same, strict=True):
        np.testing.assert_array_equal(a, b)
        for left, right in zip(x[:-1], y[:-1], strict=True):
            np.testing.assert_array_equal(left, right)
    assert any(step.over.any() for _, _, step in found)
    other = jf.make("gym:CartPole-v1").open(2, 4).reset()
    assert not np.array_equal(other, same[0][0])


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP], ids=lambda way: way.name)
def test_no_process_outlives_its_vector(way):
    """A process is killed in the middle of a step, or hangs in it; it does not hear the run's
    signals."""
    vector = jf.make("gym:CartPole-v1", vectorization="async").open(2, 0)
    vector.reset()
    processes = vector.vector.processes
    assert len(multiprocessing.active_children()) == 2
    for process in processes:
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
    vector.send(np.zeros(2, int))
    vector.receive()
    os.kill(processes[0].pid, signal.SIGSTOP)
    vector.send(np.zeros(2, int))
    assert vector.vector.parent_pipes[1].poll(30)  # the other one has made its step
    os.kill(processes[0].pid, way)
    if way == signal.SIGKILL:
        with pytest.raises(host.HostError,
                           match=rf"^CartPole-v1 failed in receive: .* died \({processes[0].pid}, "
                                 rf"SIGKILL\)"):
            vector.receive()
    began = time.monotonic()
    vector.close()
    assert not multiprocessing.active_children() and time.monotonic() - began < 5


LEFT = """
import jaxrl_fast as jf

if __name__ == "__main__":
    vector = jf.make("gym:CartPole-v1", vectorization="async").open(2, 0)
    vector.reset()
"""


def test_an_open_vector_does_not_keep_its_program(tmp_path):
    """multiprocessing would ask its processes by SIGTERM, which they do not hear, and wait for
    them."""
    (tmp_path / "left.py").write_text(LEFT)
    assert subprocess.run([sys.executable, tmp_path / "left.py"], timeout=60).returncode == 0


STUCK = """
import multiprocessing, pathlib, threading, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
import jaxrl_fast as jf

class Stuck(CartPoleEnv):
    def __init__(self):
        if multiprocessing.parent_process() is not None:
            pathlib.Path(__file__).with_name("here").touch()
            time.sleep(100)
        super().__init__()

gymnasium.register("Stuck-v0", Stuck)

if __name__ == "__main__":
    env = jf.make("gym:Stuck-v0", vectorization="async")
    threading.Thread(target=env.open, args=(1, 0), daemon=True).start()
    while not pathlib.Path(__file__).with_name("here").exists():
        time.sleep(0.02)
"""


@pytest.mark.matrix("test_an_open_vector_does_not_keep_its_program")
def test_an_opening_vector_does_not_keep_its_program(tmp_path):
    """The run gave the vector up: one of its environments hangs in its constructor."""
    (tmp_path / "stuck.py").write_text(STUCK)
    assert (
        subprocess.run(
            [sys.executable, tmp_path / "stuck.py"], timeout=60, stderr=subprocess.DEVNULL
        ).returncode == 0
    )


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_reused_buffers_are_copied(vectorization):
    """The terminal observation is not that of the reset; and another shape is an error, not what a
    flat copy makes of it."""
    gymnasium.register("Buffer-v0", "helpers.counters:Buffer")
    try:
        env = jf.make("gym:helpers.counters:Buffer-v0", vectorization=vectorization)
        vector, found = env.open(2, 0), []
        vector.reset()
        for _ in range(4):
            vector.send(np.zeros(2, int))
            found.append(vector.receive())
        vector.close()
        assert [step.next_obs["a"][0, 0, 0] for step in found] == [1, 2, 3, 1]
        assert [step.obs["a"][1, 1, 1] for step in found] == [1, 2, 0, 1]
        vector = jf.make("gym:helpers.counters:Buffer-v0", vectorization=vectorization,
                         wrong=True).open(2, 0)
        message = r"observations\['a'\] of shape \[3, 2\], where their space has \[2, 3\]"
        with warnings.catch_warnings(), pytest.raises(host.HostError, match=message):
            # Gymnasium's log of the traceback in the other process is one
            warnings.simplefilter("error")
            played(vector, 3)
        vector.close()
    finally:
        del gymnasium.registry["Buffer-v0"]


SPACES = [
    (theirs.Discrete(4, start=-1), spaces.Discrete(4)),
    (theirs.MultiDiscrete([2, 3]), spaces.MultiDiscrete((2, 3))),
    (theirs.MultiBinary(3), spaces.MultiDiscrete((2, 2, 2))),
    (theirs.Box(-1, np.array([1.0, 2.0]), (2,), np.float64), spaces.Box(-1.0, (1.0, 2.0), (2,))),
    (theirs.Box(0, 255, (5, 6), np.uint8), spaces.Box(0, 255, (5, 6, 1), np.uint8)),
    (theirs.Dict(a=theirs.Discrete(2), b=theirs.Box(0, 1, (3,))),
     spaces.Dict.of(a=spaces.Discrete(2), b=spaces.Box(0, 1, (3,)))),
    (theirs.Tuple([theirs.Discrete(2)]), spaces.Dict((("0", spaces.Discrete(2)),))),
]  # fmt: skip


class OwnBox(theirs.Box):
    """A space of a library's own class is what it is made from."""


class OwnDict(theirs.Dict):
    pass


class OwnText(theirs.Text):
    pass


SPACES.append((OwnDict(a=OwnBox(-1, 1, (2,))), spaces.Dict.of(a=spaces.Box(-1.0, 1.0, (2,)))))


@pytest.mark.parametrize(("space", "ours"), SPACES, ids=lambda x: type(x).__name__)
def test_spaces_and_their_values(space, ours):
    assert space_of(space) == ours
    space.seed(0)
    samples = [space.sample() for _ in range(4)]
    batch = gymnasium.vector.utils.concatenate(space, samples,
                                               gymnasium.vector.utils.create_empty_array(space, 4))
    found = own_form(space).encode(batch)
    shapes = jax.tree.map(lambda x: (x.shape, np.dtype(x.dtype)), found)
    assert shapes == jax.tree.map(lambda x: (x.shape, np.dtype(x.dtype)), spaces.zeros(ours, (4,)))
    if not isinstance(ours, spaces.Dict):
        back = own_form(space).decode(found)
        assert back.dtype == space.dtype and all(space.contains(x) for x in back)
        np.testing.assert_allclose(back, samples, rtol=1e-6)


@pytest.mark.parametrize(("observation", "action", "message"), [
    (theirs.Text(5), theirs.Discrete(2), "mine: observation_space must be .*got 'Text'"),
    (theirs.Dict(a=theirs.Dict(b=theirs.Sequence(theirs.Discrete(2)))), theirs.Discrete(2),
        r"space\['a'\]\['b'\] must be .*got 'Sequ"),
    (theirs.Discrete(2), theirs.OneOf([theirs.Discrete(2)]),
     "mine: action_space must be .*got 'OneOf'"),
    (theirs.Discrete(2), None, "mine: action_space must be .*got 'NoneType'"),
    (theirs.Dict(), theirs.Discrete(2),
        "at least one space"),
    (theirs.Box(-1, 1, (0,)), theirs.Discrete(2), "at least one entry"),
    (theirs.Tuple((theirs.Discrete(2), theirs.Text(3))), theirs.Discrete(2),
     r"observation_space\[1\] must be .*got 'Text'"),
], ids=str)  # fmt: skip
def test_an_unknown_space_is_named(observation, action, message):
    with pytest.raises(ConfigError, match=message):
        spec_of("mine", observation, action, None)


def test_actions_stay_within_their_bounds():
    form = own_form(theirs.Box(-1, 2, (1,)))
    assert form.decode(np.array([[-7.0], [7.0]])).tolist() == [[-1.0], [2.0]]


def test_pictures_have_their_channels_last():
    assert own_form(theirs.Box(0, 255, (3, 8, 9), np.uint8), smallest=8).space.shape == (8, 9, 3)
    encode = lambda x: own_form(theirs.Box(0, 255, x.shape[1:], np.uint8), 8).encode(x)
    x = np.arange(2 * 3 * 8 * 9, dtype=np.uint8).reshape(2, 3, 8, 9)
    assert (encode(x) == x.transpose(0, 2, 3, 1)).all()
    one = x[:, :1].copy()
    assert np.shares_memory(encode(one), one)


def test_ale_environments_clip_rewards_and_cut_at_the_limit():
    """Pong by ale-py: single grey frames, rewards clipped, a game that its limit cuts."""
    env = jf.make("ale:Pong", max_num_frames_per_episode=120, frameskip=4)
    assert (
        env.spec.observation.shape == (84, 84, 1) and env.spec.stack == 4 and env.spec.action.n == 6
    )
    assert env.spec.max_episode_steps == 30 and env.reward_clip == 1.0
    vector = env.open(2, 5)
    rows = played(vector, 45)
    assert all(obs.shape == (2, 84, 84, 1) and obs.dtype == np.uint8 for obs, _, _ in rows)
    cut = [step for _, _, step in rows if step.over.any()]
    assert cut and all(step.truncated[step.over].all() and not step.terminated.any()
                       for step in cut)
    for step in cut:  # the game goes on from a fresh frame, and its last one is kept
        assert (step.next_obs[step.over] != step.obs[step.over]).any()
    assert vector.render().shape == (252, 252, 3)
    vector.close()
    again = played(env.open(2, 5), 45)
    assert all((a[0] == b[0]).all() for a, b in zip(rows, again, strict=True))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gym:CartPol-v1", {}, "did you mean 'gym:CartPole-v1'"),
        ("gym:CartPole-v1", {"vectorization": "threads"}, "one of 'sync', 'async', 'native'"),
        ("gym:Acrobot-v1", {"vectorization": "native"}, "has no vector version"),
        ("gym:CartPole-v1", {"gravity": 1.0}, "a setting of gym:CartPole-v1 "),
        ("gym:CartPole-v1", {"max_episode_steps": 0}, "env.max_episode_steps must be .*got 0"),
        ("gym:CartPole-v1", {"action_repeat": 2},
         "env.action_repeat must be 1 .*got 2.*own settings"),
        ("gym:CartPole-v1", {"time_limit": 2}, "env.time_limit must be .*got 2"),
        ("gym:CartPole-v1", {"reward_clip": -1.0}, "env.reward_clip"),
        ("gym:CartPole-v1", {"stack": 0}, "env.stack must be .*got 0"),
        ("ale:Pnog", {}, "did you mean 'ale:Pong'"),
        ("ale:Pong", {"frameskip": 0}, "env.frameskip must be .*got 0"),
        ("ale:Pong", {"repeat_action_probability": 2.0}, "env.repeat_action_probability"),
    ],
)
def test_bad_names_and_settings(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        jf.make(name, **settings).spec  # noqa: B018


@pytest.mark.parametrize(("space", "message"), [
    (theirs.Text(3), "TransformObservation that encodes it"),
    (OwnText(3), "TransformObservation that encodes it"),
    (theirs.Sequence(theirs.Discrete(2)), "pads it"),
    (theirs.Graph(theirs.Discrete(2), None), "arrays of a fixed size"),
])  # fmt: skip
def test_unsupported_spaces(space, message):
    with pytest.raises(ConfigError, match=message):
        space_of(space)


@pytest.mark.parametrize(("name", "settings"), family([
    (f"gym:{tools.ID}", {}), ("gym:CartPole-v1", {}),
    ("gym:CartPole-v1", {"vectorization": "native"}),
    ("gym:CartPole-v1", {"vectorization": "async"}),
    ("gym:Pendulum-v1", {}), ("gym:Blackjack-v1", {}),
    ("ale:Pong", {"max_num_frames_per_episode": 300}),
], 3), ids=str)  # fmt: skip
def test_host_environments_conform(name, settings):
    report = check_env(jf.make(name, **settings), num_envs=2, num_steps=210)
    assert (
        report.steps == 420 and report.terminated + report.truncated > 0
        and report.longest <= LONGEST[name]
    )
    if name.startswith("gym:"):  # games begin with frames that their seeds do not show
        assert report.random_resets == (name != f"gym:{tools.ID}")


LONGEST = {f"gym:{tools.ID}": 4, "gym:CartPole-v1": 200, "gym:Pendulum-v1": 200,
           "gym:Blackjack-v1": 20, "ale:Pong": 75}


class Broken(Wrapped):
    """A vector with one fault."""

    def __init__(self, vector, fault):
        super().__init__(vector)
        self.fault = fault

    def receive(self):
        step = self.vector.receive()
        ended = step.terminated | step.truncated
        if self.fault == "successor":
            return step._replace(next_obs=step.next_obs[::-1])  # the other environment's
        if self.fault == "both ends":
            return step._replace(terminated=ended, truncated=ended)
        if self.fault == "reward":
            return step._replace(reward=step.reward.astype(np.float64))
        if self.fault == "no terminal observation":
            return step._replace(next_obs=step.obs)
        if self.fault == "failures truncated":
            return step._replace(terminated=np.zeros_like(ended), truncated=ended)
        if self.fault == "not an end":
            return step._replace(over=np.ones_like(ended))
        return step._replace(obs=step.obs[:, :1], next_obs=step.next_obs[:, :1])


@pytest.mark.parametrize(("fault", "message"), [
    ("successor", "continuity"), ("both ends", "both set"), ("reward", "float64"),
    ("not an end", "over in a step"), ("shape", r"float32\[2, 1\], not float32\[2, 4\]"),
    ("no terminal observation", "successor: where an episode ends"),
    ("failures truncated", r"time limit: \d+ episodes are truncated before"),
])  # fmt: skip
def test_the_kit_finds(fault, message):
    env = Around(inner=jf.make("gym:CartPole-v1"),
                 around=lambda vector, training: Broken(vector, fault))
    with pytest.raises(AssertionError, match=message):
        check_env(env, num_envs=2, num_steps=60)


def test_an_environment_that_never_opens():
    """`make` gives up too."""
    hangs = threading.Event()

    class Hangs(type(jf.make("gym:CartPole-v1"))):
        opening = 0.1

    gymnasium.register("Hangs-v0", lambda: hangs.wait(60))
    jf.register("test/hangs", lambda: Hangs(id="Hangs-v0"))
    try:
        with pytest.raises(host.HostError, match=r"Hangs-v0 has not opened in 0\.1 s"):
            jf.make("test/hangs")
    finally:
        hangs.set()
        del gymnasium.registry["Hangs-v0"]


def test_not_inside_programs():
    env, algo = jf.make("gym:CartPole-v1"), jf.PPO(num_envs=2, num_steps=4, num_minibatches=2,
                                                   hidden=(4,))
    with pytest.raises(ConfigError, match=r"on the host.*jf\.train"):
        jf.make_train(algo, env, 64)(jax.random.key(0))
    with pytest.raises(ConfigError, match="on the host"):
        jax.vmap(lambda key: env.init(key, 2))(jax.random.split(jax.random.key(0)))
    with pytest.raises(ConfigError, match=r"population must be .*one after another"):
        jf.train(algo, env, 64, population={"algo.learning_rate": [1e-3, 1e-2]})
    with pytest.raises(ConfigError, match=r"actors must be at most num_envs = 2, got 3"):
        jf.train(algo, env, 64, actors=3)
    with pytest.raises(ConfigError, match="on the device, got .*: ars needs whole rollouts"):
        jf.train(jf.ARS(directions=2, num_steps=8), env, 256)


def test_an_algorithm_with_its_own_rollouts_is_refused_on_the_host():
    """Without `whole_rollouts`, `collect` would return the actors' rollout whatever agent it
    gets."""

    @jf.settings
    class Twice(jf.PPO):
        def learn(self, agent, mem, iteration):
            iteration.collect(jax.tree.map(jnp.zeros_like, agent))
            return super().learn(agent, mem, iteration)

    with pytest.raises(ConfigError,
                       match="on the device, got 'CartPole-v1': ppo learns from rollouts of agents "
                             "that it makes"):
        jf.train(Twice(num_envs=2, num_steps=4, num_minibatches=2, hidden=(4,)),
                 jf.make("gym:CartPole-v1"), 64)


def test_atari_is_evaluated_by_few_games_with_some_exploration():
    """A greedy policy may wait for ever."""
    for algorithm in ("dqn", "rainbow", "pqn", "apex", "ppo", "impala"):
        run = find_preset(algorithm, "ale:Breakout").run
        assert (
            run == find_preset(algorithm, "envpool:Breakout-v5").run and run["eval_episodes"] == 30)
        assert run["eval_mode"] == "sample"
        RunConfig(**run)


def test_a_missing_extra(modules):
    modules(envpool=None)
    with pytest.raises(ConfigError, match=r"pip install 'jaxrl_fast\[envpool\]'"):
        jf.make("envpool:Pong-v5")


def test_a_missing_package_of_the_environment(monkeypatch, modules):
    """The error is one of bad input, with the line that installs the package."""
    modules(Box2D=None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.lunar_lander", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    # our extra has it
    line = (
        r"one whose package is installed, got 'gym:LunarLander-v3': pip install "
        r"'jaxrl_fast\[gymnasium\]'"
    )
    with pytest.raises(ConfigError, match=line) as error:
        jf.make("gym:LunarLander-v3", max_episode_steps=12)
    assert error.value.exit_code == 2

    def missing():
        raise gymnasium.error.DependencyNotInstalled(
            "MuJoCo is not installed, run `pip install ...`")

    gymnasium.register("Missing-v0", missing)
    try:
        with pytest.raises(ConfigError,
                           match="whose package is installed, got 'gym:Missing-v0': MuJoCo is not "
                                 "installed, run"):
            jf.make("gym:Missing-v0")
    finally:
        del gymnasium.registry["Missing-v0"]
