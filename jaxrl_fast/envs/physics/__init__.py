"""Environments of brax and MuJoCo Playground: what they share, an adapter each, and randomised physics."""

from jaxrl_fast import _moved

__getattr__ = _moved.contents_of("envs.physics.api")
