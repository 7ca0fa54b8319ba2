"""Torsos: flax modules from an observation to features [..., F]; algorithms add heads."""

from jaxrl_fast.networks.foreign import Foreign, as_network
from jaxrl_fast.networks.layers import Dense, NoisyDense
from jaxrl_fast.networks.noise import draw_noise, draw_noises
from jaxrl_fast.networks.torsos import (
    CNN,
    MINATAR_FILTERS,
    MLP,
    NATURE_FILTERS,
    SMALL_FILTERS,
    BatchNormMLP,
    WithAction,
    apply_parts,
    check_widths,
    example_features,
    forward,
    initialize,
    initialize_parts,
    make_torso,
)

__all__ = [
    "BatchNormMLP", "CNN", "MINATAR_FILTERS", "MLP", "NATURE_FILTERS",
    "SMALL_FILTERS", "Dense", "Foreign",
    "NoisyDense", "WithAction", "apply_parts", "as_network", "check_widths",
    "draw_noise", "draw_noises", "example_features", "forward", "initialize",
    "initialize_parts", "make_torso",
]  # fmt: skip
