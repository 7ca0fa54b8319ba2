"""Accelerators as their makers' data sheets describe them: peaks that no program reaches."""

from __future__ import annotations

import dataclasses
import re

from jaxrl_fast.errors import ConfigError, nearest


@dataclasses.dataclass(frozen=True)
class Sheet:
    """One device. float32: FLOP/s of products. bandwidth: bytes/s. memory: bytes.

    spread: the factor between the forecast and the truth, either way, see `elsewhere`.
    """

    name: str
    platform: str  # of lowering: "cuda" or "tpu"
    float32: float
    bandwidth: float
    memory: float
    spread: float


def _gpu(name: str, float32: float, bandwidth: float, memory: float, spread: float = 2.5) -> Sheet:
    return Sheet(name, "cuda", float32 * 1e12, bandwidth * 1e9, memory * 1e9, spread)


def _tpu(name: str, bf16: float, bandwidth: float, memory: float) -> Sheet:
    """A TPU multiplies in bfloat16; float32 takes six passes."""
    return Sheet(name, "tpu", bf16 * 1e12 / 6, bandwidth * 1e9, memory * 1e9, 5.0)


# NVIDIA: whitepapers of the architectures and data sheets, dense rates. TPU: the system
# architecture of each version at cloud.google.com/tpu/docs, a chip. Spread: 1.7 is the worst of
# the programs that scripts/fit_gpu_model.py compares with an H200; the others are assumed.
SHEETS = {
    "t4": _gpu("NVIDIA T4", 8.1, 320, 16),
    "l4": _gpu("NVIDIA L4", 30.3, 300, 24),
    "a10": _gpu("NVIDIA A10", 31.2, 600, 24),
    "rtx4090": _gpu("NVIDIA GeForce RTX 4090", 82.6, 1008, 24),
    "a100": _gpu("NVIDIA A100 80 GB", 19.5, 2039, 80),
    "h100": _gpu("NVIDIA H100 SXM", 66.9, 3350, 80, 2.0),
    "h200": _gpu("NVIDIA H200", 66.9, 4800, 141, 1.7),
    "v4": _tpu("TPU v4", 275, 1228, 32),
    "v5e": _tpu("TPU v5e", 197, 819, 16),
    "v5p": _tpu("TPU v5p", 459, 2765, 95),
    "v6e": _tpu("TPU v6e", 918, 1640, 32),
}
_NAME = re.compile(r"([a-z0-9]+?)(?:[-:]([1-9]\d{0,3}))?")


def device(argument: str, text: str) -> tuple[Sheet, int]:
    """Return the device and the number of `h100`, `h100-4` or `v5e-8`. Raises ConfigError."""
    found = _NAME.fullmatch(text.strip().lower())
    if found and found[1] in SHEETS:
        return SHEETS[found[1]], int(found[2] or 1)
    near = nearest(text, SHEETS)
    valid = f"one of {', '.join(SHEETS)}, with a number of them as in v5e-8{near}"
    raise ConfigError(argument, text, valid)
