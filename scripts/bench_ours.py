"""Our side of the benchmarks: peers' settings in our names, and a run as a contestant."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bench_common import Contestant


def final_return(metrics: Any, part: float = 0.1) -> float:
    """Mean return of the episodes in the last tenth of the log rows of one run (`metrics` of `make_train`)."""
    import numpy as np

    metric = metrics["episode_return"]
    if hasattr(metric, "total"):
        total, count = np.asarray(metric.total, np.float64), np.asarray(metric.count, np.float64)
    else:
        mean = np.asarray(metric, np.float64)
        count = np.isfinite(mean).astype(np.float64)
        total = np.where(count > 0, mean, 0.0)
    total, count = np.atleast_1d(total), np.atleast_1d(count)
    last = max(1, round(len(total) * part))
    return float(total[-last:].sum() / max(count[-last:].sum(), 1e-9))


def ppo_settings(config: dict) -> dict[str, Any]:
    """PureJaxRL's PPO configuration in our names."""
    return {
        "num_envs": config["NUM_ENVS"],
        "num_steps": config["NUM_STEPS"],
        "num_epochs": config["UPDATE_EPOCHS"],
        "num_minibatches": config["NUM_MINIBATCHES"],
        "learning_rate": config["LR"],
        "anneal_learning_rate": config["ANNEAL_LR"],
        "discount": config["GAMMA"],
        "gae_lambda": config["GAE_LAMBDA"],
        "clip_ratio": config["CLIP_EPS"],
        "entropy_coefficient": config["ENT_COEF"],
        "value_coefficient": config["VF_COEF"],
        "max_grad_norm": config["MAX_GRAD_NORM"],
        "network": "mlp",  # PureJaxRL flattens MinAtar's images
        "hidden": (64, 64),
        "activation": config["ACTIVATION"],
    }


def dqn_settings(config: dict) -> dict[str, Any]:
    """PureJaxRL's DQN configuration in our names."""
    return {
        "num_envs": config["NUM_ENVS"],
        "num_steps": 1,
        "updates_per_iteration": config["NUM_ENVS"] // config["TRAINING_INTERVAL"],
        "batch_size": config["BUFFER_BATCH_SIZE"],
        "buffer_size": config["BUFFER_SIZE"],
        "learning_starts": config["LEARNING_STARTS"],
        "learning_rate": config["LR"],
        "anneal_learning_rate": config["LR_LINEAR_DECAY"],
        "discount": config["GAMMA"],
        "target_period": config["TARGET_UPDATE_INTERVAL"] // config["TRAINING_INTERVAL"],
        "target_tau": config["TAU"],
        "epsilon_start": config["EPSILON_START"],
        "epsilon_end": config["EPSILON_FINISH"],
        "epsilon_fraction": config["EPSILON_ANNEAL_TIME"] / config["TOTAL_TIMESTEPS"],
        "double": False,
        "dueling": False,
        "huber": False,
        "max_grad_norm": 1e9,  # the peer does not clip
        "network": config.get("NETWORK", "mlp"),
        "hidden": config.get("HIDDEN", (120, 84)),
        "activation": config.get("ACTIVATION", "relu"),
    }


def pqn_settings(config: dict) -> dict[str, Any]:
    """purejaxql's PQN configuration in our names."""
    return {
        "num_envs": config["NUM_ENVS"],
        "num_steps": config["NUM_STEPS"],
        "num_epochs": config["NUM_EPOCHS"],
        "num_minibatches": config["NUM_MINIBATCHES"],
        "learning_rate": config["LR"],
        "anneal_learning_rate": config["LR_LINEAR_DECAY"],
        "discount": config["GAMMA"],
        "return_lambda": config["LAMBDA"],
        "epsilon_start": config["EPS_START"],
        "epsilon_end": config["EPS_FINISH"],
        "epsilon_fraction": config["EPS_DECAY"],
        "max_grad_norm": float(config["MAX_GRAD_NORM"]),
        "layer_norm": config["NORM_TYPE"] == "layer_norm",
        "hidden": (config["HIDDEN_SIZE"],) * config["NUM_LAYERS"],
        "activation": "relu",
    }


def run(jf: Any, algorithm: str, config: dict, name: str = "jaxrl_fast", **switches: Any) -> Contestant:
    """Our program of `config`, one run; `switches`: settings that the peer does not have."""
    import jax

    settings = {"PPO": ppo_settings, "DQN": dqn_settings, "PQN": pqn_settings}[algorithm](config) | switches
    scale = config.get("REW_SCALE", 1)
    wrappers = {} if scale == 1 else {"reward_scale": scale}

    def build():
        env = jf.make(config["ENV_NAME"], **wrappers)
        return jf.make_train(getattr(jf, algorithm)(**settings), env, total_steps=config["TOTAL_TIMESTEPS"])

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
    """The same configuration over fewer steps; what comes before the first update keeps its share of them."""
    if scale == 1:
        return config
    spans = ("TOTAL_TIMESTEPS", "TOTAL_TIMESTEPS_DECAY", "EPSILON_ANNEAL_TIME")
    config = config | {name: max(1, int(config[name] * scale)) for name in spans if name in config}
    if "LEARNING_STARTS" not in config:
        return config
    envs = config["NUM_ENVS"]
    starts = max(config["LEARNING_STARTS"] * scale, config["BUFFER_BATCH_SIZE"])
    return config | {"LEARNING_STARTS": math.ceil(starts / envs) * envs}


def usable(jf: Any, algorithm: str, notes: list[str]) -> bool:
    """Whether our side can be measured; says so where not."""
    if jf is not None and hasattr(jf, "make_train") and hasattr(jf, algorithm):
        return True
    notes.append(f"jaxrl_fast is absent, or has no make_train or {algorithm}: measured without it")
    return False


def preset_run(algorithm: str, environment: str) -> dict[str, Any]:
    """The settings of a preset's run; the preset must be there."""
    from jaxrl_fast.algorithms.presets import find_preset

    found = find_preset(algorithm, environment)
    assert found is not None, f"{algorithm}/{environment} has no preset"
    return found.run


def population_mode() -> str:
    """How the library lays members out by default."""
    import jax

    return "map" if jax.local_devices()[0].platform == "cpu" else "vmap"


def members(one: Contestant, size: int, how: str, name: str) -> Contestant:
    """A contestant of one key as one of `size` keys, scores averaged."""
    import jax

    devices = jax.local_devices()
    devices = devices if size % len(devices) == 0 else devices[:1]

    def keys(turn):
        return (jax.vmap(jax.random.key)(jax.numpy.arange(size, dtype=jax.numpy.uint32) + turn * size),)

    def member(out, i):
        return jax.tree.map(lambda x: x[i], out)

    judge = one.score
    score = judge and (lambda out: sum(judge(member(out, i)) for i in range(size)) / size)
    build = lambda: spread(one.build(), how, devices)
    return Contestant(name, size * one.steps, build, keys, score, one.count)


def spread(fn: Callable, how: str, devices: list) -> Callable:
    """`fn` of one key -> of many keys: "vmap" on one device, or "map": shared out over devices, one after the other."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, PartitionSpec

    if how == "vmap":
        return jax.vmap(fn)
    over = PartitionSpec("members")
    return jax.shard_map(
        lambda keys: jax.lax.map(fn, keys),
        mesh=Mesh(np.asarray(devices), ("members",)),
        in_specs=over,
        out_specs=over,
        check_vma=False,
    )
