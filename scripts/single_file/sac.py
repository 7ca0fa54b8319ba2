"""Soft actor-critic in one file, to be read and changed (Haarnoja et al. 2018, arXiv:1812.05905).

The whole run is one compiled program: `python scripts/single_file/sac.py --total-steps 10000`.
Only the environment comes from the library: any native one with a flat observation and bounded
actions. `tests/algorithms/test_single_file.py` compares all numbers with those of `jf.SAC`.
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


class MLP(nn.Module):
    widths: tuple[int, ...]
    gain: float  # of the last layer's orthogonal weights

    @nn.compact
    def __call__(self, *inputs):
        x = jnp.concatenate(inputs, axis=-1)
        for width in self.widths[:-1]:
            x = nn.relu(nn.Dense(width, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(self.widths[-1], kernel_init=nn.initializers.orthogonal(self.gain))(x)


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array  # in [-1, 1]^d
    reward: jax.Array
    terminated: jax.Array  # a time limit is no failure: a truncated episode's value goes on
    next_obs: jax.Array  # the successor before any reset


@dataclasses.dataclass(eq=False)
class SAC:
    env: Any
    total_steps: int = 10_000
    num_envs: int = 4  # B
    updates_per_iteration: int = 4  # an iteration is one step of every environment
    batch_size: int = 128  # b
    buffer_size: int = 20_000  # a multiple of num_envs
    learning_starts: int = 500  # environment steps of random actions before the first update
    learning_rate: float = 2e-3
    discount: float = 0.99  # gamma
    target_tau: float = 0.005  # how far the target critics move in an update
    target_entropy: float = -1.0  # of the policy, for each dimension of the action
    hidden: tuple[int, ...] = (64, 64)  # of the actor and of each critic

    def __post_init__(self):
        self.action_size = math.prod(self.env.spec.action.shape)  # d
        self.actor: Any = MLP((*self.hidden, 2 * self.action_size), 0.01)
        split: Any = dict(in_axes=None, variable_axes={"params": 0}, split_rngs={"params": True})
        self.critics: Any = nn.vmap(MLP, axis_size=2, **split)((*self.hidden, 1), 1.0)
        self.optimizer = optax.adam(self.learning_rate)
        self.iterations = math.ceil(self.total_steps / self.num_envs)
        self.warmup = math.ceil(self.learning_starts / self.num_envs)  # iterations

    def init(self, key):  # the learner: parameters, those of the target critics, Adam's states
        actor_key, critics_key = jax.random.split(key)
        obs, action = jnp.zeros(self.env.spec.observation.shape), jnp.zeros(self.action_size)
        critics = self.critics.init(critics_key, obs, action)
        policy = {"actor": self.actor.init(actor_key, obs), "log_alpha": jnp.float32(0.0)}
        params = {"critics": critics, "policy": policy}
        return params, critics, {name: self.optimizer.init(x) for name, x in params.items()}

    def policy(self, actor, obs, noise):  # actions tanh(u), u = mean + std * noise, and log pi
        mean, log_std = jnp.split(self.actor.apply(actor, obs), 2, axis=-1)
        log_std = jnp.clip(log_std, -10.0, 2.0)
        u = mean + jnp.exp(log_std) * noise
        normal = jax.scipy.stats.norm.logpdf(noise) - log_std
        # log(1 - tanh(u)^2) without 0 in the logarithm, however large u is.
        slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
        return jnp.tanh(u), jnp.sum(normal - slope, axis=-1)

    def step(self, start, action, key):  # actions in [-1, 1]^d -> ((env_state, obs), Transition)
        (env_state, obs), noise = start, self.env.draw(key, 1, len(action), 0).at(0)
        control = self.env.spec.action.from_unit(action)
        # An episode that ends is followed by a reset: `after` is then the next one's start.
        env_state, after, end = self.env.step(noise, env_state, control)
        return (env_state, after), Transition(obs, action, end.reward, end.terminated, end.next_obs)

    def store(self, replay, t, transition):  # over the oldest rows of the ring
        rows = (t * self.num_envs + jnp.arange(self.num_envs)) % self.buffer_size
        return jax.tree.map(lambda x, new: x.at[rows].set(new), replay, transition)

    def sample(self, replay, t, key):  # a batch [b, ...] of what iterations 0 to t stored
        filled = jnp.minimum((t + 1) * self.num_envs, self.buffer_size)
        rows = jax.random.randint(key, (self.batch_size,), 0, filled)
        return jax.tree.map(lambda x: x[rows], replay)

    def update(self, learner, batch, noise):
        """One step of Adam for the critics, then the policy; noise: standard normal [2, b, d]."""
        params, old, opt_state = dict(learner[0]), learner[1], dict(learner[2])
        actor, alpha = params["policy"]["actor"], jnp.exp(params["policy"]["log_alpha"])
        # The smaller of two critics, because one alone overestimates what the actor likes best.
        q_value = lambda *args: self.critics.apply(*args)[..., 0].min(axis=0)
        action, log_prob = self.policy(actor, batch.next_obs, noise[0])
        soft_value = q_value(old, batch.next_obs, action) - alpha * log_prob  # equation 3
        target = batch.reward + self.discount * jnp.where(batch.terminated, 0.0, soft_value)

        def critic_loss(critics):  # equation 5
            error = self.critics.apply(critics, batch.obs, batch.action)[..., 0] - target
            return 0.5 * jnp.sum(jnp.mean(error**2, axis=1))

        def policy_loss(policy):  # equations 9 and 18: more randomness than wanted lowers alpha
            action, log_prob = self.policy(policy["actor"], batch.obs, noise[1])
            loss = alpha * log_prob - q_value(params["critics"], batch.obs, action)
            excess = -jax.lax.stop_gradient(log_prob) - self.target_entropy * self.action_size
            return jnp.mean(loss + jnp.exp(policy["log_alpha"]) * excess)

        for name, loss in {"critics": critic_loss, "policy": policy_loss}.items():
            grads = jax.grad(loss)(params[name])
            updates, opt_state[name] = self.optimizer.update(grads, opt_state[name])
            params[name] = optax.apply_updates(params[name], updates)
        return params, optax.incremental_update(params["critics"], old, self.target_tau), opt_state

    def train(self, key):
        """The whole run -> learner. A pure function: `jit` it, `vmap` it over keys."""
        init_key, start_key, run_key = jax.random.split(key, 3)

        def iteration(carry, time):
            (learner, replay, start), (t, key) = carry, time
            action_key, env_key, *keys = jax.random.split(key, 2 + 2 * self.updates_per_iteration)
            noise = jax.random.normal(action_key, (self.num_envs, self.action_size))
            uniform = jax.random.uniform(action_key, noise.shape, minval=-1.0)
            action, _ = self.policy(learner[0]["policy"]["actor"], start[1], noise)
            action = jnp.where(t < self.warmup, uniform, action)
            start, transition = self.step(start, action, env_key)
            replay = self.store(replay, t, transition)
            for sample_key, noise_key in zip(keys[::2], keys[1::2], strict=True):
                noise = jax.random.normal(noise_key, (2, self.batch_size, self.action_size))
                given = learner, self.sample(replay, t, sample_key), noise
                learner = jax.lax.cond(t < self.warmup, lambda x, *_: x, self.update, *given)
            return (learner, replay, start), None

        learner, start = self.init(init_key), self.env.init(start_key, self.num_envs)
        row = jax.eval_shape(self.step, start, jnp.zeros((self.num_envs, self.action_size)), key)[1]
        replay = jax.tree.map(lambda x: jnp.zeros((self.buffer_size, *x.shape[1:]), x.dtype), row)
        times = jnp.arange(self.iterations), jax.random.split(run_key, self.iterations)
        return jax.lax.scan(iteration, (learner, replay, start), times)[0][0]

    def evaluate(self, actor, key, episodes=128):  # returns [episodes], played without noise
        play = lambda start, key: self.step(start, self.policy(actor, start[1], 0.0)[0], key)
        keys = jax.random.split(key, 1 + self.env.spec.max_episode_steps)
        rows = jax.lax.scan(play, self.env.init(keys[0], episodes), keys[1:])[1]
        ended = jnp.cumsum(rows.terminated, axis=0) - rows.terminated  # before this step
        return jnp.sum(rows.reward * (ended == 0), axis=0)


def main(environment: str = "Pendulum-v1", total_steps: int = SAC.total_steps, seed: int = 0):
    sac = SAC(jf.make(environment), total_steps)
    train_key, evaluation_key = jax.random.split(jax.random.key(seed))
    actor = jax.jit(sac.train)(train_key)[0]["policy"]["actor"]
    print(f"evaluation return: {jax.jit(sac.evaluate)(actor, evaluation_key).mean():.1f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
