"""Torsos: flax modules from an observation to features [..., F]. Algorithms put their own heads on top."""

from jaxrl_fast.networks.layers import Dense
from jaxrl_fast.networks.torsos import MLP, MinAtarCNN, NatureCNN, make_torso

__all__ = ["MLP", "Dense", "MinAtarCNN", "NatureCNN", "make_torso"]
