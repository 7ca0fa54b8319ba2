"""Peers' programs at their own settings: functions of a key, and contestants."""

from __future__ import annotations

import importlib
from typing import Any

from jaxrl_fast.bench import peers
from jaxrl_fast.bench.peers import legacy_make
from jaxrl_fast.bench.race import Contestant

PPO_CARTPOLE: dict[str, Any] = {
    "LR": 2.5e-4, "NUM_ENVS": 4, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": 500_000, "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4, "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01,
    "VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5, "ACTIVATION": "tanh", "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
}  # fmt: skip
DQN_CARTPOLE: dict[str, Any] = {
    "NUM_ENVS": 10,
    "BUFFER_SIZE": 10_000,
    "BUFFER_BATCH_SIZE": 128,
    "TOTAL_TIMESTEPS": 500_000,
    "EPSILON_START": 1.0,
    "EPSILON_FINISH": 0.05,
    "EPSILON_ANNEAL_TIME": 250_000,
    "TARGET_UPDATE_INTERVAL": 500,
    "LR": 2.5e-4,
    "LEARNING_STARTS": 10_000,
    "TRAINING_INTERVAL": 10,
    "LR_LINEAR_DECAY": False,
    "GAMMA": 0.99,
    "TAU": 1.0,
    "ENV_NAME": "CartPole-v1",
}
# purejaxql's config/alg/pqn_cartpole.yaml, its tests during training left out
PQN_CARTPOLE: dict[str, Any] = {
    "TOTAL_TIMESTEPS": 500_000,
    "TOTAL_TIMESTEPS_DECAY": 500_000,
    "NUM_ENVS": 32,
    "NUM_STEPS": 64,
    "EPS_START": 1.0,
    "EPS_FINISH": 0.2,
    "EPS_DECAY": 0.2,
    "NUM_MINIBATCHES": 16,
    "NUM_EPOCHS": 4,
    "NORM_INPUT": False,
    "HIDDEN_SIZE": 256,
    "NUM_LAYERS": 2,
    "NORM_TYPE": "layer_norm",
    "LR": 1e-4,
    "MAX_GRAD_NORM": 10,
    "LR_LINEAR_DECAY": True,
    "REW_SCALE": 0.1,
    "GAMMA": 0.99,
    "LAMBDA": 0.95,
    "ENV_NAME": "CartPole-v1",
    "TEST_DURING_TRAINING": False,
    "WANDB_MODE": "disabled",
}


def rejax_program(package, name, environment, steps, settings, agent=None):
    """Return rejax's algorithm as `key -> (state, evaluations)`, without the evaluations.

    agent: actions -> the agent to take, if not the algorithm's own.
    """
    env, params = legacy_make(environment)
    own = {"total_timesteps": steps, "eval_freq": steps, "skip_initial_evaluation": True}
    algo = package.get_algo(name).create(env=env, env_params=params, **settings | own)
    algo = algo.replace(eval_callback=lambda algo, state, key: ())
    if agent:
        algo = algo.replace(agent=agent(env.action_space(params).n))
    return lambda key: algo.train(key)


def rejax_dqn(package, config):
    """Return rejax's DQN at the settings of PureJaxRL's `config`, or with its "AGENT"."""
    from flax import linen as nn

    networks = importlib.import_module("rejax.networks")
    total = config["TOTAL_TIMESTEPS"]
    settings = {
        "num_envs": config["NUM_ENVS"],
        "num_epochs": 1,
        "buffer_size": config["BUFFER_SIZE"],
        "fill_buffer": config["LEARNING_STARTS"],
        "batch_size": config["BUFFER_BATCH_SIZE"],
        "learning_rate": config["LR"],
        "gamma": config["GAMMA"],
        "target_update_freq": config["TARGET_UPDATE_INTERVAL"],
        "polyak": 1.0 - config["TAU"],
        "eps_start": config["EPSILON_START"],
        "eps_end": config["EPSILON_FINISH"],
        "exploration_fraction": config["EPSILON_ANNEAL_TIME"] / total,
        "ddqn": False,
    }
    mlp = lambda actions: networks.EpsilonGreedyPolicy(networks.DiscreteQNetwork)(
        hidden_layer_sizes=(120, 84), action_dim=actions, activation=nn.relu
    )
    agent = config.get("AGENT", mlp)
    return rejax_program(package, "dqn", config["ENV_NAME"], total, settings, agent)


def rejax_ppo(package, config):
    """Return rejax's PPO at the settings of PureJaxRL's `config`.

    Its learning rate is constant, and each network has an Adam.
    """
    settings = {
        "agent_kwargs": {"activation": config["ACTIVATION"]},
        "num_envs": config["NUM_ENVS"],
        "num_steps": config["NUM_STEPS"],
        "num_epochs": config["UPDATE_EPOCHS"],
        "num_minibatches": config["NUM_MINIBATCHES"],
        "learning_rate": config["LR"],
        "gamma": config["GAMMA"],
        "gae_lambda": config["GAE_LAMBDA"],
        "clip_eps": config["CLIP_EPS"],
        "ent_coef": config["ENT_COEF"],
        "vf_coef": config["VF_COEF"],
        "max_grad_norm": config["MAX_GRAD_NORM"],
    }
    steps = config["TOTAL_TIMESTEPS"]
    return rejax_program(package, "ppo", config["ENV_NAME"], steps, settings)


def episode_returns(metrics):
    """Return the returns of finished episodes, in time order, of PureJaxRL's PPO metrics."""
    import numpy as np

    done = np.asarray(metrics["returned_episode"]).reshape(-1)
    return np.asarray(metrics["returned_episode_returns"]).reshape(-1)[done]


def purejaxrl_steps(config):
    """Environment steps that PureJaxRL takes: whole iterations, rounded down."""
    rollout = config["NUM_ENVS"] * config.get("NUM_STEPS", 1)
    return config["TOTAL_TIMESTEPS"] // rollout * rollout


def final_return(metrics):
    """Return the mean return of the last tenth of episodes (PPO) or iterations of a run."""
    import numpy as np

    if "td_loss" in metrics:  # purejaxql's, means over the rollout
        returns = np.asarray(metrics["returned_episode_returns"]).reshape(-1)
    elif "returned_episode" in metrics:
        returns = episode_returns(metrics)
    else:
        returns = np.asarray(metrics["returns"]).reshape(-1)
    last = returns[-max(1, int(len(returns) * 0.1)) :]
    return float(np.mean(last)) if len(returns) else float("nan")


def typed_key(turn):
    import jax

    return (jax.random.key(turn),)


def old_key(turn):
    import jax

    return (jax.random.PRNGKey(turn),)


def load_or_note(notes, load):
    """`[load()]`, or [] and a note where the peer is absent."""
    try:
        return [load()]
    except peers.PeerAbsent as absent:
        notes.append(f"peer absent, {absent}")
        return []


def purejaxrl(path, program, config, notes):
    """PureJaxRL's `ppo` or `dqn` at `config`, one run; [] and a note where it is absent."""

    def load():
        make_train = peers.purejaxrl(path, program)
        steps = purejaxrl_steps(config) if "NUM_STEPS" in config else config["TOTAL_TIMESTEPS"]
        score = lambda out: final_return(out["metrics"])
        return Contestant("PureJaxRL", steps, lambda: make_train(dict(config)), typed_key, score)

    return load_or_note(notes, load)


def rejax(path, algorithm, config, notes):
    """rejax's PPO or DQN at `config`, one run; [] and a note where it is absent."""

    def load():
        package = peers.rejax(path)
        build = {"ppo": rejax_ppo, "dqn": rejax_dqn}[algorithm]
        steps = config["TOTAL_TIMESTEPS"]
        return Contestant("rejax", steps, lambda: build(package, config), typed_key)

    return load_or_note(notes, load)


def purejaxql(path, program, config, notes):
    """purejaxql's PQN at `config`, one run; [] and a note where it is absent."""

    def load():
        make_train = peers.purejaxql(path, program)
        build = lambda: make_train(dict(config))
        score = lambda out: final_return(out["metrics"])
        return Contestant("purejaxql", purejaxrl_steps(config), build, old_key, score)

    return load_or_note(notes, load)
