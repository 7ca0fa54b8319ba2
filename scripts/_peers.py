"""Peers that the benchmarks here measure beside `jaxrl-fast bench`: settings, an agent, flags."""

from __future__ import annotations

import os
from typing import Any

from jaxrl_fast.bench import pendulum, theirs


def minatar_agent(actions):
    """Return an agent of rejax's with MinAtar's network, a convolution and a dense layer.

    Its breakout_1m.yaml asks for a ConvQNetwork, which its package does not have any more.
    """
    from flax import linen as nn
    from jax import numpy as jnp
    from rejax import networks  # pyright: ignore[reportMissingImports]

    class ConvQNetwork(nn.Module):
        action_dim: int

        @nn.compact
        def __call__(self, obs):
            x = nn.tanh(nn.Conv(16, (3, 3), padding="VALID")(obs)).reshape((obs.shape[0], -1))
            return nn.Dense(self.action_dim)(nn.tanh(nn.Dense(128)(x)))

        def take(self, obs, action):
            return jnp.take_along_axis(self(obs), action[:, None], axis=1).squeeze(1)

    return networks.EpsilonGreedyPolicy(ConvQNetwork)(action_dim=actions)


PPO_MINATAR: dict[str, Any] = theirs.PPO_CARTPOLE | {
    "LR": 5e-3,
    "NUM_ENVS": 64,
    "NUM_MINIBATCHES": 8,
    "TOTAL_TIMESTEPS": 1_000_000,
    "ACTIVATION": "relu",
    "ENV_NAME": "Breakout-MinAtar",
}
# PureJaxRL's ppo_continuous_action.py, which names the hopper
PPO_ANT: dict[str, Any] = theirs.PPO_CARTPOLE | {
    "LR": 3e-4,
    "NUM_ENVS": 2048,
    "NUM_STEPS": 10,
    "TOTAL_TIMESTEPS": 50_000_000,
    "NUM_MINIBATCHES": 32,
    "ENT_COEF": 0.0,
    "ENV_NAME": "ant",
    "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
    "DEBUG": False,
}
# rejax's benchmark/breakout_1m.yaml
REJAX_BREAKOUT: dict[str, Any] = theirs.DQN_CARTPOLE | {
    "NUM_ENVS": 1,
    "BUFFER_SIZE": 100_000,
    "BUFFER_BATCH_SIZE": 100,
    "TOTAL_TIMESTEPS": 1_000_000,
    "EPSILON_ANNEAL_TIME": 500_000,
    "TARGET_UPDATE_INTERVAL": 1000,
    "LR": 5e-4,
    "LEARNING_STARTS": 20_000,
    "TRAINING_INTERVAL": 1,
    "GAMMA": 1.0,
    "ENV_NAME": "Breakout-MinAtar",
    "NETWORK": "cnn",
    "HIDDEN": (128,),
    "ACTIVATION": "tanh",
    "AGENT": minatar_agent,
}
# purejaxql's config/alg/pqn_minatar.yaml; HIDDEN_SIZE and NUM_LAYERS as its CNN has them
PQN_MINATAR: dict[str, Any] = theirs.PQN_CARTPOLE | {
    "TOTAL_TIMESTEPS": 10_000_000,
    "TOTAL_TIMESTEPS_DECAY": 10_000_000,
    "NUM_ENVS": 128,
    "NUM_STEPS": 32,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "NUM_MINIBATCHES": 32,
    "NUM_EPOCHS": 2,
    "HIDDEN_SIZE": 128,
    "NUM_LAYERS": 1,
    "LR": 5e-4,
    "REW_SCALE": 1,
    "LAMBDA": 0.65,
    "ENV_NAME": "Breakout-MinAtar",
}
REJAX_TD3: dict[str, Any] = dict(
    num_envs=1, buffer_size=10_000, fill_buffer=1000, batch_size=100, learning_rate=0.001,
    num_epochs=1, total_timesteps=10_000, gamma=0.99, polyak=0.95, max_grad_norm=100,
    exploration_noise=0.3, target_noise=0.2, target_noise_clip=0.5, policy_delay=2,
    normalize_observations=True,
)  # fmt: skip


def td3(jf):
    """Return our TD3 at rejax's settings."""
    own: dict[str, Any] = dict(
        learning_starts=1000, batch_size=100, learning_rate=0.001, target_tau=0.05,
        exploration_noise=0.3, target_noise=0.2, target_noise_clip=0.5, policy_period=2,
    )  # fmt: skip
    return jf.TD3(**pendulum.COMMON, **own)


def add_arguments(parser, *peers):
    """`--purejaxrl DIR` and the like, by default from the environment."""
    for peer in peers:
        parser.add_argument(
            f"--{peer}",
            metavar="DIR",
            default=os.environ.get(peer.upper()),
            help=f"a checkout of {peer} to measure against",
        )
