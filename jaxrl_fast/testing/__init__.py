"""Conformance kits for your own classes: `check_env(env)`, `check_memory(memory)`."""

from jaxrl_fast.testing.conformance import Report, check_env
from jaxrl_fast.testing.memory import MemoryReport, check_memory

__all__ = ["MemoryReport", "Report", "check_env", "check_memory"]
