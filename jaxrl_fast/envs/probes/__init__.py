"""Tiny environments with known values, each testing one part of an algorithm."""

from jaxrl_fast import _moved

__getattr__ = _moved.contents_of("envs.probes.control")
