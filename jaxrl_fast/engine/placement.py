"""Placement: the devices that hold a run's members and environments."""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jaxrl_fast import distributed, runtime
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.population import AXIS, ENV_AXIS, Population
from jaxrl_fast.errors import ConfigError, first_line
from jaxrl_fast.logs.terminal import rich_shell, shows

SWITCHES = (  # of JAX: name, valid values, reason
    ("jax_disable_jit", (False,), "programs are compiled ahead of time; env.init, env.draw and "
     "env.step work without jit"),
    ("jax_numpy_rank_promotion", ("allow", "warn"), "networks add [n] to [b, n]"),
    ("jax_numpy_dtype_promotion", ("standard",), "integers are multiplied by floats"),
)


def spread(config: RunConfig, size: int | None = None) -> None:
    """Request a CPU device a core, at most one a member; if too late, tell once how to get them."""
    runtime.set_gpu(config.deterministic, config.memory_fraction)
    if distributed.several():  # too late, and chosen for all processes
        return
    size, mode = size or config.members, config.batching
    if config.mesh or config.devices:
        wanted = config.devices or math.prod(config.mesh.values())
        runtime.request_host_devices(min(wanted, runtime.cpu_count()))  # more would need XLA_FLAGS
        return
    wanted = min(size, runtime.cpu_count())
    late = not runtime.request_host_devices(wanted) and jax.config.jax_num_cpu_devices <= 0
    if late and (text := of_idle_cores(size, mode, wanted, jax.local_devices())):
        _tell_once(text)


def of_idle_cores(size: int, mode: str, wanted: int, devices: Sequence[Any],
                  jaxlib: str | None = None) -> str | None:
    """Return the hint that members take turns on fewer CPU devices than `wanted`, or None."""
    have, batched = len(devices), mode == "vmap" and runtime.vmap_hangs_on_cpu(jaxlib)
    if devices[0].platform != "cpu" or have >= wanted or batched:
        return None
    longer = math.ceil(size / have) / math.ceil(size / wanted)
    return (
        f"{size} members take turns on {have} of {wanted} CPU cores, because JAX had started in "
        "this process. As the first run of a new process (in a notebook: after a restart of the "
        f"kernel) they take all {wanted}, up to {longer:.2g} times as fast. "
        f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted} in Python's environment gives "
        "them to every run."
    )


_told: list[str] = []  # a process says it once: a sweep's parts have other sizes


def _tell_once(text: str) -> None:
    if not _told:
        _told.append(text)
        tell(text, watched=shows(None))


def tell(text: str, watched: bool) -> None:
    """Print a line on a watched stream; warn on others."""
    if watched:
        print(text, file=sys.stderr if rich_shell() is None else sys.stdout, flush=True)
    else:
        warnings.warn(text, stacklevel=7)


def elsewhere(config: RunConfig, devices: int | str | None,
              mesh: Mapping[str, int] | None) -> RunConfig:
    """Return the settings of a run that continues on other devices, with the same groups."""
    if devices is None and mesh is None:
        return config
    env, groups = (mesh or {}).get(ENV_AXIS, 1), config.sampling_groups
    if not isinstance(env, int) or env < 1 or groups % env:
        raise ConfigError("mesh env", env,
                          f"a divisor of {groups}, the groups that this run samples in")
    return dataclasses.replace(config, devices=None if devices == "all" else devices,
                               mesh=mesh, groups=groups)


def check_switches() -> None:
    """Raise ConfigError for a switch of JAX under which no run works."""
    for switch, valid, why in SWITCHES:
        if (value := getattr(jax.config, switch)) not in valid:
            shown = " or ".join(map(repr, valid))
            raise ConfigError(switch, getattr(value, "value", value), f"{shown} for a run: {why}")


def found_devices() -> list[jax.Device]:
    """Return JAX's devices. Raises ConfigError if the chosen platforms have none."""
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError: a platform without a plugin
        if not jax.config.jax_platforms:
            raise
        why = f"{first_line(error)}. " if str(error) else ""
        raise ConfigError("JAX_PLATFORMS", jax.config.jax_platforms,
                          f"platforms with a device here, such as 'cpu'. {why}Without it JAX takes "
                          "the best platform; `jaxrl-fast doctor` looks for more") from error


def population_of(config: RunConfig, size: int | None = None) -> Population:
    """Return the placement of a run's members by its settings; size: members, if not all."""
    size, env, have = size or config.members, config.env_devices, found_devices()
    if config.devices is not None and config.devices > len(have):
        raise ConfigError("devices", config.devices,
                          f"at most the {len(have)} that JAX has{_more_on_a_cpu(have)}")
    places = (config.mesh or {}).get(AXIS, max(1, (config.devices or len(have)) // env))
    mesh = ",".join(f"{k}={v}" for k, v in (config.mesh or {}).items())  # as typed
    if mesh and env * places > len(have):
        raise ConfigError("mesh", mesh,
                          f"at most {len(have)} devices, which JAX has{_more_on_a_cpu(have)}")
    if config.devices is not None and env * places != config.devices:
        raise ConfigError("mesh", mesh, f"axes whose product is devices = {config.devices}")
    if mesh or config.devices:
        if distributed.several() and env * places < len(have):
            name, value = ("mesh", mesh) if mesh else ("devices", config.devices)
            raise ConfigError(name, value,
                              f"all {len(have)} devices of the {jax.process_count()} processes")
        have = have[: env * places]
    return plan_population(size, config.batching, have, env)


def _more_on_a_cpu(devices: Sequence[Any]) -> str:
    if devices[0].platform != "cpu":
        return ""
    return ("; on a CPU XLA_FLAGS=--xla_force_host_platform_device_count=N, before Python starts, "
            "makes N of it")


def plan_population(size: int, mode: str = "auto", devices: Any = None,
                    env: int = 1, jaxlib: str | None = None) -> Population:
    """Place members. "auto": `map` on a CPU, `vmap` on accelerators."""
    devices = tuple(jax.devices() if devices is None else devices)
    if len({d.process_index for d in devices}) == 1:
        devices = devices[: env * max(1, min(size, len(devices) // env))]
    elif size == 1 and env < len(devices):  # a device without a member would leave its host idle
        raise ConfigError("seeds", size, "at least 2 with several processes, or one member "
                                         f"divided by --mesh env={len(devices)}")
    cpu, several = devices[0].platform == "cpu", len({d.process_index for d in devices}) > 1
    hangs = cpu and runtime.vmap_hangs_on_cpu(jaxlib)
    if mode == "vmap" and hangs and size > 1 and (env > 1 or several):
        raise ConfigError("batching", mode, "'map' or 'auto': with this jaxlib several CPU devices "
                                            "hang in a batch of members")
    if mode == "auto":
        mode = "map" if cpu else "vmap"
    if mode == "vmap" and hangs and env == 1:
        # a batch of LAPACK calls (orthogonal initializers of other libraries) never returns
        devices = devices[:1]
    return Population(size, mode, devices, env)
