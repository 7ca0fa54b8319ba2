"""Host environments: Gymnasium, EnvPool, the Arcade Learning Environment, a user's."""

from jaxrl_fast import _moved

__getattr__ = _moved.contents_of("envs.host.api", "envs.host.vector")
