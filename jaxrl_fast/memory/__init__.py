"""Memories: what experience is kept, and how batches are drawn from it."""

from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.prioritized import PrioritizedMemory
from jaxrl_fast.memory.ring import Ring, Row
from jaxrl_fast.memory.rollout import RolloutMemory
from jaxrl_fast.memory.sequence import PrioritizedSequenceMemory, Recurrent, SequenceMemory
from jaxrl_fast.memory.uniform import UniformMemory

__all__ = [
    "Memory", "PrioritizedMemory", "PrioritizedSequenceMemory", "Recurrent", "Ring", "RolloutMemory", "Row",
    "SequenceMemory", "UniformMemory",
]  # fmt: skip
