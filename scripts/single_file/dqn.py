"""Deep Q-learning in one file, to be read and to be changed (Mnih et al. 2015).

The whole run is one compiled program: `python scripts/single_file/dqn.py --total-steps 100000`.
Only the environment comes from the library: any native one with a flat observation and discrete
actions. `tests/algorithms/test_single_file.py` compares all numbers with those of `jf.DQN`.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import tyro

import jaxrl_fast as jf


class QNetwork(nn.Module):  # obs -> Q(obs, .), one output for each action
    num_actions: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        for width in self.hidden:
            x = nn.Dense(width, kernel_init=nn.initializers.orthogonal(2**0.5))(x)
            x = nn.relu(nn.LayerNorm()(x))  # steadies the values
        return nn.Dense(self.num_actions, kernel_init=nn.initializers.orthogonal(1.0))(x)


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array  # a time limit is no failure: a truncated episode's value goes on
    next_obs: jax.Array  # the successor before any reset


class Learner(NamedTuple):
    params: Any
    target_params: Any
    opt_state: Any
    updates: jax.Array  # so far, int32


@dataclasses.dataclass(eq=False)
class DQN:
    env: Any
    total_steps: int = 100_000
    num_envs: int = 8  # B
    updates_per_iteration: int = 2  # an iteration is one step of every environment
    batch_size: int = 64  # b
    buffer_size: int = 100_000  # a multiple of num_envs
    learning_starts: int = 1_000  # environment steps of random actions before the first update
    learning_rate: float = 5e-4  # falls linearly to zero over the run
    max_grad_norm: float = 10.0
    discount: float = 0.99  # gamma
    target_period: int = 50  # C of algorithm 1, in updates
    epsilon_end: float = 0.04  # from 1
    epsilon_fraction: float = 0.2  # of the run, in which epsilon falls
    hidden: tuple[int, ...] = (128, 128)

    def __post_init__(self):
        self.network: Any = QNetwork(self.env.spec.action.n, self.hidden)
        self.iterations = math.ceil(self.total_steps / self.num_envs)
        self.warmup = math.ceil(self.learning_starts / self.num_envs)  # iterations
        now = lambda updates: self.warmup + updates / self.updates_per_iteration
        adam = optax.adam(lambda updates: self.learning_rate * (1 - now(updates) / self.iterations))
        self.optimizer = optax.chain(optax.clip_by_global_norm(self.max_grad_norm), adam)

    def init(self, key):
        params = self.network.init(key, jnp.zeros(self.env.spec.observation.shape))
        return Learner(params, params, self.optimizer.init(params), jnp.int32(0))

    def epsilon(self, t):
        """How often actions are random: always in the warm-up, then less and less."""
        steps: Any = self.epsilon_fraction * self.iterations  # optax annotates an int
        fall = optax.linear_schedule(1.0, self.epsilon_end, steps)
        return jnp.where(t < self.warmup, 1.0, fall(t))

    def step(self, params, start, key, epsilon):
        """Act epsilon-greedily in every environment -> ((env_state, obs), Transition [B, ...])."""
        env_state, obs = start
        explore_key, action_key, env_key = jax.random.split(key, 3)
        q = self.network.apply(params, obs)
        random_action = jax.random.randint(action_key, q.shape[:-1], 0, q.shape[-1])
        explore = jax.random.uniform(explore_key, q.shape[:-1]) < epsilon
        action = jnp.where(explore, random_action, jnp.argmax(q, axis=-1))
        noise = self.env.draw(env_key, 1, len(obs), 0).at(0)
        # An episode that ends is followed by a reset: `after` is then the next one's start.
        env_state, after, end = self.env.step(noise, env_state, action)
        return (env_state, after), Transition(obs, action, end.reward, end.terminated, end.next_obs)

    def store(self, replay, t, transition):  # over the oldest rows of the ring
        rows = (t * self.num_envs + jnp.arange(self.num_envs)) % self.buffer_size
        return jax.tree.map(lambda x, new: x.at[rows].set(new), replay, transition)

    def sample(self, replay, t, key):  # a batch [b, ...] of what iterations 0 to t stored
        filled = jnp.minimum((t + 1) * self.num_envs, self.buffer_size)
        rows = jax.random.randint(key, (self.batch_size,), 0, filled)
        return jax.tree.map(lambda x: x[rows], replay)

    def update(self, learner, batch):
        """One step down the squared error of a batch [b], and every C-th time a new target."""
        # Double DQN (van Hasselt et al. 2016): the online network chooses, the target one rates.
        # One network for both overestimates, as it prefers the actions that it errs upwards on.
        every = jnp.arange(self.batch_size)
        chosen = jnp.argmax(self.network.apply(learner.params, batch.next_obs), axis=-1)
        q = self.network.apply(learner.target_params, batch.next_obs)[every, chosen]
        target = batch.reward + self.discount * jnp.where(batch.terminated, 0.0, q)

        def loss(params):
            q = self.network.apply(params, batch.obs)[every, batch.action]
            return 0.5 * jnp.mean((q - target) ** 2)

        grads = jax.grad(loss)(learner.params)
        updates, opt_state = self.optimizer.update(grads, learner.opt_state)
        params = optax.apply_updates(learner.params, updates)
        old, count = learner.target_params, learner.updates
        target_params = optax.periodic_update(params, old, count, self.target_period)
        return Learner(params, target_params, opt_state, count + 1)

    def train(self, key):
        """The whole run -> Learner. A pure function: `jit` it, `vmap` it over keys."""
        init_key, start_key, run_key = jax.random.split(key, 3)

        def iteration(carry, time):
            (learner, replay, start), (t, key) = carry, time
            step_key, *keys = jax.random.split(key, 1 + self.updates_per_iteration)
            start, transition = self.step(learner.params, start, step_key, self.epsilon(t))
            replay = self.store(replay, t, transition)
            for batch in (self.sample(replay, t, key) for key in keys):
                learner = jax.lax.cond(t < self.warmup, lambda x, _: x, self.update, learner, batch)
            return (learner, replay, start), None

        learner, start = self.init(init_key), self.env.init(start_key, self.num_envs)
        row = jax.eval_shape(self.step, learner.params, start, key, 1.0)[1]
        replay = jax.tree.map(lambda x: jnp.zeros((self.buffer_size, *x.shape[1:]), x.dtype), row)
        times = jnp.arange(self.iterations), jax.random.split(run_key, self.iterations)
        return jax.lax.scan(iteration, (learner, replay, start), times)[0][0]

    def evaluate(self, params, key, episodes=128):  # returns [episodes], played greedily
        play = lambda start, key: self.step(params, start, key, epsilon=0.0)
        keys = jax.random.split(key, 1 + self.env.spec.max_episode_steps)
        rows = jax.lax.scan(play, self.env.init(keys[0], episodes), keys[1:])[1]
        ended = jnp.cumsum(rows.terminated, axis=0) - rows.terminated  # before this step
        return jnp.sum(rows.reward * (ended == 0), axis=0)


def main(environment: str = "CartPole-v1", total_steps: int = DQN.total_steps, seed: int = 0):
    dqn = DQN(jf.make(environment), total_steps)
    train_key, evaluation_key = jax.random.split(jax.random.key(seed))
    params = jax.jit(dqn.train)(train_key).params
    print(f"evaluation return: {jax.jit(dqn.evaluate)(params, evaluation_key).mean():.1f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
