"""Cores, load, memory and cards of this machine, read without JAX."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from jaxrl_fast import runtime
from jaxrl_fast.doctor.facts import Card, Machine

QUERY = "name,driver_version,memory.used,memory.total,utilization.gpu"


def examine() -> Machine:
    """Return this machine; takes half a second."""
    total = runtime.host_memory()
    free = available_memory(Path("/proc/meminfo"))
    all_cores = os.cpu_count() or 1
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores,
        all_cores=all_cores,
        processor=processor(Path("/proc/cpuinfo")),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        share=share_of_a_core(),
        quota=cpu_quota(Path("/sys/fs/cgroup")),
        memory_bytes=total,
        available_bytes=min(filter(None, (free, total)), default=None),
        nvidia=runtime.has_nvidia_card(),
        cards=read_cards(nvidia_smi()),
    )


def processor(cpuinfo: Path) -> str:
    """Return the processor's name as Linux has it, with its widest vectors, or ""."""
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
    except OSError:
        return ""
    found = {name.strip(): value.strip() for name, _, value in lines}
    flags = found.get("flags", "").split()
    vectors = next((known for known in ("avx512f", "avx2", "avx") if known in flags), "")
    return " ".join(found.get("model name", "").split()) + f" ({vectors})" * bool(vectors)


def share_of_a_core(
    seconds: float = 0.25,
    clock: Callable[[], float] = time.perf_counter,
    spent: Callable[[], float] = time.thread_time,
) -> float:
    """Return the part of a core that this thread gets while it does not wait, in [0, 1]."""
    began, before = clock(), spent()
    while clock() - began < seconds:
        pass
    return min(1.0, (spent() - before) / max(clock() - began, 1e-9))


def cpu_quota(root: Path) -> float | None:
    """Return the cores that a container's control group allows, or None: no limit."""
    try:
        if (root / "cpu.max").is_file():
            allowed, period = (root / "cpu.max").read_text().split()[:2]
        else:
            allowed = (root / "cpu/cpu.cfs_quota_us").read_text()
            period = (root / "cpu/cpu.cfs_period_us").read_text()
        cores = int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such group, or "max"
        return None
    return cores if cores > 0 else None


def available_memory(meminfo: Path) -> int | None:
    """Return the bytes that programs can still get, by Linux's estimate."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def nvidia_smi(query: str = QUERY, *more: str) -> str:
    """Return the driver's lines about the cards, one a card; "" without its tool."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return ""
    command = [tool, f"--query-gpu={query}", "--format=csv,noheader,nounits", *more]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def read_cards(text: str) -> tuple[Card, ...]:
    """Return the cards of the lines of `nvidia_smi`; lines without numbers are left out."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        try:
            used, total, busy = map(float, cells[2:5])
        except ValueError:
            continue
        found.append(Card(cells[0], cells[1], used * 2**20, total * 2**20, busy / 100))
    return tuple(found)
