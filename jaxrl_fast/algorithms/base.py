"""The algorithm: a frozen dataclass of settings and pure functions. Float settings are traced leaves, sizes are static.

    init(key)                                   -> agent                       parameters, optimizer, statistics
    begin(params, moments)                      -> agent                       the same around parameters that are there
    init_carry(num_envs)                        -> carry [B]                   () for a feed-forward policy
    evaluation_carry(num_envs)                  -> carry [B]                   the same, unless evaluations play otherwise
    draw(key, T, B)                             -> noise [T]                   everything random of T calls of `act`
    acting(agent)                               -> agent                       once a rollout, before its `act`s
    act(agent, carry, obs, noise, clock, mode)  -> (carry, action, extras)     mode: "random" | "sample" | "greedy"
    memory()                                    -> Memory
    observe(agent, trajectory)                  -> agent                       statistics that `prepare` needs, once a rollout
    seam(agent)                                 -> agent                       its environments begin anew, or are others
    prepare(agent, trajectory)                  -> rows [T, B]                 exactly what the memory stores
    update(agent, batch, key, clock)            -> (agent, metrics, priority)  one optimizer step
    finish(agent, rows)                         -> agent                       once an iteration, after its updates

    learn(agent, mem, iteration)                -> (agent, mem, metrics, played)       all of it, in this order

`learn` is one iteration: collect, observe, prepare, memory.add, updates, finish. An algorithm that looks at rollouts as
functions of the agent (a gradient through the environment, the returns of many candidates) overrides it, calls
`iteration.collect` with agents of its own making, and says so by `whole_rollouts`. The rollout that it returns counts: the
environments go on from there, and the log shows its episodes.

`bind(spec)` ties the settings to an environment's spaces (checked there) before any of these is called; inside them
`self.spec` is set. `check_env(env)` then refuses an environment for what its spec does not tell, before anything is
compiled. Rollout, loop, logging and checkpoints stand elsewhere, once.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.learning import Iteration, Metrics, Played, take_in, update_all
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.fields import check_settings
from jaxrl_fast.memory import Memory, Ring
from jaxrl_fast.spaces import Box, Dict, Discrete, Space
from jaxrl_fast.types import Clock, EnvSpec, PyTree, Trajectory


@tree.settings
class Algorithm:
    """Base class of algorithms: frozen settings, and pure functions of an agent.

    See the text of the module.
    """

    name: ClassVar[str] = "algorithm"
    action_spaces: ClassVar[tuple[type, ...]] = ()  # what `bind` accepts
    takes_older_rollouts: ClassVar[bool] = True  # `ahead` on the host: its loss has a meaning for actions of an older policy
    whole_rollouts: ClassVar[bool] = False  # `learn` plays rollouts of agents that it makes itself; none of their rows is kept
    rematerialize: ClassVar[bool] = False  # a gradient through a rollout computes each step again, it keeps its carry

    spec: EnvSpec | None = dataclasses.field(default=None, kw_only=True, repr=False, metadata={"static": True})

    def __post_init__(self):
        check_settings(self)

    # Sizes that the loop needs; subclasses have `num_envs` and `num_steps` as fields.
    @property
    def updates(self) -> int:
        """Optimizer steps an iteration."""
        raise NotImplementedError

    @property
    def warmup_steps(self) -> int:
        """Environment steps of random actions before the first update."""
        return 0

    @property
    def off_policy(self) -> bool:
        """Whether it learns from experience of older agents anyway, or corrects for it."""
        return self.memory().replays

    @property
    def steps_per_iteration(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def warmup_iterations(self) -> int:
        return -(-self.warmup_steps // self.steps_per_iteration)

    def bind(self, spec: EnvSpec) -> Algorithm:
        """These settings for an environment; raises ConfigError where they do not fit it."""
        if jax.tree_util.all_leaves([self]):
            raise ConfigError("algorithm", type(self).__name__, "a class with @jf.settings above it, as every subclass needs")
        _check_kind(spec, self.name, self.action_spaces)
        check_int("num_envs * num_steps", self.steps_per_iteration)
        _check_mask(spec)
        bound = dataclasses.replace(self, spec=spec)
        memory = bound.memory()
        if isinstance(memory, Ring) and memory.batch_size > memory.starts:
            what = f"at most {memory.starts}: capacity = {memory.capacity} holds no more"
            raise ConfigError("batch_size", memory.batch_size, what)
        getattr(bound, "torso", None)  # refuses a network that does not fit
        return bound

    def check_env(self, env: Env) -> None:
        """For what a spec does not tell; `self` is bound to it. Raises ConfigError."""

    def init_carry(self, num_envs: int) -> PyTree:
        return ()

    def evaluation_carry(self, num_envs: int) -> PyTree:
        """The same where nothing is learned from what is played."""
        return self.init_carry(num_envs)

    def init(self, key: jax.Array) -> PyTree:
        raise NotImplementedError

    def begin(self, params: PyTree, moments: PyTree = ()) -> PyTree:
        """An agent of these parameters and statistics of observations, all else (optimizer, targets) as `init` has it."""
        raise ConfigError("start_from", self.name, f"None: {type(self).__name__} has no method begin(params, moments)")

    def draw(self, key: jax.Array, num_steps: int, num_envs: int) -> PyTree:
        raise NotImplementedError

    def acting(self, agent: PyTree) -> PyTree:
        """What `act` gets as its agent, made once a rollout: a place for work that every step would repeat."""
        return agent

    def act(self, agent: PyTree, carry: PyTree, obs: PyTree, noise: PyTree, clock: Clock, mode: str) -> tuple:
        raise NotImplementedError

    def memory(self) -> Memory:
        raise NotImplementedError

    def learn(self, agent: PyTree, mem: PyTree, iteration: Iteration) -> tuple[PyTree, PyTree, Metrics, Played]:
        """Learn from one rollout -> (agent, memory, metrics, the rollout)."""
        played, metrics = iteration.collect(agent), {}
        if played.trajectory is not None:
            agent, mem, rows = take_in(self, agent, mem, played, iteration)
        if iteration.learns:
            agent, mem, metrics = update_all(self, agent, mem, iteration)
        if played.trajectory is not None:  # in warm-up too: the first batches are drawn from its rows
            agent = self.finish(agent, rows)
        return agent, mem, metrics, played

    def observe(self, agent: PyTree, trajectory: Trajectory) -> PyTree:
        """The agent after it has looked at a new rollout, before `prepare`."""
        return agent

    def seam(self, agent: PyTree) -> PyTree:
        """Return the agent without what it knows of episodes in progress: the next rollout does not go on with them.

        Called where environments on the host begin anew, and where PBT moves an agent to another member's environments.
        """
        return agent

    def prepare(self, agent: PyTree, trajectory: Trajectory) -> PyTree:
        raise NotImplementedError

    def update(self, agent: PyTree, batch: Any, key: jax.Array, clock: Clock) -> tuple[PyTree, Metrics, Any]:
        raise NotImplementedError

    def finish(self, agent: PyTree, rows: PyTree) -> PyTree:
        return agent


def action_mask(space: Space, obs: PyTree) -> jax.Array | None:
    """The legal-action flags bool [..., n] of an observation, None where the environment gives none."""
    if isinstance(space, Dict) and "action_mask" in space:
        return obs["action_mask"].astype(bool)
    return None


def _check_kind(spec: EnvSpec, name: str, kinds: tuple[type, ...]) -> None:
    """Refuse actions that the algorithm `name` does not choose, and say which algorithms do."""
    if not isinstance(spec.action, kinds):
        names = " or ".join(s.__name__ for s in kinds)
        need = f"{name} needs {names} actions, this has {spec.action}"
        valid = f"one that {name} can act in: {need}; {_takers(spec.action)}"
        raise ConfigError("environment", spec.name, valid)


def _takers(space: Space) -> str:
    """Which algorithms choose among these actions."""
    if isinstance(space, Dict):
        return "no algorithm takes these: make them one MultiDiscrete or one Box"
    if isinstance(space, Box):
        return "ppo and sac take these" if _is_scalable(space) else _UNSCALED
    return "ppo and dqn take these" if isinstance(space, Discrete) else "ppo, ars and es take these"


_UNSCALED = "ppo without squash, ars and es take these"


def _is_scalable(space: Box) -> bool:
    """Whether [-1, 1]^d can be scaled to it."""
    low, high = space.bounds()
    return space.bounded and bool((low < high).all()) and jnp.issubdtype(space.dtype, jnp.floating)


def _check_mask(spec: EnvSpec) -> None:
    """An `action_mask` only means something for Discrete actions."""
    masked = isinstance(spec.observation, Dict) and "action_mask" in spec.observation
    if masked and not isinstance(spec.action, Discrete):
        valid = f"one without action_mask: action_mask needs Discrete actions, this has {spec.action}"
        raise ConfigError("environment", spec.name, valid)


def check_bounded(spec: EnvSpec, argument: str, value: Any, need: str) -> None:
    """Refuse actions that [-1, 1]^d cannot be scaled to: without bounds, with no room between them, or whole numbers."""
    if isinstance(spec.action, Box) and not _is_scalable(spec.action):
        raise ConfigError(argument, value, f"{need}, this has {spec.action}; {_UNSCALED}")
