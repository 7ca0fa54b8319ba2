"""Torsos: flax modules from an observation to features [..., F]. Algorithms put their own heads on top."""

from jaxrl_fast.networks.layers import Dense, NoisyDense, draw_noise
from jaxrl_fast.networks.torsos import (
    CNN,
    MINATAR_FILTERS,
    MLP,
    NATURE_FILTERS,
    example_features,
    initialize,
    make_torso,
)

__all__ = [
    "CNN", "MINATAR_FILTERS", "MLP", "NATURE_FILTERS", "Dense", "NoisyDense", "draw_noise", "example_features",
    "initialize", "make_torso",
]  # fmt: skip
