"""The algorithm: a frozen dataclass of settings and pure functions of an agent.

Float settings are traced leaves, sizes are static. docs/architecture.md lists the methods
("The protocols"). `bind(spec)` ties the settings to an environment's spaces; call it first.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl_fast import tree
from jaxrl_fast.algorithms.common.learning import Iteration, Metrics, Played, prepare, update_all
from jaxrl_fast.envs.api import Env
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.fields import check_settings, refuse_removed, setting
from jaxrl_fast.logs import html
from jaxrl_fast.memory import Memory, Ring
from jaxrl_fast.memory.api import check_methods
from jaxrl_fast.ops.precision import PRECISIONS
from jaxrl_fast.ops.scopes import PREPROCESS, STORE, scope
from jaxrl_fast.spaces import Box, Dict, Discrete, Space
from jaxrl_fast.types import Clock, EnvSpec, PyTree, Trajectory

# see `Algorithm.removed`
IN_NETWORKS, IN_STEPS = "override `networks`, a part", "override `act`, `prepare` or `update`"


@tree.settings
class Algorithm:
    """Base class of algorithms: settings as fields, and pure functions of an agent.

    An algorithm that treats a rollout as a function of the agent overrides `learn`, sets
    `whole_rollouts` and calls `iteration.collect` with its own agents.
    """

    name: ClassVar[str] = "algorithm"
    action_spaces: ClassVar[tuple[type, ...]] = ()  # what `bind` accepts
    # `ahead` on the host: its loss allows actions of an older policy
    takes_older_rollouts: ClassVar[bool] = True
    # `learn` plays rollouts of its own agents and stores no rows
    whole_rollouts: ClassVar[bool] = False
    rematerialize: ClassVar[bool] = False  # recompute each step in a gradient through a rollout

    by_name: ClassVar[bool] = True  # settings are keyword-only
    removed: ClassVar[dict[str, str]] = {  # of older versions
        "improve": "override `learn`, one whole iteration",
        "fresh_start": "call `iteration.begin` in `learn`"
    }  # fmt: skip

    precision: str = setting("highest", choices=PRECISIONS)
    """products of the torsos on an accelerator: float32, TF32 or bfloat16"""
    # The EnvSpec of `bind`, None before; Any, because an algorithm knows the kinds of its spaces.
    spec: Any = dataclasses.field(default=None, repr=False, metadata={"static": True})

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        refuse_removed(cls)

    def __post_init__(self):
        check_settings(self)

    def _repr_html_(self) -> str:
        return html.block(f"{type(self).__name__} ({self.name})", html.settings(self))

    # Sizes for the loop; subclasses have the fields `num_envs` and `num_steps`.
    @property
    def updates(self) -> int:
        """Return the optimizer steps of an iteration."""
        raise NotImplementedError

    @property
    def warmup_steps(self) -> int:
        """Return the environment steps of random actions before the first update."""
        return 0

    @property
    def off_policy(self) -> bool:
        """Return whether the algorithm learns from, or corrects for, experience of older agents."""
        return self.memory().replays

    @property
    def steps_per_iteration(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def warmup_iterations(self) -> int:
        return -(-self.warmup_steps // self.steps_per_iteration)

    def bind(self, spec: EnvSpec) -> Algorithm:
        """Return these settings bound to an environment. Raises ConfigError for a misfit."""
        if jax.tree_util.all_leaves([self]):
            raise ConfigError("algorithm", type(self).__name__,
                              "a class with @jf.settings above it, as every subclass needs")
        _check_kind(spec, self.name, self.action_spaces)
        check_int("num_envs * num_steps", self.steps_per_iteration)
        _check_mask(spec)
        bound = dataclasses.replace(self, spec=spec)
        memory = bound.memory()
        check_methods(memory)
        if isinstance(memory, Ring) and memory.batch_size > memory.starts:
            what = f"at most {memory.starts}: capacity = {memory.capacity} holds no more"
            raise ConfigError("batch_size", memory.batch_size, what)
        getattr(bound, "networks", None)  # refuses a network that does not fit
        return bound

    def check_env(self, env: Env) -> None:
        """Raise ConfigError for environment properties outside the spec; `self` is bound."""

    def setting_warnings(self) -> list[str]:
        """Return warnings for a new run with these settings, one line each.

        `self` is bound. A swept setting holds the values of all members [members].
        """
        return []

    def init_carry(self, num_envs: int) -> PyTree:
        """Return the policy's initial recurrent state [B, ...], () without."""
        return ()

    def evaluation_carry(self, num_envs: int) -> PyTree:
        """Return the initial recurrent state of evaluations."""
        return self.init_carry(num_envs)

    def init(self, key: jax.Array) -> PyTree:
        """Return a new agent: parameters, optimizer, statistics."""
        raise NotImplementedError

    def begin(self, params: PyTree, moments: PyTree = ()) -> PyTree:
        """Return an agent with these parameters and statistics, the rest as `init` makes it."""
        raise ConfigError("start_from", self.name,
                          f"None: {type(self).__name__} has no method begin(params, moments)")

    def draw(self, key: jax.Array, num_steps: int, num_envs: int) -> PyTree:
        """Return the randomness of `num_steps` calls of `act`, [T, ...]."""
        raise NotImplementedError

    def acting(self, agent: PyTree) -> PyTree:
        """Return the agent for `act`, once a rollout: for work that every step would repeat."""
        return agent

    def act(self, agent: PyTree, carry: PyTree, obs: PyTree, noise: PyTree,
            clock: Clock, mode: str) -> tuple:
        """Return (carry, action, extras); mode: "random", "sample" or "greedy"."""
        raise NotImplementedError

    def memory(self) -> Memory:
        """Return the memory that `prepare` writes and `update` reads."""
        raise NotImplementedError

    def learn(self, agent: PyTree, mem: PyTree,
              iteration: Iteration) -> tuple[PyTree, PyTree, Metrics, Played]:
        """Learn from one rollout -> (agent, memory, metrics, rollout).

        Environments and log continue from the rollout that it returns.
        """
        played, metrics = iteration.collect(agent), {}
        if played.trajectory is not None:
            with scope(PREPROCESS):
                agent = self.observe(agent, played.trajectory)
            rows = prepare(self, agent, played.trajectory)
            with scope(STORE):
                mem = iteration.memory.add(mem, rows, iteration.t)
        if iteration.learns:
            agent, mem, metrics = update_all(self, agent, mem, iteration)
        # in warm-up too: the first batches are drawn from its rows
        if played.trajectory is not None:
            with scope(PREPROCESS):
                agent = self.finish(agent, rows)
        return agent, mem, metrics, played

    def observe(self, agent: PyTree, trajectory: Trajectory) -> PyTree:
        """Return the agent after it has seen a new rollout, before `prepare`."""
        return agent

    def seam(self, agent: PyTree) -> PyTree:
        """Return the agent for environments that restart or are another member's."""
        return agent

    def prepare(self, agent: PyTree, trajectory: Trajectory) -> PyTree:
        """Return the rows [T, B] that the memory stores."""
        raise NotImplementedError

    def update(self, agent: PyTree, batch: Any, key: jax.Array,
               clock: Clock) -> tuple[PyTree, Metrics, Any]:
        """Take one optimizer step -> (agent, metrics, priority [b] or ())."""
        raise NotImplementedError

    def finish(self, agent: PyTree, rows: PyTree) -> PyTree:
        """Return the agent after the updates of an iteration."""
        return agent


def action_mask(space: Space, obs: PyTree) -> jax.Array | None:
    """Return the legal-action flags bool [..., n] of an observation, or None."""
    if isinstance(space, Dict) and "action_mask" in space:
        return obs["action_mask"].astype(bool)
    return None


def _check_kind(spec: EnvSpec, name: str, kinds: tuple[type, ...]) -> None:
    """Raise ConfigError for actions that `name` cannot choose, and list the algorithms that can."""
    if not isinstance(spec.action, kinds):
        names = " or ".join(s.__name__ for s in kinds)
        need = f"{name} needs {names} actions, this has {spec.action}"
        valid = f"one that {name} can act in: {need}; {_takers(spec.action)}"
        raise ConfigError("environment", spec.name, valid)


def _takers(space: Space) -> str:
    """Return which algorithms act in this space."""
    if isinstance(space, Dict):
        return "no algorithm takes these: make them one MultiDiscrete or one Box"
    if isinstance(space, Box):
        return "ppo and sac take these" if _is_scalable(space) else _UNSCALED
    return "ppo and dqn take these" if isinstance(space, Discrete) else "ppo, ars and es take these"


_UNSCALED = "ppo without squash, ars and es take these"


def _is_scalable(space: Box) -> bool:
    """Return whether [-1, 1]^d can be scaled to the box."""
    low, high = space.bounds()
    return space.bounded and bool((low < high).all()) and jnp.issubdtype(space.dtype, jnp.floating)


def _check_mask(spec: EnvSpec) -> None:
    """Raise ConfigError for an `action_mask` without Discrete actions."""
    masked = isinstance(spec.observation, Dict) and "action_mask" in spec.observation
    if masked and not isinstance(spec.action, Discrete):
        raise ConfigError("environment", spec.name,
                          "one without action_mask: action_mask needs Discrete actions, this has "
                          f"{spec.action}")


def check_bounded(spec: EnvSpec, argument: str, value: Any, need: str) -> None:
    """Raise ConfigError for actions that [-1, 1]^d cannot be scaled to."""
    if isinstance(spec.action, Box) and not _is_scalable(spec.action):
        raise ConfigError(argument, value, f"{need}, this has {spec.action}; {_UNSCALED}")
