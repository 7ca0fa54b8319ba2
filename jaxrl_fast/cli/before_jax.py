"""Devices, GPU flags and other processes of a command line, set before JAX's backend starts."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import DISTRIBUTED, peek
from jaxrl_fast.errors import ConfigError, UserError
from jaxrl_fast.values import convert, devices, integer, mesh


def spread(argv: list[str], content: dict[str, Any] | None, members: int | None = None,
           environment: Sequence[str] = ()) -> None:
    """Ask for CPU devices for a population before JAX's backend starts.

    --mesh or --devices give the number, else one a core and at most one a member; one for host
    environments. No effect on accelerators.
    """
    if "--distributed" in argv:
        return  # `join` has started the backend
    # refused later, with a message
    with contextlib.suppress(UserError, AttributeError, TypeError, ValueError, OverflowError):
        run = (content or {}).get("run", {})
        runtime.set_gpu(*gpu_settings(argv, run))
        if peek(argv, "--resume") and (peek(argv, "--devices") or peek(argv, "--mesh")):
            # the devices of this process, not the old run's
            run = {k: v for k, v in run.items() if k not in ("devices", "mesh")}
        read = lambda flag, of, otherwise: (
            of(flag, peek(argv, flag)[-1]) if peek(argv, flag) else otherwise
        )
        axes = read("--mesh", mesh, run.get("mesh"))
        count = read("--devices", devices, run.get("devices"))
        if axes or count:
            count = math.prod(axes.values()) if count in (None, "all") else count
            runtime.request_host_devices(min(int(count), runtime.cpu_count()))
            return
        given = (content or {}).get("environment", {}).get("name")
        from jaxrl_fast.envs import registry

        if any(map(registry.on_host, [*environment, *([str(given)] if given else [])])):
            return  # members train one after another
        count = members or int(read("--seeds", integer, run.get("seeds", 1)))
        runtime.request_host_devices(min(count, runtime.cpu_count()))


SAME_BITS = ("--deterministic", "--no-deterministic")


def gpu_settings(argv: list[str], run: dict[str, Any]) -> tuple[bool, float | None]:
    """Return (deterministic, memory fraction) of the flags, else of the settings of `run`."""
    switches, texts = [a for a in argv if a in SAME_BITS], peek(argv, "--memory-fraction")
    deterministic = switches[-1] == SAME_BITS[0] if switches else run.get("deterministic") is True
    fraction = run.get("memory_fraction")
    if texts:
        fraction = convert("--memory-fraction", "float", texts[-1])
    return deterministic, fraction


def stored_run(argv: list[str], read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the settings of the run behind --resume or --config; `read` returns its content."""
    runs = [*peek(argv, "--config"), *peek(argv, "--resume")]
    with contextlib.suppress(UserError):  # refused later, with a message
        return read(runs[-1]).get("run", {}) if runs else {}
    return {}


def join(argv: list[str], read: Callable[[str], dict[str, Any]]) -> None:
    """Join the other processes of --distributed; only the first one prints more than errors.

    read: returns the content of config.json for the value of --resume or --config.
    """
    found = {o.name: (o, peek(argv, o.flag)) for o in DISTRIBUTED[1:]}
    given = {name: convert(option.flag, option.kind, texts[-1])
             for name, (option, texts) in found.items() if texts}
    if "--distributed" not in argv:
        if given:
            name, value = next(iter(given.items()))
            raise ConfigError(f"--{name}", value, "left out without --distributed")
        return
    from jaxrl_fast import distributed

    runtime.set_gpu(*gpu_settings(argv, stored_run(argv, read)))
    runtime.request_host_devices(runtime.cpu_count())
    distributed.start(**given)
    if not distributed.is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, to the end of the process
        warnings.simplefilter("ignore", UserWarning)
