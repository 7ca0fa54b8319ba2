"""The shared part of PPO, A2C and IMPALA: settings, the agent, acting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.algorithms.base import IN_NETWORKS, IN_STEPS, Algorithm, action_mask, check_bounded
from jaxrl_fast.algorithms.common import descent, normalize
from jaxrl_fast.algorithms.common.action_bounds import warnings_of_bounds
from jaxrl_fast.algorithms.common.actor_critic import LOG_STD_MAX, LOG_STD_MIN, ActorCritic
from jaxrl_fast.algorithms.common.normalize import (
    Rewards,
    init_moments,
    normalize_obs,
    update_moments,
)
from jaxrl_fast.errors import ConfigError, check_not_zero
from jaxrl_fast.fields import WIDEST, setting
from jaxrl_fast.networks import as_network, make_torso
from jaxrl_fast.ops import distributions, optim, stacking
from jaxrl_fast.ops.optimizer_settings import check_descends, optimizer_setting, schedule_setting
from jaxrl_fast.spaces import Box, Discrete, MultiDiscrete
from jaxrl_fast.types import Clock, Trajectory


class Agent(NamedTuple):
    params: Any  # see `ActorCritic`
    opt_state: Any
    moments: Any  # observation statistics, () without normalisation
    rewards: Any = ()  # `Rewards`, () without normalisation

    __repr__ = tree.summary


@tree.settings
class PolicyGradient(Algorithm):
    """A stochastic policy trained on rollouts; subclasses write `prepare` and `update`."""

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Box)
    removed: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("policy", "value", "features", "both", "torso",
                         "value_torso", "heads", "layers"), IN_NETWORKS),
        **dict.fromkeys(("view", "acted", "scaled", "weighed", "descend", "gradient_step"),
                        IN_STEPS),
        "init_networks": "override `init`", "init_optimizer": "override `begin`",
    }  # fmt: skip

    normalize_observations: bool = setting(False)
    """normalise observations by running mean and variance"""
    initial_log_std: float = setting(0.0)
    """initial log standard deviation of a Box's Gaussian"""
    state_dependent_std: bool = setting(False)
    """standard deviations from the policy's head"""
    squash: bool = setting(False)
    """tanh of the Gaussian, within the bounds of a Box"""
    network: str | nn.Module = setting("auto", convert=as_network)
    """torso: auto, mlp, cnn, or your own network from observation to features (flax, nnx,
    Equinox)"""
    hidden: tuple[int, ...] = setting((64, 64), high=WIDEST)
    """widths of the torso's dense layers"""
    value_hidden: tuple[int, ...] = setting((), high=WIDEST)
    """widths of the value's torso; none: as the policy's"""
    activation: str = setting("tanh")
    """activation of the torso"""
    shared_torso: bool = setting(False)
    """one torso for policy and value"""
    image_mean: float = setting(0.0, static=True)
    """a CNN sees pixels as (pixel - image_mean) / image_scale"""
    image_scale: float = setting(0.0, low=0, static=True)
    """divisor of pixels; 0: their range, to [0, 1]"""
    normalize_reward: bool = setting(False)
    """rewards over the running deviation of the discounted return, clipped to +-10"""
    optimizer: str | Callable[..., Any] | None = setting(None, convert=optimizer_setting)
    """optax optimizer, by name or as a function of the rate; none: the algorithm's own"""
    num_envs: int = setting(16)
    """environments stepped together"""
    num_steps: int = setting(128)
    """steps of each environment in a rollout"""
    learning_rate: float = setting(3e-4, low=0, convert=schedule_setting)
    """the optimizer's step size"""
    anneal_learning_rate: bool = setting(True)
    """anneal linearly to zero over the horizon"""
    reward_scale: float = setting(1.0)
    """scale of the learner's rewards; logs keep the environment's"""
    discount: float = setting(0.99, low=0, high=1)
    """gamma"""
    gae_lambda: float = setting(0.95, low=0, high=1)
    """lambda of the advantage estimate"""
    normalize_advantage: bool = setting(True)
    """zero mean and unit variance in every minibatch"""
    entropy_coefficient: float = setting(0.01, low=0)
    """weight of the entropy bonus"""
    anneal_entropy_from: float = setting(1.0, low=0, high=1)
    """part of the horizon after which the weight falls to zero"""
    value_coefficient: float = setting(0.5, low=0)
    """weight of the value loss"""
    max_grad_norm: float = setting(0.5, low=0, open_low=True)
    """global norm at which gradients are clipped"""

    def __post_init__(self):
        super().__post_init__()
        check_not_zero("reward_scale", self.reward_scale)
        rows = self.num_envs * self.num_steps
        if self.normalize_advantage and rows == self.minibatches:
            why = ("advantages normalised over one row are zero. Use fewer minibatches, or more "
                   "environments or steps")
            raise ConfigError("normalize_advantage", True,
                              f"False with one row in a minibatch: {why}")

    @property
    def minibatches(self) -> int:
        """Return the number of minibatches of a pass over the rollout."""
        return getattr(self, "num_minibatches", 1)

    def bind(self, spec):
        check_descends(self.optimizer, self.learning_rate)
        for name in ("squash", "state_dependent_std"):
            if getattr(self, name) and not isinstance(spec.action, Box):
                raise ConfigError(name, True, f"False for {spec.name}: only a Box has a Gaussian, "
                                              f"this has {spec.action}")
        if self.squash:
            check_bounded(spec, "squash", True,
                          f"False for {spec.name}: squashed actions need bounds")
        if self.value_hidden and (self.shared_torso or not isinstance(self.network, str)):
            raise ConfigError("value_hidden", self.value_hidden,
                              "() with a shared torso or your own module")
        bound = super().bind(spec)
        if not bound.hidden and not bound.shared_torso and bound.networks.batched:
            raise ConfigError("hidden", (), f"at least one width for {self.name}; ars and es take "
                                            "none: a linear policy")
        return bound

    def setting_warnings(self):
        if self.squash:
            return []
        log_std = np.asarray(self.initial_log_std)
        if self.state_dependent_std:
            log_std = np.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)
        squashes = jnp.issubdtype(getattr(self.spec.action, "dtype", None), jnp.floating)
        remedy = ("Set squash=True (--algo.squash)." if squashes else
                  "Use ars or es: they scale actions to the bounds.")
        return warnings_of_bounds(self.spec, float(np.exp(np.max(log_std))), remedy)

    @property
    def networks(self) -> ActorCritic:
        """Return the networks of policy and value."""
        image = self.image_mean, self.image_scale
        made = lambda hidden: make_torso(self.network, self.spec.observation, hidden,
                                         self.activation, image=image)
        torso, value_torso = made(self.hidden), made(self.value_hidden or self.hidden)
        gaussian = self.initial_log_std, self.state_dependent_std, self.squash
        return ActorCritic(self.spec, torso, value_torso, self.shared_torso,
                           *gaussian, self.precision)

    @property
    def default_optimizer(self) -> optim.Optimizer:
        """Return the algorithm's own optimizer, clipping included."""
        raise NotImplementedError

    def init(self, key: jax.Array) -> Agent:
        obs = stacking.example(self.spec)
        moments = init_moments(self.normalize_observations, obs)
        return self.begin(
            self.networks.init(key, normalize_obs(self.spec.observation, moments, obs)), moments
        )

    def begin(self, params, moments=()):
        opt_state = descent.init_optimizer(self, params, self.networks.layers)
        return Agent(params, opt_state, moments, Rewards.init(self.normalize_reward, self.num_envs))

    def draw(self, key, num_steps, num_envs):
        return distributions.draw_noise(key, self.spec.action, (num_steps, num_envs))

    def acting(self, agent):
        return agent._replace(params=self.networks.for_acting(agent.params))

    def act(self, agent, carry, obs, noise, clock, mode):
        space = self.spec.action
        seen = normalize_obs(self.spec.observation, agent.moments, obs)
        dist = self.networks.policy(agent.params, seen, drawn=mode != "greedy")
        if mode == "random":
            mask = action_mask(self.spec.observation, obs)
            return carry, distributions.random_action(noise, space, mask), (dist, ())
        action = dist.mode() if mode == "greedy" else dist.sample(noise)
        if isinstance(dist, distributions.TanhNormal):  # keep the draw: tanh cannot be inverted
            return carry, space.from_unit(dist.squash(action)), (dist, action)
        return carry, action.reshape(action.shape[:1] + space.shape), (dist, ())

    observe = normalize.observe_rewards
    seam = normalize.seam_rewards

    def finish(self, agent, rows):
        return agent._replace(moments=update_moments(agent.moments, rows.obs))

    def learned_reward(self, agent: Agent, reward: jax.Array) -> jax.Array:
        """Return the learner's rewards: normalised if set, then scaled."""
        return self.reward_scale * normalize.normalize_rewards(self, agent, reward)

    def entropy_weight(self, clock: Clock) -> jax.Array:
        """Return c_e at this time. `anneal_entropy_from` = 1 means never, after the horizon too."""
        left = (1.0 - clock.progress) / jnp.maximum(1.0 - self.anneal_entropy_from, 1e-6)
        falls = clock.progress > self.anneal_entropy_from
        return self.entropy_coefficient * jnp.where(falls, left, 1.0)


def sampled_actions(trajectory: Trajectory, space: Any) -> tuple[Any, jax.Array]:
    """Return the policy's actions and their log-probabilities under it, [T, B]."""
    steps, (dist, drawn) = trajectory.steps, trajectory.steps.extras
    flat = lambda action: action.reshape(steps.reward.shape + (-1,))
    action = flat(steps.action) if isinstance(space, Box) else steps.action
    action = drawn if isinstance(dist, distributions.TanhNormal) else action
    return action, dist.log_prob(action)


def few_rows(algo: Any, whole: bool) -> int:
    """Return a number of minibatches, 4 to 16, that divides the shuffled items, or 4.

    A minibatch has 128 rows, as CleanRL's and PureJaxRL's, or more in a rollout above 2,048.
    """
    most = min(max(algo.num_envs * algo.num_steps // 128, 4), 16)
    return next((n for n in range(most, 3, -1) if _items(algo, whole)[0] % n == 0), 4)


def check_minibatches(algo: Any, minibatches: int, whole: bool) -> None:
    """Raise ConfigError unless the number of minibatches divides that of shuffled items.

    whole: whole environments are shuffled, not rows.
    """
    items, of = _items(algo, whole)
    if items % minibatches:
        raise ConfigError("num_minibatches", minibatches, f"a divisor of {of} = {items}")


def _items(algo: Any, whole: bool) -> tuple[int, str]:
    """Return the number of shuffled items, and the settings that it comes from."""
    if whole:
        return algo.num_envs, "num_envs (whole environments are shuffled)"
    return algo.num_envs * algo.num_steps, "num_envs * num_steps"


def approx_kl(ratio: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """Return (rho - 1) - log rho; its mean is Schulman's k3 estimate of KL(old, new policy)."""
    return ratio - 1.0 - log_ratio
