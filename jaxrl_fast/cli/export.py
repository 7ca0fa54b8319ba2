"""`jaxrl-fast export`: a trained policy as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    "stablehlo": "jax.export.deserialize(bytearray(open({!r}, 'rb').read())).call({})",
    "onnx": "onnxruntime.InferenceSession({!r}).run(None, {{{}}})",
    "safetensors": "jf.load({!r}).act(observations)",
}


def export(argv: list[str]) -> None:
    """Write the policy of a run, with its normalisation, frame stack and memory."""
    about = "Write the trained policy for other programs: one file, for a batch of any size."
    (run,), given = read_arguments("export", about, argv)
    format, agent = given.get("format", "stablehlo"), load_agent(run, given)
    path = agent.export(Path(given.get("out", Path(run) / FORMATS[format])), format)
    print(path, "what comes next, in Python:", *_hints(agent, str(path), format), sep="\n")


def _hints(agent: Any, path: str, format: str) -> list[str]:
    """Return lines that call the exported policy."""
    if format == "safetensors":
        return [f"  {READS[format].format(path)}"]
    from jaxrl_fast.runs.export.policy import policy_of

    policy = policy_of(agent)
    names = [*policy.observation_names, *policy.names]
    given = "observations, *memory" if policy.memory else "observations"
    if format == "onnx":
        given = ("'observation': observations" if names == ["observation"]
                 else ", ".join(f"{name!r}: ..." for name in names))
    shapes = [f"{name} {x.dtype} {['batch', *x.shape]}".replace("'", "")
              for name, x in zip(policy.names, policy.memory, strict=True)]
    memory = [f"  # zeros of the memory begin an episode: {', '.join(shapes)}"] if shapes else []
    return [f"  {READS[format].format(path, given)}", *memory]
