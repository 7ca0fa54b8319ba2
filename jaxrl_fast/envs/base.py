"""The base of every environment, wherever it steps."""

from __future__ import annotations

from jaxrl_fast.types import EnvSpec


class Environment:
    """An environment of this library: an `Env`, which steps on the device, or a `HostEnv`, which steps on the host.

    runs_on: the name of its backend, which knows how it is trained in, evaluated and drawn (`engine.backend`).
    """

    runs_on = ""

    @property
    def spec(self) -> EnvSpec:
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            spec = self.spec
        except Exception:  # of an environment that is being written
            return object.__repr__(self)
        return f"<{type(self).__name__}: {spec.name}, {spec.observation} -> {spec.action}>"
