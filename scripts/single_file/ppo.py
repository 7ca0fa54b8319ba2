"""Proximal policy optimization in one file, to be read and to be changed (Schulman et al. 2017).

The whole run is one compiled program: `python scripts/single_file/ppo.py --total-steps 500000`.
Only the environment comes from the library: any native one with a flat observation and discrete
actions. "Detail n" is one of Huang et al. 2022, "The 37 Implementation Details of PPO".
`tests/algorithms/test_single_file.py` compares all numbers with those of `jf.PPO`.
"""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import tyro

import jaxrl_fast as jf

nll = optax.losses.softmax_cross_entropy_with_integer_labels  # (logits, action) -> -log pi(action)


class ActorCritic(nn.Module):  # obs -> (logits of pi, V(obs))
    num_actions: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, obs):
        def mlp(x, outputs, gain):  # orthogonal weights (detail 2)
            for width in self.hidden:
                x = nn.tanh(nn.Dense(width, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
            return nn.Dense(outputs, kernel_init=nn.initializers.orthogonal(gain))(x)

        # Two networks (detail 13). The small gain makes the first policy nearly uniform.
        return mlp(obs, self.num_actions, 0.01), mlp(obs, 1, 1.0)[..., 0]


class Steps(NamedTuple):  # of a rollout, [T, B, ...]
    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array  # of the action, by the policy that took it
    value: jax.Array  # V(obs)
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: jax.Array  # the successor before any reset


@dataclasses.dataclass(eq=False)
class PPO:
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

    def __post_init__(self):
        self.network: Any = ActorCritic(self.env.spec.action.n, self.hidden)
        self.iterations = -(-self.total_steps // (self.num_envs * self.num_steps))
        self.updates = self.num_epochs * self.num_minibatches  # in an iteration
        rate = optax.linear_schedule(self.learning_rate, 0.0, self.iterations * self.updates)
        adam = optax.adam(rate, eps=self.adam_epsilon)
        self.optimizer = optax.chain(optax.clip_by_global_norm(self.max_grad_norm), adam)

    def init(self, key):
        params = self.network.init(key, jnp.zeros(self.env.spec.observation.shape))
        return params, self.optimizer.init(params)

    def rollout(self, params, env_state, obs, noise):
        """Step every environment T times -> ((env_state, obs), Steps)."""

        def step(carry, noise):
            (env_state, obs), (env_noise, gumbel) = carry, noise
            logits, value = self.network.apply(params, obs)
            action = jnp.argmax(logits + gumbel, axis=-1)  # a sample of pi (Gumbel-max)
            # An episode that ends is followed by a reset: `after` is then the next one's start.
            env_state, after, end = self.env.step(env_noise, env_state, action)
            outcome = end.reward, end.terminated, end.truncated, end.next_obs
            return (env_state, after), Steps(obs, action, -nll(logits, action), value, *outcome)

        return jax.lax.scan(step, (env_state, obs), noise)

    def advantages(self, params, steps):
        """Generalised advantage estimates [T, B] (Schulman et al. 2016, equations 11 to 16)."""
        # A time limit is no failure: value follows a truncation, and none a termination.
        next_value = jnp.where(steps.terminated, 0.0, self.network.apply(params, steps.next_obs)[1])
        delta = steps.reward + self.discount * next_value - steps.value
        # Behind both, the next row belongs to another episode.
        decay = self.discount * self.gae_lambda * ~(steps.terminated | steps.truncated)
        add = lambda advantage, row: (row[0] + row[1] * advantage,) * 2
        return jax.lax.scan(add, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]

    def loss(self, params, steps, advantage):
        """Equation 9 with the sign of a loss, over a minibatch [b]."""
        logits, value = self.network.apply(params, steps.obs)
        target = steps.value + advantage
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)  # detail 7
        ratio = jnp.exp(-nll(logits, steps.action) - steps.log_prob)
        clip = lambda x, old: old + jnp.clip(x - old, -self.clip_ratio, self.clip_ratio)
        policy_loss = -jnp.minimum(ratio * advantage, clip(ratio, 1.0) * advantage)  # equation 7
        near = clip(value, steps.value)  # the value is clipped as well (detail 9)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2)
        entropy = optax.losses.softmax_cross_entropy(logits, jax.nn.softmax(logits))
        loss = policy_loss + self.value_coefficient * value_loss
        return jnp.mean(loss - self.entropy_coefficient * entropy)

    def learn(self, learner, steps, order):
        """Descend the loss minibatch by minibatch; order: rows of each, int [epochs, T * B]."""
        rows = steps, self.advantages(learner[0], steps)  # of the policy that acted, in every epoch
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

        def update(learner, chosen):
            params, opt_state = learner
            grads = jax.grad(self.loss)(params, *jax.tree.map(lambda x: x[chosen], rows))
            updates, opt_state = self.optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), None

        return jax.lax.scan(update, learner, order.reshape(self.updates, -1))[0]

    def train(self, key):
        """The whole run -> (params, opt_state). A pure function: `jit` it, `vmap` it over keys."""
        init_key, start_key, run_key = jax.random.split(key, 3)
        rows = jnp.tile(jnp.arange(self.num_steps * self.num_envs), (self.num_epochs, 1))

        def iteration(carry, key):
            learner, *start = carry
            env_key, action_key, order_key = jax.random.split(key, 3)
            shape = self.num_steps, self.num_envs, self.env.spec.action.n
            noise = self.env.draw(env_key, *shape[:2], 0), jax.random.gumbel(action_key, shape)
            start, steps = self.rollout(learner[0], *start, noise=noise)
            order = jax.random.permutation(order_key, rows, axis=1, independent=True)
            return (self.learn(learner, steps, order), *start), ()

        carry = self.init(init_key), *self.env.init(start_key, self.num_envs)
        return jax.lax.scan(iteration, carry, jax.random.split(run_key, self.iterations))[0][0]

    def evaluate(self, params, key, episodes=128):
        """Returns [episodes] of whole episodes, played with the most likely actions."""
        start_key, env_key = jax.random.split(key)
        limit = self.env.spec.max_episode_steps
        noise = self.env.draw(env_key, limit, episodes, 0), jnp.zeros(limit)
        _, steps = self.rollout(params, *self.env.init(start_key, episodes), noise=noise)
        ended = jnp.cumsum(steps.terminated, axis=0) - steps.terminated  # before this step
        return jnp.sum(steps.reward * (ended == 0), axis=0)


def main(environment: str = "CartPole-v1", total_steps: int = PPO.total_steps, seed: int = 0):
    ppo = PPO(jf.make(environment), total_steps)
    train_key, evaluation_key = jax.random.split(jax.random.key(seed))
    params, _ = jax.jit(ppo.train)(train_key)
    print(f"evaluation return: {jax.jit(ppo.evaluate)(params, evaluation_key).mean():.1f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
