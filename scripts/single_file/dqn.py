"""Deep Q-learning on one page (Mnih et al. 2015), double (van Hasselt et al. 2016).

python scripts/single_file/dqn.py [--environment CartPole-v1] [--total-steps 100000] [--seed 0]

The whole run is one compiled program, replay included. Only the environment comes from the library:
any native one with a flat observation and discrete actions.
`tests/algorithms/test_single_file.py` compares all numbers with those of `jf.DQN`.
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


class QNetwork(nn.Module):
    """obs -> Q(obs, .), one output for each action."""

    num_actions: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        for width in self.hidden:
            init = nn.initializers.orthogonal(math.sqrt(2))
            x = nn.relu(nn.Dense(width, kernel_init=init)(x))
        return nn.Dense(self.num_actions, kernel_init=nn.initializers.orthogonal(1.0))(x)


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array  # a time limit is no failure: a truncated episode's value goes on
    next_obs: jax.Array  # the successor before any reset


class Replay(NamedTuple):
    """A ring: the newest rows overwrite the oldest."""

    rows: Transition  # [buffer_size, ...]
    added: jax.Array  # rows added so far, int32


class Learner(NamedTuple):
    params: Any
    target_params: Any
    opt_state: Any
    updates: jax.Array  # so far, int32


@dataclasses.dataclass(frozen=True)
class DQN:
    """The settings, and the algorithm as pure functions under them."""

    env: Any
    total_steps: int = 100_000
    num_envs: int = 8
    updates_per_iteration: int = 2  # an iteration is one step of every environment
    batch_size: int = 64
    buffer_size: int = 100_000  # a multiple of num_envs
    learning_starts: int = 1_000  # environment steps of random actions before the first update
    learning_rate: float = 1e-3  # falls linearly to zero over the run
    max_grad_norm: float = 10.0
    discount: float = 0.99  # gamma
    target_period: int = 50  # C of algorithm 1, in updates
    epsilon_end: float = 0.04  # from 1
    epsilon_fraction: float = 0.2  # of the run, in which epsilon falls
    hidden: tuple[int, ...] = (128, 128)

    @property
    def network(self):
        return QNetwork(self.env.spec.action.n, self.hidden)

    @property
    def iterations(self):
        return math.ceil(self.total_steps / self.num_envs)

    @property
    def warmup(self):
        """Iterations before the first update."""
        return math.ceil(self.learning_starts / self.num_envs)

    @property
    def optimizer(self):
        def rate(updates):
            iteration = self.warmup + updates / self.updates_per_iteration
            return self.learning_rate * (1.0 - iteration / self.iterations)

        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(rate))

    def epsilon(self, iteration):
        """How often an action is random: always in the warm-up, then less and less."""
        fall = optax.linear_schedule(1.0, self.epsilon_end, self.epsilon_fraction * self.iterations)
        return jnp.where(iteration < self.warmup, 1.0, fall(iteration))

    def act(self, params, obs, key, epsilon):
        """Epsilon-greedy actions, int32 [B]."""
        explore_key, action_key = jax.random.split(key)
        q = self.network.apply(params, obs)
        random_action = jax.random.randint(action_key, q.shape[:-1], 0, q.shape[-1])
        explore = jax.random.uniform(explore_key, q.shape[:-1]) < epsilon
        return jnp.where(explore, random_action, jnp.argmax(q, axis=-1))

    def target(self, learner, batch):
        """r + gamma Q'(s', argmax_a Q(s', a)): the online network chooses, the target one rates.

        One network for both overestimates, as it prefers the actions that it errs upwards on.
        """
        chosen = jnp.argmax(self.network.apply(learner.params, batch.next_obs), axis=-1)
        q = at_action(self.network.apply(learner.target_params, batch.next_obs), chosen)
        return batch.reward + self.discount * jnp.where(batch.terminated, 0.0, q)

    def update(self, learner, batch):
        """One step down the squared error of a batch [b], and every C-th time a new target."""
        target = self.target(learner, batch)  # a constant: no gradient flows into it

        def loss(params):
            q = at_action(self.network.apply(params, batch.obs), batch.action)
            return 0.5 * jnp.mean((q - target) ** 2)

        grads = jax.grad(loss)(learner.params)
        updates, opt_state = self.optimizer.update(grads, learner.opt_state)
        params = optax.apply_updates(learner.params, updates)
        target_params = optax.periodic_update(
            params, learner.target_params, learner.updates, self.target_period
        )
        return Learner(params, target_params, opt_state, learner.updates + 1)

    def store(self, replay, transition):
        """Add a transition of every environment [B, ...]."""
        at = replay.added % self.buffer_size
        write = lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new, at, axis=0)
        rows = jax.tree.map(write, replay.rows, transition)
        return Replay(rows, replay.added + self.num_envs)

    def sample(self, replay, key):
        """A batch [b, ...], each row as likely as any other."""
        filled = jnp.minimum(replay.added, self.buffer_size)
        chosen = jax.random.randint(key, (self.batch_size,), 0, filled)
        return jax.tree.map(lambda rows: rows[chosen], replay.rows)

    def init(self, key):
        params = self.network.init(key, jnp.zeros(self.env.spec.observation.shape))
        return Learner(params, params, self.optimizer.init(params), jnp.int32(0))

    def init_replay(self):
        obs = jnp.zeros((self.buffer_size, *self.env.spec.observation.shape))
        empty = lambda dtype: jnp.zeros(self.buffer_size, dtype)
        rows = Transition(obs, empty(jnp.int32), empty(jnp.float32), empty(bool), obs)
        return Replay(rows, jnp.int32(0))

    def train(self, key):
        """The whole run -> Learner. A pure function: `jit` it, `vmap` it over keys."""
        init_key, env_key, run_key = jax.random.split(key, 3)

        times = jnp.arange(self.iterations), jax.random.split(run_key, self.iterations)

        def play(carry, time):
            learner, replay, env_state, obs = carry
            iteration, key = time
            act_key, env_key = jax.random.split(key)
            action = self.act(learner.params, obs, act_key, self.epsilon(iteration))
            noise = jax.tree.map(lambda x: x[0], self.env.draw(env_key, 1, self.num_envs, 0))
            # An episode that ends is followed by a reset: `after` is then the next one's start.
            env_state, after, end = self.env.step(noise, env_state, action)
            transition = Transition(obs, action, end.reward, end.terminated, end.next_obs)
            return (learner, self.store(replay, transition), env_state, after), ()

        def play_and_learn(carry, time):
            iteration, key = time
            play_key, *sample_keys = jax.random.split(key, 1 + self.updates_per_iteration)
            (learner, replay, *env), _ = play(carry, (iteration, play_key))
            for key in sample_keys:
                learner = self.update(learner, self.sample(replay, key))
            return (learner, replay, *env), ()

        carry = self.init(init_key), self.init_replay(), *self.env.init(env_key, self.num_envs)
        carry, _ = jax.lax.scan(play, carry, jax.tree.map(lambda x: x[: self.warmup], times))
        times = jax.tree.map(lambda x: x[self.warmup :], times)
        return jax.lax.scan(play_and_learn, carry, times)[0][0]

    def evaluate(self, params, key, episodes=128):
        """Returns of whole episodes [episodes], played greedily."""
        init_key, env_key = jax.random.split(key)
        env_state, obs = self.env.init(init_key, episodes)
        noise = self.env.draw(env_key, self.env.spec.max_episode_steps, episodes, 0)

        def step(carry, noise):
            env_state, obs, alive, total = carry
            action = jnp.argmax(self.network.apply(params, obs), axis=-1)
            env_state, obs, end = self.env.step(noise, env_state, action)
            total += alive * end.reward
            return (env_state, obs, alive & ~(end.terminated | end.truncated), total), ()

        start = env_state, obs, jnp.ones(episodes, bool), jnp.zeros(episodes)
        return jax.lax.scan(step, start, noise)[0][-1]


def at_action(values, action):
    """values [..., num_actions], action int [...] -> [...]."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def main():
    parser = argparse.ArgumentParser(description="DQN; prints the mean return of 128 episodes.")
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=DQN.total_steps)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dqn = DQN(jf.make(args.environment), args.total_steps)
    train_key, evaluation_key = jax.random.split(jax.random.key(args.seed))
    learner = jax.jit(dqn.train)(train_key)
    returns = jax.jit(dqn.evaluate)(learner.params, evaluation_key)
    print(f"evaluation return: {returns.mean():.1f}")


if __name__ == "__main__":
    main()
