"""Our side of the benchmarks: peers' settings in our names, and a run as a contestant."""

from __future__ import annotations

import math
from typing import Any

from jaxrl_fast.bench.race import Contestant


def final_return(metrics: Any) -> float:
    """Return the mean return of a run's last tenth of log rows, of `make_train`'s metrics."""
    import numpy as np

    metric = metrics["episode_return"]
    if hasattr(metric, "total"):
        total, count = np.asarray(metric.total, np.float64), np.asarray(metric.count, np.float64)
    else:
        mean = np.asarray(metric, np.float64)
        count = np.isfinite(mean).astype(np.float64)
        total = np.where(count > 0, mean, 0.0)
    total, count = np.atleast_1d(total), np.atleast_1d(count)
    last = max(1, round(len(total) * 0.1))
    return float(total[-last:].sum() / max(count[-last:].sum(), 1e-9))


NAMES = {  # {a setting of PureJaxRL or purejaxql: ours}
    "NUM_ENVS": "num_envs",
    "NUM_STEPS": "num_steps",
    "UPDATE_EPOCHS": "num_epochs",
    "NUM_EPOCHS": "num_epochs",
    "NUM_MINIBATCHES": "num_minibatches",
    "LR": "learning_rate",
    "ANNEAL_LR": "anneal_learning_rate",
    "LR_LINEAR_DECAY": "anneal_learning_rate",
    "GAMMA": "discount",
    "GAE_LAMBDA": "gae_lambda",
    "LAMBDA": "return_lambda",
    "CLIP_EPS": "clip_ratio",
    "ENT_COEF": "entropy_coefficient",
    "VF_COEF": "value_coefficient",
    "MAX_GRAD_NORM": "max_grad_norm",
    "BUFFER_BATCH_SIZE": "batch_size",
    "BUFFER_SIZE": "buffer_size",
    "LEARNING_STARTS": "learning_starts",
    "TAU": "target_tau",
    "EPSILON_START": "epsilon_start",
    "EPSILON_FINISH": "epsilon_end",
    "EPS_START": "epsilon_start",
    "EPS_FINISH": "epsilon_end",
    "EPS_DECAY": "epsilon_fraction",
    "NETWORK": "network",
    "HIDDEN": "hidden",
    "ACTIVATION": "activation",
}


def in_our_names(config: dict) -> dict[str, Any]:
    """Return a peer's configuration in our names."""
    return {name: config[other] for other, name in NAMES.items() if other in config}


def ppo_settings(config: dict) -> dict[str, Any]:
    """Return PureJaxRL's PPO configuration in our names; its networks flatten images."""
    return in_our_names(config) | {"network": "mlp", "hidden": (64, 64)}


def dqn_settings(config: dict) -> dict[str, Any]:
    """Return PureJaxRL's DQN configuration in our names; it does not clip gradients."""
    network = {"network": "mlp", "hidden": (120, 84), "activation": "relu"}
    every = config["TRAINING_INTERVAL"]
    return network | in_our_names(config) | {
        "num_steps": 1,
        "updates_per_iteration": config["NUM_ENVS"] // every,
        "target_period": config["TARGET_UPDATE_INTERVAL"] // every,
        "epsilon_fraction": config["EPSILON_ANNEAL_TIME"] / config["TOTAL_TIMESTEPS"],
        "double": False,
        "dueling": False,
        "huber": False,
        "max_grad_norm": 1e9,
    }


def pqn_settings(config: dict) -> dict[str, Any]:
    """Return purejaxql's PQN configuration in our names."""
    return in_our_names(config) | {
        "layer_norm": config["NORM_TYPE"] == "layer_norm",
        "hidden": (config["HIDDEN_SIZE"],) * config["NUM_LAYERS"],
        "activation": "relu",
    }


def run(
    jf: Any, algorithm: str, config: dict, name: str = "jaxrl_fast", **switches: Any
) -> Contestant:
    """Return our program of `config`, one run; `switches`: settings that the peer does not have."""
    import jax

    translate = {"PPO": ppo_settings, "DQN": dqn_settings, "PQN": pqn_settings}
    settings = translate[algorithm](config) | switches
    scale = config.get("REW_SCALE", 1)
    wrappers = {} if scale == 1 else {"reward_scale": scale}

    def build():
        env = jf.make(config["ENV_NAME"], **wrappers)
        algo = getattr(jf, algorithm)(**settings)
        return jf.make_train(algo, env, total_steps=config["TOTAL_TIMESTEPS"])

    return Contestant(
        name,
        config["TOTAL_TIMESTEPS"],
        build,
        lambda turn: (jax.random.key(turn),),
        lambda out: final_return(out[1]) / scale,
        env_steps,
    )


def env_steps(out: Any) -> int:
    """Steps that our program took over all its members: it rounds up to whole log rows."""
    import numpy as np

    steps = np.asarray(out[1]["env_steps"])
    return int(steps[..., -1].astype(np.int64).sum())


def scaled(config: dict, scale: float) -> dict:
    """Return a configuration over fewer steps; those before the first update keep their share."""
    if scale == 1:
        return config
    spans = ("TOTAL_TIMESTEPS", "TOTAL_TIMESTEPS_DECAY", "EPSILON_ANNEAL_TIME")
    config = config | {name: max(1, int(config[name] * scale)) for name in spans if name in config}
    if "LEARNING_STARTS" not in config:
        return config
    envs = config["NUM_ENVS"]
    starts = max(config["LEARNING_STARTS"] * scale, config["BUFFER_BATCH_SIZE"])
    return config | {"LEARNING_STARTS": math.ceil(starts / envs) * envs}
