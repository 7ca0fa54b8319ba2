"""The environment: a frozen pytree of pure functions, batched, with one auto-reset for all.

An environment implements transitions and resets, without any auto-reset:

    draw_reset(key, shape, t)          -> noise [*shape, ...]      randomness of resets
    reset(noise [B])                   -> (state [B], obs [B])
    draw_step(key, T, B, t)            -> noise [T, B, ...]        randomness of transitions, or ()
    transition(noise, state, action)   -> (state [B], Outcome)

`resets` names how a rollout begins new episodes (`envs.resets`). The environment inherits the
functions that `collect` calls:

    init(key, num_envs, t)             -> (state, obs)
    draw(key, T, B, t)                 -> Noise                    all randomness of T steps
    step(noise, state, action)         -> (state, obs, Outcome)    transition, then a fresh reset

`t` is the iteration, for curricula. Outside of training (evaluations, pictures, `to_gymnasium`) it
is `LAST`, past the end of every curriculum: clamp terms that grow with it. `draw_reset(key, shape)`
without `t` is accepted.

A state starts anew with every episode, except its `types.Lasting` parts; `restart` is `reset` after
them. Decorate with `@settings`. `jaxrl_fast.envs.single.SingleEnv` batches an environment that is
written without a batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs import action_checks, checks
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.envs.resets import EveryStep, Noise, Resets, run_reset
from jaxrl_fast.errors import ConfigError, check_int, expected
from jaxrl_fast.fields import refuse_removed
from jaxrl_fast.ops.lowering import on_gpu
from jaxrl_fast.ops.scopes import RESET, scope
from jaxrl_fast.types import Outcome, PyTree, keep_lasting

LAST = np.int32(2**31 - 1)  # Iteration passed outside training: past the end of every curriculum.
_RESETS = ("`draw_reset(key, shape, t)` draws all resets, and `resets` names a strategy: "
           "`jf.envs.Pool(size)`, ...")
_RESET = "reset(noise): `state, obs = env.init(key, num_envs)` begins episodes"
_STEP = (
    "step(noise, state, action): noise is one row of `env.draw(key, num_steps, num_envs, t)`, and "
    "Gymnax's params are settings of the environment"
)


class Drawing(NamedTuple):
    """How episodes of an environment are drawn."""

    frame: Callable[[Any], Any]  # `Env.render`
    step_seconds: float | None = None  # seconds of a step in the environment's world, or None
    # (states, seconds between them) -> HTML page
    page: Callable[[list[Any], float | None], str] | None = None


class Env(Environment):
    """Base class of environments on the device: batched, pure, reset inside `step`."""

    runs_on = "device"
    resets: ClassVar[Resets] = EveryStep()  # or a field, or a property
    removed: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("draw_start", "draw_resets", "draw_again", "init_after"), _RESETS),
        **dict.fromkeys(("render_html", "step_seconds"), "override `drawing`, a `jf.envs.Drawing`"),
    }

    _needs: ClassVar[tuple[str, ...]] = ("spec", "reset", "transition")  # of the class itself

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        refuse_removed(cls)
        reset = cls.__dict__.get("reset")
        if getattr(reset, "__name__", None) == "reset":
            cls.reset = checks.called_as(_RESET)(checks.refuse_key(reset))
        draws = checks.with_iteration(cls.draw_reset)
        if draws is not cls.draw_reset:
            cls.draw_reset = draws

    def check_methods(self) -> None:
        base = next(cls for cls in type(self).__mro__ if "_needs" in cls.__dict__)
        for name in self._needs:
            if getattr(type(self), name) is getattr(base, name) and steps_by_base(self):
                valid = f"defined by the class: an environment has {', '.join(self._needs)}"
                raise expected(f"{type(self).__name__}.{name}", valid,
                               "the base's, which does nothing")

    def check_class(self) -> None:
        self.check_methods()  # first: the leaves of a class without @jf.settings say less
        if jax.tree_util.all_leaves([self]):
            raise ConfigError("env", type(self).__name__,
                              "a class with @jf.settings above it, as every subclass needs")
        super().check_class()

    def on_device(self, parts: int = 1) -> Env:
        """Return the environment for compiling; parts: devices that divide its environments."""
        return self

    def for_evaluation(self) -> Env:
        """Return the environment that evaluations and pictures play, by default this one.

        Override it if the learner sees other rewards or ends than the task's own.
        """
        return self

    def draw_reset(self, key: jax.Array, shape: tuple[int, ...], t: jax.Array = LAST) -> PyTree:
        """Draw the randomness of resets in iteration t, leading axes `shape`.

        shape: (n,) for episodes that begin together, outside of a rollout; (T, B) for a rollout's
        steps.
        """
        return random.split(key, shape)

    def reset(self, noise: PyTree) -> tuple[PyTree, PyTree]:
        """Return (state [B], obs [B]) of noise [B]."""
        raise NotImplementedError

    def draw_step(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        """Draw the randomness of `num_steps` transitions, leading axes [T, B]; t: the iteration."""
        return ()

    def transition(self, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        """Step every environment without reset: action [B, ...] -> (state [B], Outcome [B])."""
        raise NotImplementedError

    @checks.called_as("init(key, num_envs)")
    def init(self, key: jax.Array, num_envs: int,
             t: jax.Array | None = None) -> tuple[PyTree, PyTree]:
        """Begin episodes in `num_envs` environments; t: the iteration of training, else None."""
        random.check_key("key", key)
        check_int("num_envs", num_envs)
        with checks.note_errors(self.spec, "draw_reset"):
            noise = self.draw_reset(key, (num_envs,), LAST if t is None else t)
        return run_reset(self, noise, num_envs)

    def restart(self, noise: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """Like `reset`, after episodes that ended in `state` [B], with its `types.Lasting` parts.

        Override it if a new episode depends on those: a normalised observation, a level that was
        reached.
        """
        fresh, obs = self.reset(noise)
        return keep_lasting(state, fresh), obs

    @checks.called_as("draw(key, num_steps, num_envs, t)")
    def draw(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> Noise:
        """Draw all randomness of `num_steps` steps in iteration t, before the scan."""
        return draw_noise(self, self.resets, key, num_steps, num_envs, t)

    @checks.called_as(_STEP)
    def step(self, noise: Noise, state: PyTree, action: PyTree) -> tuple[PyTree, PyTree, Outcome]:
        """Step by `transition`, then reset ended environments; noise: `noise.at(i)` of `draw`."""
        if not isinstance(noise, Noise):
            found = "a key" if checks.is_key(noise) else type(noise).__name__
            raise ConfigError(f"{self.spec.name}: step(noise)", found,
                              "one row of `env.draw(key, num_steps, num_envs, t)`, as in "
                              "step(noise, state, action)")
        state, outcome = checked_transition(self, noise.step, state, action)
        return reset_ended(self, noise, state, outcome)

    def render(self, state: Any) -> Any:
        """Draw one state (no batch axis) on the host, uint8 [H, W, 3]; None if undrawable."""
        return None

    @property
    def drawing(self) -> Drawing | None:
        """Return how episodes are drawn, by default with `render` alone; None if they are not."""
        return None if type(self).render is Env.render else Drawing(self.render)


def draw_noise(env: Env, resets: Resets, key: jax.Array, num_steps: int,
               num_envs: int, t: jax.Array) -> Noise:
    """Draw all randomness of `num_steps` steps of `env` under the strategy `resets`."""
    if not isinstance(resets, Resets):
        raise expected(f"{env.spec.name}: resets",
                       "EveryStep(), OnEnd(), Pool(size) or Frozen(starts)", repr(resets))
    if type(env).draw_step is Env.draw_step:  # transitions draw nothing: one key is enough
        step, reset_key = (), key
    else:
        step_key, reset_key = random.split(key)
        with checks.note_errors(env.spec, "draw_step"):
            step = env.draw_step(step_key, num_steps, num_envs, t)
    with checks.note_errors(env.spec, "draw_reset"):
        return Noise(step, *resets.draw(env, reset_key, num_steps, num_envs, t))


def steps_by_base(env: Env) -> bool:
    """Return whether `env` steps as `Env` does: a transition, then the strategy's resets."""
    return type(env).draw is Env.draw and type(env).step is Env.step


def reset_ended(env: Env, noise: Noise, state: PyTree,
                outcome: Outcome) -> tuple[PyTree, PyTree, Outcome]:
    """Return (state, obs, outcome) after a transition, ended environments reset."""
    done = outcome.terminated | outcome.truncated
    with scope(RESET):
        after = noise.resets.apply(env, noise.reset, done, (state, outcome.next_obs))
    return (*tree.strong(after), outcome)


def write_step(env: Env, noise: Noise, state: PyTree,
               action: PyTree) -> tuple[PyTree, PyTree, Outcome]:
    """Return `env.step`; on a GPU its ends and an observation from the state are written to memory.

    Many kernels read these, and each would compute the transition again. Of an environment with its
    own `step` the ends alone are written.
    """
    write = lambda x: on_gpu(jax.lax.optimization_barrier, lambda x: x, x)
    if not steps_by_base(env):
        state, obs, outcome = env.step(noise, state, action)
        ends = write((outcome.terminated, outcome.truncated))
        return state, obs, outcome._replace(terminated=ends[0], truncated=ends[1])
    state, outcome = checked_transition(env, noise.step, state, action)
    leaves = jax.tree.leaves(state)
    shared = [x for x in jax.tree.leaves(outcome.next_obs) if any(x is y for y in leaves)]
    *written, ends = write((*shared, (outcome.terminated, outcome.truncated)))
    found = dict(zip(map(id, shared), written, strict=True))
    state, next_obs = jax.tree.map(lambda x: found.get(id(x), x), (state, outcome.next_obs))
    outcome = outcome._replace(next_obs=next_obs, terminated=ends[0], truncated=ends[1])
    return reset_ended(env, noise, state, outcome)


def checked_transition(env: Env, noise: PyTree, state: PyTree,
                       action: PyTree) -> tuple[PyTree, Outcome]:
    """Return `env.transition`, checked: the one place where actions enter and outcomes leave.

    Raises ConfigError for an action, state or outcome that differs from `env.spec`.
    """
    action, num_envs = action_checks.action(env.spec, action)
    action_checks.check_size(env.spec, num_envs, state)
    with checks.explain_errors(env.spec, "transition"):
        found = env.transition(noise, state, action)
    return checks.outcome_of(env.spec, found, state, num_envs)
