"""Evolution strategies: perturbed copies of a policy play side by side and are compared.

Candidate c plays in environments c k .. c k + k - 1, k episodes each.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxrl_fast import random, tree
from jaxrl_fast.algorithms.base import action_mask
from jaxrl_fast.algorithms.common.action_bounds import SHIFT, warnings_of_bounds
from jaxrl_fast.algorithms.common.normalize import normalize_obs
from jaxrl_fast.algorithms.common.policy_search import PolicySearch
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.ops import distributions, sums
from jaxrl_fast.spaces import Box, Discrete, MultiDiscrete, zeros
from jaxrl_fast.types import Clock, Mean


class Agent(NamedTuple):
    params: Any  # {"torso", "head"}: center of the candidates; evaluations play it
    opt_state: Any
    moments: Any  # running observation statistics, () without normalisation
    candidates: Any = ()  # parameters [candidates, ...] while they play, else ()

    __repr__ = tree.summary


@tree.settings
class Evolution(PolicySearch):
    """Perturb the parameters in `directions` directions, play new episodes, step by the returns."""

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Box)

    directions: int = setting(32)
    """directions per iteration, each tried forward and backward"""
    episodes_per_candidate: int = setting(1)
    """episodes averaged for a candidate's return"""
    num_steps: int = setting(0, low=0)
    """steps of a candidate's episode; 0: the environment's limit"""
    noise_std: float = setting(0.05, low=0, open_low=True)
    """standard deviation of the perturbation of each parameter"""
    survival_bonus: float = setting(0.0)
    """subtracted from every reward when candidates are compared"""

    @property
    def num_envs(self) -> int:
        return 2 * self.directions * self.episodes_per_candidate

    def bind(self, spec):
        if self.num_steps:
            return super().bind(spec)
        if spec.max_episode_steps is None:
            raise ConfigError("num_steps", 0,
                              f"the steps of an episode: {spec.name} has no limit of its own")
        return type(self).bind(dataclasses.replace(self, num_steps=spec.max_episode_steps), spec)

    def setting_warnings(self):
        space = self.spec.action
        scaled = not isinstance(space, Box) or space.bounded
        # A linear candidate's output is a sum over the observation's entries, here around 1. The
        # preset networks of ES have a deviation of 0.10 at noise_std 0.05.
        entries = sum(x.size for x in jax.tree.leaves(zeros(self.spec.observation)))
        std = float(np.max(self.noise_std)) * (2.0 if self.hidden else math.sqrt(entries))
        return [] if scaled else warnings_of_bounds(self.spec, std, SHIFT)

    def init(self, key: jax.Array) -> Agent:
        return self.begin(*self.init_policy(key))

    def begin(self, params, moments=()):
        return Agent(params, self.init_optimizer(params), moments)

    def init_optimizer(self, params: Any) -> Any:
        return ()

    def act(self, agent, carry, obs, noise, clock, mode):
        """Act deterministically: candidates in their environments, or the center in any number."""
        space, mask = self.spec.action, action_mask(self.spec.observation, obs)
        if mode == "random":
            return carry, distributions.random_action(noise, space, mask), ()
        obs = normalize_obs(self.spec.observation, agent.moments, obs)
        if agent.candidates == ():
            out = self.outputs(agent.params, obs)
        else:
            own = jax.tree.map(lambda x: x.reshape(2 * self.directions, -1, *x.shape[1:]), obs)
            out = tree.merge_axes(jax.vmap(self.outputs)(agent.candidates, own))
        if not isinstance(space, Box):
            return carry, distributions.from_outputs(space, out, mask=mask).mode(), ()
        action = (space.from_unit(jnp.clip(out, -1.0, 1.0)) if space.bounded
                  else out.reshape(-1, *space.shape))
        return carry, action, ()

    def learn(self, agent, mem, iteration):
        start_key, noise_key = random.split(iteration.keys[0])
        middle, unravel = ravel_pytree(agent.params)
        noise = random.normal(noise_key, (self.directions, middle.size))
        tried = middle + self.noise_std * jnp.concatenate([noise, -noise])
        played = iteration.collect(agent._replace(candidates=jax.vmap(unravel)(tried)),
                                   iteration.begin(start_key))
        steps = played.trajectory.steps
        counts = first_episode(steps.done)
        reward = jnp.where(counts, steps.reward, 0.0)
        ret = jnp.sum(reward - self.survival_bonus * counts, axis=0)
        ret = jnp.mean(ret.reshape(2, self.directions, self.episodes_per_candidate), axis=-1)
        gradient = self.gradient(ret, noise)
        params, opt_state = self.ascend(agent, unravel(gradient), iteration.clock())
        played_return = jnp.mean(sums.pairwise(reward).reshape(-1, self.episodes_per_candidate),
                                 axis=-1)
        length = jnp.mean(jnp.sum(counts, axis=0, dtype=jnp.float32))
        mean, best = jnp.mean(played_return), jnp.max(played_return)
        metrics = {"candidate_return": mean, "best_candidate_return": best}
        metrics |= {"candidate_length": length, "grad_norm": jnp.linalg.norm(gradient)}
        agent = Agent(params, opt_state, agent.moments)
        agent = self.finish(agent, self.prepare(agent, played.trajectory))
        return agent, mem, {k: Mean.of(v) for k, v in metrics.items()}, played

    def gradient(self, ret: jax.Array, noise: jax.Array) -> jax.Array:
        """Return the ascent direction [D] for ret [2, directions] and noise [directions, D]."""
        raise NotImplementedError

    def ascend(self, agent: Agent, gradient: Any, clock: Clock) -> tuple[Any, Any]:
        """Take one ascent step -> (params, opt_state)."""
        raise NotImplementedError

    def prepare(self, agent, trajectory):
        return super().prepare(agent, trajectory)._replace(use=first_episode(trajectory.steps.done))


def first_episode(done: jax.Array) -> jax.Array:
    """Return bool [T, B]: True through the first episode end of each environment."""
    return jnp.cumsum(done, axis=0) - done == 0
