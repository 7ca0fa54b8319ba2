"""StableHLO: the policy as a file that JAX alone reads and runs, on a CPU, a GPU or a TPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import jax

from jaxrl_fast.errors import MissingExtraError
from jaxrl_fast.files import folders
from jaxrl_fast.ops import lowering
from jaxrl_fast.runs.export.policy import batch_of, policy_of

if TYPE_CHECKING:
    from jaxrl_fast.runs.agent import Agent

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export(agent: Agent, path: Path) -> None:
    """Write `jax.export`'s form of the policy: (observation, *memory) -> (action, *memory)."""
    policy = policy_of(agent)
    (size,) = jax.export.symbolic_shape("batch")
    given = batch_of((policy.observation, *policy.memory), size)
    with lowering.known(lowering.ALL):
        exported = jax.export.export(jax.jit(policy.step), platforms=PLATFORMS)(*given)
    try:
        content = exported.serialize()
    except ImportError as error:  # flatbuffers
        raise MissingExtraError("an export to StableHLO", "export") from error
    with folders.replacing(path) as temporary:
        temporary.write_bytes(content)
