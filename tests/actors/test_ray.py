"""Actors of Ray: what those in a thread of this process do, each in a process of its own that may
die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast import tree
from jaxrl_fast.actors.threads import Actors
from jaxrl_fast.actors.watch import Limits
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.members import build_run
from jaxrl_fast.envs.host.api import HostError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
NAME = "gym:CartPole-v1"
DQN = dict(num_envs=4, num_steps=2, batch_size=8, buffer_size=256, learning_starts=64, hidden=(4,),
           n_step=2)


FAULTY = """
import os, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Faulty(CartPoleEnv):
    def __init__(self, folder="", **settings):
        self.folder = folder
        if os.path.exists(folder + "/refuse"):
            raise RuntimeError("no licence for this simulator")
        super().__init__(**settings)

    def step(self, action):
        if os.path.exists(self.folder + "/hang"):
            time.sleep(600)
        return super().step(action)


gymnasium.register("Faulty-v0", Faulty, max_episode_steps=500)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder on the path of every process, with `faulty.py`; its environments read their fault
    here."""
    here = tmp_path_factory.mktemp("faulty")
    (here / "faulty.py").write_text(FAULTY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(here))
        yield here


@pytest.fixture(scope="module")
def cluster(folder):
    import ray

    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False,
             runtime_env={"env_vars": {"PYTHONPATH": path}})
    yield ray
    ray.shutdown()


def played(kind, groups, agents, ahead):
    env = jf.make(NAME)
    run = tree.as_float32(build_run(jf.DQN(**DQN), env, RunConfig(total_steps=1024)))
    actors = kind(run, env, jax.random.key(3), 2, groups, ahead)
    actors.start(0, agents[0])
    found = []
    for t in range(6):
        found.append(actors.take(t))
        actors.give(t + 1, agents[min(t + 1, len(agents) - 1)])
    actors.stop()
    return found


@pytest.mark.parametrize("ahead", [0, 1])
def test_ray_rollouts_equal_rollouts_of_threads(cluster, ahead):
    """Noise, seeds, places and agents of each part are the same: every number of every rollout."""
    from jaxrl_fast.actors.ray import RayActors

    algo = jf.DQN(**DQN).bind(jf.make(NAME).spec)
    agents = [jax.jit(algo.init)(jax.random.key(i)) for i in range(3)]
    ours, theirs = (played(kind, 3, agents, ahead) for kind in (Actors, RayActors))
    for a, b in zip(ours, theirs, strict=True):
        assert len(b.parts) == 3 and a.fresh == b.fresh
        assert sorted(a.returns) == sorted(b.returns) and sorted(a.lengths) == sorted(b.lengths)
        tools.assert_same(a.parts, b.parts)
        assert set(b.seconds) == {"environments", "transfer", "inference", "waiting"}


def test_a_run_is_repeatable_and_learns_from_all(cluster, tmp_path):
    settings = dict(total_steps=512, eval_every=0, eval_episodes=2, actors=2, actors_on="ray")
    first, second = (tools.train(jf.ApeX(**DQN | {"n_step": 3}), None, jf.make(NAME), **settings)
                     for _ in range(2))
    tools.assert_same(first.state, second.state)
    assert first.eval_return == second.eval_return


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_killed_actor_is_replaced(cluster, restarts):
    """A dead actor restarts alone and repeats its rollouts; without restarts the run reports its
    death."""
    from jaxrl_fast.actors.ray import RayActors

    env = jf.make(NAME)
    run = tree.as_float32(build_run(jf.DQN(**DQN), env, RunConfig(total_steps=1024)))
    agent = jax.jit(run.algo.init)(jax.random.key(0))
    actors = RayActors(run, env, jax.random.key(3), 0, 2, 1, restarts=restarts)
    actors.start(0, agent)
    assert actors.take(0).fresh
    actors.give(1, agent)
    actors.take(1)
    pid = cluster.get(actors.workers[0].pid.remote())
    os.kill(pid, signal.SIGKILL)
    actors.give(2, agent)
    if not restarts:
        with pytest.raises(HostError, match="actor 0 of CartPole-v1 died"):
            for t in (2, 3, 4):
                actors.take(t)
                actors.give(t + 1, agent)
        return actors.stop()
    with pytest.warns(UserWarning, match="restarted, 1 of 2"):
        found = []
        for t in (2, 3, 4, 5):
            found.append(actors.take(t))
            actors.give(t + 1, agent)
    assert [r.fresh for r in found].count(True) == 1 and actors.failures == 1
    assert all(np.isfinite(np.asarray(part.steps.obs)).all() for r in found for part in r.parts)
    actors.stop()


def faulty(folder, **settings):
    from jaxrl_fast.actors.ray import RayActors

    env = jf.make("gym:faulty:Faulty-v0", folder=str(folder))
    run = tree.as_float32(build_run(jf.DQN(**DQN), env, RunConfig(total_steps=1024)))
    return (
        RayActors(run, env, jax.random.key(3), 0, 2, 1, **settings),
        jax.jit(run.algo.init)(jax.random.key(0))
    )


def test_environments_that_fail_to_open_are_not_retried(cluster, folder):
    actors, agent = faulty(folder, restarts=5)
    (folder / "refuse").touch()
    try:
        actors.start(0, agent)
        with pytest.raises(HostError, match="no licence for this simulator"):
            actors.take(0)
        assert actors.failures == 1
    finally:
        (folder / "refuse").unlink()
        actors.stop()


@contextlib.contextmanager
def hanging(folder, **settings):
    """Actors whose environments hang from the second rollout on; what it gives takes rollouts until
    that shows."""
    actors, agent = faulty(folder, **settings)
    actors.start(0, agent)
    actors.take(0)
    (folder / "hang").touch()

    def go_on(*stopping):
        for t in (1, 2, 3):  # what was asked for before may be there
            actors.take(t, *stopping)
            actors.give(t + 1, agent)

    try:
        actors.give(1, agent)
        yield go_on
    finally:
        (folder / "hang").unlink()
        actors.stop()


@pytest.mark.parametrize("restarts", [0, 1])
def test_hanging_environments_on_ray(cluster, folder, restarts):
    with hanging(folder, patience=3.0, restarts=restarts) as go_on:
        began = time.monotonic()
        if not restarts:
            with pytest.raises(HostError,
                               match=r"has not answered actor \d for 3 s \(host_timeout\)"):
                go_on()
            assert time.monotonic() - began < 60
            return
        again = pytest.raises(HostError, match="host_timeout")  # it hangs again
        with pytest.warns(UserWarning, match="restarted, 1 of 1"), again:
            go_on()


def test_a_stopping_run_waits_briefly(cluster, folder, monkeypatch):
    monkeypatch.setattr(Limits, "hurry", 1.0)
    with hanging(folder, patience=200.0, restarts=3) as go_on:
        began = time.monotonic()
        with pytest.raises(HostError, match=r"has not answered"):
            go_on(lambda: True)
        assert time.monotonic() - began < 60


def test_sigterm_saves_and_the_run_resumes(tmp_path):
    """The run starts a cluster of its own, which ends with the run."""
    line = [sys.executable, "-m", "jaxrl_fast", "train"]
    flags = ["dqn", NAME, "--actors-on", "ray", "--actors", "2", "--algo.num-envs", "4",
             "--algo.learning-starts", "64"]
    flags += ["--algo.hidden", "4", "--log-every", "64", "--eval-every", "0", "--eval-episodes",
              "2", "--no-tensorboard"]
    out = tmp_path / "run"
    line_of_run = [*line, *flags, "--total-steps", "1_000_000", "--out", str(out)]
    process = subprocess.Popen(line_of_run, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and (
        not (out / "metrics.jsonl").exists() or len(tools.logged(out)) < 4
    ):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    done = tools.logged(out)[-1]["env_steps"]
    again = [*line, "--resume", str(out), "--total-steps", str(done + 640), "--no-tensorboard"]
    assert subprocess.run(again, timeout=200, capture_output=True).returncode == 0
    assert tools.logged(out)[-1]["env_steps"] >= done + 640
