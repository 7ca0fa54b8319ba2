"""Physics of brax and MuJoCo Playground: the common part, two adapters, randomisation."""

from jaxrl_fast import _moved

__getattr__ = _moved.contents_of("envs.physics.api")
