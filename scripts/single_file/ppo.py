"""Proximal policy optimization on one page (Schulman et al. 2017), to be read and to be changed.

python scripts/single_file/ppo.py [--environment CartPole-v1] [--total-steps 500000] [--seed 0]

The whole run is one compiled program. Only the environment comes from the library: any native one
with a flat observation and discrete actions. "Detail n" is one of Huang et al. 2022, "The 37
Implementation Details of PPO". `tests/algorithms/test_single_file.py` compares all numbers with
those of `jf.PPO`.
"""

import argparse
import dataclasses
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import jaxrl_fast as jf


class ActorCritic(nn.Module):
    """obs -> (log pi(. | obs), V(obs)): two networks without a common layer (detail 13)."""

    num_actions: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, obs):
        def mlp(x, outputs, gain):  # orthogonal weights (detail 2)
            for width in self.hidden:
                init = nn.initializers.orthogonal(math.sqrt(2))
                x = nn.tanh(nn.Dense(width, kernel_init=init)(x))
            return nn.Dense(outputs, kernel_init=nn.initializers.orthogonal(gain))(x)

        logits = mlp(obs, self.num_actions, 0.01)  # small: the first policy is nearly uniform
        return jax.nn.log_softmax(logits), mlp(obs, 1, 1.0)[..., 0]


class Steps(NamedTuple):
    """A rollout: T steps of B environments, [T, B, ...]."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array  # of the action, by the policy that took it
    value: jax.Array  # V(obs)
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: jax.Array  # the successor before any reset


@dataclasses.dataclass(frozen=True)
class PPO:
    """The settings, and the algorithm as pure functions under them."""

    env: Any
    total_steps: int = 500_000
    num_envs: int = 8  # B
    num_steps: int = 64  # T
    num_epochs: int = 8  # passes over a rollout
    num_minibatches: int = 4  # optimizer steps in a pass
    learning_rate: float = 1e-3  # falls linearly to zero (detail 4)
    adam_epsilon: float = 1e-5  # detail 3
    max_grad_norm: float = 0.5  # detail 11
    discount: float = 0.98  # gamma
    gae_lambda: float = 0.9
    clip_ratio: float = 0.2  # epsilon of equation 7
    value_coefficient: float = 0.5  # c_1 of equation 9
    entropy_coefficient: float = 0.0  # c_2 of equation 9
    hidden: tuple[int, ...] = (64, 64)

    @property
    def network(self):
        return ActorCritic(self.env.spec.action.n, self.hidden)

    @property
    def iterations(self):
        return math.ceil(self.total_steps / (self.num_envs * self.num_steps))

    @property
    def optimizer(self):
        updates = self.iterations * self.num_epochs * self.num_minibatches
        rate = optax.linear_schedule(self.learning_rate, 0.0, updates)
        adam = optax.adam(rate, eps=self.adam_epsilon)
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), adam)

    def act(self, params, obs, gumbel):
        """Sample an action: the argmax of log-probabilities plus Gumbel noise has their law."""
        log_policy, value = self.network.apply(params, obs)
        action = jnp.argmax(log_policy + gumbel, axis=-1)
        return action, at_action(log_policy, action), value

    def draw(self, key):
        """Everything random of a rollout: the environments' noise and the policy's, [T, B, ...]."""
        env_key, action_key = jax.random.split(key)
        shape = self.num_steps, self.num_envs, self.env.spec.action.n
        return self.env.draw(env_key, *shape[:2], 0), jax.random.gumbel(action_key, shape)

    def rollout(self, params, env_state, obs, noise):
        """T steps of every environment -> (env_state, obs, Steps)."""

        def step(carry, noise):
            (env_state, obs), (env_noise, gumbel) = carry, noise
            action, log_prob, value = self.act(params, obs, gumbel)
            # An episode that ends is followed by a reset: `after` is then the next one's start.
            env_state, after, end = self.env.step(env_noise, env_state, action)
            outcome = end.reward, end.terminated, end.truncated, end.next_obs
            return (env_state, after), Steps(obs, action, log_prob, value, *outcome)

        (env_state, obs), steps = jax.lax.scan(step, (env_state, obs), noise)
        return env_state, obs, steps

    def advantages(self, params, steps):
        """Generalised advantage estimates [T, B] (Schulman et al. 2016, equations 11 to 16)."""
        # A time limit is no failure: value follows a truncation, and none a termination.
        next_value = jnp.where(steps.terminated, 0.0, self.network.apply(params, steps.next_obs)[1])
        delta = steps.reward + self.discount * next_value - steps.value
        # Behind both, the next row belongs to another episode.
        decay = self.discount * self.gae_lambda * ~(steps.terminated | steps.truncated)

        def backwards(advantage, row):
            delta, decay = row
            advantage = delta + decay * advantage
            return advantage, advantage

        return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]

    def loss(self, params, steps, advantage):
        """Equation 9 with the sign of a loss, over a minibatch [b]."""
        log_policy, value = self.network.apply(params, steps.obs)
        target = steps.value + advantage
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)  # detail 7
        ratio = jnp.exp(at_action(log_policy, steps.action) - steps.log_prob)
        clipped = jnp.clip(ratio, 1.0 - self.clip_ratio, 1.0 + self.clip_ratio)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage)  # equation 7
        # The value is held near the old one in the same way (detail 9).
        near = steps.value + jnp.clip(value - steps.value, -self.clip_ratio, self.clip_ratio)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2)
        entropy = -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)
        loss = policy_loss + self.value_coefficient * value_loss
        return jnp.mean(loss - self.entropy_coefficient * entropy)

    def learn(self, learner, steps, order):
        """Descend the loss minibatch by minibatch; order: rows of each, int [epochs, T * B]."""
        # The advantages are those of the policy that acted, in every epoch.
        rows = steps, self.advantages(learner[0], steps)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

        def update(learner, chosen):
            params, opt_state = learner
            grads = jax.grad(self.loss)(params, *jax.tree.map(lambda x: x[chosen], rows))
            updates, opt_state = self.optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), ()

        minibatches = order.reshape(self.num_epochs * self.num_minibatches, -1)
        return jax.lax.scan(update, learner, minibatches)[0]

    def init(self, key):
        """The learner: (params, opt_state)."""
        params = self.network.init(key, jnp.zeros(self.env.spec.observation.shape))
        return params, self.optimizer.init(params)

    def train(self, key):
        """The whole run -> learner. A pure function: `jit` it, `vmap` it over keys."""
        init_key, env_key, run_key = jax.random.split(key, 3)
        rows = jnp.tile(jnp.arange(self.num_steps * self.num_envs), (self.num_epochs, 1))

        def iteration(carry, key):
            learner, env_state, obs = carry
            rollout_key, order_key = jax.random.split(key)
            noise = self.draw(rollout_key)
            env_state, obs, steps = self.rollout(learner[0], env_state, obs, noise)
            order = jax.random.permutation(order_key, rows, axis=1, independent=True)
            return (self.learn(learner, steps, order), env_state, obs), ()

        start = self.init(init_key), *self.env.init(env_key, self.num_envs)
        return jax.lax.scan(iteration, start, jax.random.split(run_key, self.iterations))[0][0]

    def evaluate(self, params, key, episodes=128):
        """Returns of whole episodes [episodes], played with the most likely actions."""
        init_key, env_key = jax.random.split(key)
        env_state, obs = self.env.init(init_key, episodes)
        noise = self.env.draw(env_key, self.env.spec.max_episode_steps, episodes, 0)

        def step(carry, noise):
            env_state, obs, alive, total = carry
            action = jnp.argmax(self.network.apply(params, obs)[0], axis=-1)
            env_state, obs, end = self.env.step(noise, env_state, action)
            total += alive * end.reward
            return (env_state, obs, alive & ~(end.terminated | end.truncated), total), ()

        start = env_state, obs, jnp.ones(episodes, bool), jnp.zeros(episodes)
        return jax.lax.scan(step, start, noise)[0][-1]


def at_action(values, action):
    """values [..., num_actions], action int [...] -> [...]."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def main():
    parser = argparse.ArgumentParser(description="PPO; prints the mean return of 128 episodes.")
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=PPO.total_steps)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    ppo = PPO(jf.make(args.environment), args.total_steps)
    train_key, evaluation_key = jax.random.split(jax.random.key(args.seed))
    params, _ = jax.jit(ppo.train)(train_key)
    print(f"evaluation return: {jax.jit(ppo.evaluate)(params, evaluation_key).mean():.1f}")


if __name__ == "__main__":
    main()
