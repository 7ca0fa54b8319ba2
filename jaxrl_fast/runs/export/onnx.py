"""ONNX: the policy as a graph for onnxruntime, in C++, C#, Java or a browser."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jax.extend import core
from jax.interpreters import partial_eval

from jaxrl_fast.errors import ConfigError, brief, import_optional
from jaxrl_fast.files import folders
from jaxrl_fast.ops import lowering
from jaxrl_fast.runs.export.policy import batch_of, policy_of

if TYPE_CHECKING:
    from jaxrl_fast.runs.agent import Agent


def export(agent: Agent, path: Path) -> None:
    """Write the graph of `observation` (or `observation.KEY`) and memory to `action` and memory.

    Raises ConfigError for a policy with an operation that jax2onnx does not know.
    """
    to_onnx = import_optional("jax2onnx", "an export to ONNX", "onnx", "to_onnx").to_onnx
    # around the first trace as well: one within jax2onnx would hold its own operations
    with lowering.known("cpu"):
        _write(to_onnx, agent, path)


def _write(to_onnx: Callable, agent: Agent, path: Path) -> None:
    """Write the graph as the present platform traces it."""
    policy = policy_of(agent)
    structure, names = jax.tree.structure(policy.observation), policy.observation_names

    def step(*arrays: Any) -> tuple[Any, ...]:
        obs = jax.tree.unflatten(structure, arrays[: len(names)])
        given = obs, *arrays[len(names) :]
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given)
        return plain(jax.make_jaxpr(policy.step)(*like))(*arrays)

    given = [*jax.tree.leaves(batch_of(policy.observation, "batch")),
             *batch_of(policy.memory, "batch")]
    ends = [f"{name}.next" for name in policy.names]
    try:
        with contextlib.redirect_stdout(io.StringIO()), _quiet("onnx_ir"):
            model = to_onnx(
                step, given, model_name=f"{agent.algo.name} on {agent.environment}",
                input_names=[*names, *policy.names], output_names=["action", *ends],
            )  # fmt: skip
    except Exception as error:
        valid = f"stablehlo or safetensors: jax2onnx cannot write this policy ({brief(error)})"
        raise ConfigError("format", "onnx", valid) from error
    with folders.replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep warnings about values without a type from the user: jax2onnx's graphs have them."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def plain(closed: Any) -> Callable[..., tuple[Any, ...]]:
    """Return a function of the arrays of a jaxpr, without steps that its results do not need.

    Calls are inlined, and choices by platform are the CPU's.
    """
    jaxpr, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))

    def run(*arrays: Any) -> tuple[Any, ...]:
        kept = [x for x, is_used in zip(arrays, used, strict=True) if is_used]
        return tuple(_evaluated(jaxpr, closed.consts, kept))

    return run


def _evaluated(jaxpr: Any, consts: Any, arrays: Any) -> list[Any]:
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arrays), strict=True))
    read = lambda x: x.val if isinstance(x, core.Literal) else known[x]
    for equation in jaxpr.eqns:
        values, parameters = [*map(read, equation.invars)], equation.params
        name = equation.primitive.name
        inner = parameters.get("jaxpr", parameters.get("call_jaxpr"))
        if name == "platform_index":
            found = [next(i for i, names in enumerate(parameters["platforms"]) if names is None
                          or "cpu" in names)]
        elif name == "cond" and isinstance(values[0], int):
            branch = parameters["branches"][values[0]]
            found = _evaluated(branch.jaxpr, branch.consts, values[1:])
        elif name in ("jit", "pjit", "closed_call", "custom_jvp_call",
                      "custom_vjp_call", "remat", "checkpoint"):
            closed = isinstance(inner, core.ClosedJaxpr)
            found = _evaluated(*(inner.jaxpr, inner.consts) if closed else (inner, ()), values)
        else:
            found = equation.primitive.bind(*values, **parameters)
            found = found if equation.primitive.multiple_results else [found]
        known.update(zip(equation.outvars, found, strict=True))
    return [*map(read, jaxpr.outvars)]
