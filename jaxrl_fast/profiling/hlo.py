"""Read optimized HLO: the part of an iteration that holds an instruction, and its cost.

A fusion belongs to the part with most of its work. An instruction without a scope (a copy that
XLA added) belongs to the part of its first operand, else to the part of its caller.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from jaxrl_fast.ops.scopes import LOSS, PREFIX
from jaxrl_fast.profiling.flops import of_convolution, of_product

FORWARD, BACKWARD, OTHER = "forward", "backward", "other"
CONTROL = ("while", "conditional", "call")
FREE = ("parameter", "constant", "bitcast", "get-tuple-element",
        "tuple", "after-all", "broadcast", "iota")
MOVING = (
    "copy", "slice", "concatenate", "pad", "reshape", "transpose", "reverse", "gather", "scatter",
    "dynamic-slice", "dynamic-update-slice", "convert", "bitcast-convert",
    "copy-start", "copy-done",
)  # fmt: skip
_BITS = {"pred": 8, "token": 0, "opaque": 0}
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"\b(?:condition|body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_CONTRACTED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([^\]}]*)')
_SCOPE = re.compile(re.escape(PREFIX) + r"(\w+)")


class Array(NamedTuple):
    """A dense array: its dtype as HLO has it, and its axes."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """Return the bytes of its elements."""
        bits = _BITS.get(self.dtype) or int((re.findall(r"\d+", self.dtype) or ["0"])[0])
        return self.size * bits / 8


class Instruction(NamedTuple):
    """One instruction. arrays: of its result. called: while: condition, body. text: attributes."""

    name: str
    op: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    called: tuple[str, ...]
    op_name: str
    text: str
    is_root: bool = False

    @property
    def size(self) -> int:
        """Return the elements of the result."""
        return sum(array.size for array in self.arrays)

    @property
    def trips(self) -> int:
        """Return the turns of a loop, 1 if XLA does not know them."""
        found = _TRIPS.search(self.text)
        return int(found.group(1)) if found else 1


class Cost(NamedTuple):
    """Arithmetic operations, and bytes read and written."""

    flops: float = 0.0
    bytes: float = 0.0


def part_of(op_name: str) -> str | None:
    """Return the part of an iteration that a JAX name belongs to: its innermost scope's."""
    found = _SCOPE.findall(op_name)
    if not found:
        return None
    if "transpose(" in op_name:
        return BACKWARD
    return FORWARD if found[-1] == LOSS else found[-1]


@dataclasses.dataclass(frozen=True, eq=False)
class Module:
    """The computations of an optimized module; names of instructions are unique in it."""

    name: str
    computations: dict[str, list[Instruction]]

    @functools.cached_property
    def instructions(self) -> dict[str, Instruction]:
        """Return every instruction by its name."""
        return {one.name: one for body in self.computations.values() for one in body}

    @functools.cached_property
    def kernels(self) -> dict[str, str]:
        """Return {name of a GPU's kernel: instruction}, for launches of graphs without a name."""
        return {re.sub(r"[.\-]", "_", name): name for name in self.instructions}

    @functools.cached_property
    def _caller(self) -> dict[str, str]:
        return {body: one.name for one in self.instructions.values() for body in one.called}

    @functools.cached_property
    def _home(self) -> dict[str, str]:
        return {one.name: name for name, body in self.computations.items() for one in body}

    @functools.cached_property
    def _parts(self) -> dict[str, str | None]:
        return {}

    def part(self, name: str) -> str:
        """Return the part of an instruction, `OTHER` if no scope is near."""
        return self._part(name) or OTHER

    def _part(self, name: str) -> str | None:
        if name in self._parts:
            return self._parts[name]
        self._parts[name] = None  # of a cycle
        one = self.instructions[name]
        found = self._most_of(one) if one.op in ("fusion", "call") else None
        found = found or part_of(one.op_name)
        if found is None and one.op not in CONTROL:
            before = (self.instructions.get(operand) for operand in one.operands)
            near = (b for b in before if b and b.op not in (*CONTROL, "parameter", "constant"))
            found = next(filter(None, (self._part(b.name) for b in near)), None)
        if found is None and (caller := self._caller.get(self._home[name])):
            found = part_of(self.instructions[caller].op_name) or self._part(caller)
        self._parts[name] = found
        return found

    def _most_of(self, one: Instruction) -> str | None:
        """Return the part with most of the work inside a fusion or call."""
        weights: Counter[str] = Counter()
        for inner in self._inside(one):
            found = part_of(inner.op_name)
            if found and inner.op not in FREE:
                writes = inner.op == "dynamic-update-slice"
                moved = self._changed(inner).size if writes else inner.size
                weights[found] += max(self.flops(inner), 0.2 * moved)
        return weights.most_common(1)[0][0] if weights else None

    def _inside(self, one: Instruction) -> Iterator[Instruction]:
        for body in one.called:
            for inner in self.computations.get(body, ()):
                yield inner
                if inner.op in ("fusion", *CONTROL):
                    yield from self._inside(inner)

    def _operand(self, one: Instruction, i: int) -> Array:
        found = self.instructions.get(one.operands[i]) if i < len(one.operands) else None
        return found.arrays[0] if found and found.arrays else Array("f32", ())

    def _changed(self, one: Instruction) -> Array:
        """Return the part that a dynamic-update-slice writes."""
        return self._operand(one, 1)

    def cost(self, name: str) -> Cost:
        """Return the cost of an instruction with everything that it calls, loops by their turns."""
        one = self.instructions[name]
        if one.op in CONTROL:
            bodies = [
                [self.cost(inner.name) for inner in self.computations.get(body, ())]
                for body in one.called
            ]
            sums = [Cost(*map(sum, zip(*body, strict=True))) if body else Cost() for body in bodies]
            if one.op == "conditional":
                return max(sums, default=Cost())
            return Cost(*(one.trips * sum(values) for values in zip(*sums, strict=True)))
        return Cost(self.flops(one), self.bytes(one))

    def flops(self, one: Instruction) -> float:
        """Return the arithmetic operations of an instruction; moving data counts as none."""
        if one.op in FREE or one.op in MOVING:
            return 0.0
        if one.op == "fusion":
            return sum(self.flops(inner) for body in one.called
                       for inner in self.computations.get(body, ()))
        if contracted := _CONTRACTED.search(one.text):  # dot, and cuBLAS's calls
            axes = [int(axis) for axis in re.findall(r"\d+", contracted.group(1))]
            shape = self._operand(one, 0).shape
            terms = [shape[axis] for axis in axes if axis < len(shape)]
            return float(of_product(one.arrays[0].shape, terms))
        if labels := re.search(r"dim_labels=\w+_(\w+)->\w+", one.text):  # convolutions, and cuDNN's
            kernel = self._operand(one, 1).shape
            features = dict(zip(labels.group(1), kernel, strict=False)).get("o", 1)
            return float(of_convolution(one.arrays[0].shape, kernel, features))
        if one.op in ("reduce", "reduce-window", "sort", "custom-call"):
            return float(max(one.size, self._operand(one, 0).size)) * (one.op != "custom-call")
        return float(one.size)

    def bytes(self, one: Instruction) -> float:
        """Return the bytes that an instruction reads and writes; of slices, the moved part."""
        if one.op in FREE and one.op not in ("broadcast", "iota"):
            return 0.0
        if one.op == "dynamic-update-slice":
            return 2 * self._changed(one).bytes
        if one.op in ("dynamic-slice", "gather", "slice"):
            return 2 * sum(array.bytes for array in one.arrays)
        if one.op == "scatter":
            return 3 * self._operand(one, len(one.operands) - 1).bytes
        if one.op == "fusion" and one.called and one.called[0] in self.computations:
            return self._fused_bytes(self.computations[one.called[0]])
        read = sum(self._operand(one, i).bytes for i in range(len(one.operands)))
        return read + sum(array.bytes for array in one.arrays)

    def _fused_bytes(self, body: list[Instruction]) -> float:
        """Return the bytes of a fusion's parameters and roots; of slices, the moved part."""
        users: dict[str, list[Instruction]] = {}
        for one in body:
            for operand in one.operands:
                users.setdefault(operand, []).append(one)
        total = 0.0
        for one in body:
            if one.op == "parameter":
                total += self._read(one, users.get(one.name, []))
        root = next((one for one in body if one.is_root), body[-1])
        roots = [root]
        if root.op == "tuple":
            roots = [self.instructions[name] for name in root.operands]
        for one in roots:
            while one.op in ("bitcast", "copy") and one.operands:
                one = self.instructions[one.operands[0]]
            written = [self._changed(one)] if one.op == "dynamic-update-slice" else one.arrays
            total += sum(array.bytes for array in written)
        return total

    def _read(self, one: Instruction, users: list[Instruction]) -> float:
        whole = sum(array.bytes for array in one.arrays)
        parts = 0.0
        for user in users:
            if user.op in ("dynamic-slice", "gather", "slice") and user.operands[0] == one.name:
                parts += sum(array.bytes for array in user.arrays)
            elif user.op != "dynamic-update-slice" or user.operands[0] != one.name:
                return whole
        return min(whole, parts)


def parse(text: str) -> Module:
    """Return the module of an HLO text, `compiled.as_text()`."""
    computations: dict[str, list[Instruction]] = {}
    current = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = head.group(2)
            computations[current] = []
        elif current and (found := _INSTRUCTION.match(line)):
            computations[current].append(_instruction(*found.groups()))
    name = re.match(r"HloModule ([\w.\-]+)", text)
    return Module(name.group(1) if name else "", computations)


def _instruction(root: str | None, name: str, result: str, op: str, rest: str) -> Instruction:
    inside, attributes = _split(rest)
    branches = _BRANCHES.search(attributes)
    listed = branches.group(1).split(",") if branches else _CALLED.findall(attributes)
    op_name = re.search(r'op_name="([^"]*)"', attributes)
    arrays = tuple(
        Array(dtype, tuple(int(n) for n in axes.split(",") if n))
        for dtype, axes in _ARRAY.findall(result)
    )
    return Instruction(
        name, op, arrays, tuple(re.findall(r"%([\w.\-]+)", inside)),
        tuple(found.strip().lstrip("%") for found in listed), op_name.group(1) if op_name else "",
        attributes, bool(root),
    )  # fmt: skip


def _split(rest: str) -> tuple[str, str]:
    """Return the text inside the operands' parentheses, and the text behind them."""
    depth = 1
    for i, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return rest[:i], rest[i + 1 :]
    return rest, ""
