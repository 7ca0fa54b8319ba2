"""Memories: how experience is stored and how batches are drawn from it.

`api` is the protocol, `ring` the store of a replay, `prioritized` its priorities; `experience/`
takes data from elsewhere. No memory knows an algorithm.
"""

from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.experience.adapted import (
    load_experience,
    outline_experience,
    with_experience,
)
from jaxrl_fast.memory.experience.dataset import episodes_to_rows, transitions_to_rows
from jaxrl_fast.memory.experience.files import identity, load_memory, open_memory, save_memory
from jaxrl_fast.memory.experience.filled import Filled, fill, hold, rows_of
from jaxrl_fast.memory.experience.mixed import MixedMemory, OfflineMemory, StartFrom, mix, offline
from jaxrl_fast.memory.grouped import Grouped, grouped
from jaxrl_fast.memory.prioritized import PrioritizedMemory
from jaxrl_fast.memory.ring import Ring, Row, UniformMemory
from jaxrl_fast.memory.rollout import SHUFFLES, RolloutMemory
from jaxrl_fast.memory.sequence import PrioritizedSequenceMemory, Recurrent, SequenceMemory
from jaxrl_fast.memory.transitions import Transition, TransitionMemory

__all__ = [
    "SHUFFLES", "Filled", "Grouped", "Memory", "MixedMemory", "OfflineMemory", "PrioritizedMemory",
    "PrioritizedSequenceMemory", "Recurrent", "Ring", "RolloutMemory",
    "Row", "SequenceMemory", "StartFrom",
    "Transition", "TransitionMemory", "UniformMemory", "episodes_to_rows", "fill", "grouped",
    "hold", "identity", "load_experience", "load_memory", "mix",
    "offline", "open_memory", "outline_experience", "rows_of",
    "save_memory", "transitions_to_rows", "with_experience",
]  # fmt: skip
