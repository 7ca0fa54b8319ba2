"""The backend of environments on the host: actors step them, programs hold a stand-in."""

from __future__ import annotations

import importlib.util

from jaxrl_fast import distributed, tree
from jaxrl_fast.actors import play
from jaxrl_fast.actors.programs import HostPrograms
from jaxrl_fast.actors.watch import Watch
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.engine.backend import Film
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.evaluate import Evaluation
from jaxrl_fast.engine.grid import ahead_of, ring_rows, sizes_of
from jaxrl_fast.envs.host.api import HostEnv, StandIn
from jaxrl_fast.errors import ConfigError, MissingExtraError


class OnHost:
    """See `engine.backend.Backend`."""

    one_program = False

    def check(self, env: HostEnv, algo: Algorithm, config: RunConfig) -> None:
        if config.env_devices > 1 or config.sampling_groups > 1:
            raise ConfigError("mesh", config.mesh, "None: the environments of this run are on the host")
        if config.selection:
            raise ConfigError("selection", config.selection.kind, "None: the environments are on the host, one member a run")
        if distributed.several():
            raise ConfigError("distributed", True, "False: the environments of this run are on the host, in one process")
        if algo.whole_rollouts:
            raise ConfigError("environment", env.spec.name, f"one on the device: {algo.name} needs whole rollouts in its program")
        if config.offline:
            raise ConfigError("experience_fraction", 1, "below 1: environments on the host need training steps")
        if config.ahead and not algo.takes_older_rollouts:
            valid = f"0: {algo.name} learns from its own rollouts; impala corrects for older ones"
            raise ConfigError("ahead", config.ahead, valid)
        if config.actors_on == "ray" and importlib.util.find_spec("ray") is None:
            raise MissingExtraError("actors_on = 'ray'", "ray")
        if config.actors > algo.num_envs:
            raise ConfigError("actors", config.actors, f"at most num_envs = {algo.num_envs}")
        _check_at_once(env, algo, config)

    def placed(self, env: HostEnv, algo: Algorithm, config: RunConfig) -> StandIn:
        return StandIn(env.spec, in_any_order=env.at_once(algo.num_envs) is not None)

    def actor_bytes(self, run, config: RunConfig, rollout: int, agent: int) -> int:
        """Return the bytes of finished and running rollouts, and of the ring of asynchronous ones.

        Agents beside the state's: of these rollouts, of the current and the previous one (for a
        restart), and an update's result, which is not donated.
        """
        ahead, steps = ahead_of(config, run.algo), run.algo.num_steps
        ring = ring_rows(steps) // steps if run.env.in_any_order else 0
        return (ahead + 1 + ring) * rollout + (ahead + 3) * agent

    def programs(self, prepared, clock, reported, stopping) -> HostPrograms:
        return HostPrograms(prepared, clock, reported, stopping)

    def evaluate(self, env: HostEnv, algo, agent, key, episodes, mode, config: RunConfig) -> Evaluation:
        watch = Watch(env.spec.name, config.host_timeout)
        return Evaluation(*play.evaluate(env, algo, agent, key, episodes, mode, watch=watch))

    def film(self, env: HostEnv, algo, agent, key, max_steps, patience) -> Film:
        return Film(play.frames(env, tree.as_float32(algo), agent, key, max_steps, patience))


def _check_at_once(env: HostEnv, algo: Algorithm, config: RunConfig) -> None:
    """Raise ConfigError for asynchronous environments that do not fit the actors."""
    sizes = sizes_of(algo.num_envs, config.actors)
    at_once = next((found for size in (algo.num_envs, *sizes) if (found := env.at_once(size)) is not None), None)
    if at_once is None:
        return
    if config.actors_on == "threads" and config.actors > 1:
        raise ConfigError("actors", config.actors, "1 with env.batch_size: environments already step while the policy runs")
    if not algo.takes_older_rollouts:
        raise ConfigError("env.batch_size", at_once, f"0: {algo.name} learns from its own rollouts, none begun earlier")
    for size in sizes:
        each = f"the {size} environments of an actor" if config.actors > 1 else f"num_envs = {size}"
        if size % at_once or size == at_once < algo.num_envs:
            raise ConfigError("env.batch_size", at_once, f"a divisor of {each} and less, or 0 for all at once")
