"""Environments that step on the host: Gymnasium, EnvPool, the Arcade Learning Environment, and a user's own."""

from jaxrl_fast.envs.host.api import HostEnv, HostError, HostStep, Vector

__all__ = ["HostEnv", "HostError", "HostStep", "Vector"]
