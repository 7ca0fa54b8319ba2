"""A step of Atari compiled for a GPU that is not here: its launches, registers and spills."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import _aot_compile
import _aot_targets as targets
import jax
import jax.numpy as jnp
from _aot_programs import Program

import jaxrl_fast as jf
from jaxrl_fast.envs.atari import kernel


def step(env: Any, lanes: int, target: targets.Target) -> Program:
    """Return a step of `lanes` environments, for a target's device."""
    place = jax.sharding.SingleDeviceSharding(target.devices()[0])
    state, _ = jax.eval_shape(lambda: env.init(jax.random.key(0), lanes))
    noise = jax.eval_shape(lambda: env.draw(jax.random.key(0), 1, lanes, jnp.int32(0)).at(0))
    args = env, noise, state, jax.ShapeDtypeStruct((lanes,), jnp.int32)
    there = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x), sharding=place)
    return Program(jax.jit(type(env).step), jax.tree.map(there, args), None)


def build(lanes: int, target: targets.Target, keep: Path) -> tuple[dict[str, Any], Path]:
    """Return the facts of a compiled step of Pong, and the kernel's PTX."""
    found = _aot_compile.compiled(step(jf.make("atari:Pong"), lanes, target), target, keep)
    texts = (keep / found["digest"]).glob("*.ptx")
    return found, next(path for path in texts if f".entry {kernel.NAME}" in path.read_text())


def assemble(ptx: Path, cubin: Path) -> dict[str, int]:
    """Return registers and bytes spilled, and write the machine code."""
    command = ["ptxas", "-arch=sm_90a", "-v", str(ptx), "-o", str(cubin)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    names = {"registers": r"Used (\d+) registers", "stack": r"(\d+) bytes stack frame"}
    names |= {f"spill_{way}s": rf"(\d+) bytes spill {way}s" for way in ("store", "load")}
    found = {name: int(re.findall(text, said)[0]) for name, text in names.items()}
    shared = re.search(r"(\d+) bytes smem", said)
    return found | {"shared": int(shared.group(1)) if shared else 0}
