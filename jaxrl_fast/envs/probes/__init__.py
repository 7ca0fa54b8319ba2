"""Tiny environments, each of which asks one thing of an algorithm; their answers are known."""

from jaxrl_fast import _moved

__getattr__ = _moved.contents_of("envs.probes.control")
