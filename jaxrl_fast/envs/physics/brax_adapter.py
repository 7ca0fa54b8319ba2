"""Adapter of brax 0.14, "brax/NAME", on each of its backends.

Actions are in [-1, 1]; environments with other limits scale them. The default backend is "spring",
the fastest (brax's default, "generalized", solves for contacts and costs several times as much).
Scores of different backends cannot be compared.

`inverted_pendulum` reports a fallen pole as `info["time_out"]`; its `done` makes it a termination.
"""

from __future__ import annotations

import functools
import itertools
import math
import types
from typing import Any

import jax
import numpy as np

from jaxrl_fast import fields
from jaxrl_fast.envs.physics import api as physics
from jaxrl_fast.envs.physics import mujoco_tools
from jaxrl_fast.envs.sources import Source
from jaxrl_fast.envs.suggest import suggest
from jaxrl_fast.errors import ConfigError, check_choice, is_number
from jaxrl_fast.spaces import Box

PREFIX = "brax/"
# Names of brax 0.14, so that listing them imports nothing.
NAMES = tuple(PREFIX + name for name in (
    "ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum",
    "inverted_pendulum", "pusher", "reacher", "walker2d",
))  # fmt: skip
LEFT_OUT = {
    "brax/swimmer": "another one: swimmer is broken in brax 0.14 (its fluid forces call a function "
                    "that JAX removed)",
    "brax/fast": "another one: it is the toy of brax's own unit tests",
}
BACKENDS = ("spring", "positional", "generalized", "mjx")
INSTALL = "pip install 'brax>=0.14,<0.15'"  # a plain dependency of ours


class BraxEnv(physics.PhysicsEnv):
    physics_field = "pipeline_state"
    model_attribute = "sys"

    def render(self, state):
        state, model = state.physics, self.env.sys.mj_model
        mocap = (state.mocap_pos, state.mocap_quat) if hasattr(state, "mocap_pos") else None
        return mujoco_tools.picture(model, state.q, state.qd, mocap)

    @property
    def drawing(self):
        return super().drawing._replace(page=self._page)

    def _page(self, states, step_seconds):
        with mujoco_tools.quiet():
            html = mujoco_tools.import_quietly("brax.io.html")
            # seconds between states in the viewer
            sys = self.env.sys.tree_replace({"opt.timestep": step_seconds})
            return html.render(sys, [state.physics for state in states])

    def inert(self, model):
        """Return the leaves that spring and positional take to the power 0 in this model."""
        if self.env.backend not in ("spring", "positional"):
            return {}
        scales = {"mass": model.spring_mass_scale, "i": model.spring_inertia_scale}
        return {
            f"link.inertia.{leaf}": f"a leaf that changes something; {self.env.backend} takes this "
                                    "one to the power 0 in "
            f"{self.spec.name}: try --env.backend generalized, or mjx and "
            f"{'body_mass' if leaf == 'mass' else 'body_inertia'}"
            for leaf, scale in scales.items()
            if np.all(1 - np.asarray(scale) == 0)
        }


@functools.cache
def _envs(name: str) -> types.ModuleType:
    """Return the module `brax.envs`, for the environment `name`."""
    try:
        return mujoco_tools.import_quietly("brax.envs")
    except Exception as error:  # incompatible dependencies fail in many ways
        raise ConfigError("environment", name,
                          f"one of a brax that can be imported: {INSTALL} ({error!r})") from error


@functools.cache
def about(name: str) -> dict[str, physics.Setting]:
    """Return the settings of `name`: ours, then its constructor's."""
    if name in LEFT_OUT:
        raise ConfigError("environment", name, LEFT_OUT[name])
    if name not in NAMES:
        raise ConfigError("environment", name,
                          f"an environment of brax ({', '.join(NAMES)}){suggest(name)}")
    own = fields.defaults_of(_envs(name)._envs[name.removeprefix(PREFIX)])
    own = {k: physics.Setting(value, "argument of brax's constructor")
           for k, value in own.items() if k != "backend"}
    return {"backend": physics.Setting(BACKENDS[0], "physics engine", BACKENDS),
            **physics.ABOUT, **own}


def defaults(name: str) -> dict[str, Any]:
    return {k: setting.default for k, setting in about(name).items()}


@functools.cache
def _construct(name: str, backend: str, items: tuple[tuple[str, Any], ...]) -> Any:
    """Return brax's object, one a set of arguments: it is static by identity."""
    # its arrays must be concrete, also within a trace
    with mujoco_tools.quiet(), jax.ensure_compile_time_eval():
        try:
            return _envs(name)._envs[name.removeprefix(PREFIX)](backend=backend, **dict(items))
        except (NotImplementedError, ValueError, TypeError) as error:
            raise ConfigError(f"env ({name})", dict(items),
                              f"arguments that brax accepts: {error}") from None


def make(name: str, **settings: Any) -> BraxEnv:
    """Return brax's environment `name`, such as "brax/ant"."""
    known = defaults(name)
    given = known | settings
    backend, ours = given.pop("backend"), {k: given.pop(k) for k in physics.ABOUT}
    check_choice("env.backend", backend, BACKENDS)
    for k, value in given.items():
        given[k] = _check_argument(f"env.{k}", value, known[k])
    env = _construct(name, backend, tuple(sorted(given.items())))
    with mujoco_tools.quiet():
        return BraxEnv(name, env, action=Box(-1.0, 1.0, (env.action_size,)), **ours)


def _check_argument(argument: str, value: Any, default: Any) -> Any:
    """Return a constructor's argument in its default's kind."""
    if isinstance(default, bool):
        fields.check_bool(argument, value)
    elif isinstance(default, (int, float)):
        physics.check_number(argument, value, 0.0 if argument == "env.reset_noise_scale"
                             else -math.inf)
    elif isinstance(default, tuple):
        numbers = value if isinstance(value, (tuple, list)) else ()
        if len(numbers) != len(default) or any(isinstance(x, bool) or not is_number(x)
                                               for x in numbers):
            raise ConfigError(argument, value, f"{len(default)} numbers")
        # no NaN; an end may be infinite (hopper's height)
        if not all(a < b for a, b in itertools.pairwise(numbers)):
            raise ConfigError(argument, value,
                              f"{len(default)} numbers, the lower first: all of them are ranges")
        return tuple(numbers)
    return value


SOURCE = Source(make=make, settings=defaults, about=about, prefix=PREFIX,
                names=NAMES, package="brax", install=INSTALL)
