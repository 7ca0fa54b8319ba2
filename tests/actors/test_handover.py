"""The handover without environments: a rollout is asked for once its agent is there, and again if a
worker fails."""

from __future__ import annotations

import types

import jax
import pytest

from jaxrl_fast.actors.handover import Handover, Rollout
from jaxrl_fast.envs.host.api import HostError


class Notes(Handover):
    """Two workers that note what they are asked; those in `broken` fail once, when iteration t is
    waited for."""

    def __init__(self, broken=(), hopeless=False, **settings):
        run = types.SimpleNamespace(algo=types.SimpleNamespace(num_envs=3))
        super().__init__(run, None, jax.random.key(0), 1, groups=2, **settings)
        self.broken, self.hopeless, self.opened, self.left, self.calls = (
            set(broken), hopeless, [], [], [])

    def open(self, i, t):
        self.opened.append((i, t, self.place(i, t)[1]))

    def ask(self, i, t, agent):
        self.calls.append((i, t, agent))
        return i, t, agent

    def wait(self, i, asked, stopping):
        if asked[:2] in self.broken:
            self.broken.remove(asked[:2])
            raise HostError(f"worker {i} broke")
        return Rollout((asked,), [float(i)], [i], lag=float(i), seconds={"inference": 2.0 * i})

    def leave(self, i):
        self.left.append(i)

    def may_begin_anew(self, i):
        return not self.hopeless

    def stop(self):
        pass

    def lap(self):
        return {}


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_rollout_is_asked_for_once_its_agent_is_there(ahead):
    actors = Notes(ahead=ahead)
    actors.start(5, "a5")
    for t in range(5, 9):
        assert actors.calls[-1][1] == t + ahead  # nothing is asked for whose agent is to come
        found = actors.take(t)
        assert found.fresh == (t == 5)
        assert found.parts == tuple((i, t, f"a{max(t - ahead, 5)}") for i in range(2))
        assert (found.returns, found.lag, found.seconds) == ([0.0, 1.0], 1 / 3, {"inference": 1.0})
        actors.give(t + 1, f"a{t + 1}")
    assert len(actors.agents) == min(ahead + 2, 5)  # older ones are let go
    assert len(actors.calls) == len(set(actors.calls)) == 2 * (5 + ahead)


def test_a_failed_worker_plays_its_rollouts_again():
    actors = Notes(broken={(1, 2)}, ahead=1, restarts=1)
    actors.start(0, "a0")
    for t in range(2):
        actors.take(t)
        actors.give(t + 1, f"a{t + 1}")
    before = len(actors.calls)
    with pytest.warns(UserWarning, match="worker 1 broke; restarted, 1 of 1 times"):
        found = actors.take(2)
    assert found.fresh and found.parts == ((0, 2, "a1"), (1, 2, "a1"))
    assert actors.left == [1] and actors.calls[before:] == [(1, 2, "a1"), (1, 3, "a2")]
    # of the environments that began anew, another one
    assert len({seed for *_, seed in actors.opened}) == 3
    actors.broken = {(0, 3)}
    with pytest.raises(HostError, match="worker 0 broke"):
        actors.take(3)


@pytest.mark.parametrize(("stopping", "hopeless"), [(True, False), (False, True)])
def test_no_worker_begins_anew_in_vain(stopping, hopeless):
    actors = Notes(broken={(0, 0)}, hopeless=hopeless, restarts=5)
    actors.start(0, "a0")
    with pytest.raises(HostError, match="worker 0 broke"):
        actors.take(0, lambda: stopping)


def test_the_lag_counts_iterations_of_learning():
    """An agent of warm-up is as new as any: nothing is learned before."""
    actors = Notes(ahead=2)
    actors.start(0, "a0")
    whole, half = Rollout((), [], []), Rollout((), [], [], lag=0.5)
    assert [actors.lag(t, whole) for t in range(5)] == [0, 0, 1, 2, 2]
    assert [actors.lag(t, half) for t in range(5)] == [0, 0, 1, 2, 2.5]
