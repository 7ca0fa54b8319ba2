"""Torsos: flax modules from an observation to features [..., F]. Algorithms put their own heads on top."""

from jaxrl_fast.networks.batch_norm import BatchNormMLP
from jaxrl_fast.networks.layers import Dense, NoisyDense, draw_noise
from jaxrl_fast.networks.torsos import (
    CNN,
    MINATAR_FILTERS,
    MLP,
    NATURE_FILTERS,
    SMALL_FILTERS,
    WithAction,
    apply_parts,
    check_widths,
    example_features,
    initialize,
    initialize_parts,
    make_torso,
)

__all__ = [
    "BatchNormMLP", "CNN", "MINATAR_FILTERS", "MLP", "NATURE_FILTERS", "SMALL_FILTERS", "Dense", "NoisyDense", "WithAction",
    "apply_parts", "check_widths", "draw_noise", "example_features", "initialize", "initialize_parts", "make_torso",
]  # fmt: skip
