"""Every environment passes `check_env`; and for each property, an environment that breaks it does
not."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import ENVIRONMENTS, family
from jaxrl_fast import tree
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.api import Env
from jaxrl_fast.envs.single import SingleEnv
from jaxrl_fast.spaces import Box, Discrete
from jaxrl_fast.testing import check_env
from jaxrl_fast.types import EnvSpec, Lasting, Outcome

# one adapter brings all of gymnax's: a few of them here, one with continuous actions, the others
# with `-m slow`
SLOW = {
    "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar", "Asterix-MinAtar", "Pong-misc",
    "PointRobot-misc", "MemoryChain-bsuite", "Reacher-misc", "MetaMaze-misc", "GaussianBandit-misc",
    "BernoulliBandit-misc", "UmbrellaChain-bsuite", "SimpleBandit-bsuite",
    "DiscountingChain-bsuite",
}  # fmt: skip
SHORT = {
    "Freeway-MinAtar": 300,
    "Seaquest-MinAtar": 100,
    "Asterix-MinAtar": 300,
    "Pong-misc": 200,
    "MountainCarContinuous-v0": 300,
}  # limits that keep the test short
ENDS_AT_LIMIT = {"DeepSea-bsuite", "probe/reward-at-end", "probe/two-step-credit"}
NEVER_TERMINATES = {
    "Pendulum-v1", "Freeway-MinAtar", "DiscountingChain-bsuite", "PointRobot-misc",
    "BernoulliBandit-misc",
    "GaussianBandit-misc", "Reacher-misc", "Swimmer-misc", "probe/truncated-only",
    "probe/reward-at-cut",
}  # fmt: skip


# Physics takes minutes to compile: tests/envs/test_brax.py, test_playground.py.
NAMES = [n
         for n, listed in registry.list_environments().items() if listed.source not in (
             "brax", "playground", "user")]


@pytest.mark.parametrize("name", family(
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NAMES],
    ENVIRONMENTS[1:]))  # `Walk` below has CartPole's spaces
def test_registered_environment_conforms(name):
    settings = {"max_steps_in_episode": SHORT[name]} if name in SHORT else {}
    report = check_env(registry.make(name, **settings), num_envs=4,
                       ends_at_limit=name in ENDS_AT_LIMIT)
    assert report.terminated + report.truncated > 0
    if name in NEVER_TERMINATES:
        assert report.terminated == 0


CUT = ("Breakout-MinAtar", "Catch-bsuite", "FourRooms-misc", "MemoryChain-bsuite")


@pytest.mark.parametrize("name", family(
    [*CUT[:2], *(pytest.param(n, marks=pytest.mark.slow) for n in CUT[2:])], CUT[:1]))
def test_gymnax_time_limit_truncates(name):
    report = check_env(registry.make(name, max_steps_in_episode=4), num_envs=4)
    assert report.longest == 4 and report.truncated > 0


@pytest.mark.parametrize("name", family(
    ["Breakout-MinAtar", "Catch-bsuite", "DeepSea-bsuite", "Pong-misc"], 1))
def test_grids_can_be_drawn(name):
    env = registry.make(name)
    state, _ = env.init(jax.random.key(0), 1)
    picture = env.render(jax.tree.map(lambda x: np.asarray(x)[0], state))
    assert picture.dtype == np.uint8 and picture.ndim == 3 and len(
        np.unique(picture.reshape(-1, 3), axis=0)) > 2
    assert registry.make("Swimmer-misc").render(None) is None


@tree.settings
class Walk(Env):
    """A right environment: a random walk from a random start, terminates outside [-1, 1], truncates
    after 20 steps."""

    speed: float = 0.2
    limit: int = 20

    @property
    def spec(self):
        return EnvSpec("walk", Box(-2.0, 2.0, (1,)), Discrete(2), self.limit)

    def draw_reset(self, key, shape):
        return jax.random.uniform(key, (*shape, 1), minval=-0.5, maxval=0.5)

    def reset(self, noise):
        return (noise, jnp.zeros(noise.shape[:1], jnp.int32)), noise

    def transition(self, noise, state, action):
        x, time = state
        x, time = x + self.speed * (2.0 * action[:, None] - 1.0), time + 1
        terminated = jnp.abs(x[:, 0]) > 1.0
        return (x, time), Outcome(x, jnp.ones(time.shape), terminated,
                                  (time >= self.limit) & ~terminated)


@tree.settings
class SingleWalk(SingleEnv):
    """The same written for one episode."""

    @property
    def spec(self):
        return EnvSpec("walk", Box(-2.0, 2.0, (1,)), Discrete(2), 20)

    def reset_one(self, key):
        x = jax.random.uniform(key, (1,), minval=-0.5, maxval=0.5)
        return (x, jnp.int32(0)), x

    def step_one(self, key, state, action):
        x, time = state
        x, time = x + 0.2 * (2.0 * action - 1.0), time + 1
        return (x, time), x, jnp.float32(1.0), jnp.abs(x[0]) > 1.0, time >= 20


@pytest.mark.parametrize("env", family([SingleWalk(), Walk()], 1), ids=["single", "batched"])
def test_a_right_environment_passes(env):
    report = check_env(env)
    assert (
        report.random_resets and report.terminated > 0 and report.truncated > 0
        and report.longest == 20
    )


def changed(outcome, **fields):
    return outcome._replace(**fields)


class Broken(Walk):
    """`Walk` with something wrong: subclasses override one thing."""


def broken(cls):
    return tree.settings(cls)


@broken
class CachedReset(Broken):
    def init(self, key, num_envs, t=None):
        state, obs = super().init(key, num_envs, t)
        return (state, state, obs), obs

    def step(self, noise, state, action):
        state, *first = state
        state, outcome = self.transition(noise[0], state, action)
        done = outcome.terminated | outcome.truncated
        state, obs = tree.where(done, tuple(first), (state, outcome.next_obs))
        return (*tree.strong(((state, *first), obs)), outcome)


@broken
class SameStartEverywhere(Broken):
    def init(self, key, num_envs, t=None):
        state, obs = super().init(key, num_envs, t)
        return jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), (state, obs))


@broken
class LostTerminalObservation(Broken):
    def step(self, noise, state, action):
        state, obs, outcome = super().step(noise, state, action)
        return state, obs, changed(outcome, next_obs=obs)


@broken
class ResetsInTransition(Broken):
    def draw_step(self, key, num_steps, num_envs, t):
        return self.draw_reset(key, (num_steps, num_envs))

    def transition(self, noise, state, action):
        state, outcome = super().transition((), state, action)
        done = outcome.terminated | outcome.truncated
        state, obs = tree.where(done, self.reset(noise), (state, outcome.next_obs))
        return state, changed(outcome, next_obs=obs)


@broken
class ForgetsWhatLasts(Broken):
    """Counts steps for good, and yet its own `step` resets the whole state."""

    def reset(self, noise):
        state, obs = super().reset(noise)
        return (state, Lasting(jnp.zeros(len(obs)))), obs

    def transition(self, noise, state, action):
        state, count = state
        state, outcome = super().transition(noise, state, action)
        return (state, Lasting(count.value + 1)), outcome

    def step(self, noise, state, action):
        state, outcome = self.transition(noise[0], state, action)
        done = outcome.terminated | outcome.truncated
        return (*tree.strong(tree.where(done, self.reset(noise[1]), (state, outcome.next_obs))),
                outcome)


@broken
class NoReset(Broken):
    """Goes on after an end, from where it stood."""

    def step(self, noise, state, action):
        (x, time), outcome = self.transition(noise[0], state, action)
        done = outcome.terminated | outcome.truncated
        x = jnp.where(done[:, None], 0.9 * x, x)
        return (x, jnp.where(done, 0, time)), x, outcome


@broken
class BothFlags(Broken):
    def step(self, noise, state, action):
        state, obs, outcome = super().step(noise, state, action)
        return state, obs, changed(outcome, truncated=outcome.truncated | outcome.terminated)


@broken
class TimeLimitTerminates(Broken):
    speed: float = 0.001

    def transition(self, noise, state, action):
        state, outcome = super().transition(noise, state, action)
        return state, changed(outcome, terminated=outcome.truncated, truncated=outcome.terminated)


@broken
class IgnoresLimit(Broken):
    speed: float = 0.01

    def transition(self, noise, state, action):
        state, outcome = super().transition(noise, state, action)
        return state, changed(outcome, truncated=state[1] >= 25)


@broken
class OutOfBounds(Broken):
    @property
    def spec(self):
        return dataclasses.replace(super().spec, observation=Box(-0.5, 0.5, (1,)))


@broken
class NotFinite(Broken):
    def transition(self, noise, state, action):
        state, outcome = super().transition(noise, state, action)
        return state, changed(outcome,
                              reward=jnp.where(outcome.terminated, jnp.nan, outcome.reward))


@broken
class Discontinuous(Broken):
    def step(self, noise, state, action):
        state, obs, outcome = super().step(noise, state, action)
        return state, 0.99 * obs, outcome


@broken
class WeakState(Broken):
    def init(self, key, num_envs, t=None):
        (x, _), obs = super().init(key, num_envs, t)
        return (x, jnp.broadcast_to(jnp.asarray(0), (num_envs,))), obs


@broken
class IntegerReward(Broken):
    def step(self, noise, state, action):
        state, obs, outcome = super().step(noise, state, action)
        return state, obs, changed(outcome, reward=outcome.reward.astype(jnp.int32))


@broken
class FloatFlags(Broken):
    def transition(self, noise, state, action):
        state, outcome = super().transition(noise, state, action)
        return state, changed(outcome, truncated=outcome.truncated)._replace(
            terminated=outcome.terminated * 1.0 > 0.5)

    def step(self, noise, state, action):
        state, obs, outcome = super().step(noise, state, action)
        return state, obs, changed(outcome, terminated=outcome.terminated.astype(jnp.float32))


@broken
class WrongShape(Broken):
    @property
    def spec(self):
        return dataclasses.replace(super().spec, observation=Box(-2.0, 2.0, (3,)))


@broken
class WrongDtype(Broken):
    @property
    def spec(self):
        return dataclasses.replace(super().spec, observation=Box(-2, 2, (1,), jnp.int8))


@broken
class ChangingState(Broken):
    def step(self, noise, state, action):
        (x, time), obs, outcome = super().step(noise, state, action)
        return (x, time.astype(jnp.float32)), obs, outcome


@broken
class NumpyRandom(Broken):
    def transition(self, noise, state, action):
        x, time = state
        return super().transition(noise, (x + float(np.random.uniform(-0.01, 0.01)), time), action)


@broken
class CallsBack(Broken):
    def transition(self, noise, state, action):
        jax.debug.callback(lambda x: None, state[1])
        return super().transition(noise, state, action)


@broken
class SpecFromLeaf(Broken):
    @property
    def spec(self):
        return EnvSpec("walk", Box(-2.0, 2.0 + self.speed, (1,)), Discrete(2), self.limit)


@broken
class NoiseWithoutTime(Broken):
    def draw(self, key, num_steps, num_envs, t):
        return super().draw(key, 1, num_envs, t)


class NotAPytree(Walk):
    pass


# The check is that of another row, of another field.
SAME_CHECK = (FloatFlags, WrongDtype, CallsBack)


@pytest.mark.parametrize(
    ("cls", "message"),
    family([
        (CachedReset, "cached reset"),
        (SameStartEverywhere, "reset distribution"),
        (LostTerminalObservation, "terminal observation: in all"),
        (ResetsInTransition, "must not reset by itself"),
        (NoReset, "reset: after"),
        (ForgetsWhatLasts, "lasting: after all"),
        (BothFlags, "both set"),
        (TimeLimitTerminates, "Time limits truncate"),
        (IgnoresLimit, "continues past"),
        (OutOfBounds, "bounds"),
        (NotFinite, "finite"),
        (Discontinuous, "continuity"),
        (WeakState, "weak type"),
        (IntegerReward, "Outcome.reward: int32"),
        (FloatFlags, "Outcome.terminated: float32"),
        (WrongShape, r"walk: reset must be float32\[8, 3\].*got 'float32\[8, 1\]'"),
        (WrongDtype, r"walk: reset must be int8\[8, 1\].*got 'float32\[8, 1\]'"),
        (ChangingState, "state after a step"),
        (NumpyRandom, "purity: tracing the environment twice"),
        (CallsBack, "purity: "),
        (SpecFromLeaf, "depends on a traced leaf"),
        (NoiseWithoutTime, "first axis is time"),
        (NotAPytree, "pytree"),
    ], lambda cls, message: cls not in SAME_CHECK),
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_broken_environment_is_refused(cls, message):
    with pytest.raises(AssertionError, match=message):
        check_env(cls())


def test_other_objects_are_refused():
    with pytest.raises(AssertionError, match="not a jaxrl_fast Env"):
        check_env(object())
