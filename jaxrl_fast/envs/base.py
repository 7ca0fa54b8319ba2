"""The base of every environment, wherever it steps."""

from __future__ import annotations

from jaxrl_fast.types import EnvSpec


class Environment:
    """Base of `Env`, which steps on the device, and `HostEnv`, which steps on the host.

    runs_on: the name of its backend, which trains, evaluates and draws it (`engine.backend`).
    not_exported: what `to_gymnasium` asks for instead; "" for an environment that it takes.
    """

    runs_on = ""
    not_exported = ""

    @property
    def spec(self) -> EnvSpec:
        raise NotImplementedError

    def check_class(self) -> None:
        """Raise ConfigError for a class of which no program can be traced."""

    def __repr__(self) -> str:
        try:
            spec = self.spec
        except Exception:  # an environment that is being written
            return object.__repr__(self)
        return f"<{type(self).__name__}: {spec.name}, {spec.observation} -> {spec.action}>"
