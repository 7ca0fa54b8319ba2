"""Conformance kits: `check_env(env)`, `check_memory(memory)`, `check_atari(game)`."""

from jaxrl_fast.testing.atari import AtariReport, check_atari
from jaxrl_fast.testing.conformance import Report, check_env
from jaxrl_fast.testing.memory import MemoryReport, check_memory

__all__ = ["AtariReport", "MemoryReport", "Report", "check_atari", "check_env", "check_memory"]
