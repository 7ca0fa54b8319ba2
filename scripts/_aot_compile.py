"""Compile a program for an accelerator that is not here, and list what it is made of."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import _aot_hlo as hlo
import _aot_targets as targets
import _aot_thunks as thunks
import jax
from _aot_programs import Program

from jaxrl_fast.ops import lowering

FRAMES = 40  # of a stack in HLO; JAX keeps ten, too few to reach from optax to the update
TEXTS = {  # the ends of XLA's names -> ours; a later line goes before an earlier one
    "thunk_sequence.txt": "thunks.txt", "thunk_sequence_after_thunk_passes.txt": "thunks.txt",
    "gpu_after_optimizations.txt": "hlo.txt", "memory-usage-report.txt": "memory.txt",
}  # fmt: skip

# JAX 0.11 writes a kernel's PTX on demand alone; 0.10 does not know the option.
DUMPS = {"xla_dump_emitter_re": "^(llvm|ptx)"} if jax.__version_info__ >= (0, 11) else {}


def lower(program: Program, platform: str, card: targets.Target | None = None) -> Any:
    """Return the program lowered for its devices, with whole stacks; `card`: for Triton kernels."""
    before = jax.config.values["jax_traceback_in_locations_limit"]
    jax.config.update("jax_traceback_in_locations_limit", FRAMES)
    try:
        with card.described() if card else contextlib.nullcontext(), lowering.known(platform):
            return program.fn.trace(*program.args).lower(lowering_platforms=(platform,))
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


def compiled(program: Program, target: targets.Target, keep: Path | None = None) -> dict[str, Any]:
    """Return the facts of a program, compiled for a target.

    keep: folder of compiled texts by program and target. A program that lies there is not compiled
    again, and `keep/NAME/hlo.txt` and `thunks.txt` are there to be read.
    """
    began = time.perf_counter()
    lowered = lower(program, target.platform, target)
    traced = time.perf_counter() - began
    name = digest(lowered.as_text(), target)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)) / name
        if not (folder / "facts.json").exists():
            _compile(lowered, target, folder)
        texts = {path.stem: path.read_text() for path in folder.glob("*.txt")}
        ptx = [path.read_text() for path in folder.glob("*.ptx")]
        measured = json.loads((folder / "facts.json").read_text())
    return (
        {"digest": name, "trace_s": round(traced, 2)}
        | measured
        | facts(texts, ptx, program.iterations)
    )


def digest(text: str, target: targets.Target) -> str:
    """Return a name for a lowered program, a target and a compiler."""
    made = (
        target.name + targets.config(targets.GPUS[target.kind])
        if target.platform == "cuda"
        else target.name
    )
    return (
        hashlib.sha256(
            "\n".join([made, json.dumps(versions(target.platform)), text]).encode()
        ).hexdigest()[:16]
    )


COMPILERS = {"cuda": ("jax-cuda12-plugin", "jax-cuda13-plugin"), "tpu": ("libtpu",)}


def versions(platform: str) -> dict[str, str]:
    """Return the versions that decide what is compiled for a platform."""
    found = {}
    for name in ("jax", "jaxlib", *COMPILERS[platform]):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _compile(lowered: Any, target: targets.Target, folder: Path) -> None:
    """Compile and keep XLA's texts, its kernels and the facts that only the program object has."""
    with tempfile.TemporaryDirectory() as dump:
        options = {"xla_dump_to": dump, "xla_dump_hlo_as_text": True} | DUMPS
        options = options if target.platform == "cuda" else None
        began, spent = time.perf_counter(), time.process_time()
        program = lowered.compile(options)
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        made = folder.with_suffix(".part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for path in Path(dump).glob("*.ptx"):
            shutil.copy(path, made)
        for name, ours in TEXTS.items():
            for path in sorted(
                Path(dump).glob(f"*{name}"), key=lambda path: path.stat().st_size
            ):  # the largest is it
                shutil.copy(path, made / ours)
        if target.platform == "tpu":
            (made / "hlo.txt").write_text(program.as_text())
    memory = program.memory_analysis()
    found = {
        "compile_s": round(seconds, 1), "compile_cpu_s": round(spent, 1),
        "arguments": memory.argument_size_in_bytes, "temporaries": memory.temp_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
    }  # fmt: skip
    (made / "facts.json").write_text(json.dumps(found))
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def facts(texts: dict[str, str], ptx: list[str], iterations: int | None) -> dict[str, Any]:
    """Return what the texts of a compiled program say.

    Launches, syncs and graphs are those of one iteration; without `iterations`, of the program.
    """
    module = hlo.parse(texts["hlo"])
    found = {
        "modules": len(re.findall(r"^HloModule ", module.text, re.M)),
        "collectives": dict(hlo.collectives(module)),
        "callbacks": hlo.callbacks(module.text),
        "products": _products(module, ptx),
    }
    return found | launches(texts["thunks"], module, iterations) if "thunks" in texts else found


def launches(text: str, module: hlo.Module, iterations: int | None) -> dict[str, Any]:
    """Return launches, syncs and graphs of an iteration, and what is launched around it."""
    sequence = thunks.parse(text)
    thunks.annotate(sequence, module)
    total = thunks.count(sequence)
    if iterations is None:
        return _shown(total) | {"waits": thunks.waits(sequence)}
    loop = thunks.training_loop(sequence)
    if loop is None:  # a single iteration
        return _shown(total) | {
            "waits": thunks.waits(sequence),
            "around": {"launches": 0, "syncs": 0},
        }
    body = loop.inside["body"]
    inside = thunks.times(thunks.count(body), loop.trips or 1)
    around = {name: total[name] - inside[name] for name in ("launches", "syncs")}
    return _shown(thunks.times(inside, 1 / iterations)) | {
        "waits": thunks.waits(body),
        "around": around,
    }


def _shown(counts: Counter) -> dict[str, Any]:
    number = lambda x: int(x) if x == int(x) else round(x, 1)
    by = lambda kind: {
        name.partition(":")[2]: number(n)
        for name, n in sorted(counts.items())
        if name.startswith(f"{kind}:")
    }
    plain = {
        name: number(counts[name]) for name in ("launches", "syncs", "graphs", "in_graphs", "loose")
    }
    return plain | by("part") | {"kinds": by("kind")}


def _products(module: hlo.Module, ptx: list[str]) -> dict[str, int]:
    """Return {precision: number} of kernels on tensor cores, library calls, and a TPU's products.

    A product of float32 at default precision is TF32 in a GPU's library and bfloat16 on a TPU.
    """
    kernels = sum(map(hlo.tensor_cores, ptx), Counter())
    found = Counter({f"{kind} kernels": n for kind, n in kernels.items()})
    for (kind, precision), n in hlo.products(module, library=bool(ptx)).items():
        found[f"{kind} {precision}"] += n
    return dict(sorted(found.items()))


def tree(folder: Path) -> list[str]:
    """Return the loops of a kept program, a line each."""
    sequence = thunks.parse((folder / "thunks.txt").read_text())
    thunks.annotate(sequence, hlo.parse((folder / "hlo.txt").read_text()))
    return list(thunks.tree(sequence))
