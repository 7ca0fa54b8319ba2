"""The base of every environment, wherever it steps, and what `make` built it from."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.fields import changed_settings
from jaxrl_fast.logs import html
from jaxrl_fast.types import EnvSpec

ORIGIN = "_made_from"  # attribute of environments of `make`


def describe(env: Environment) -> tuple[str, dict[str, Any]] | None:
    """Return the (name, settings) from which `make` built this object, or None."""
    return env.__dict__.get(ORIGIN)


class Environment:
    """Base of `Env`, which steps on the device, and `HostEnv`, which steps on the host.

    runs_on: the name of its backend, which trains, evaluates and draws it (`engine.backend`).
    not_exported: what `to_gymnasium` asks for instead; "" for an environment that it takes.
    """

    runs_on = ""
    not_exported = ""

    @property
    def spec(self) -> EnvSpec:
        """Return observations, actions, time limit. Raises ConfigError if the class has no spec."""
        self.check_methods()
        raise self._misfit("the base's, which does nothing")

    def check_methods(self) -> None:
        """Raise ConfigError for a class that lacks a required method."""

    def _misfit(self, got: str) -> ConfigError:
        return expected(f"{type(self).__name__}.spec", "a property that returns a jf.EnvSpec", got)

    def check_class(self) -> None:
        """Raise ConfigError for a class that cannot be trained; subclasses extend it."""
        if not isinstance(self.spec, EnvSpec):
            what = "method; add @property" if callable(self.spec) else type(self.spec).__name__
            raise self._misfit(f"a {what}")

    def play(self, agent: Any, seed: int = 0, max_steps: int = 500) -> Any:
        """Play one greedy episode of an agent or a run here, and return its `Video`.

        Raises ConfigError for other objects, other spaces, and an environment without pictures.
        """
        if not hasattr(agent, "video"):
            raise ConfigError("agent", agent, "a jf.Agent, or a run")
        return agent.video(env=self, seed=seed, max_steps=max_steps)

    def __repr__(self) -> str:
        try:
            spec = self.spec
        except Exception:  # an environment that is being written
            return object.__repr__(self)
        return f"<{type(self).__name__}: {spec.name}, {spec.observation} -> {spec.action}>"

    def _repr_html_(self) -> str:
        try:
            spec = self.spec
        except Exception:
            return html.block(repr(self))
        facts = {"observation": str(spec.observation), "action": str(spec.action)}
        facts |= {"longest episode": spec.max_episode_steps, "runs on": self.runs_on}
        own = lambda: changed_settings(self) if dataclasses.is_dataclass(self) else {}
        name, chosen = describe(self) or (spec.name, own())
        return html.block(name, html.values(facts | chosen))
