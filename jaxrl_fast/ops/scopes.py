"""Names of an iteration's parts in compiled programs, read by `jaxrl-fast profile`.

A scope is only metadata of the instructions that are traced inside it: programs compute and
compile the same without. The innermost scope counts; in `LOSS`, what JAX transposes is backward.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax

PREFIX = "rl."
ENVIRONMENT = "environment"
RESET = "reset"
PREPROCESS = "preprocess"
POLICY = "policy"
TARGETS = "targets"
STORE = "store"
SAMPLE = "sample"
LOSS = "loss"
OPTIMIZER = "optimizer"
RANDOM = "random"


def scope(part: str) -> AbstractContextManager:
    """Return a context whose traced operations belong to `part` of an iteration."""
    return jax.named_scope(PREFIX + part)
