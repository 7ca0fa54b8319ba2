"""A step of Atari compiled for a GPU that is not here: launches, registers, spills, blocks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import _aot_compile
import _aot_targets as targets
import jax
import jax.numpy as jnp
from _aot_programs import Program

import jaxrl_fast as jf
from jaxrl_fast.envs.atari import kernel

_INSTRUCTION = re.compile(
    r"(?:^\t|(?<=;) )(?:@!?%p\d+ )?([a-z][\w.]*)([^;\n]*);", flags=re.MULTILINE
)


class Block(NamedTuple):
    """Instructions of PTX without a jump between them."""

    label: str
    instructions: int
    loads: int
    stores: int
    next: tuple[str, ...]  # labels


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


def blocks(ptx: str) -> list[Block]:
    """Return a kernel's blocks in order; loads and stores are those of the device's memory."""
    first, *rest = re.split(r"^(\$\w+):", ptx, flags=re.MULTILINE)
    labels, texts = ["", *rest[::2]], [first, *rest[1::2]]
    found = []
    for label, text, after in zip(labels, texts, [*labels[1:], ""], strict=True):
        code = _INSTRUCTION.findall(text)
        names = [name for name, _ in code]
        jumps = [operands.strip() for name, operands in code if name.startswith("bra")]
        falls = [] if names and names[-1] in ("bra.uni", "ret") else [after]
        loads, stores = (sum(n.startswith(f"{way}.global") for n in names) for way in ("ld", "st"))
        found.append(Block(label, len(code), loads, stores, (*jumps, *falls)))
    return found


def every_turn(found: list[Block]) -> list[Block]:
    """Return the blocks that each turn of the loop over instructions runs.

    That loop is the second longest one, behind the loop over frames. A block is in each turn if the
    loop's end cannot be reached without it.
    """
    place = {block.label: i for i, block in enumerate(found)}
    backward = [(i - place[to], place[to], i) for i, block in enumerate(found)
                for to in block.next if to and place[to] < i]
    _, head, tail = sorted(backward)[-2]

    def reached(without: int) -> set[int]:
        seen, left = set(), [head]
        while left:
            i = left.pop()
            if i not in seen and i != without and head <= i <= tail:
                seen.add(i)
                left += [place[to] for to in found[i].next if to]
        return seen

    return [found[i] for i in range(head, tail + 1) if tail not in reached(i)]
