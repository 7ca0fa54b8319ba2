"""The frame kernel as machine code: registers, spills, and the cycles of each of its parts.

A warp's cycles come from the compiler's own schedule: stall counts and scoreboards of each
instruction, two cycles of a pipe of 16 lanes, and latencies of `Latencies`.
"""

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

from jaxrl_fast.envs.atari import kernel, machine
from jaxrl_fast.envs.atari.state import RAM, WIDTH, Cart, Cpu, Inputs, Machine, Riot, Rom, Tia, View

_LINES = 250
_ROM = 1 << 15
_MULTIPLIES = ("IMAD", "IMUL", "FFMA", "FMUL", "FADD")  # the other pipe
_MEMORY = ("LDG", "STG", "LDC", "LDL", "STL")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/")
_SECOND = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/")
_TURNS = (WIDTH // 32, 8)  # of the loops over groups of pixels and, where it is one, over words
# The main loop's conditionals in the order of the code, each behind a reduction over the warp.
PARTS = ("code in RAM", "a segment of a line", "32 pixels", "a write to the TIA")


class Code(NamedTuple):
    """One instruction."""

    name: str
    target: str | None  # of a branch
    conditional: bool
    stall: int
    sets: tuple[int, ...]  # scoreboards until its result is there
    waits: int  # scoreboards, one bit each


class Latencies(NamedTuple):
    """Cycles until a result is there."""

    load: float
    reduction: float
    accesses: float  # cycles that a load or a store of 32 lanes keeps the memory pipe


class Part(NamedTuple):
    """A straight piece of the kernel."""

    instructions: int
    memory: int
    cycles: float  # of one warp alone
    busy: float  # of the busier arithmetic pipe


def program(lanes: int, target: targets.Target) -> Program:
    """Return a frame of `lanes` machines, for a target's device."""
    place = jax.sharding.SingleDeviceSharding(target.devices()[0])

    def array(*shape: int, dtype: Any = jnp.int32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    def fields(kind: Any) -> Any:
        return kind._make([array(lanes)] * len(kind._fields))

    screen, number = array(lanes, _LINES, WIDTH, dtype=jnp.uint8), array(lanes)
    ram = array(lanes, RAM, dtype=jnp.uint8)
    groups = map(fields, (Cpu, Riot, Tia, Cart, View))
    m = Machine._make([*groups, ram, screen, screen, *[number] * 5])
    args = m, fields(Inputs), Rom._make([array(_ROM)] * 3)
    frame = jax.jit(lambda m, inputs, rom: machine.frame(m, inputs, rom, m.done >= 0))
    return Program(frame, args, None)


def step(env: Any, lanes: int, target: targets.Target) -> Program:
    """Return a step of `lanes` environments, for a target's device."""
    place = jax.sharding.SingleDeviceSharding(target.devices()[0])
    state, _ = jax.eval_shape(lambda: env.init(jax.random.key(0), lanes))
    noise = jax.eval_shape(lambda: env.draw(jax.random.key(0), 1, lanes, jnp.int32(0)).at(0))
    args = env, noise, state, jax.ShapeDtypeStruct((lanes,), jnp.int32)
    there = lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x), sharding=place)
    return Program(jax.jit(type(env).step), jax.tree.map(there, args), None)


def build(lanes: int, target: targets.Target, keep: Path) -> tuple[dict[str, Any], Path]:
    """Return the facts of the compiled frame, and the kernel's PTX."""
    found = _aot_compile.compiled(program(lanes, target), target, keep)
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


def disassemble(cubin: Path) -> list[Code | str]:
    """Return instructions and labels in order; needs NVIDIA's `nvdisasm`."""
    command = ["nvdisasm", "-c", "-hex", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[Code | str] = []
    begun = None
    for line in text.splitlines():
        if label := re.match(r"\.?(L_x_\d+):", line.strip()):
            found.append(label.group(1))
        elif match := _LINE.search(line):
            begun = match.group(2)
        elif begun and (second := _SECOND.match(line)):
            found.append(_code(begun, int(second.group(1), 16)))
            begun = None
    return found


def _code(text: str, high: int) -> Code:
    words = text.split()
    conditional = words[0].startswith("@")
    name = words[int(conditional)].split(".")[0]
    target = re.search(r"\.?(L_x_\d+)", text) if name == "BRA" else None
    control = high >> 41
    sets = tuple(b for b in ((control >> 5) & 7,) if b != 7)
    return Code(
        name, target.group(1) if target else None, conditional, control & 15, sets,
        (control >> 11) & 0x3F,
    )  # fmt: skip


def parts(code: list[Code | str], latencies: Latencies) -> dict[str, Part]:
    """Return the main loop's conditionals by name, and "every turn": the loop without them.

    Raises ValueError where the compiled code does not have the loop and the conditionals of PARTS.
    """
    labels = {line: i for i, line in enumerate(code) if isinstance(line, str)}
    jumps = [(i, labels[c.target], c)
             for i, c in enumerate(code) if isinstance(c, Code) and c.target]
    loops = [(to, at) for at, to, c in jumps if to < at and c.conditional]
    begin, end = max(loops, key=lambda loop: loop[1] - loop[0])
    inner = sorted((x for x in loops if begin < x[0] and x[1] < end), key=lambda x: x[0] - x[1])
    spans = [(at, to) for at, to, c in jumps if c.conditional and begin < at < to <= end]
    if len(spans) != len(PARTS) or not 0 < len(inner) <= len(_TURNS):
        raise ValueError(f"kernel must have {len(PARTS)} conditionals and a loop within its loop.")
    found, taken = {}, set()
    for name, (at, to) in sorted(zip(PARTS, spans, strict=True), key=lambda x: x[1][1] - x[1][0]):
        inside = [i for i in range(at + 1, to) if i not in taken]
        taken |= set(inside)
        for (first, last), turns in zip(inner, _TURNS, strict=False):
            inside += [i for i in inside if first <= i <= last] * (turns - 1) if first > at else []
        found[name] = _part([code[i] for i in inside], latencies)
    rest = [code[i] for i in range(begin, end + 1) if i not in taken]
    return found | {"every turn": _part(rest, latencies)}


def _part(code: list[Code | str], latencies: Latencies) -> Part:
    """Return what one warp needs for code without branches."""
    now, ready, free, counts = 0.0, [0.0] * 6, {}, {}
    lines = [line for line in code if isinstance(line, Code)]
    for line in lines:
        pipe = (
            "multiply" if line.name in _MULTIPLIES else "memory" if line.name in _MEMORY
            else "plain"
        )
        waited = [ready[i] for i in range(6) if line.waits >> i & 1]
        now = max([now, free.get(pipe, 0.0), *waited])
        cost = latencies.accesses if pipe == "memory" else 2.0
        free[pipe] = now + cost
        counts[pipe] = counts.get(pipe, 0) + 1
        latency = latencies.reduction if line.name == "REDUX" else latencies.load
        for i in line.sets:
            ready[i] = now + latency + (cost if pipe == "memory" else 0)
        now += max(line.stall, 1)
    busy = 2.0 * max(counts.get("plain", 0), counts.get("multiply", 0))
    return Part(len(lines), counts.get("memory", 0), max(now, *ready), busy)
