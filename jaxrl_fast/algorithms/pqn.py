"""Parallelised Q-network (Gallici et al. 2024): Q(lambda) without replay and target network."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common import normalize
from jaxrl_fast.algorithms.common.descent import agent_step, init_optimizer
from jaxrl_fast.algorithms.common.policy_gradient import check_minibatches
from jaxrl_fast.algorithms.common.value_based import ValueBased
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import SHUFFLES, RolloutMemory
from jaxrl_fast.ops import distributions, optim, returns, stacking
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any
    opt_state: Any
    rewards: Any = ()  # `Rewards`, () without normalisation

    __repr__ = tree.summary


class Rows(NamedTuple):
    obs: Any
    action: jax.Array
    target: jax.Array  # the lambda return

    __repr__ = tree.summary


@tree.settings
class PQN(ValueBased):
    """Parallelised Q-network (Gallici et al. 2024): Q(lambda) without replay.

    Layer norm replaces the target network, many environments replace the replay.
    """

    name: ClassVar[str] = "pqn"

    normalize_reward: bool = setting(False)
    """rewards over the running deviation of the discounted return, clipped to +-10"""
    num_envs: int = setting(128)
    """environments stepped together"""
    num_steps: int = setting(32)
    """steps of each environment in a rollout"""
    num_epochs: int = setting(2)
    """passes over a rollout"""
    num_minibatches: int = setting(32)
    """minibatches a pass; must divide num_envs * num_steps"""
    shuffle: str = setting("auto", choices=SHUFFLES)
    """permutations by one sort or by swap-or-not; auto: on a GPU swaps for long ones"""
    return_lambda: float = setting(0.65, low=0, high=1)
    """lambda of the return"""
    anneal_learning_rate: bool = setting(True)
    """anneal linearly to zero over the horizon"""
    epsilon_fraction: float = setting(0.1, low=0, high=1, open_low=True)
    """part of the horizon over which epsilon falls"""
    layer_norm: bool = setting(True)
    """layer norm before every activation of the torso"""

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self, self.num_minibatches, whole=False)

    @property
    def updates(self) -> int:
        return self.num_epochs * self.num_minibatches

    @property
    def default_optimizer(self):
        return optim.radam(self.max_grad_norm, self.adam_epsilon)

    def memory(self) -> RolloutMemory:
        return RolloutMemory(self.num_steps, self.num_envs, self.num_minibatches,
                             shuffle=self.shuffle)

    def begin(self, params, moments=()):
        rewards = normalize.Rewards.init(self.normalize_reward, self.num_envs)
        return Agent(params, init_optimizer(self, params), rewards)

    observe = normalize.observe_rewards
    seam = normalize.seam_rewards

    def act(self, agent, carry, obs, noise, clock, mode):
        """Act as other value-based algorithms; extras: max_a Q(s, a) [B], for the targets.

        A greedy policy does not learn: it has no extras.
        """
        carry, action, _ = super().act(agent, carry, obs, noise, clock, mode)
        if mode == "greedy":
            return carry, action, ()
        # XLA computes these values once with those of acting, unless acting is noisy
        return carry, action, self.best_value(agent, obs)

    def best_value(self, agent: Agent, obs: Any) -> jax.Array:
        """Return max_a Q(s, a) [B]."""
        return self.action_values(agent.params, obs).max(axis=-1)

    def prepare(self, agent, trajectory):
        """Return rows with the greedy policy's lambda returns (eq. 16, Peng's Q(lambda))."""
        steps, stack = trajectory.steps, self.spec.stack
        best = lambda obs: self.best_value(agent, obs)
        next_value = returns.bootstrap_values(
            steps.extras, best(trajectory.last_obs), steps.truncated, best,
            lambda t: stacking.successors(trajectory, stack, t),
        )
        reward = normalize.normalize_rewards(self, agent, steps.reward)
        target = returns.lambda_returns(
            reward, steps.terminated, steps.done, next_value, self.discount, self.return_lambda
        )
        return Rows(stacking.observations(trajectory, stack), steps.action, target)

    def update(self, agent, batch, key, clock):
        def loss_fn(params):
            z = self.networks.apply(params, batch.obs, key)
            q = distributions.one_hot_select(self.expected(z), batch.action)
            error = q - batch.target
            return 0.5 * jnp.mean(jnp.square(error)), (q, error)

        agent, (loss, (q, error)) = agent_step(self, clock, agent, loss_fn)
        metrics = {"loss": loss, "q_value": q.mean(), "td_error": jnp.abs(error).mean()}
        return agent, {name: Mean.of(x) for name, x in metrics.items()}, ()
