"""Memories: what experience is kept, and how batches are drawn from it."""

from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.rollout import RolloutMemory
from jaxrl_fast.memory.uniform import Row, UniformMemory

__all__ = ["Memory", "RolloutMemory", "Row", "UniformMemory"]
