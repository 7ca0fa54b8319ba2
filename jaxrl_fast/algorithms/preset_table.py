"""Tuned settings per algorithm and environment; docs/benchmarks.md has the scores by seed."""

from __future__ import annotations

from typing import Any, NamedTuple


class Preset(NamedTuple):
    """Settings of the algorithm (`algo`), the run (`run`) and the environment (`env`)."""

    name: str
    algo: dict[str, Any]
    run: dict[str, Any] = {}
    env: dict[str, Any] = {}


# Classic control: little replay, many updates. The distributional additions stand beside them.
_CLASSIC = dict(num_envs=8, updates_per_iteration=2, batch_size=64, learning_starts=1000,
                learning_rate=1e-3, anneal_learning_rate=True, epsilon_end=0.04,
                epsilon_fraction=0.2)  # fmt: skip
_APEX = dict(num_steps=1, epsilon_start=0.4, epsilon_end=0.4)  # the actors' exponents do the rest
_NO_EPSILON = dict(epsilon_start=0.0, epsilon_end=0.0)
_RAINBOW = _NO_EPSILON | dict(adam_epsilon=1.5e-4)
_MINATAR = dict(num_envs=8, num_steps=1, updates_per_iteration=2, batch_size=32,
                buffer_size=100_000, learning_starts=5_000, learning_rate=2.5e-4,
                adam_epsilon=3.125e-4, target_period=250, epsilon_end=0.05, epsilon_fraction=0.1,
                network="mlp", hidden=(128,))  # fmt: skip
# no reward is negative; the best of SpaceInvaders is worth 17
_MINATAR_ATOMS = dict(v_min=0.0, v_max=20.0)
_RAINBOW_MINATAR = _MINATAR | _MINATAR_ATOMS | _NO_EPSILON | dict(adam_epsilon=1e-6)

_PPO_MINATAR = dict(num_envs=64, num_steps=128, num_epochs=4, num_minibatches=8, learning_rate=5e-3,
                    network="mlp", activation="relu")  # fmt: skip

# On CartPole an entropy bonus of 0.01 and a discount of 0.98 let single seeds drift off the track.
# 16 IMPALA updates a rollout lose two seeds of five: no loss term holds it near the old policy.
_A2C = dict(num_envs=16, num_steps=8, learning_rate=4e-3, gae_lambda=0.95,
            entropy_coefficient=0.001)
_IMPALA = dict(num_envs=16, num_steps=32, num_epochs=2, num_minibatches=4, learning_rate=1e-3,
               rmsprop=False, gae_lambda=0.95, entropy_coefficient=0.001)  # fmt: skip

_PQN = dict(num_envs=32, num_steps=64, num_epochs=4, num_minibatches=16, learning_rate=5e-4,
            return_lambda=0.95, epsilon_end=0.05, epsilon_fraction=0.2)  # fmt: skip

# Small networks suffice for classic control, and learn in seconds.
_PENDULUM = dict(num_envs=4, updates_per_iteration=4, learning_starts=500, buffer_size=20_000,
                 batch_size=128, hidden=(64, 64), critic_hidden=(64, 64),
                 learning_rate=2e-3)  # fmt: skip
_PPO_BRAX = dict(num_envs=128, num_steps=32, num_epochs=4, num_minibatches=16, learning_rate=1e-3,
                 discount=0.98, entropy_coefficient=0.0, reward_scale=0.1, clip_value=False,
                 normalize_observations=True, initial_log_std=-0.5, hidden=(128, 128),
                 activation="silu")  # fmt: skip
# A step of hopper and walker2d is 8 ms, of ant and halfcheetah 50: a discount of 0.98 sees 0.4 s
# ahead, less than a hop. docs/benchmarks.md measures the reward scale and Adam's epsilon.
_PPO_LEGS = _PPO_BRAX | dict(num_steps=64, num_minibatches=32, num_epochs=8,
                             recompute_advantage=True, learning_rate=2e-3, adam_epsilon=1e-8,
                             discount=0.997, gae_lambda=0.98, reward_scale=0.03,
                             squash=True)  # fmt: skip
_PPO_PLAYGROUND = _PPO_BRAX | dict(num_epochs=10, discount=0.99)
# Steps of 10 to 20 ms. Eight-step returns of much older policies mislead: the replay is small.
_SAC_SHORT_STEPS = dict(num_envs=16, updates_per_iteration=8, batch_size=256, buffer_size=30_000,
                        learning_starts=1_000, n_step=8, learning_rate=5e-4,
                        anneal_learning_rate=True, discount=0.99, target_tau=0.01, reward_scale=0.1,
                        normalize_observations=True, hidden=(64, 64),
                        critic_hidden=(64, 64))  # fmt: skip

# Atari from pixels: published settings or near them, measured for PPO on Pong and Breakout alone.
# Evaluations play whole games, so only at the end, and sample: a greedy policy may stop firing.
_ATARI_RUN = dict(total_steps=2_500_000, eval_every=0, eval_episodes=30, eval_mode="sample")
_ATARI_REPLAY = dict(num_envs=8, num_steps=4, updates_per_iteration=8, batch_size=32,
                     buffer_size=200_000, learning_starts=20_000, learning_rate=1e-4,
                     target_period=1_000, epsilon_end=0.01, epsilon_fraction=0.1,
                     hidden=(512,))  # fmt: skip

# Nine tenths of Pong's pixels are a grey of 87; paddles and ball differ from it by 60 to 150.
PONG_IMAGES = dict(image_mean=87.0, image_scale=64.0)
_PPO_SMALL_IMAGES = dict(num_envs=32, num_steps=64, num_epochs=3, num_minibatches=8,
                         learning_rate=1e-3, shared_torso=True, activation="relu",
                         hidden=(256,))  # fmt: skip

# {algorithm/pattern of environment names: (total steps or settings of the run, the algorithm's, the
# environment's)}; the first match counts
_TABLE: dict[str, tuple[Any, ...]] = {
    "ppo/CartPole-v1": (500_000,
        dict(num_envs=8, num_steps=64, num_epochs=8, num_minibatches=4, learning_rate=1e-3,
             gae_lambda=0.9, discount=0.98, entropy_coefficient=0.0),
    ),  # fmt: skip
    "ppo/LunarLander-v3": (1_000_000,
        dict(num_envs=16, num_steps=256, num_epochs=6, num_minibatches=32, learning_rate=1e-3,
             anneal_learning_rate=True, discount=0.995, gae_lambda=0.98, entropy_coefficient=0.002,
             clip_value=False, normalize_observations=True, hidden=(64, 64)),
    ),  # fmt: skip
    "dqn/LunarLander-v3": (300_000,
        dict(num_envs=8, updates_per_iteration=4, batch_size=128, buffer_size=100_000,
             learning_starts=2_000, n_step=3, learning_rate=6e-4, anneal_learning_rate=True,
             target_period=250, huber=True, epsilon_end=0.05, epsilon_fraction=0.2,
             hidden=(256, 256)),
    ),  # fmt: skip
    "ppo/ale:Pong": (  # on two CPU cores; `ladder pong` climbs it
        _ATARI_RUN | dict(total_steps=1_700_000),
        _PPO_SMALL_IMAGES | dict(entropy_coefficient=0.02, anneal_entropy_from=0.5) | PONG_IMAGES,
        dict(img_height=42, img_width=42),
    ),
    "ppo/ale:Breakout": (  # ten minutes on two CPU cores; all pixels but black are far from 0
        _ATARI_RUN | dict(total_steps=1_000_000),
        _PPO_SMALL_IMAGES | dict(entropy_coefficient=0.01, anneal_entropy_from=0.6, image_mean=0.0,
                                 image_scale=64.0),
        dict(img_height=84, img_width=42, stack=2, episodic_life=True),
    ),
    "ppo/ale:*": (_ATARI_RUN,  # Schulman et al. 2017, as in CleanRL
        dict(num_envs=8, num_steps=128, num_epochs=4, num_minibatches=4, learning_rate=2.5e-4,
             anneal_learning_rate=True, clip_ratio=0.1, shared_torso=True, activation="relu",
             hidden=(512,), max_grad_norm=0.5),
    ),  # fmt: skip
    "dqn/ale:*": (_ATARI_RUN, _ATARI_REPLAY | dict(huber=True)),  # Mnih et al. 2015, with Adam
    "rainbow/ale:*": (  # Hessel et al. 2018
        _ATARI_RUN, _ATARI_REPLAY | _NO_EPSILON | dict(learning_rate=6.25e-5, adam_epsilon=1.5e-4,
                                                       target_period=2_000)
    ),
    "apex/ale:*": (_ATARI_RUN, _ATARI_REPLAY | _APEX | dict(num_envs=32)),  # DQN's
    "pqn/ale:*": (_ATARI_RUN,  # Gallici et al. 2024
        dict(num_envs=32, num_steps=32, num_epochs=2, num_minibatches=32, learning_rate=2.5e-4,
             epsilon_end=0.001, epsilon_fraction=0.1, return_lambda=0.65, hidden=(512,)),
    ),  # fmt: skip
    "impala/ale:*": (_ATARI_RUN, dict(shared_torso=True, activation="relu", hidden=(512,))),
    "ppo/Acrobot-v1": (500_000,
        dict(num_envs=16, num_steps=128, num_epochs=4, num_minibatches=8, learning_rate=1e-3,
             gae_lambda=0.94, entropy_coefficient=0.0, normalize_observations=True),
    ),  # fmt: skip
    # Without the scale 2 of 52 seeds stop exploring before the goal; with it 0 of 128.
    "ppo/MountainCar-v0": (1_000_000,
        dict(num_envs=16, num_steps=32, num_epochs=8, num_minibatches=4, learning_rate=3e-3,
             gae_lambda=0.98, reward_scale=0.1, entropy_coefficient=0.01, clip_value=False,
             normalize_observations=True),
    ),  # fmt: skip
    "ppo/MountainCarContinuous-v0": (300_000,
        dict(num_envs=16, num_steps=512, num_epochs=8, num_minibatches=8, learning_rate=3e-3,
             discount=0.999, gae_lambda=0.98, entropy_coefficient=0.0, clip_value=False,
             normalize_observations=True),
    ),  # fmt: skip
    "ppo/Pendulum-v1": (500_000,
        dict(num_envs=16, num_steps=256, num_epochs=10, num_minibatches=32, learning_rate=1e-3,
             discount=0.9, entropy_coefficient=0.0, clip_value=False, normalize_observations=True),
    ),  # fmt: skip
    # without layer norm and with twice the rate 8 of 40 seeds end below 160
    "dqn/CartPole-v1": (100_000, _CLASSIC | dict(layer_norm=True, learning_rate=5e-4)),
    "dqn/Acrobot-v1": (100_000, _CLASSIC),
    "c51/CartPole-v1": (100_000, _CLASSIC | dict(v_min=0.0, v_max=100.0)),
    "c51/Acrobot-v1": (100_000, _CLASSIC | dict(v_min=-100.0, v_max=0.0)),
    # a kappa of 1 is far below these returns: errors count by their sign alone
    "qr_dqn/CartPole-v1": (
        100_000, _CLASSIC | dict(target_period=1, target_tau=0.01, kappa=10.0, num_quantiles=25)
    ),
    "qr_dqn/Acrobot-v1": (100_000, _CLASSIC),
    "iqn/CartPole-v1": (100_000, _CLASSIC),
    "iqn/Acrobot-v1": (100_000, _CLASSIC),
    "rainbow/CartPole-v1": (100_000, _CLASSIC | _RAINBOW | dict(v_min=0.0, v_max=100.0)),
    "rainbow/Acrobot-v1": (100_000, _CLASSIC | _RAINBOW | dict(v_min=-100.0, v_max=0.0)),
    "apex/CartPole-v1": (100_000, _CLASSIC | _APEX | dict(n_step=1)),
    "apex/Acrobot-v1": (100_000, _CLASSIC | _APEX),
    "pqn/CartPole-v1": (500_000, _PQN),
    "pqn/Acrobot-v1": (500_000, _PQN),
    "a2c/CartPole-v1": (500_000, _A2C),
    "a2c/Acrobot-v1": (500_000, _A2C | dict(normalize_observations=True)),
    # Unscaled returns of up to 100 let one late failure undo a seed for good.
    "impala/CartPole-v1": (500_000, _IMPALA | dict(reward_scale=0.1)),
    "impala/LunarLander-v3": (1_000_000,
        dict(num_envs=16, num_steps=128, num_epochs=4, num_minibatches=4, learning_rate=2e-3,
             rmsprop=False, discount=0.995, gae_lambda=0.98, entropy_coefficient=0.01,
             normalize_observations=True, hidden=(64, 64)),
    ),  # fmt: skip
    "impala/Acrobot-v1": (500_000, _IMPALA | dict(normalize_observations=True)),
    "apg/Pendulum-v1": (1_000_000, dict(num_envs=16, num_steps=64, learning_rate=1e-2)),
    "ars/CartPole-v1": (500_000, {}),
    "ars/Pendulum-v1": (15_000_000,
        dict(hidden=(32,), activation="relu", episodes_per_candidate=4, learning_rate=0.2,
             anneal_learning_rate=True, noise_std=0.1, normalize_observations=False),
    ),  # fmt: skip
    "es/CartPole-v1": (
        500_000, dict(hidden=(), directions=16, learning_rate=0.05, noise_std=0.1,
                      normalize_observations=True)
    ),
    "es/Pendulum-v1": (15_000_000,
        dict(hidden=(32,), activation="relu", episodes_per_candidate=8, learning_rate=0.1,
             anneal_learning_rate=True, noise_std=0.1, weight_decay=0.03),
    ),  # fmt: skip
    "ppo/Breakout-MinAtar": (
        1_000_000, _PPO_MINATAR | dict(hidden=(256, 128), shared_torso=True, gae_lambda=0.8,
                                       entropy_coefficient=0.03)
    ),
    "ppo/Asterix-MinAtar": (  # a long lambda leaves it at 2
        1_000_000, _PPO_MINATAR | dict(hidden=(256,), shared_torso=True, gae_lambda=0.65)
    ),
    "ppo/Ant-v5": (  # EnvPool's or Gymnasium's
        dict(total_steps=1_500_000, eval_episodes=32, actors=2),
        _PPO_BRAX | dict(num_envs=64, num_steps=64)
    ),
    # At a discount of 0.98 carts drift to the end of their rail.
    "ppo/brax/inverted_pendulum": (1_000_000, _PPO_BRAX | dict(discount=0.99)),
    # A tanh: 8,482 instead of 7,979 after 3e6 steps (seeds 10 to 12); 6,914 without a falling rate.
    "ppo/brax/ant": (3_000_000, _PPO_BRAX | dict(squash=True)),
    "ppo/brax/hopper": (3_000_000, _PPO_LEGS),
    "ppo/brax/walker2d": (3_000_000, _PPO_LEGS),
    # Measured: reacher and halfcheetah. Not: humanoid, humanoidstandup, pusher, double pendulum.
    "ppo/brax/*": (3_000_000, _PPO_BRAX),
    # White noise averages out before the cart moves. Discount, rewards and layer norm stop drift.
    "sac/brax/inverted_pendulum": (120_000,
        _SAC_SHORT_STEPS | dict(n_step=4, buffer_size=60_000, discount=0.999, reward_scale=0.05,
                                noise_correlation=0.9, layer_norm=True),
    ),  # fmt: skip
    "sac/brax/*": (8_000_000,  # brax's notebook for walker2d; not measured here
        dict(num_envs=128, updates_per_iteration=32, batch_size=128, buffer_size=1_048_576,
             learning_starts=8_192, learning_rate=6e-4, discount=0.997, reward_scale=5.0,
             normalize_observations=True),
    ),  # fmt: skip
    # White noise of 0.01 s never swings the pole up: 160 to 420 after 1e6 to 3e6 steps.
    "ppo/playground/CartpoleSwingup": (
        500_000, _PPO_PLAYGROUND | dict(initial_log_std=0.0), dict(action_repeat=4)
    ),
    # PPO with 4 epochs leaves one of two seeds of CartpoleBalance below 510.
    "ppo/playground/Cartpole*": (1_000_000, _PPO_PLAYGROUND),
    "ppo/playground/*": (5_000_000, _PPO_PLAYGROUND),  # not measured here
    "sac/playground/CartpoleSwingup": (  # white noise: 747, not 849 (seeds 10 to 15)
        100_000, _SAC_SHORT_STEPS | dict(n_step=4, buffer_size=100_000, noise_correlation=0.9)
    ),
    "sac/playground/Cartpole*": (100_000, _SAC_SHORT_STEPS),
    # Playground's own of the dm_control suite, with a smaller replay; not measured here.
    "sac/playground/*": (5_000_000,
        dict(num_envs=128, updates_per_iteration=8, batch_size=512, buffer_size=1_048_576,
             learning_starts=8_192, learning_rate=1e-3, normalize_observations=True,
             layer_norm=True),
    ),  # fmt: skip
    "sac/Pendulum-v1": (10_000, _PENDULUM),
    "td3/Pendulum-v1": (20_000, _PENDULUM),
    "tqc/Pendulum-v1": (10_000, _PENDULUM),
    "crossq/Pendulum-v1": (20_000, _PENDULUM | dict(critic_hidden=(128, 128), learning_rate=1e-3)),
    "sac/MountainCarContinuous-v0": (60_000,  # white noise never leaves the valley
        dict(num_envs=16, updates_per_iteration=8, learning_starts=4000, buffer_size=100_000,
             batch_size=128, n_step=4, learning_rate=1e-3, discount=0.995, noise_correlation=0.95,
             hidden=(64, 64), critic_hidden=(64, 64)),
    ),  # fmt: skip
    "ppo/*-MinAtar": (1_000_000,
                      _PPO_MINATAR | dict(hidden=(256,), shared_torso=True, gae_lambda=0.8)),
    "dqn/*-MinAtar": (1_000_000, _MINATAR | dict(huber=True)),
    "qr_dqn/*-MinAtar": (1_000_000, _MINATAR),
    # Not measured here: IQN with QR-DQN's settings, C51 with Rainbow's epsilon of Adam.
    "iqn/*-MinAtar": (1_000_000, _MINATAR),
    "c51/*-MinAtar": (1_000_000, _MINATAR | _MINATAR_ATOMS | dict(adam_epsilon=1e-6)),
    # Weighted cross-entropy gradients are small beside _MINATAR's epsilon. Breakout needs larger
    # steps than the others; Asterix stays at 1 with them and needs smaller ones still.
    "rainbow/Breakout-MinAtar": (1_000_000, _RAINBOW_MINATAR | dict(learning_rate=1e-3)),
    "rainbow/Asterix-MinAtar": (1_000_000, _RAINBOW_MINATAR | dict(learning_rate=1e-4)),
    "rainbow/*-MinAtar": (1_000_000, _RAINBOW_MINATAR),
    "pqn/*-MinAtar": (1_000_000,  # the settings of Gallici et al. 2024
        dict(num_envs=128, num_steps=32, num_epochs=2, num_minibatches=32, learning_rate=5e-4,
             epsilon_end=0.05, epsilon_fraction=0.1, return_lambda=0.65, network="cnn",
             hidden=(128,)),
    ),  # fmt: skip
}
PRESETS = tuple(
    Preset(name, algo, run if isinstance(run, dict) else {"total_steps": run}, *env)
    for name, (run, algo, *env) in _TABLE.items()
)
