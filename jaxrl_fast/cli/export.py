"""`jaxrl-fast export`: a trained policy as a file for other programs."""

from __future__ import annotations

from pathlib import Path

from jaxrl_fast.cli.args import AGENT, Option, load_agent, read_arguments
from jaxrl_fast.runs.export.formats import FORMATS

OPTIONS = (
    Option("format", "str", "stablehlo", "for JAX alone; for onnxruntime; for `jf.load`",
           choices=tuple(FORMATS)),
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
    about = "Write the trained policy for other programs: one file, for a batch of any size."
    (run,), given = read_arguments("export", about, argv)
    format, agent = given.get("format", "stablehlo"), load_agent(run, given)
    path = agent.export(Path(given.get("out", Path(run) / FORMATS[format])), format)
    print(path, "what comes next, in Python:", f"  {READS[format].format(str(path))}", sep="\n")
