"""Deep Q-learning (Mnih et al. 2015), double (van Hasselt et al. 2016), dueling (Wang et al. 2016), n-step."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_fast import distributions, losses, optim, random, returns, stacking, tree
from jaxrl_fast.algorithms.base import Algorithm, action_mask
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.fields import setting
from jaxrl_fast.memory import Row, UniformMemory
from jaxrl_fast.networks import Dense, make_torso
from jaxrl_fast.spaces import Discrete
from jaxrl_fast.types import Mean


class Agent(NamedTuple):
    params: Any  # {"torso", "head": Q or advantages, "value": dueling only}
    target: Any
    opt_state: Any


@tree.settings
class DQN(Algorithm):
    """Q-learning from uniform replay with a target network and linearly annealed epsilon-greedy exploration."""

    name: ClassVar[str] = "dqn"
    action_spaces: ClassVar[tuple[type, ...]] = (Discrete,)

    num_envs: int = setting(8, "environments stepped together")
    num_steps: int = setting(1, "steps of each environment between updates")
    updates_per_iteration: int = setting(1, "optimizer steps after every num_envs * num_steps environment steps")
    batch_size: int = setting(128, "windows in a batch")
    buffer_size: int = setting(100_000, "transitions kept", low=2)
    learning_starts: int = setting(10_000, "environment steps of random actions before the first update", low=0)
    learning_rate: float = setting(2.5e-4, "Adam's step size", low=0)
    anneal_learning_rate: bool = setting(False, "linearly to zero over the horizon")
    discount: float = setting(0.99, "gamma", low=0, high=1)
    n_step: int = setting(1, "length of the return before the bootstrap")
    target_period: int = setting(50, "updates between two moves of the target network")
    target_tau: float = setting(1.0, "how far it moves: 1 copies, 0.005 with period 1 is Polyak", low=0, high=1)
    epsilon_start: float = setting(1.0, "exploration at first", low=0, high=1)
    epsilon_end: float = setting(0.05, "and in the end", low=0, high=1)
    epsilon_fraction: float = setting(0.5, "of the horizon, over which it falls", low=0, high=1, open_low=True)
    double: bool = setting(True, "the online network chooses the bootstrap action")
    dueling: bool = setting(False, "Q = V + A - mean A")
    huber: bool = setting(False, "Huber loss with delta 1 instead of half the square; for rewards of at most that size")
    max_grad_norm: float = setting(10.0, "global norm at which gradients are clipped", low=0, open_low=True)
    adam_epsilon: float = setting(1e-8, "Adam's epsilon", low=0, open_low=True)
    network: str | nn.Module = setting("auto", "torso: auto, mlp, cnn, or a flax module from observation to features")
    hidden: tuple[int, ...] = setting((128, 128), "widths of the torso's dense layers")
    activation: str = setting("relu", "of the torso")

    def __post_init__(self):
        super().__post_init__()
        stack = self.spec.stack if self.spec else 1
        need = (self.n_step + stack) * self.steps_per_iteration
        if self.buffer_size < need:
            valid = f"at least (n_step + {stack}) * num_envs * num_steps = {need}"
            raise ConfigError("buffer_size", self.buffer_size, valid)

    @property
    def updates(self) -> int:
        return self.updates_per_iteration

    @property
    def warmup_steps(self) -> int:
        """At least as many as one window needs."""
        stack = self.spec.stack if self.spec else 1
        return max(self.learning_starts, (self.n_step + stack) * self.num_envs)

    def memory(self) -> UniformMemory:
        stack = self.spec.stack if self.spec else 1
        return UniformMemory(self.buffer_size, self.num_steps, self.num_envs, self.batch_size, self.n_step, stack)

    @property
    def torso(self) -> nn.Module:
        return make_torso(self.network, self.spec.observation, self.hidden, self.activation)

    @property
    def heads(self) -> dict[str, nn.Module]:
        heads = {"head": Dense(self.spec.action.n, 1.0)}
        return heads | ({"value": Dense(1, 1.0)} if self.dueling else {})

    @property
    def optimizer(self):
        return optim.adam(self.max_grad_norm, self.adam_epsilon)

    def init(self, key: jax.Array) -> Agent:
        obs = stacking.example(self.spec)
        torso_key, *keys = jax.random.split(key, 1 + len(self.heads))
        params = {"torso": self.torso.init(torso_key, obs)}
        features = self.torso.apply(params["torso"], obs)
        for (name, head), k in zip(self.heads.items(), keys, strict=True):
            params[name] = head.init(k, features)
        return Agent(params, tree.copy(params), self.optimizer.init(params))

    def q_values(self, params: Any, obs: Any) -> jax.Array:
        """Q(s, .) [..., n]; illegal actions have a value so low that no maximum takes them."""
        features = self.torso.apply(params["torso"], obs)
        q = self.heads["head"].apply(params["head"], features)
        if self.dueling:
            q = self.heads["value"].apply(params["value"], features) + q - q.mean(-1, keepdims=True)
        mask = action_mask(self.spec.observation, obs)
        return q if mask is None else jnp.where(mask, q, distributions.ILLEGAL)

    def draw(self, key, num_steps, num_envs):
        uniform = random.uniform(key, (num_steps, num_envs, 1 + self.spec.action.n))
        return random.to_gumbel(uniform[..., 1:]), uniform[..., 0]

    def act(self, agent, carry, obs, noise, clock, mode):
        noise, explore = noise
        random = distributions.random_action(noise, self.spec.action, action_mask(self.spec.observation, obs))
        if mode == "random":
            return carry, random, ()
        greedy = jnp.argmax(self.q_values(agent.params, obs), axis=-1).astype(jnp.int32)
        if mode == "greedy":
            return carry, greedy, ()
        epsilon = clock.anneal(self.epsilon_start, self.epsilon_end, self.epsilon_fraction)
        return carry, jnp.where(explore < epsilon, random, greedy), ()

    def prepare(self, agent, trajectory):
        steps = trajectory.steps
        return Row(steps.obs, steps.action, steps.reward, steps.terminated, steps.truncated)

    def update(self, agent, batch, key, clock):
        boot_q = self.q_values(agent.target, batch.boot_obs)
        if self.double:
            choice = jnp.argmax(self.q_values(agent.params, batch.boot_obs), axis=-1)
            boot_value = distributions.one_hot_select(boot_q, choice)
        else:
            boot_value = boot_q.max(axis=-1)
        target = returns.window_return(batch.reward, batch.use, batch.steps, batch.boot, boot_value, self.discount)

        def loss_fn(params):
            q = distributions.one_hot_select(self.q_values(params, batch.obs), batch.action)
            error = q - target
            loss = losses.huber(error) if self.huber else 0.5 * jnp.square(error)
            return jnp.mean(batch.weight * loss), (error, q)

        (loss, (error, q)), grads = jax.value_and_grad(loss_fn, has_aux=True)(agent.params)
        rate = self.learning_rate * (1.0 - clock.progress) if self.anneal_learning_rate else self.learning_rate
        params, opt_state = optim.apply(self.optimizer, rate, agent.params, grads, agent.opt_state)
        target_params = jax.lax.cond(
            clock.update % self.target_period == 0,
            lambda: optim.polyak(agent.target, params, self.target_tau),
            lambda: agent.target,
        )
        metrics = {"loss": Mean.of(loss), "q_value": Mean.of(q.mean()), "td_error": Mean.of(jnp.abs(error).mean())}
        return Agent(params, target_params, opt_state), metrics, jnp.abs(error)
