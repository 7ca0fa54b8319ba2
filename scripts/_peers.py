"""Peers to measure against: PureJaxRL and rejax, loaded from a checkout of theirs.

Neither is a dependency of ours and none of their code is here. A benchmark is given the path of a checkout
(`--purejaxrl DIR`, `--rejax DIR`, or the environment variables PUREJAXRL and REJAX); without one it says that the peer
is absent and measures only us. Their packages must be there: flax, optax, chex, distrax, gymnax, and flashbax for
PureJaxRL's DQN.

The peers run as they are, on today's jax and gymnax, by shims that touch nothing inside their training programs:

- `gymnax.make` gives back the five values of gymnax before 1.0. `info` is cut to what it held then: PureJaxRL returns
  `info` of every step of the run, and gymnax 1.0's terminal observations in it would cost the peer time unfairly.
- `wandb`, `brax` and `navix`, which their wrappers import and these programs never use, are empty during the import.
- `jax.tree_map`, removed from jax, is `jax.tree.map`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path


class PeerAbsent(Exception):
    """The peer cannot be measured here; the message says why."""


class LegacyEnv:
    """A gymnax environment of any version, speaking the five-value API of gymnax before 1.0."""

    def __init__(self, env, params):
        self._env, self._params = env, params

    def __getattr__(self, name):
        if name.startswith("__") or name in ("_env", "_params"):  # copy and pickle probe an empty instance
            raise AttributeError(name)
        return getattr(self._env, name)

    def __deepcopy__(self, memo):
        return self  # jit holds environments static, by identity

    def reset(self, key, params=None):
        return self._env.reset(key, self._params if params is None else params)

    def step(self, key, state, action, params=None):
        out = self._env.step(key, state, action, self._params if params is None else params)
        if len(out) == 5:
            return out
        obs, state, reward, terminated, truncated, info = out
        info = {name: value for name, value in info.items() if name == "discount"}
        return obs, state, reward, terminated | truncated, info

    def observation_space(self, params=None):
        return self._env.observation_space(self._params if params is None else params)

    def action_space(self, params=None):
        return self._env.action_space(self._params if params is None else params)


def legacy_make(name, **kwargs):
    """`gymnax.make` with the old step."""
    import gymnax

    env, params = gymnax.make(name, **kwargs)
    return LegacyEnv(env, params), params


class _Overlay(types.ModuleType):
    """A module with some names of its own and the rest of another."""

    def __init__(self, module, **names):
        super().__init__(module.__name__)
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class _Stub(types.ModuleType):
    """A module in which every name exists and is useless."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@contextlib.contextmanager
def _modules(**names):
    """Put modules into sys.modules for the length of an import; `__` in a name is a dot."""
    names = {name.replace("__", "."): module for name, module in names.items()}
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _load(name, path, package=False):
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)] if package else None
    )
    module = importlib.util.module_from_spec(spec)
    if package:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _checkout(peer, path, folders, file):
    """The folder that holds `file`: the path given, or one of `folders` below it."""
    if not path:
        raise PeerAbsent(f"{peer}: no checkout given (--{peer} DIR or {peer.upper()}=DIR)")
    root = Path(path).expanduser().resolve()
    for folder in (root, *(root / folder for folder in folders)):
        if (folder / file).exists():
            return folder
    raise PeerAbsent(f"{peer}: {file} is not in {root} or its {', '.join(folders)}")


def purejaxrl(path, program="ppo"):
    """`make_train` of PureJaxRL's `ppo`, `dqn` or `ppo_continuous_action`, from a checkout at `path`.

    `make_train(config)` gives `key -> {"runner_state", "metrics"}`; pass counts in `config` as integers.
    """
    source = _checkout("purejaxrl", path, ("purejaxrl",), f"{program}.py")
    stubs = {
        name: _Stub(name.replace("__", "."))
        for name in ("wandb", "navix", "brax", "brax__envs", "brax__envs__wrappers", "brax__envs__wrappers__training")
    }
    try:
        import gymnax
        import gymnax.wrappers.purerl  # so that the real one is put back
        import jax

        with _modules(**stubs):
            wrappers = _load("_purejaxrl_wrappers", source / "wrappers.py")
            with _modules(wrappers=wrappers, gymnax__wrappers__purerl=wrappers):
                module = _load(f"_purejaxrl_{program}", source / f"{program}.py")
    except ImportError as error:
        raise PeerAbsent(f"purejaxrl: {error}") from error
    module.gymnax = _Overlay(gymnax, make=legacy_make)
    module.jax = _Overlay(jax, tree_map=jax.tree.map)
    # the continuous program asks for a brax environment: give it any gymnax one of that name
    module.BraxGymnaxWrapper = lambda name: legacy_make(name)[0]
    return module.make_train


def rejax(path):
    """The package `rejax` from a checkout at `path`, its environments made by the old `gymnax.make`."""
    source = _checkout("rejax", path, ("src/rejax",), "algos/dqn.py")
    try:
        importlib.import_module("gymnax")
        with _modules(**{name: _Stub(name) for name in ("navix", "brax")}):
            package = _load("rejax", source / "__init__.py", package=True)
    except ImportError as error:
        raise PeerAbsent(f"rejax: {error}") from error
    compat = importlib.import_module("rejax.compat")
    compat._gymnax_make = legacy_make
    return package


def add_arguments(parser, *peers):
    """`--purejaxrl DIR` and `--rejax DIR`, by default from the environment."""
    for peer in peers:
        parser.add_argument(
            f"--{peer}",
            metavar="DIR",
            default=os.environ.get(peer.upper()),
            help=f"a checkout of {peer} to measure against",
        )


# Their settings ------------------------------------------------------------------------------------------------------

PPO_CARTPOLE = {
    "LR": 2.5e-4,
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
    "TOTAL_TIMESTEPS": 500_000,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
}
PPO_MINATAR = PPO_CARTPOLE | {
    "LR": 5e-3,
    "NUM_ENVS": 64,
    "NUM_MINIBATCHES": 8,
    "TOTAL_TIMESTEPS": 1_000_000,
    "ACTIVATION": "relu",
    "ENV_NAME": "Breakout-MinAtar",
}
DQN_CARTPOLE = {
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


def rejax_dqn(package, config, evaluate=False):
    """rejax's DQN at the settings of PureJaxRL's `config`, as `key -> (state, evaluations)`.

    The evaluations that rejax always runs are left out unless asked for (then: 11 over the run, 128 episodes each).
    """
    from flax import linen as nn

    networks = importlib.import_module("rejax.networks")
    total = config["TOTAL_TIMESTEPS"]
    env, params = legacy_make(config["ENV_NAME"])
    algo = package.get_algo("dqn").create(
        env=env,
        env_params=params,
        num_envs=config["NUM_ENVS"],
        num_epochs=1,
        buffer_size=config["BUFFER_SIZE"],
        fill_buffer=config["LEARNING_STARTS"],
        batch_size=config["BUFFER_BATCH_SIZE"],
        learning_rate=config["LR"],
        gamma=config["GAMMA"],
        total_timesteps=total,
        target_update_freq=config["TARGET_UPDATE_INTERVAL"],
        polyak=1.0 - config["TAU"],
        eps_start=config["EPSILON_START"],
        eps_end=config["EPSILON_FINISH"],
        exploration_fraction=config["EPSILON_ANNEAL_TIME"] / total,
        ddqn=False,
        eval_freq=total // 10 if evaluate else total,
        skip_initial_evaluation=not evaluate,
    )
    agent = networks.EpsilonGreedyPolicy(networks.DiscreteQNetwork)(
        hidden_layer_sizes=(120, 84), action_dim=env.action_space(params).n, activation=nn.relu
    )
    algo = algo.replace(agent=agent)
    if not evaluate:
        algo = algo.replace(eval_callback=lambda algo, state, key: ())
    return lambda key: algo.train(key)


def rejax_ppo(package, config):
    """rejax's PPO at the settings of PureJaxRL's `config` (constant learning rate, an Adam for each network)."""
    total = config["TOTAL_TIMESTEPS"]
    env, params = legacy_make(config["ENV_NAME"])
    algo = package.get_algo("ppo").create(
        env=env,
        env_params=params,
        agent_kwargs={"activation": config["ACTIVATION"]},
        num_envs=config["NUM_ENVS"],
        num_steps=config["NUM_STEPS"],
        num_epochs=config["UPDATE_EPOCHS"],
        num_minibatches=config["NUM_MINIBATCHES"],
        learning_rate=config["LR"],
        gamma=config["GAMMA"],
        gae_lambda=config["GAE_LAMBDA"],
        clip_eps=config["CLIP_EPS"],
        ent_coef=config["ENT_COEF"],
        vf_coef=config["VF_COEF"],
        max_grad_norm=config["MAX_GRAD_NORM"],
        total_timesteps=total,
        eval_freq=total,
        skip_initial_evaluation=True,
    )
    algo = algo.replace(eval_callback=lambda algo, state, key: ())
    return lambda key: algo.train(key)


def episode_returns(metrics):
    """Returns of PureJaxRL's finished episodes of one run, in order of time (from the `metrics` of its PPO)."""
    import numpy as np

    done = np.asarray(metrics["returned_episode"]).reshape(-1)
    return np.asarray(metrics["returned_episode_returns"]).reshape(-1)[done]


def purejaxrl_steps(config):
    """Environment steps that PureJaxRL takes: whole iterations, rounded down."""
    rollout = config["NUM_ENVS"] * config.get("NUM_STEPS", 1)
    return config["TOTAL_TIMESTEPS"] // rollout * rollout


def final_return(metrics, part=0.1):
    """Mean return of the last tenth of PureJaxRL's run: of its episodes (PPO), or of its iterations (DQN)."""
    import numpy as np

    returns = episode_returns(metrics) if "returned_episode" in metrics else np.asarray(metrics["returns"]).reshape(-1)
    return float(np.mean(returns[-max(1, int(len(returns) * part)) :])) if len(returns) else float("nan")
