"""Environments that are acted for as they come: their rollouts are whole, whoever is ahead of
whom."""

from __future__ import annotations

import dataclasses
import time
import weakref

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import counters
from helpers import runs as tools
from helpers.around import with_actors
from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.groups import rollout as rollout_of
from jaxrl_fast.actors.groups_async import open_group
from jaxrl_fast.actors.threads import Actors
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.grid import AHEAD
from jaxrl_fast.engine.members import build_run
from jaxrl_fast.envs.host.api import HostEnv, HostError
from jaxrl_fast.envs.host.vector import HostStep, Vector
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.walltime import WallTime
from jaxrl_fast.ops import stacking
from jaxrl_fast.runs.load import experience
from jaxrl_fast.runs.train import start

counters.register()


class Anyhow(Vector):
    """Single environments that step in any order: each is `pace` times as likely to come as the one
    before it; with 0 the first one never does."""

    def __init__(self, singles: list[Vector], turn: int, seed: int, pace: float):
        self.singles, self.num_envs, self.at_once = singles, len(singles), turn
        self.rng, self.action = np.random.default_rng(seed), {}
        self.weight = np.r_[pace > 0, (pace or 1.0) ** np.arange(1, len(singles))]

    def reset(self):
        return np.concatenate([one.reset() for one in self.singles])

    def send(self, action, ids):
        assert len(ids) == len(action) and not set(ids) & set(self.action)
        self.action |= dict(zip(ids.tolist(), action, strict=True))

    def receive(self):
        there = np.array(sorted(i for i in self.action if self.weight[i]))
        if len(self.action) == self.at_once and not self.weight.all():  # it waits for all of them
            time.sleep(2.0)
        # fewer, where some must be reset
        size = min(len(there), self.rng.integers(1, self.at_once + 1))
        ids = self.rng.choice(there, size, replace=False,
                              p=self.weight[there] / self.weight[there].sum())
        steps = []
        for i in ids:
            self.singles[i].send(self.action.pop(i)[None])
            steps.append(self.singles[i].receive())
        names = set(HostStep._fields) - {"real", "ids", "info"}
        whole = {name: np.concatenate([getattr(s, name) for s in steps]) for name in names}
        if all(s.next_obs is s.obs for s in steps):
            whole["next_obs"] = whole["obs"]
        return HostStep(**whole, ids=ids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyhowEnv(HostEnv):
    batch_size: int = 2
    pace: float = 1.0

    def at_once(self, num_envs):
        return None if self.batch_size == num_envs else self.batch_size

    def _spec(self):
        return jf.make(f"gym:{counters.ID}").spec

    def _open(self, num_envs, seed, training, render):
        inner = jf.make(f"gym:{counters.ID}")
        if not training:
            return inner.open(num_envs, seed, training, render)
        return Anyhow([inner.open(1, seed + i) for i in range(num_envs)], self.batch_size, seed,
                      self.pace)


def run_of(algo, env):
    run = tree.as_float32(build_run(algo, env, RunConfig(total_steps=1024)))
    return run, jax.jit(run.algo.init)(jax.random.key(1))


def policy(algo, agent, seen):
    """The policy's distributions at the observations of these rows [T, B]."""
    acting, noise = algo.acting(agent), algo.draw(jax.random.key(0), *seen.shape[:2])
    act = lambda obs, noise: algo.act(acting, (), obs, noise, play.start_clock(), "sample")[2][0]
    return jax.vmap(act)(seen, noise)


@pytest.mark.parametrize(("num_steps", "pace"), family(
    [(8, 1.0), (1, 1.0), (8, 1.8)], lambda num_steps, pace: num_steps > 1))
def test_rollouts_are_whole(num_steps, pace):
    """Every row of every environment, in its order, with what was seen and done in it; and what
    games came to."""
    env = AnyhowEnv(stack=2, pace=pace)
    algo = jf.PPO(num_envs=6, num_steps=num_steps, num_epochs=1, num_minibatches=2, hidden=(4,))
    run, agent = run_of(algo, env)
    actors = Actors(run, env, jax.random.key(0), warmup=0)
    actors.start(0, agent)
    count = 40 // num_steps
    expected, returns, actions = counters.expected(count * num_steps + 1), [], []
    for t in range(count):
        found = actors.take(t)
        (part,) = found.parts
        steps = jax.tree.map(np.asarray, part.steps)
        rows = expected[num_steps * t : num_steps * (t + 1) + 1]
        for i, (at, to, reward, terminated, truncated) in enumerate(rows[:-1]):
            assert (steps.obs[i] == at).all() and (steps.next_obs[i] == to).all()
            assert (steps.reward[i] == reward + steps.action[i] + 1).all()
            assert (steps.terminated[i] == terminated).all() and (
                steps.truncated[i] == truncated).all()
        assert (np.asarray(part.last_obs)[:, 2:] == rows[-1][0]).all()
        tools.assert_close(part.steps.extras[0],
                           policy(run.algo, agent, stacking.observations(part, 2)))
        returns += found.returns
        actions.append(steps.action)
        actors.give(t + 1, agent)
    actors.stop()
    done = np.array([terminated or truncated for *_, terminated, truncated in expected[:-1]])
    ends = np.flatnonzero(done)
    reward = np.array([row[2] for row in expected[:-1]])[:, None] + np.concatenate(actions) + 1
    wanted = [part.sum(0) for part in np.split(reward, ends + 1)[:-1]]
    extra = len(returns) - 6 * len(ends)  # of those that are ahead
    assert 0 <= extra <= 6 * (1 + 40 // 2)
    missing = sorted(np.concatenate(wanted).tolist())
    for x in returns:
        if x in missing:
            missing.remove(x)
    assert not missing and len({a.tobytes() for a in np.concatenate(actions).T}) > 1


@pytest.mark.parametrize("num_steps", family([1, 8], 1))
def test_no_environment_gets_far_ahead(num_steps):
    """A long run whose environments are each 1.8 times as fast as the one before; the slowest never
    waits."""
    env = AnyhowEnv(pace=1.8)
    run, agent = run_of(jf.IMPALA(num_envs=6, num_steps=num_steps, hidden=(4,)), env)
    group = open_group(env, run, Watch("Env", 60.0), 6, 0, 0, 0)
    spread, lag = [], []
    for t in range(400 // num_steps):
        played = group.play(jax.random.key(0), agent, t, "sample", WallTime("waiting"))
        spread.append(group.done.max() - group.done.min())
        lag.append(played.lag)
    group.close()
    assert AHEAD <= max(spread) <= AHEAD + 1 and group.rows >= num_steps + 2 * AHEAD
    assert (
        lag[0] == 0.0
        and AHEAD / 4 / num_steps < np.mean(lag[len(lag) // 2 :]) < (AHEAD + 2) / num_steps
    )


@pytest.mark.matrix("tests/actors/test_actors.py::test_hanging_processes_are_killed")
def test_a_hanging_environment_times_out():
    """The others wait for it in the end, so that it does not answer is seen."""
    env = AnyhowEnv(pace=0.0)
    run, agent = run_of(
        jf.PPO(num_envs=6, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(4,)), env)
    actors = Actors(run, env, jax.random.key(0), warmup=0, patience=1.0)
    actors.start(0, agent)
    with pytest.raises(HostError, match="has not answered for 1 s"):
        actors.take(0)
    actors.stop()


def test_carries_stay_with_their_environment():
    env = AnyhowEnv(pace=1.8)
    run, agent = (
        run_of(jf.ApeX(
            num_envs=6, num_steps=4, batch_size=8, buffer_size=240, learning_starts=60, hidden=(4,)
        ), env)
    )
    group = open_group(env, run, Watch("Env", 60.0), 6, 0, 0, 0)
    for t in range(20):
        (part,) = group.play(jax.random.key(0), agent, t, "sample", WallTime("waiting")).parts
        # their places among the actors
        np.testing.assert_allclose(part.first_carry.place, np.linspace(0, 1, 6), rtol=1e-6)
    group.close()


DQN = dict(num_envs=6, num_steps=2, batch_size=8, buffer_size=240, learning_starts=60, hidden=(4,),
           n_step=2)


@pytest.mark.matrix("test_rollouts_are_whole")
@pytest.mark.parametrize("algo", family([
    jf.DQN(**DQN, noisy=True), jf.ApeX(
        num_envs=6, num_steps=4, batch_size=8, buffer_size=240, learning_starts=60, hidden=(4,)),
    pytest.param(jf.IMPALA(num_envs=6, num_steps=8, hidden=(4,)), marks=pytest.mark.slow),
], lambda algo: algo.name == "apex"), ids=["noisy", "apex", "impala"])  # fmt: skip
def test_every_kind_of_learner(algo, tmp_path):
    result = tools.train(algo, tmp_path, AnyhowEnv(), total_steps=480, eval_every=0,
                         eval_episodes=2)
    assert 30 < result.eval_return[0] < 200
    rows = tools.logged(tmp_path)
    assert rows[-1]["env_steps"] >= 480 and rows[-1]["episode_return"][0] > 30
    if isinstance(algo, jf.IMPALA):  # one rollout behind, and of the next one what those ahead have
        assert 1.0 < rows[-1]["policy_lag"][0] < 1.0 + (AHEAD + 2) / 8
        return
    found = experience(tmp_path).rows
    obs, reward, action = (np.asarray(x) for x in (found.obs, found.reward, found.action))
    # no row twice: a step later, or in a new episode
    assert (obs[1:, :, 1] != obs[:-1, :, 1]).all()
    assert (reward == 10 * (obs[..., 1] + 1) + action + 1).all()


@pytest.mark.parametrize(("settings", "argument"), [
    ({"actors": 2}, "actors must be 1 with env.batch_size, got 2"),
    ({"batch_size": 6, "actors": 2}, "actors must be 1 with env.batch_size, got 2"),
    ({"batch_size": 6, "actors": 2, "actors_on": "ray"},
     "env.batch_size must be a divisor of the 3 environments .*got 6"),
    ({"batch_size": 4}, "env.batch_size must be a divisor of num_envs = 6 .*got 4"),
    ({"batch_size": 3, "actors": 2, "actors_on": "ray"},
        "env.batch_size must be a divisor of the 3 environments of .* and less.*got 3"),
    ({"batch_size": 3, "actors": 4, "actors_on": "ray", "num_envs": 14},
        "env.batch_size must be a divisor of the 4 env.*got 3"),
])  # fmt: skip
def test_misfits_are_refused(settings, argument, modules):
    modules(ray="ray")  # which is not needed to say so
    settings = dict(settings)
    env, num_envs = AnyhowEnv(batch_size=settings.pop("batch_size", 2)), settings.pop("num_envs", 6)
    with pytest.raises(ConfigError, match=argument):
        tools.train(jf.DQN(**DQN | {"num_envs": num_envs}), None, env, total_steps=240, **settings)


def test_on_policy_algorithms_refuse_rows_of_older_agents():
    with pytest.raises(ConfigError,
                       match="env.batch_size must be 0, got 2: a2c learns from its own rollouts"):
        tools.train(jf.A2C(num_envs=6, num_steps=8, hidden=(4,)), None, AnyhowEnv(),
                    total_steps=240)


@pytest.mark.matrix("test_the_memory_plan_counts_actors")
@pytest.mark.parametrize("ahead", family([0, 2], [2]))
def test_the_number_of_agents_alive_is_planned(ahead):
    """The plan's ahead + 3 beside the one of the state, while a row of 16 iterations is learned."""
    agents, most = [], []

    class Counted(Actors):
        def give(self, t, agent):
            agents.append(weakref.ref(jax.tree.leaves(agent.params)[0]))
            most.append(sum(ref() is not None for ref in agents))
            super().give(t, agent)

    algo = jf.DQN(num_envs=6, num_steps=2, batch_size=8, buffer_size=512, learning_starts=48,
                  hidden=(4,))
    start(algo, jf.make(f"gym:{counters.ID}"), 600, ahead=ahead, log_every=192, eval_every=0,
          eval_episodes=1, dependencies=with_actors(Counted))
    assert max(most) == ahead + 4


@pytest.mark.parametrize(
    ("in_turns", "settings", "ahead"),
    family([(False, {}, 1), (True, {"ahead": 3}, 3), (False, {"ahead": 0}, 0), (True, {}, 1)], 2)
)
def test_the_memory_plan_counts_actors(in_turns, settings, ahead):
    """Rollouts finished and played, their agents, and the ring: as large as what a group really
    makes."""
    env = AnyhowEnv() if in_turns else jf.make(f"gym:{counters.ID}")
    algo = jf.DQN(num_envs=6, num_steps=8, batch_size=8, buffer_size=512, learning_starts=48,
                  hidden=(64,))
    plan = jf.plan(algo, env, total_steps=1024, **settings)
    run = plan.run
    agent = jax.jit(run.algo.init)(jax.random.key(1))
    group = open_group(env, run, Watch("test", 20.0), 6, 0, 0, 0)
    rollout = rollout_of([group], jax.random.key(0), agent, 0, 6, WallTime("waiting"))
    group.vector.close()
    found = (ahead + 1) * tree.nbytes(rollout.parts) + (ahead + 3) * tree.nbytes(agent)
    found += tree.nbytes(group.ring if in_turns else ())
    assert abs(plan.work["actors"] - found) <= 0.1 * found
    assert ("rollouts and agents of actors", plan.work["actors"], 1) in plan.resident()
    assert jf.plan(algo, jf.make("CartPole-v1"), 1024).work["actors"] == 0
