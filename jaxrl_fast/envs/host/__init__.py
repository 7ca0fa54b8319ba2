"""Environments that step on the host: Gymnasium, EnvPool, the Arcade Learning Environment, and a user's own."""

from jaxrl_fast import _moved

__getattr__ = _moved.contents_of("envs.host.api", "envs.host.vector")
