"""Soft actor-critic on one page (Haarnoja et al. 2018b, arXiv:1812.05905).

python scripts/single_file/sac.py [--environment Pendulum-v1] [--total-steps 10000] [--seed 0]

The whole run is one compiled program, replay included. Only the environment comes from the library:
any native one with a flat observation and bounded actions. Equations are those of 2018b.
`tests/algorithms/test_single_file.py` compares all numbers with those of `jf.SAC`.
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


class MLP(nn.Module):
    """Dense layers with orthogonal weights of gain sqrt(2), and `gain` in the last."""

    widths: tuple[int, ...]
    gain: float

    @nn.compact
    def __call__(self, x):
        *hidden, outputs = self.widths
        for width in hidden:
            init = nn.initializers.orthogonal(math.sqrt(2))
            x = nn.relu(nn.Dense(width, kernel_init=init)(x))
        return nn.Dense(outputs, kernel_init=nn.initializers.orthogonal(self.gain))(x)


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array  # in [-1, 1]^d
    reward: jax.Array
    terminated: jax.Array  # a time limit is no failure: a truncated episode's value goes on
    next_obs: jax.Array  # the successor before any reset


class Replay(NamedTuple):
    """A ring: the newest rows overwrite the oldest."""

    rows: Transition  # [buffer_size, ...]
    added: jax.Array  # rows added so far, int32


class Learner(NamedTuple):
    params: dict[str, Any]  # "actor", "critics" [2, ...], "log_temperature"
    target_critics: Any
    opt_state: dict[str, Any]  # one for each of `params`


@dataclasses.dataclass(frozen=True)
class SAC:
    """The settings, and the algorithm as pure functions under them."""

    env: Any
    total_steps: int = 10_000
    num_envs: int = 4
    updates_per_iteration: int = 4  # an iteration is one step of every environment
    batch_size: int = 128
    buffer_size: int = 20_000  # a multiple of num_envs
    learning_starts: int = 500  # environment steps of random actions before the first update
    learning_rate: float = 2e-3
    discount: float = 0.99  # gamma
    target_tau: float = 0.005  # how far the target critics move in an update
    target_entropy: float = -1.0  # of the policy, for each dimension of the action
    log_std_min: float = -10.0
    log_std_max: float = 2.0
    hidden: tuple[int, ...] = (64, 64)  # of the actor and of each critic

    @property
    def action_size(self):
        return math.prod(self.env.spec.action.shape)

    @property
    def actor(self):
        return MLP((*self.hidden, 2 * self.action_size), 0.01)

    @property
    def critic(self):
        return MLP((*self.hidden, 1), 1.0)

    def policy(self, actor, obs, noise):
        """Actions tanh(u), u = mean + std * noise, and their log-probabilities [...]."""
        mean, log_std = jnp.split(self.actor.apply(actor, obs), 2, axis=-1)
        log_std = jnp.clip(log_std, self.log_std_min, self.log_std_max)
        u = mean + jnp.exp(log_std) * noise
        normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(u)^2) without 0 in the logarithm, however large u is (equation 21 of 2018a).
        slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
        return jnp.tanh(u), jnp.sum(normal - slope, axis=-1)

    def q_values(self, critics, obs, action):
        """Both critics' Q(obs, action), [2, b]."""
        x = jnp.concatenate([obs, action], axis=-1)
        return jax.vmap(lambda params: self.critic.apply(params, x)[..., 0])(critics)

    def target(self, learner, batch, noise):
        """r + gamma (min Q'(s', a') - alpha log pi(a'|s')), a' ~ pi (equations 3 and 5).

        The smaller of two critics, because one alone overestimates what the actor likes best.
        """
        action, log_prob = self.policy(learner.params["actor"], batch.next_obs, noise)
        q = self.q_values(learner.target_critics, batch.next_obs, action).min(axis=0)
        soft_value = q - jnp.exp(learner.params["log_temperature"]) * log_prob
        return batch.reward + self.discount * jnp.where(batch.terminated, 0.0, soft_value)

    def gradient_step(self, learner, name, loss):
        """One step of Adam down loss(params[name]) -> (value, aux); returns (learner, aux)."""
        grads, aux = jax.grad(loss, has_aux=True)(learner.params[name])
        adam = optax.adam(self.learning_rate)
        updates, opt_state = adam.update(grads, learner.opt_state[name])
        params = learner.params | {name: optax.apply_updates(learner.params[name], updates)}
        opt_state = learner.opt_state | {name: opt_state}
        return learner._replace(params=params, opt_state=opt_state), aux

    def update(self, learner, batch, noise):
        """Critics, actor, temperature: one step each; noise: standard normal [2, b, d]."""
        target = self.target(learner, batch, noise[0])  # a constant for the gradient

        def critic_loss(critics):  # equation 5
            error = self.q_values(critics, batch.obs, batch.action) - target
            return 0.5 * jnp.sum(jnp.mean(error**2, axis=1)), ()

        learner, _ = self.gradient_step(learner, "critics", critic_loss)
        critics, old = learner.params["critics"], learner.target_critics
        target_critics = optax.incremental_update(critics, old, self.target_tau)
        temperature = jnp.exp(learner.params["log_temperature"])

        def actor_loss(actor):  # equation 9
            action, log_prob = self.policy(actor, batch.obs, noise[1])
            q = self.q_values(critics, batch.obs, action).min(axis=0)
            return jnp.mean(temperature * log_prob - q), log_prob

        learner, log_prob = self.gradient_step(learner, "actor", actor_loss)
        # More randomness than wanted lowers the temperature, less raises it (equation 18).
        excess = -jnp.mean(log_prob) - self.target_entropy * self.action_size
        temperature_loss = lambda log_temperature: (jnp.exp(log_temperature) * excess, ())
        learner, _ = self.gradient_step(learner, "log_temperature", temperature_loss)
        return learner._replace(target_critics=target_critics)

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
        actor_key, critics_key = jax.random.split(key)
        obs = jnp.zeros(self.env.spec.observation.shape)
        x = jnp.concatenate([obs, jnp.zeros(self.action_size)])
        params = {
            "actor": self.actor.init(actor_key, obs),
            "critics": jax.vmap(self.critic.init, (0, None))(jax.random.split(critics_key), x),
            "log_temperature": jnp.float32(0.0),  # alpha is 1 at first
        }
        adam = optax.adam(self.learning_rate)
        opt_state = {name: adam.init(part) for name, part in params.items()}
        return Learner(params, params["critics"], opt_state)

    def init_replay(self):
        zeros = lambda *shape: jnp.zeros((self.buffer_size, *shape))
        obs = zeros(*self.env.spec.observation.shape)
        rows = Transition(obs, zeros(self.action_size), zeros(), zeros().astype(bool), obs)
        return Replay(rows, jnp.int32(0))

    def step(self, env_noise, env_state, action):
        """A step of every environment by actions in [-1, 1]^d."""
        space = self.env.spec.action
        low, high = jnp.asarray(space.low), jnp.asarray(space.high)
        unit = action.reshape(action.shape[:1] + space.shape)
        return self.env.step(env_noise, env_state, low + 0.5 * (high - low) * (unit + 1.0))

    def train(self, key):
        """The whole run -> Learner. A pure function: `jit` it, `vmap` it over keys."""
        init_key, env_key, run_key = jax.random.split(key, 3)
        keys = jax.random.split(run_key, math.ceil(self.total_steps / self.num_envs))
        warmup = math.ceil(self.learning_starts / self.num_envs)
        shape = self.num_envs, self.action_size

        def play(carry, key, random):
            learner, replay, env_state, obs = carry
            action_key, env_key = jax.random.split(key)
            if random:
                action = jax.random.uniform(action_key, shape, minval=-1.0)
            else:
                noise = jax.random.normal(action_key, shape)
                action, _ = self.policy(learner.params["actor"], obs, noise)
            noise = jax.tree.map(lambda x: x[0], self.env.draw(env_key, 1, self.num_envs, 0))
            # An episode that ends is followed by a reset: `after` is then the next one's start.
            env_state, after, end = self.step(noise, env_state, action)
            transition = Transition(obs, action, end.reward, end.terminated, end.next_obs)
            return learner, self.store(replay, transition), env_state, after

        def play_and_learn(carry, key):
            play_key, *update_keys = jax.random.split(key, 1 + self.updates_per_iteration)
            learner, replay, *env = play(carry, play_key, random=False)
            for key in update_keys:
                sample_key, noise_key = jax.random.split(key)
                noise = jax.random.normal(noise_key, (2, self.batch_size, self.action_size))
                learner = self.update(learner, self.sample(replay, sample_key), noise)
            return (learner, replay, *env), ()

        carry = self.init(init_key), self.init_replay(), *self.env.init(env_key, self.num_envs)
        warm_up = lambda carry, key: (play(carry, key, random=True), ())
        carry, _ = jax.lax.scan(warm_up, carry, keys[:warmup])
        return jax.lax.scan(play_and_learn, carry, keys[warmup:])[0][0]

    def evaluate(self, actor, key, episodes=128):
        """Returns of whole episodes [episodes], played without noise."""
        init_key, env_key = jax.random.split(key)
        env_state, obs = self.env.init(init_key, episodes)
        noise = self.env.draw(env_key, self.env.spec.max_episode_steps, episodes, 0)

        def step(carry, noise):
            env_state, obs, alive, total = carry
            action, _ = self.policy(actor, obs, 0.0)
            env_state, obs, end = self.step(noise, env_state, action)
            total += alive * end.reward
            return (env_state, obs, alive & ~(end.terminated | end.truncated), total), ()

        start = env_state, obs, jnp.ones(episodes, bool), jnp.zeros(episodes)
        return jax.lax.scan(step, start, noise)[0][-1]


def main():
    parser = argparse.ArgumentParser(description="SAC; prints the mean return of 128 episodes.")
    parser.add_argument("--environment", default="Pendulum-v1")
    parser.add_argument("--total-steps", type=int, default=SAC.total_steps)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sac = SAC(jf.make(args.environment), args.total_steps)
    train_key, evaluation_key = jax.random.split(jax.random.key(args.seed))
    learner = jax.jit(sac.train)(train_key)
    returns = jax.jit(sac.evaluate)(learner.params["actor"], evaluation_key)
    print(f"evaluation return: {returns.mean():.1f}")


if __name__ == "__main__":
    main()
