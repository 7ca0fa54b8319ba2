"""Read optimized HLO: control flow, products, collectives, and where instructions come from."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

COLLECTIVES = (
    "all-reduce", "all-gather", "all-to-all",
    "collective-permute", "reduce-scatter", "collective-broadcast",
)  # fmt: skip
CALLBACKS = r"xla_python|xla_ffi_python|host_callback|CallbackCustom|outfeed|infeed"
PRODUCTS = ("dot", "convolution", "ragged-dot")

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_CALLED = re.compile(
    r"\b(?:condition|body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


class Frame(NamedTuple):
    """A function on the stack that traced an instruction."""

    file: str
    function: str


class Instruction(NamedTuple):
    """One instruction. `kernel`: the name that its kernel has, shared by equal fusions."""

    op: str
    kernel: str
    called: tuple[str, ...]  # while: condition, body; conditional: branches, true before false
    trips: int | None
    op_name: str
    frame: int
    text: str


@dataclasses.dataclass(frozen=True)
class Module:
    """The computations of a module, in the order of their schedule."""

    text: str
    computations: dict[str, list[Instruction]]
    entry: str

    @functools.cached_property
    def _frames(self) -> dict[int, tuple[Frame, int]]:
        """Return {id: (frame, id of its caller, 0 for none)}."""
        files, functions = (_named(self.text, head) for head in ("FileNames", "FunctionNames"))
        numbers = lambda line: [int(x) for x in re.findall(r"=(\d+)", line)]
        places = {i: numbers(line) for i, line in _listed(self.text, "FileLocations")}
        frames = {}
        for i, line in _listed(self.text, "StackFrames"):
            place, parent = numbers(line)
            file, function = places[place][:2]
            frames[i] = (
                Frame(files[file], functions[function]),
                parent - 1,
            )  # the dump counts parents from 1
        return frames

    def stack(self, frame: int) -> list[Frame]:
        """Return the functions that traced an instruction, innermost first."""
        found = []
        while frame in self._frames and len(found) < 1000:
            one, frame = self._frames[frame]
            found.append(one)
        return found

    def schedule(self, computation: str) -> Iterator[Instruction]:
        """Yield a computation's instructions, those of calls in their place."""
        for one in self.computations[computation]:
            if one.op in ("call", "async-start") and one.called:
                yield from self.schedule(one.called[0])
            else:
                yield one


def parse(text: str) -> Module:
    """Return the module of an HLO text."""
    computations: dict[str, list[Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = head.group(2)
            computations[current] = []
            entry = current if head.group(1) else entry
        elif current and (found := _INSTRUCTION.match(line)):
            computations[current].append(_instruction(*found.group(1, 3, 4), line=line))
    return Module(text, computations, entry)


def _instruction(name: str, op: str, rest: str, line: str) -> Instruction:
    known = lambda pattern, default: m.group(1) if (m := re.search(pattern, rest)) else default
    branches = _BRANCHES.search(rest)
    called = (
        [x.strip().lstrip("%") for x in branches.group(1).split(",")]
        if branches
        else _CALLED.findall(rest)
    )
    trips = _TRIPS.search(rest) if op == "while" else None
    return Instruction(
        op=op,
        kernel=re.sub(r"[.\-]", "_", known(r'deduplicated_name="([^"]*)"', name)),
        called=tuple(called) if op in ("while", "conditional", "call", "async-start") else (),
        trips=int(trips.group(1)) if trips else None,
        op_name=known(r'op_name="([^"]*)"', ""),
        frame=int(known(r"stack_frame_id=(\d+)", "0")),
        text=line,
    )


def _listed(text: str, head: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a table above the computations."""
    found = re.search(rf"^{head}\n((?:\d+ .*\n)*)", text, re.M)
    for line in found.group(1).splitlines() if found else ():
        number, _, rest = line.partition(" ")
        yield int(number), rest


def _named(text: str, head: str) -> dict[int, str]:
    return {i: rest.strip('"') for i, rest in _listed(text, head)}


# Facts ------------------------------------------------------------------------------------------


def collectives(module: Module) -> Counter:
    """Return how often each collective stands in a module."""
    kinds = (one.op.removesuffix("-start") for body in module.computations.values() for one in body)
    return Counter(kind for kind in kinds if kind in COLLECTIVES)


def callbacks(text: str) -> int:
    """Return how often a module calls Python or reads from the host."""
    return len(re.findall(CALLBACKS, text))


class Product(NamedTuple):
    """A product or convolution. `precision`: asked for, see `_precision`."""

    operand: str  # type of the first operand
    precision: str
    op_name: str


def each_product(module: Module, library: bool = False) -> Iterator[Product]:
    """Yield products and convolutions. library: only cuBLAS's and cuDNN's."""
    for body in module.computations.values():
        types = {m.group(1): m.group(2) for one in body if (m := _INSTRUCTION.match(one.text))}
        for one in body:
            if _LIBRARY.search(one.text) or (one.op in PRODUCTS and not library):
                operand = re.search(
                    r"\((?:(\w+)\[[^%]*)?%([\w.\-]+)", one.text.partition(f" {one.op}")[2]
                )
                kind = (
                    (operand.group(1) or types.get(operand.group(2), "?")).partition("[")[0]
                    if operand
                    else "?"
                )
                yield Product(kind, _precision(one.text), one.op_name)


def products(module: Module, library: bool = False) -> Counter:
    """Return {(operand type, precision asked for): number} of products and convolutions.

    library: only cuBLAS's and cuDNN's; the others are kernels, whose PTX says what they do.
    """
    return Counter(one[:2] for one in each_product(module, library))


_LIBRARY = re.compile(r'custom_call_target="__(?:cublas|cudnn\$conv)')


def _precision(text: str) -> str:
    """Return the precision of an instruction: an algorithm, "high", "highest" or "default"."""
    if algorithm := re.search(r'\balgorithm=(\w+)|"algorithm":"(ALG_DOT_\w+)"', text):
        return (algorithm.group(1) or algorithm.group(2)).lower().removeprefix("alg_")
    asked = re.search(r'operand_precision(?:=\{(\w+)|":\["(\w+)")', text)
    return (asked.group(1) or asked.group(2)).lower() if asked else "default"


_MMA = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async)\S*?\.(tf32|bf16|f16|f64|s8|e4m3|e5m2)\b")


def tensor_cores(ptx: str) -> Counter:
    """Return {type: kernels} of the kernels in PTX that multiply on tensor cores."""
    kernels = re.split(r"^\s*(?:\.visible\s+)?\.entry\s", ptx, flags=re.M)[1:]
    return Counter(kind for kernel in kernels for kind in set(_MMA.findall(kernel)))
