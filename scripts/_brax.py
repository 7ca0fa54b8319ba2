"""brax's PPO beside ours: each at the other's settings, and brax's trainer."""

from __future__ import annotations

import functools
from typing import Any

# brax's published PPO settings (its notebooks/training.ipynb); `steps`: of one of its training
# steps.
PENDULUM: dict[str, Any] = dict(
    unroll_length=5, num_minibatches=32, num_updates_per_batch=4, num_envs=2048, batch_size=1024,
    discounting=0.97,
    learning_rate=3e-4, entropy_cost=1e-2, reward_scaling=10.0, normalize_observations=True,
)  # fmt: skip
ANT: dict[str, Any] = PENDULUM | dict(num_envs=4096, batch_size=2048)
LENGTH = 1000  # of an episode


def iteration_steps(config):
    return config["batch_size"] * config["num_minibatches"] * config["unroll_length"]


def shrunk(config, scale) -> dict[str, Any]:
    """Fewer environments and smaller batches in proportion, to try a row out on a CPU."""
    return config | {name: max(32, int(config[name] * scale))
                     for name in ("num_envs", "batch_size")}


def our_ppo(jf, config):
    """brax's settings in our names: one rollout holds what one of its training steps does."""
    return jf.PPO(
        num_envs=config["num_envs"], num_steps=iteration_steps(config) // config["num_envs"],
        num_epochs=config["num_updates_per_batch"], num_minibatches=config["num_minibatches"],
        learning_rate=config["learning_rate"], anneal_learning_rate=False,
        discount=config["discounting"], entropy_coefficient=config["entropy_cost"],
        reward_scale=config["reward_scaling"], clip_ratio=0.3, clip_value=False, max_grad_norm=1e9,
        normalize_observations=True, squash=True, state_dependent_std=True, hidden=(32,) * 4,
        value_hidden=(256,) * 5, activation="silu",
    )  # fmt: skip



def brax_trainer():
    """brax's PPO; JAX 0.10 has removed `device_put_replicated`, which it calls once, so that is put
    back."""
    import jax
    import jax.numpy as jnp

    if "device_put_replicated" not in vars(jax):
        stack = lambda x, devices: jax.tree.map(
            lambda leaf: jnp.stack([jnp.asarray(leaf)] * len(devices)), x)
        jax.device_put_replicated = stack
    from brax.training.agents.ppo import train

    return train


def in_its_names(algo):
    """Our settings and sizes of networks for brax's trainer: a training step of it is an iteration
    of ours.

    What stays brax's own: a learning rate that is not annealed, its tanh Gaussian whose width is an
    output, its initial weights, advantages recomputed in every minibatch of whole environments (our
    `recompute_advantage`), Adam's epsilon of 1e-8.
    """
    import jax
    from brax.training.agents.ppo import networks

    return dict(
        network_factory=functools.partial(
            networks.make_ppo_networks, policy_hidden_layer_sizes=algo.hidden,
            value_hidden_layer_sizes=algo.value_hidden or algo.hidden,
            activation=getattr(jax.nn, algo.activation),
        ),
        num_envs=algo.num_envs, unroll_length=algo.num_steps,
        batch_size=algo.num_envs // algo.num_minibatches,
        num_minibatches=algo.num_minibatches, num_updates_per_batch=algo.num_epochs,
        learning_rate=algo.learning_rate, discounting=algo.discount, gae_lambda=algo.gae_lambda,
        entropy_cost=algo.entropy_coefficient, reward_scaling=algo.reward_scale,
        clipping_epsilon=algo.clip_ratio, max_grad_norm=algo.max_grad_norm,
        normalize_observations=algo.normalize_observations,
    )  # fmt: skip
