"""Count what the host of an XLA:GPU program hands to the stream, loop by loop.

A thunk is a kernel, a copy, a library call, a loop, a branch or a CUDA graph. The text lacks trip
counts; they and the origin of each kernel come from the scheduled HLO.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from _aot_hlo import Frame, Instruction, Module

CONTROL = {"kWhile": "while", "kConditional": "conditional"}
GRAPH = "kCommandBuffer"
WRAPPERS = (
    GRAPH,
    "kSequential",
    "kDynamicSliceFusion",
    "kDynamicSlice",
    "kAddressComputation",
    "kAsyncStart",
)
SILENT = ("kAsyncDone", "kWaitForStreams", "kPartitionId", "kReplicaId")  # nothing on the stream
LIBRARY = (
    "kGemm",
    "kCublasLtMatmul",
    "kConvolution",
    "kCuDnn",
    "kCustomCall",
    "kCubSort",
    "kCholesky",
    "kFft",
)
REST = "rest"

_THUNK = re.compile(r"^( *)\d+: (\w+)\s*(?:\[.*?\])?\s*(.*)$")


@dataclasses.dataclass
class Thunk:
    """A thunk, and those inside it: a loop's `condition` and `body`, a branch's sides."""

    kind: str
    name: str = ""
    inside: dict[str, list[Thunk]] = dataclasses.field(default_factory=dict)
    trips: int | None = None  # of a loop, where XLA knows it
    part: str = REST
    where: str = ""  # of a loop or branch, the JAX name of its operation


def parse(text: str) -> list[Thunk]:
    """Return the sequence of a text of `thunk_sequence*.txt`."""
    root: list[Thunk] = []
    stack: list[tuple[int, Thunk, list[Thunk]]] = [
        (-1, Thunk("root"), root)
    ]  # indent, owner, list to fill
    for line in filter(str.strip, text.splitlines()):
        found = _THUNK.match(line)
        indent = len(line) - len(line.lstrip())
        if found:
            while len(stack) > 1 and indent <= stack[-1][0]:
                stack.pop()
            thunk = Thunk(found.group(2), found.group(3).partition(" ")[0])
            stack[-1][2].append(thunk)
            if thunk.kind in CONTROL:
                stack.append((indent, thunk, []))
            elif thunk.kind in WRAPPERS:
                stack.append((indent, thunk, thunk.inside.setdefault("inside", [])))
            continue
        if not line.rstrip().endswith(":"):  # "No thunks." of an empty branch
            continue
        name = line.strip().rstrip(":")
        if not (
            name == "condition" and indent == 0
        ):  # XLA prints it without indent, below its loop
            while stack[-1][1].kind not in CONTROL or indent <= stack[-1][0]:
                stack.pop()
        indent, owner, _ = stack[-1]
        stack[-1] = indent, owner, owner.inside.setdefault(name, [])
    return root


def within(thunks: Sequence[Thunk]) -> Iterator[Thunk]:
    """Yield leaves and control flow of a sequence, through graphs and other wrappers."""
    for one in thunks:
        if one.kind in WRAPPERS:
            yield from within(one.inside.get("inside", []))
        else:
            yield one


# Origin ----------------------------------------------------------------------------------------

PARTS = (
    ("rollout", r"(^|\.)_?(collect|env_step|step_env|collect_trajectories|collect_transitions)$"),
    ("returns", r"(^|\.)_?(prepare|calculate_gae|get_advantages|get_target|calculate_targets)$"),
    (
        "update",
        r"(^|\.)_?(update_all|update_epoch|learn_epoch|learn_phase|do_updates|update_iteration)$",
    ),
)  # functions of this library, and of PureJaxRL, purejaxql and rejax


def part_of(stack: Sequence[Frame], op_name: str = "") -> str:
    """Return the part of an iteration that the outermost function of a stack that has one has.

    op_name: JAX's name of the instruction, which has our scope of physics.
    """
    for frame in reversed(stack):
        for part, pattern in PARTS:
            if re.search(pattern, frame.function.replace("<locals>.", "")):
                engine = _SCOPE in op_name or any(_ENGINE.search(one.file) for one in stack)
                return PHYSICS if part == "rollout" and engine else part
    return REST


PHYSICS = "physics"  # of a rollout
_SCOPE = "/physics/"  # of `PhysicsEnv`; JAX drops an engine's frames from what we rewrite
_ENGINE = re.compile(r"/site-packages/(brax|mujoco)/")


class MismatchError(ValueError):
    """Thunks and HLO are not of one program."""


def annotate(thunks: Sequence[Thunk], module: Module) -> None:
    """Write trip counts and parts into the thunks of a module.

    Loops and branches meet their instructions in order, kernels by name. A copy has no name: it
    belongs to the part of its predecessor, as every thunk whose instruction is not found.

    Raises:
        MismatchError: The module has other loops and branches than the thunks.
    """
    _annotate(thunks, module, module.entry, REST)


def _annotate(thunks, module, computation, outer) -> None:
    found = list(within(thunks))
    schedule = list(module.schedule(computation))
    flow = [one for one in schedule if one.op in CONTROL.values()]
    control = [one for one in found if one.kind in CONTROL]
    kinds, ops = [CONTROL[one.kind] for one in control], [one.op for one in flow]
    if kinds != ops:
        raise MismatchError(f"{computation} must have the loops of its thunks {kinds}, got {ops}.")
    named = lambda one: part_of(module.stack(one.frame), one.op_name)
    origin = lambda one: part if (part := named(one)) != REST else outer
    kernels: dict[str, deque[Instruction]] = defaultdict(deque)
    for one in schedule:
        kernels[one.kernel].append(one)
    last = outer
    for thunk in found:
        if thunk.kind in CONTROL:
            one = flow.pop(0)
            thunk.trips, thunk.where, thunk.part = one.trips, one.op_name, origin(one)
            # a branch's sides are in order; XLA's names are not: the first is "false_branch"
            for side, called in zip(thunk.inside.values(), one.called, strict=True):
                _annotate(side, module, called, thunk.part)
        elif same := kernels.get(thunk.name):
            thunk.part = origin(same.popleft() if len(same) > 1 else same[0])
        else:
            thunk.part = last
        last = thunk.part


# Counts ----------------------------------------------------------------------------------------


def count(thunks: Sequence[Thunk], in_graph: bool = False) -> Counter:
    """Return launches, syncs, graphs, loose, in_graphs, `part:NAME` and `kind:NAME` of a sequence.

    launches: kernels, copies and library calls of all turns. loose: those that the host hands over
    one by one. syncs: waits of the host for a result, one for each turn of a loop without a known
    trip count (such a loop counts as one turn) and one for each branch outside of a graph. A branch
    counts with its larger side.
    """
    total: Counter = Counter()
    for one in thunks:
        total += _one(one, in_graph)
    return total


def _one(thunk: Thunk, in_graph: bool) -> Counter:
    if thunk.kind == GRAPH and not in_graph:
        return count(thunk.inside["inside"], True) + Counter(graphs=1)
    if thunk.kind in WRAPPERS:
        return count(thunk.inside.get("inside", []), in_graph)
    if thunk.kind == "kWhile":
        turn = count(thunk.inside.get("body", []), in_graph)
        if in_graph or thunk.trips is None:  # the condition is computed too
            turn += count(thunk.inside.get("condition", []), in_graph)
        turn["syncs"] += not in_graph and thunk.trips is None
        return times(turn, 1 if thunk.trips is None else thunk.trips)
    if thunk.kind == "kConditional":
        sides = [count(side, in_graph) for side in thunk.inside.values()]
        return max(sides, key=lambda side: side["launches"], default=Counter()) + Counter(
            syncs=int(not in_graph)
        )
    if thunk.kind in SILENT:
        return Counter()
    return Counter(
        {
            "launches": 1,
            "in_graphs" if in_graph else "loose": 1,
            f"part:{thunk.part}": 1,
            f"kind:{_kind(thunk)}": 1,
        }
    )


def times(counts: Counter, n: float) -> Counter:
    """Return every count times n."""
    return Counter({name: value * n for name, value in counts.items()})


def _kind(thunk: Thunk) -> str:
    if "gemm" in thunk.name or thunk.kind in ("kGemm", "kCublasLtMatmul"):
        return "product"
    if thunk.kind in ("kConvolution", "kCuDnn"):
        return "convolution"
    if thunk.kind in ("kCubSort", "kSort") or thunk.name.startswith("sort"):
        return "sort"
    return "copy" if thunk.kind == "kCopy" else "library" if thunk.kind in LIBRARY else "fusion"


def waits(thunks: Sequence[Thunk], in_graph: bool = False) -> list[str]:
    """Return the JAX names of the loops and branches for which the host waits."""
    found = []
    for one in thunks:
        inner = in_graph or one.kind == GRAPH
        if one.kind in CONTROL and one.trips is None and not in_graph:
            found.append(one.where)
        found += [name for side in one.inside.values() for name in waits(side, inner)]
    return found


def training_loop(thunks: Sequence[Thunk]) -> Thunk | None:
    """Return the outermost loop with the most launches: the iterations of a training program."""
    loops = [one for one in within(thunks) if one.kind == "kWhile"]
    return max(loops, key=lambda one: count([one])["launches"], default=None)


def tree(thunks: Sequence[Thunk], depth: int = 0) -> Iterator[str]:
    """Yield a line for every sequence and loop: launches by part, in one turn and in all."""
    own = count([one for one in within(thunks) if one.kind not in CONTROL])
    shown = ", ".join(
        f"{n:g} {name.partition(':')[2]}" for name, n in sorted(own.items()) if ":" in name
    )
    total = count(thunks)["launches"]
    yield f"{'  ' * depth}{own['launches']:g} launches ({shown}); with loops {total:g}"
    for one in within(thunks):
        if one.kind in CONTROL:
            turns = (
                ""
                if one.kind == "kConditional"
                else f" {'?' if one.trips is None else one.trips} turns"
            )
            yield f"{'  ' * depth}{CONTROL[one.kind]}{turns}, {one.part}: {one.where[-90:]}"
            for name, side in one.inside.items():
                if name != "condition" or one.trips is None:
                    yield from tree(side, depth + 1)
