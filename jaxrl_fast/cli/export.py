"""`jaxrl-fast export`: a trained policy as a file for other programs."""

from __future__ import annotations

from pathlib import Path

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import AGENT, PROG, Option, parse, positionals
from jaxrl_fast.errors import check_choice, expected
from jaxrl_fast.runs.export.formats import FORMATS
from jaxrl_fast.values import path as path_of

OPTIONS = (
    Option("format", "str", "stablehlo", "for JAX alone; for onnxruntime; for `jf.load`",
           metavar=f"{{{','.join(FORMATS)}}}"),
    Option("out", "path", None, "file, or folder for safetensors, to write", metavar="PATH",
           hint="default: policy.stablehlo, policy.onnx or policy in RUN"),
    *AGENT,
)  # fmt: skip
READS = {
    "stablehlo": "jax.export.deserialize(bytearray(open({!r}, 'rb').read())).call(observations)",
    "onnx": "onnxruntime.InferenceSession({!r}).run(None, {{'observation': observations}})",
    "safetensors": "jf.load({!r}).act(observations)",
}  # for a policy without memory; docs/agents.md has the others


def export(argv: list[str]) -> None:
    """Write the policy of a run, with its normalisation, frame stack and memory."""
    names, flags = positionals(argv, 2)
    about = (
        "Write the trained policy for other programs, as one file that takes a batch of any size."
    )
    given = parse(f"{PROG} export RUN", about, OPTIONS, flags)
    if len(names) != 1:
        raise expected("RUN", f"given once: {PROG} export RUN", " ".join(names) or "none")
    format = given.get("format", "stablehlo")
    check_choice("--format", format, FORMATS)
    runtime.enable_compile_cache()
    from jaxrl_fast.runs.load import load

    agent = load(path_of("run", names[0]), given.get("which", "auto"),
                 given.get("member"), given.get("import", ()))
    path = agent.export(Path(given.get("out", Path(names[0]) / FORMATS[format])), format)
    print(path, "what comes next, in Python:", f"  {READS[format].format(str(path))}", sep="\n")
