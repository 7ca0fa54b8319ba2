"""Actors and learner: rollouts of environments on the host are what `collect` would have made, and
so is what is learned."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import re
import signal
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import counters
from helpers import runs as tools
from helpers.around import Around, with_actors
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.actors import on_host, play
from jaxrl_fast.actors.groups import LARGE, SyncGroup
from jaxrl_fast.actors.ray import RayActors, read_in_acting
from jaxrl_fast.actors.threads import Actors
from jaxrl_fast.actors.watch import Limits, Watch
from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import build_run
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.envs.host.vector import Wrapped
from jaxrl_fast.errors import NonFiniteError
from jaxrl_fast.memory import Row
from jaxrl_fast.runs.load import experience
from jaxrl_fast.runs.signals import Interrupted
from jaxrl_fast.sweeps.parts import Sweep, split
from jaxrl_fast.types import Clock

counters.register()
NAME = f"gym:{counters.ID}"
PPO = dict(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(4,))
DQN = dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=128, learning_starts=64, hidden=(4,),
           n_step=2)
TIMES = lambda rows: [{k: v for k, v in row.items() if not k.startswith("time_")} for row in rows]


def run_of(algo, env):
    return tree.as_float32(build_run(algo, env, RunConfig(total_steps=1024)))


@pytest.fixture(scope="module")
def ppo():
    algo = jf.PPO(**PPO)
    env = jf.make(NAME, stack=2)
    run = run_of(algo, env)
    return env, run, jax.jit(run.algo.init)(jax.random.key(1))


@pytest.mark.parametrize("groups", family([1, 3], [3]))
def test_rollouts_are_whole(ppo, groups):
    """Every row of every environment, over three rollouts and whatever ends in them."""
    env, run, agent = ppo
    actors = Actors(run, env, jax.random.key(0), warmup=1, groups=groups)
    actors.start(0, agent)
    expected, stacks, returns, ended = counters.expected(24), [], [], 0
    for t in range(3):
        found = actors.take(t)
        assert len(found.parts) == groups and found.fresh == (t == 0)
        for part in found.parts:
            steps = jax.tree.map(np.asarray, part.steps)
            for i, (at, to, reward, terminated, truncated) in enumerate(
                expected[8 * t : 8 * t + 8]
            ):
                assert (steps.obs[i] == at).all() and (steps.next_obs[i] == to).all()
                assert (steps.reward[i] == reward + steps.action[i] + 1).all()
                assert (steps.terminated[i] == terminated).all() and (
                    steps.truncated[i] == truncated).all()
            before, now = ([*expected, ((9, 9),)][j][0] for j in (max(8 * t - 1, 0), 8 * t))
            assert (np.asarray(part.first_obs)[:, 2:] == now).all()
            stacks.append((np.asarray(part.first_obs)[0], before, now))
            assert jax.tree.leaves(steps.extras)[0].shape[0] == 8
        ends = sum(end or cut for *_, end, cut in expected[8 * t : 8 * t + 8])
        assert len(found.returns) == len(found.lengths) == 4 * ends
        returns, ended = returns + found.returns, ended + ends
        actors.give(t + 1, agent)
    for stack, before, now in stacks:  # the frame before, unless an episode begins there
        assert tuple(stack[:2]) == (before if before[0] == now[0] else now)
    assert ended > 6 and min(returns) > 30
    actors.stop()


def test_the_agent_of_each_rollout_is_fixed(ppo):
    """With `ahead`, the agent of iteration t - ahead plays rollout t, which begins once that agent
    is there."""
    env, run, agent = ppo
    zero = jax.tree.map(np.zeros_like, agent)
    seen = []

    class Noted(Actors):
        def ask(self, i, t, agent):
            seen.append(agent)
            return super().ask(i, t, agent)

    actors = Noted(run, env, jax.random.key(0), warmup=0, ahead=1)
    actors.start(0, agent)
    for t in range(3):
        actors.take(t)
        actors.give(t + 1, zero if t == 0 else agent)
    actors.take(3)
    actors.stop()
    assert [a is zero for a in seen[:4]] == [False, False, True, False]


@pytest.mark.parametrize("apart", [False, True])
def test_one_group_steps_while_the_device_acts_for_another(ppo, apart, monkeypatch):
    """Actions go at once to environments that step by themselves; the others step when the device
    has more to do."""
    env, run, agent = ppo
    events = []

    class Noted(Wrapped):
        def send(self, action):
            events.append(f"step {self.vector.num_envs}")
            super().send(action)

    def noted(vector, training):
        vector = Noted(vector)
        vector.steps_apart = apart
        return vector

    env, act = Around(inner=env, around=noted), SyncGroup.act
    monkeypatch.setattr(SyncGroup, "act",
                        lambda self, *args: (events.append(f"act {self.num_envs}"),
                                             act(self, *args)))
    actors = Actors(run, env, jax.random.key(0), warmup=0, groups=2)
    actors.sizes = [3, 1]
    actors.start(0, agent)
    actors.take(0)
    actors.stop()
    one, other = ["act 3", "step 3", "act 1", "step 1"] * 2, ["act 3", "act 1", "step 3", "act 3",
                                                              "step 1", "act 1", "step 3"]
    assert len(events) == 32 and events[:7] == (one if apart else other)[:7]


@pytest.mark.parametrize("learner", family(["ppo", "dqn"]))
def test_only_parameters_for_acting_are_sent(learner, ppo):
    """Leaves of the agent that are not sent to processes of Ray's can be anything: the rollouts are
    the same."""
    algo, env = jf.PPO(**PPO) if learner == "ppo" else jf.DQN(**DQN), jf.make(NAME, stack=2)
    run = run_of(algo, env)
    agent = jax.jit(run.algo.init)(jax.random.key(1))
    leaves, structure = jax.tree.flatten(agent)
    read = read_in_acting(run, agent)
    assert 0 < sum(read) <= len(jax.tree.leaves(agent.params)) < len(leaves)
    other = jax.tree.unflatten(
        structure, [x if used else x * 0 + 7 for x, used in zip(leaves, read, strict=True)])
    found = []
    for one in (agent, other):
        actors = Actors(run, env, jax.random.key(0), warmup=0)
        actors.start(0, one)
        found.append(actors.take(0))
        actors.stop()
    tools.assert_same(found[0].parts, found[1].parts)


def train(algo, out=None, env=None, **settings):
    return tools.train(algo, out, env or jf.make(NAME),
                       **dict(total_steps=256, eval_every=0) | settings)


def test_the_learner_compiles_once_for_warm_up_and_once_for_learning(monkeypatch, tmp_path):
    """What the second iteration gets is placed as what the first one got."""
    made, learner = [], on_host._learner
    monkeypatch.setattr(on_host, "_learner", lambda *a: made.append(learner(*a)) or made[-1])
    train(jf.DQN(**DQN), tmp_path / "r", log_every=64)
    assert made[0]._cache_size() == 2
    jf.resume(tmp_path / "r", 512, horizon=512)  # finds the programs of the run before
    assert [learn._cache_size() for learn in made] == [2, 2]


@pytest.mark.matrix("tests/logs/test_walltime.py::test_a_run_logs_its_time_shares")
def test_tracing_and_compiling_are_no_time_of_training(monkeypatch):
    seen, programs = [], []
    measured, finite = on_host.HostPrograms._measured, on_host.finite

    def noted(self, *args):
        programs.append(self)
        seen.append(self.clock.activity)
        assert not self.actors.worker.watch.going.is_set()  # no rollout is collected meanwhile
        return measured(self, *args)

    def checked(*args):  # traced at its first call
        seen.append(programs[0].clock.activity)
        return finite(*args)

    monkeypatch.setattr(on_host.HostPrograms, "_measured", noted)
    monkeypatch.setattr(on_host, "finite", checked)
    train(jf.PPO(**PPO), total_steps=64)
    assert seen == ["compile", "compile"]


@pytest.mark.parametrize(("algo", "settings"), family([
    (jf.PPO(**PPO), {}),
    (jf.PPO(**PPO, normalize_reward=True), {"actors": 2}),
    (jf.DQN(**DQN), {"ahead": 1}),
    (jf.IMPALA(num_envs=4, num_steps=8, hidden=(4,)), {}),
], lambda algo, settings: isinstance(algo, jf.DQN)),
    ids=["lock-step", "two actors", "ahead", "corrected"],
)  # fmt: skip
def test_a_run_is_repeatable_bit_for_bit(algo, settings, tmp_path):
    first, second = (train(algo, tmp_path / name, **settings) for name in "ab")
    tools.assert_same(first.state, second.state)
    rows = [TIMES(tools.logged(tmp_path / name)) for name in "ab"]
    assert rows[0] == rows[1] and rows[0][-1]["episode_return"][0] > 30
    assert rows[0][-1]["policy_lag"] == [0.0 if isinstance(algo, jf.PPO) else algo.updates]
    assert first.eval_return == second.eval_return and 30 < first.eval_return[0] < 200
    times = {k for k in tools.logged(tmp_path / "a")[-1] if k.startswith("time_")}
    assert times == {f"time_{x}" for x in ("learner_waits", "learner_updates", "learner_evaluates",
                                           "learner_writes", "learner_compiles",
                                           "actors_environments", "actors_transfer",
                                           "actors_inference", "actors_waiting")}  # fmt: skip


@pytest.mark.matrix("test_a_run_is_repeatable_bit_for_bit")
def test_observations_sent_separately_are_equal(tmp_path, monkeypatch):
    """Large observations are sent apart from the launch; the environment reuses its buffers."""
    runs = []
    for name in "ab":
        monkeypatch.setattr("jaxrl_fast.actors.groups.LARGE", 0 if name == "b" else LARGE)
        runs.append(train(jf.PPO(**PPO), tmp_path / name, actors=2))
    tools.assert_same(runs[0].state, runs[1].state)
    with_the_launch, alone = (
        [row["time_actors_transfer"][0] for row in tools.logged(tmp_path / name)] for name in "ab")
    assert sum(with_the_launch) < sum(alone) and max(alone) < 1


@pytest.mark.matrix("test_a_run_is_repeatable_bit_for_bit")
@pytest.mark.parametrize(("algo", "name"), [
    ("rainbow", "CartPole-v1"), ("sac", "Pendulum-v1"), ("a2c", "CartPole-v1"),
    pytest.param("pqn", "CartPole-v1", marks=pytest.mark.slow),
    pytest.param("td3", "Pendulum-v1", marks=pytest.mark.slow),
])  # fmt: skip
def test_every_kind_of_learner_is_repeatable(algo, name):
    """Real environments, with the actors' default `ahead`."""
    settings = (
        {"a2c": dict(num_envs=4, num_steps=8, hidden=(4,)), "td3": tools.SETTINGS["sac"]}.get(algo)
        or tools.SETTINGS[algo]
    )
    runs = [train(algorithm_class(algo)(**settings), None, jf.make(f"gym:{name}"), eval_episodes=2)
            for _ in range(2)]
    tools.assert_same(runs[0].state, runs[1].state)
    assert runs[0].eval_return == runs[1].eval_return


def test_a_resumed_run_has_a_seam(tmp_path):
    """Environments begin anew; the agent, the replay and the rows stay, and no window crosses from
    old to new."""
    algo = jf.DQN(**DQN)
    stopped = train(algo, tmp_path / "run", total_steps=160)
    before = tools.arrays(stopped.state.memory)
    agent = tools.arrays(stopped.state.agent)
    rows = tools.logged(tmp_path / "run")
    seen = []
    session = tools.resume(tmp_path / "run", stopped.env_steps + 64,
                           hooks=[lambda s, _: seen.append(s.rows)])
    assert tools.logged(tmp_path / "run")[: len(rows)] == rows and seen
    memory = session.state.memory
    at = (stopped.env_steps // 4 - 1) % 32  # the last row before
    sealed = np.asarray(memory.truncated)[at]
    assert (sealed == ~before[".terminated"][at]).all()
    assert (np.asarray(memory.obs)[(at + 1) % 32] == (0, 0)).all()  # a first episode's first step
    assert any((agent[k] != v).any() for k, v in tools.arrays(session.state.agent).items())


@pytest.mark.parametrize(("fault", "message"), family([
    ("raises", "ValueError: the motor burnt out"),
    ("nan", r"observations that are not finite as float32, in environment 0"),
    ("infinite", r"rewards that are not finite as float32, in environment 0"),
    ("hangs", r"has not answered for 1 s \(host_timeout\)"),
], ["raises", "nan", "infinite"]))  # fmt: skip
def test_failing_environments_end_the_run(fault, message, tmp_path):
    began = time.monotonic()
    with pytest.raises(HostError, match=message) as caught:
        train(jf.PPO(**PPO), tmp_path / "run", jf.make(NAME, fault=fault, at=50), host_timeout=1.0,
              chunk_seconds=0.01)
    assert caught.value.exit_code == 1 and time.monotonic() - began < 60
    assert re.search(r" \(at [\d,]+ environment steps\); ", str(caught.value))


def test_failing_environments_are_restarted(tmp_path):
    """One that fails again and again, each time after 20 steps, still gets to the end."""
    env = jf.make(NAME, fault="raises", at=20)
    with pytest.warns(UserWarning, match="the motor burnt out; restarted, 1 of 9 times"):
        session = train(jf.DQN(**DQN), tmp_path / "run", env, total_steps=160, restarts=9)
    rows = tools.logged(tmp_path / "run")
    assert session.env_steps == rows[-1]["env_steps"] >= 160
    memory = session.state.memory
    obs, truncated = np.asarray(memory.obs), np.asarray(memory.truncated | memory.terminated)
    for i in range(1, 32 if session.env_steps >= 128 else 0):  # an episode is left only at an end
        jumps = (obs[i] != obs[i - 1] + (0, 1)).any(-1)
        newest = (session.env_steps // 4) % 32
        assert i == newest or (truncated[i - 1] | ~jumps).all(), i


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_sweep_trains_one_after_another(seeds):
    settings = [{"algo.learning_rate": rate} for rate in (1e-3, 1e-2)]
    parts = split(Sweep(jf.PPO(**PPO), jf.make(NAME), RunConfig(seed=3, seeds=seeds), {}, settings))
    wanted = [((c,), 3 + s, 1) for c in range(2) for s in range(seeds)]
    assert [dataclasses.astuple(part) for part in parts] == wanted


@pytest.mark.matrix("test_failing_environments_are_restarted")
def test_hanging_environments_are_restarted(tmp_path):
    """The thread that hangs is left behind, and nothing of what it does later is seen."""
    env = jf.make(NAME, fault="hangs", at=20)
    with pytest.warns(UserWarning,
                      match=r"has not answered for 1 s \(host_timeout\); restarted, 1 of 9 times"):
        session = train(jf.PPO(**PPO), tmp_path / "run", env, total_steps=96, restarts=9,
                        host_timeout=1.0)
    assert session.env_steps == 128 and len(tools.logged(tmp_path / "run")) == 2


@pytest.fixture
def cartpoles():
    """Two processes with an environment each, and an agent for them."""
    env = jf.make("gym:CartPole-v1", vectorization="async")
    run = run_of(jf.PPO(**PPO | {"num_envs": 2}), env)
    yield env, run, jax.jit(run.algo.init)(jax.random.key(1))
    for process in multiprocessing.active_children():
        process.kill()


def test_hanging_processes_are_killed(cartpoles):
    """The old processes at a restart, and all processes at the end."""
    env, run, agent = cartpoles
    actors = Actors(run, env, jax.random.key(0), warmup=0, patience=20.0, restarts=1)
    actors.start(0, agent)
    actors.take(0)
    before = multiprocessing.active_children()
    os.kill(before[0].pid, signal.SIGSTOP)
    actors.worker.watch.limits.patience = 0.5
    actors.give(1, agent)
    with pytest.warns(UserWarning, match="has not answered for 0.5 s.*restarted"):
        assert actors.take(1).fresh
    now = multiprocessing.active_children()
    assert len(before) == len(now) == 2 and not set(before) & set(now)
    os.kill(now[1].pid, signal.SIGSTOP)
    actors.give(2, agent)
    began = time.monotonic()
    actors.stop()
    assert not multiprocessing.active_children() and time.monotonic() - began < 15


@pytest.mark.matrix("test_hanging_processes_are_killed")
def test_processes_of_a_hanging_evaluation_are_killed(cartpoles):
    env, run, agent = cartpoles
    watch = Watch("CartPole-v1", 60.0)

    def stopped(vector, training):
        os.kill(vector.vector.processes[0].pid, signal.SIGSTOP)
        watch.limits.patience = 0.5
        return vector

    with pytest.raises(HostError, match=r"has not answered for 0.5 s \(host_timeout\)"):
        play.evaluate(Around(inner=env, around=stopped), run.algo, agent, jax.random.key(0), 2,
                      "greedy", watch=watch)
    assert not multiprocessing.active_children()


def test_a_pause_of_the_program_is_no_timeout():
    """After Ctrl-Z and fg the clock is far on and no check has run: patience begins anew, and
    ends."""
    now = [0.0]
    watch = Watch("Slow-v0", 5.0, now=lambda: now[0])
    with watch.asked():
        for now[0] in (1.0, 2.0, 60.0, 61.0, 62.0, 63.0, 64.0, 65.0):
            watch.check()
        now[0] = 66.0
        with pytest.raises(HostError, match="Slow-v0 has not answered for 5 s"):
            watch.check()


def test_environments_with_a_hanging_close_are_left_behind(ppo):
    """The rollouts count, and the run waits for some seconds at most."""
    env, run, agent = ppo
    left, watch = threading.Event(), Watch("Env", 30.0)
    watch.closing = 0.1

    class Stays(Wrapped):
        def close(self):
            left.wait(60)

    env = Around(inner=env, around=lambda vector, training: Stays(vector))
    began = time.monotonic()
    found = play.evaluate(env, run.algo, agent, jax.random.key(0), 2, "greedy", watch=watch)
    assert len(found[0]) == 2 and time.monotonic() - began < 20
    left.set()


def test_sending_is_watched(ppo):
    env, run, agent = ppo
    hangs = threading.Event()

    class Hangs(Wrapped):
        def send(self, action):
            hangs.wait(60)

    env = Around(inner=env, around=lambda vector, training: Hangs(vector))
    actors = Actors(run, env, jax.random.key(0), warmup=0, patience=0.5)
    actors.start(0, agent)
    with pytest.raises(HostError, match=r"has not answered for 0.5 s"):
        actors.take(0)
    hangs.set()
    actors.stop()


def test_a_stopping_run_does_not_wait_for_a_long_evaluation(ppo):
    """The environments answer, but their games take hours."""
    env, run, agent = ppo
    watch = Watch("Env", 120.0)
    watch.limits.hurry = 0.5
    began, before = time.monotonic(), set(threading.enumerate())
    with pytest.raises(HostError, match="was played for 0.5 s more, and not to the end"):
        play.evaluate(env, run.algo, agent, jax.random.key(0), 10**7, "greedy", watch=watch,
                      stopping=lambda: True)
    assert time.monotonic() - began < 20
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(("where", "restarts"), family(
    [("step", 0), ("step", 3), ("evaluation", 3)],
    lambda where, restarts: (where, restarts) == ("step", 3)))
def test_a_stopping_run_waits_briefly_for_hanging_environments(where, restarts, tmp_path,
                                                               monkeypatch):
    """Ctrl-C while a step hangs: the run ends as asked, with what was learned, and not as one whose
    environment failed."""
    hangs, waits, sent = threading.Event(), threading.Event(), []

    class Waiting(Actors):
        def take(self, *args):
            waits.set()  # else the run might see the signal before it waits, and end by itself
            found = super().take(*args)
            waits.clear()
            return found

    class Stuck(Wrapped):
        def send(self, action):
            sent.append(action)
            if len(sent) == {"step": 50, "evaluation": 1}[where]:
                assert where == "evaluation" or waits.wait(20)
                os.kill(os.getpid(), signal.SIGINT)
                hangs.wait(60)
            super().send(action)

    jf.register("test/stuck", lambda: Around(
        inner=jf.make(NAME),
        around=lambda vector, training: Stuck(vector) if training == (where == "step") else vector
    ))  # fmt: skip

    monkeypatch.setattr(Limits, "hurry", 0.5)
    monkeypatch.setattr(Watch, "closing", 0.2)
    began = time.monotonic()
    settings = dict(host_timeout=120.0, restarts=restarts, chunk_seconds=0.01,
                    eval_every=64 if where == "evaluation" else 0,
                    dependencies=with_actors(Waiting))
    with pytest.raises(Interrupted) as stopped, pytest.warns(
        UserWarning, match="its unfinished part is left out"
    ):
        train(jf.PPO(**PPO), tmp_path / "run", jf.make("test/stuck"), **settings)
    assert time.monotonic() - began < 40 and stopped.value.env_steps == {
        "step": 4 * 48, "evaluation": 64}[where]
    hangs.set()
    monkeypatch.undo()
    assert tools.resume(tmp_path / "run", 4 * 64).env_steps == 4 * 64


def test_slow_environments_get_a_longer_timeout():
    """The limit of a stopping run is ten seconds from the request, twice the slowest answer, or its
    timeout."""
    now = [100.0]
    limits = Limits(120.0, now=lambda: now[0])
    assert limits.over(0.0, False) is None
    assert limits.over(0.0, True) is None  # asked long ago, but the run is to stop only since now
    now[0] = 111.0
    assert (
        limits.over(0.0, True) == 10.0 and limits.over(0.0, True, 6.0) is None
        and limits.over(105.0, True) is None
    )
    now[0] = 121.0
    assert limits.over(0.0, False) == 120.0 and limits.over(0.0, True, 6.0) == 12.0
    now[0] = 300.0
    assert limits.over(0.0, True, 90.0) == 120.0


def test_a_fault_names_the_environment_among_all(ppo):
    """The second one of the second group."""
    env, run, agent = ppo
    actors = Actors(run, env, jax.random.key(0), warmup=0, groups=2)
    groups = []
    actors.open_groups(groups, 0, Watch("Env", 60.0))
    for group in groups:
        group.begin(actors.root, 0)
        group.act(agent, 0, "sample")
        group.send()
    receive = groups[1].vector.receive
    groups[1].vector.receive = lambda: receive()._replace(reward=np.float32([1, np.nan]))
    with pytest.raises(HostError, match="rewards that are not finite as float32, in environment 3"):
        groups[1].receive([], [])
    for group in groups:
        group.close()


@pytest.mark.parametrize(("began", "tries"), [(True, 3), (False, 1)])
def test_a_dying_replacement_on_ray_is_replaced(ppo, began, tries):
    """Restarts replace it; a place whose first process never began ends the run with its reason."""
    env, run, _ = ppo
    asked = []

    class Dies(RayActors):
        def open(self, i, t):
            pass

        def leave(self, i):
            pass

        def ask(self, i, t, agent):
            return "anew"

        def wait(self, i, asked_for, stopping):
            asked.append(asked_for)
            raise HostError("died")

    actors = Dies(run, env, jax.random.key(0), 0, restarts=2)
    actors.first, actors.asked, actors.agents = 0, 1, {0: None}
    actors.workers, actors.answers, actors.answered, actors.began = (
        [None], [{0: "first"}], [False], [began])
    with pytest.raises(HostError, match="died"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actors.take(0)
    assert asked == ["first", "anew", "anew"][:tries]


class Failing(Wrapped):
    def receive(self):
        raise HostError("the referee left")


def failing(times):
    """An environment whose first evaluations, so many of them, fail."""
    left = [times]

    def around(vector, training):
        left[0] -= not training
        return vector if training or left[0] < 0 else Failing(vector)

    jf.register(f"test/failing-{times}", lambda: Around(inner=jf.make(NAME), around=around))
    return jf.make(f"test/failing-{times}")


@pytest.mark.parametrize("eval_every", [0, 64])
def test_a_failed_evaluation_costs_no_training(eval_every, tmp_path):
    """The training until then is logged and saved, and the run continues from there."""
    where = rf"in an evaluation \(at {eval_every or 128} environment steps\)"
    with pytest.raises(HostError, match=rf"the referee left, {where}; "
                       r"the last good checkpoint is .*train --resume"):
        train(jf.PPO(**PPO), tmp_path / "run", failing(1), total_steps=128, eval_every=eval_every)
    rows = tools.logged(tmp_path / "run")
    assert rows[-1]["env_steps"] == (eval_every or 128) and rows[-1].get("eval_return") is None
    session = tools.resume(tmp_path / "run")
    found = tools.logged(tmp_path / "run")
    assert tools.but_ends(found[: len(rows)], 128) == tools.but_ends(rows, 128)
    assert session.env_steps == 128 and found[-1]["eval_return"] == session.eval_return.tolist()
    assert 30 < session.eval_return[0] < 200


def test_a_failed_evaluation_is_repeated():
    with pytest.warns(UserWarning, match="the referee left; evaluated again") as caught:
        session = train(jf.PPO(**PPO), None, failing(2), total_steps=64, restarts=2)
    assert 30 < session.eval_return[0] < 200
    assert sum("evaluated again" in str(w.message) for w in caught) == 2
    with pytest.raises(HostError, match="the referee left"):
        train(jf.PPO(**PPO), None, failing(3), total_steps=64, restarts=1)


@pytest.fixture(scope="module")
def unbroken():
    """{iterations: the state after so many}, of a run with DQN of 80, in rows of one."""
    sessions = {}

    def get(iterations):
        if iterations not in sessions:
            settings = dict(horizon=640, log_every=8, ahead=0, eval_episodes=1)
            sessions[iterations] = train(jf.DQN(**DQN), total_steps=8 * iterations,
                                         **settings).state
        return sessions[iterations]

    return get


def check_saved(run, iterations, unbroken):
    """The last checkpoint holds what such a run had learned and seen after these iterations, bit
    for bit."""
    held = experience(run)
    assert held.w == iterations
    if iterations > 8:  # the unbroken run has to learn
        tools.assert_same(jf.load(run, "last").state, unbroken(iterations).agent)
        tools.assert_same(held.store, unbroken(iterations).memory)


@pytest.mark.parametrize(("at", "iterations"), family(
    [pytest.param(52, 25, id="row"), pytest.param(9, 4, id="warm-up")], 1))
def test_a_fault_in_training_costs_nothing(at, iterations, unbroken, tmp_path):
    """Every iteration until then is saved, although no checkpoint was due; the row that it broke
    goes on where it was."""
    env = jf.make(NAME, fault="raises", at=at)
    with pytest.raises(HostError,
                       match=r"the motor burnt out \(at \d+ environment steps\); "
                       r"the last good checkpoint is .*train --resume"):
        train(jf.DQN(**DQN), tmp_path / "run", env, total_steps=640, ahead=0)
    rows = tools.logged(tmp_path / "run") if iterations > 8 else []
    assert len(rows) == iterations // 8
    check_saved(tmp_path / "run", iterations, unbroken)
    # it fails again as many steps later
    with pytest.raises(HostError, match="the motor burnt out"):
        tools.resume(tmp_path / "run")
    assert experience(tmp_path / "run").w == 2 * iterations
    with pytest.warns(UserWarning, match="restarted, 1 of 20"):
        session = tools.resume(tmp_path / "run", restarts=20, host_timeout=50.0)
    found = tools.logged(tmp_path / "run")
    assert found[: len(rows)] == rows and [row["env_steps"] for row in found] == [
        64 * (i + 1) for i in range(len(found))]
    assert (
        session.env_steps == 640 and session.config.restarts == 20
        and session.config.host_timeout == 50.0
    )


def test_a_signal_before_the_first_iteration(tmp_path):
    """The actors saw nothing, so nothing counts as experience."""

    class Stopped(Actors):
        def start(self, t, agent):
            signal.raise_signal(signal.SIGTERM)
            super().start(t, agent)

    with pytest.raises(Interrupted, match="SIGTERM at 0 environment steps"):
        train(jf.DQN(**DQN), tmp_path / "run", total_steps=640, dependencies=with_actors(Stopped))
    assert experience(tmp_path / "run").w == 0


@pytest.mark.matrix("test_a_signal_does_not_wait_for_the_row")
def test_a_signal_while_the_queue_is_full(tmp_path):
    """The rollouts ahead are dropped with their environments; the learner's state is whole, and the
    run continues."""
    waiting = []

    class Full(Actors):
        def take(self, t, stopping):
            if t == 20:
                played = lambda: sum(answer.done() for answer in self.answers[0].values())
                while played() < 2:  # this one, and the one ahead
                    time.sleep(0.01)
                time.sleep(0.2)
                waiting.append(played())
                signal.raise_signal(signal.SIGINT)
            return super().take(t, stopping)

    with pytest.raises(Interrupted, match="SIGINT at 168 environment steps"):
        train(jf.DQN(**DQN | {"buffer_size": 1024}), tmp_path / "run", total_steps=640, ahead=1,
              dependencies=with_actors(Full))
    assert waiting == [2] and not any(thread.name == "actors" for thread in threading.enumerate())
    before = experience(tmp_path / "run")
    assert before.w == 21
    assert tools.resume(tmp_path / "run").env_steps == 640
    after = experience(tmp_path / "run")
    # the last row is sealed
    rows = [tree.take(x.rows._replace(next_obs=()), slice(0, 2 * 21 - 1)) for x in (after, before)]
    tools.assert_same(*rows)


@pytest.mark.parametrize("iterations", family(
    [pytest.param(21, id="row"), pytest.param(3, id="warm-up")], 1))
def test_a_signal_does_not_wait_for_the_row(iterations, unbroken, tmp_path):
    """The iteration ends, what is done is saved, and the row goes on after it: its returns count
    once."""
    sent = []

    class Signals(Wrapped):
        def send(self, action):
            sent.append(action)
            if len(sent) == 2 * iterations - 1:  # the first of this iteration's two steps
                signal.raise_signal(signal.SIGTERM)
            super().send(action)

    around = lambda vector, training: Signals(vector) if training else vector
    jf.register("test/signals", lambda: Around(inner=jf.make(NAME), around=around))
    with pytest.raises(Interrupted, match=f"SIGTERM at {8 * iterations} environment steps"):
        train(jf.DQN(**DQN), tmp_path / "run", jf.make("test/signals"), total_steps=640, ahead=0)
    check_saved(tmp_path / "run", iterations, unbroken)
    tools.resume(tmp_path / "run", 256)
    found = tools.logged(tmp_path / "run")
    assert [row["env_steps"] for row in found] == [64, 128, 192, 256]
    row, lengths = iterations // 8, lambda first, last: [
        to[1] for _, to, *_, a, b in counters.expected(last)[first:] if a or b]
    # before it, and anew
    ended = lengths(16 * row, 2 * iterations) + lengths(0, 16 * (row + 1) - 2 * iterations)
    assert (
        found[row]["episode_length"] == [pytest.approx(np.mean(ended))]
        and found[row]["policy_lag"] == [0.0]
    )


@pytest.mark.parametrize("settings", family([
    {"prioritized": True, "n_step": 2, "num_steps": 4}, {"n_step": 3},
    {"prioritized": True, "n_step": 3},
], 2), ids=str)  # fmt: skip
def test_no_window_crosses_a_seam(settings):
    """Every memory of the family, with stacks: rows say (episode, step), and every window has one
    life."""
    algo = jf.DQN(**DQN | settings | {"batch_size": 32}).bind(
        dataclasses.replace(jf.make(NAME).spec, stack=2))
    memory, t = algo.memory(), algo.num_steps
    rows = jax.jit(lambda i, life: Row(
        jnp.stack([jnp.full((t, 4), life, jnp.float32), jnp.broadcast_to(
            i * t + jnp.arange(t, dtype=jnp.float32)[:, None], (t, 4))], -1),
        jnp.zeros((t, 4), jnp.int32), jnp.full((t, 4), life, jnp.float32), jnp.zeros((t, 4), bool),
        jnp.zeros((t, 4), bool),
    ))  # fmt: skip
    mem = memory.init(jax.eval_shape(lambda: rows(0, 0.0)))
    clock = Clock(jnp.int32(0), jnp.int32(0), jnp.float32(0))
    add, seam = jax.jit(memory.add), jax.jit(memory.seam)

    @jax.jit
    def draw(mem, seed, w):
        plan = memory.plan(jax.random.key(seed), 1, w, clock)
        return memory.fetch(mem, jax.tree.map(lambda x: x[0], plan))[0]

    blocks = memory.num_blocks + 3  # once around
    seen = set()
    for w in range(blocks):
        if w in (5, blocks - 3):
            mem = seam(mem, w)
        mem = add(mem, rows(w, float((w >= 5) + (w >= blocks - 3))), w)
        if w < 3:
            continue
        window = draw(mem, w, w + 1)
        life, at, use = (
            np.asarray(window.obs)[:, 2], np.asarray(window.obs)[:, 3], np.asarray(window.use))
        good = np.asarray(window.weight) > 0
        # rewards of its own life
        assert (np.where(use, np.asarray(window.reward) == life, True).all(0) | ~good).all()
        # and a successor of it, `steps` on
        assert (np.asarray(window.boot_obs)[good, 2] == life[good]).all()
        assert (
            np.asarray(window.boot_obs)[good, 3] == at[good] + np.asarray(window.steps)[good]).all()
        seen |= set(life[good].tolist())
    assert seen == {0.0, 1.0, 2.0}


def test_a_trained_agent_plays_on_the_host(tmp_path):
    session = train(jf.PPO(**PPO), tmp_path / "run", total_steps=64)
    agent = jf.load(tmp_path / "run")
    found = agent.evaluate(episodes=6)
    assert (
        found.ret.shape == (6,) and found.finished.all() and (found.length >= 2).all()
        and (found.length <= 4).all()
    )
    np.testing.assert_array_equal(found.ret, agent.evaluate(episodes=6).ret)
    assert agent.act(np.zeros(2, np.float32)).shape == () and session.eval_return.shape == (1,)
    agent.env, agent.config = jf.make(NAME, fault="hangs", at=1), dataclasses.replace(
        agent.config, host_timeout=0.5)
    with pytest.raises(HostError, match=r"has not answered for 0.5 s"):
        agent.evaluate(episodes=6)
    with pytest.raises(HostError, match=r"has not answered for 0.5 s"):  # nor pictures
        play.frames(agent.env, agent.algo, agent.state, jax.random.key(0), 5, patience=0.5)
    agent.env = jf.make(NAME)
    cut = agent.env.spec.max_episode_steps is None
    ret, length, finished = play.evaluate(agent.env, agent.algo, agent.state, jax.random.key(0), 6,
                                          "greedy", max_steps=1)
    assert cut and (length == 1).all() and len(ret) == 6 and not finished.any()


def test_a_non_finite_loss_stops_the_run():
    with pytest.raises(NonFiniteError):
        train(jf.PPO(**PPO | {"learning_rate": 1e38}))
