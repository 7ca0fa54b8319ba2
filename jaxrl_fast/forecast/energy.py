"""Read the power of this machine's processors and NVIDIA cards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from jaxrl_fast.doctor.machine import nvidia_smi

POWERCAP = Path("/sys/class/powercap")


class Meter:
    """Watts since it was made: `sample` now and then, `watts` at the end.

    Processors: Linux's energy counters of whole packages (RAPL), often readable by root alone.
    Cards: the mean of `nvidia-smi`'s samples. Both count what other processes use, too.
    """

    def __init__(
        self, powercap: Path = POWERCAP, smi: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):  # fmt: skip
        self.smi, self.clock, self.powercap = smi or query_power, clock, powercap
        self.began, self.before, self.cards = clock(), packages(powercap), []

    def sample(self) -> None:
        """Read the cards' power."""
        found = card_watts(self.smi())
        self.cards += [] if found is None else [found]

    def watts(self) -> float | None:
        """Return the mean power since the beginning, or None if neither can be read."""
        passed, now = self.clock() - self.began, packages(self.powercap)
        found = [sum(self.cards) / len(self.cards)] if self.cards else []
        if passed > 0 and self.before and now.keys() == self.before.keys():
            since = lambda name, old, span: (now[name][0] - old) % (span or float("inf"))
            used = sum(since(name, *counter) for name, counter in self.before.items())
            found.append(used / 1e6 / passed)
        return sum(found) if found else None


def packages(powercap: Path) -> dict[str, tuple[int, int]]:
    """Return {package: (microjoules so far, where the counter starts again)} of the processors."""
    found = {}
    for folder in sorted(powercap.glob("intel-rapl:*")):
        if folder.name.count(":") > 1:  # a part of a package
            continue
        try:
            read = lambda name, folder=folder: int((folder / name).read_text())
            found[folder.name] = read("energy_uj"), read("max_energy_range_uj")
        except (OSError, ValueError):
            return {}
    return found


def query_power() -> str:
    """Return the power of the cards that JAX may use, a line each, "" without the driver's tool."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return nvidia_smi("power.draw", *([f"--id={visible}"] if visible else []))


def card_watts(text: str) -> float | None:
    """Return the sum of the cards' power, None if one cannot tell."""
    try:
        found = [float(line) for line in text.splitlines() if line.strip()]
    except ValueError:  # [N/A]
        return None
    return sum(found) if found else None
