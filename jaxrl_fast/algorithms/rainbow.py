"""Rainbow (Hessel et al. 2018): C51 with double, dueling, n-step, prioritized and noisy on."""

from __future__ import annotations

from typing import ClassVar

from jaxrl_fast import tree
from jaxrl_fast.algorithms.c51 import C51
from jaxrl_fast.fields import setting
from jaxrl_fast.ops.optimizer_settings import schedule_setting


@tree.settings
class Rainbow(C51):
    """Rainbow (Hessel et al. 2018): C51 with five improvements, each with a switch."""

    name: ClassVar[str] = "rainbow"

    dueling: bool = setting(True)
    """Q = V + A - mean A (Wang et al. 2016)"""
    noisy: bool = setting(True)
    """noisy dense layers (Fortunato et al. 2018)"""
    n_step: int = setting(3)
    """length of the return before the bootstrap"""
    prioritized: bool = setting(True)
    """sample windows by their error (Schaul et al. 2016)"""
    priority_exponent: float = setting(0.5, low=0, high=1)
    """alpha; 0 samples uniformly"""
    epsilon_start: float = setting(0.0, low=0, high=1)
    """first epsilon; the noisy layers explore"""
    epsilon_end: float = setting(0.0, low=0, high=1)
    """last epsilon"""
    learning_rate: float = setting(5e-4, low=0, convert=schedule_setting)
    """Adam's step size"""
    adam_epsilon: float = setting(1e-6, low=0, open_low=True)
    """epsilon of Adam"""
