"""The environment: batched from the start, a frozen pytree of pure functions, auto-reset once for all of them.

An environment implements four functions about transitions and resets, without any auto-reset:

    draw_reset(key, shape)             -> noise [*shape, ...]      randomness of resets, drawn in one go
    reset(noise [B])                   -> (state [B], obs [B])
    draw_step(key, T, B, t)            -> noise [T, B, ...]        randomness of transitions; () when there is none
    transition(noise, state, action)   -> (state [B], Outcome)

and inherits the three that `collect` calls:

    init(key, num_envs, t)             -> (state, obs)
    draw(key, T, B, t)                 -> noise [T]                everything random of T steps, drawn before the scan
    step(noise, state, action)         -> (state, obs, Outcome)    transition, then a fresh reset where it ended

`t` is the iteration, for curricula. Outside of training (evaluations, pictures, `to_gymnasium`) it is `LAST`, beyond every
curriculum's end, or None where episodes are started: clamp what grows with it. A curriculum of starts overrides
`draw_start` too. Where resets are dear, `draw_resets` may draw fewer than T * B: what all steps share, such as a pool of
them, goes into `types.Shared`, which has no time axis; or it may be `Rare` (`envs.physics` does both).

A state begins anew with every episode, but for the parts of it in `types.Lasting`; `restart` is `reset` after them.

`Outcome.next_obs` is the successor before the reset; `obs` is what the agent sees next. Float fields of an environment
are leaves (traced, sweepable), everything else is static: decorate with `@settings`. To write one environment at a
time instead, without a batch axis, subclass `jaxrl_fast.envs.single.SingleEnv`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_fast import random, tree
from jaxrl_fast.envs import checks
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.types import EnvSpec, Outcome, PyTree, Shared, keep_lasting

LAST = np.int32(2**31 - 1)  # the iteration outside of training: past the end of every curriculum


class Again(NamedTuple):
    """Instead of noise for resets: what to go on from after an end."""

    starts: Shared  # (state, obs) [B]
    time: jax.Array  # [T]; nothing, but noise has a time axis


class Rare(NamedTuple):
    """What `draw_resets` may return where resets are dear: they are computed in those steps alone in which an episode
    ends. A real branch, but where a population is vmapped, whose members take both sides; and where a wrapper draws more
    for a reset and puts this inside of it, `reset` gets it as it is, to be computed always."""

    noise: PyTree


class Env:
    """Base class of environments on the device: batched, pure, reset inside `step`.

    See the text of the module.
    """

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        reset = cls.__dict__.get("reset")
        if getattr(reset, "__name__", None) == "reset":
            cls.reset = checks.refuse_key(reset)

    @property
    def spec(self) -> EnvSpec:
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            spec = self.spec
        except Exception:  # of an environment that is being written
            return object.__repr__(self)
        return f"<{type(self).__name__}: {spec.name}, {spec.observation} -> {spec.action}>"

    def on_device(self, parts: int = 1) -> Env:
        """What programs are compiled with: this very environment, unless it lives on the host (`envs.host`).

        parts: the devices that its environments are divided over.
        """
        return self

    def draw_reset(self, key: jax.Array, shape: tuple[int, ...]) -> PyTree:
        """Randomness for resets, leading axes `shape`. One key each, unless an environment knows better."""
        return random.split(key, shape)

    def draw_start(self, key: jax.Array, num_envs: int, t: jax.Array | None) -> PyTree:
        """What `reset` is given where all environments begin [B]; t: the iteration, None in an evaluation."""
        return self.draw_reset(key, (num_envs,))

    def draw_resets(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        """What `reset` is given at each of `num_steps` steps, leading axes [T, B] but for what is `Shared`."""
        return self.draw_reset(key, (num_steps, num_envs))

    def reset(self, noise: PyTree) -> tuple[PyTree, PyTree]:
        """noise [B] -> (state [B], obs [B])."""
        raise NotImplementedError

    def draw_step(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        """Randomness of `num_steps` transitions, leading axes [T, B]; `t` is the iteration (for curricula)."""
        return ()

    def transition(self, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        """One step of every environment, no reset. action [B, ...] -> (state [B], Outcome [B])."""
        raise NotImplementedError

    def init(self, key: jax.Array, num_envs: int, t: jax.Array | None = None) -> tuple[PyTree, PyTree]:
        """Fresh episodes in `num_envs` environments; t: the iteration of training, None elsewhere."""
        with checks.noted(self.spec, "reset"):
            state, obs = checks.pair(self.spec, "reset", self.reset(self.draw_start(key, num_envs, t)))
        return tree.strong((state, checks.observation(self.spec, "reset", obs, num_envs)))

    def restart(self, noise: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """`reset` after the episodes that ended in `state` [B], of which the `types.Lasting` parts go on.

        Override it where a new episode depends on those: an observation that they normalise, a level that was reached.
        """
        fresh, obs = self.reset(noise)
        return keep_lasting(state, fresh), obs

    def init_after(self, state: PyTree, key: jax.Array, num_envs: int, t: jax.Array) -> tuple[PyTree, PyTree]:
        """`init` after the episodes that were left in `state` [B]: what lasts goes on."""
        return tree.strong(restarted(self, self.draw_start(key, num_envs, t), state))

    def draw(self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array) -> PyTree:
        """Everything random of `num_steps` steps, leading axis [T]; drawn once an iteration, before the scan."""
        if type(self).draw_step is Env.draw_step:  # transitions draw nothing: one key is enough
            return (), self.draw_resets(key, num_steps, num_envs, t)
        step_key, reset_key = random.split(key)
        return self.draw_step(step_key, num_steps, num_envs, t), self.draw_resets(reset_key, num_steps, num_envs, t)

    def draw_again(
        self, key: jax.Array, num_steps: int, num_envs: int, t: jax.Array, starts: tuple[PyTree, PyTree]
    ) -> PyTree:
        """Like `draw`, for evaluations: environments whose episode ended go on from `starts`, (state, obs) [B].

        Evaluations play one episode an environment. Their programs are smaller by the resets that nobody would see.
        """
        if type(self).draw is not Env.draw or type(self).step is not Env.step:
            return self.draw(key, num_steps, num_envs, t)  # noise of a form that only this environment knows
        again = Again(Shared(starts), jnp.zeros(num_steps, bool))
        if type(self).draw_step is Env.draw_step:
            return (), again
        return self.draw_step(random.split(key)[0], num_steps, num_envs, t), again

    def step(self, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, PyTree, Outcome]:
        """`transition`, then a fresh reset of the environments whose episode ended. ConfigError as `played`."""
        if checks.is_key(noise):
            valid = "one row of `env.draw(key, num_steps, num_envs, t)`, as in step(noise, state, action)"
            raise ConfigError(f"{self.spec.name}: step(noise)", "a key", valid)
        step_noise, resets = noise
        state, outcome = played(self, step_noise, state, action)
        done, after = outcome.terminated | outcome.truncated, (state, outcome.next_obs)
        if isinstance(resets, Rare):
            renewed = lambda: tree.where(done, restarted(self, resets.noise, state), after)
            after = jax.lax.cond(done.any(), renewed, lambda: after)
        elif isinstance(resets, Again):
            fresh, obs = resets.starts.value
            after = tree.where(done, (keep_lasting(state, fresh), obs), after)
        else:
            after = tree.where(done, restarted(self, resets, state), after)
        return (*tree.strong(after), outcome)

    def render(self, state: Any) -> Any:
        """One state (no batch axis), on the host -> an RGB image, uint8 [H, W, 3] NumPy; None if it can't be drawn."""
        return None

    @property
    def step_seconds(self) -> float | None:
        """What a step lasts in the world that it is of, for pictures at their true speed; None where that means nothing."""
        return None

    def render_html(self, states: list[Any], step_seconds: float | None = None) -> str | None:
        """An episode's states (as for `render`) -> a page that shows it moving; None if there is none.

        step_seconds: between two of the states, where wrappers have changed it.
        """
        return None


def restarted(env: Env, noise: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
    """`env.restart` in the dtypes of its spec and of `state` [B]."""
    with checks.noted(env.spec, "reset"):
        fresh, obs = checks.pair(env.spec, "reset", env.restart(noise, state))
    num_envs = jax.tree.leaves(obs)[0].shape[0]
    return checks.like(env.spec, fresh, state, "a reset"), checks.observation(env.spec, "reset", obs, num_envs)


def played(env: Env, noise: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
    """`env.transition` as `checks.outcome_of` takes it: the one place where an action goes in and an outcome enters.

    A policy's Gaussian knows no bounds: `transition` gets the action in its Box, as `Agent.act` returns it.

    A ConfigError names what of the action, the state or the outcome is not as `env.spec` says. Nothing else would: a
    reward [B, 1] is broadcast against [B] somewhere, and learned from.
    """
    action, num_envs = checks.action(env.spec, action)
    with checks.noted(env.spec, "transition"):
        found = env.transition(noise, state, action)
    return checks.outcome_of(env.spec, found, state, num_envs)
