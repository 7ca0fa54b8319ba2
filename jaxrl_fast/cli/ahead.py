"""`jaxrl-fast compile`: fill the compile cache ahead of a run, without training."""

from __future__ import annotations

import os
import time
from typing import Any

from jaxrl_fast import runtime
from jaxrl_fast.cli.plan import compile_programs
from jaxrl_fast.cli.train import Plan, on_device, resolve
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError

OPTIONS = ()


def compile_ahead(plan: Plan, given: dict[str, Any]) -> None:
    """Compile the programs of the run that `train` would start with these flags."""
    algo, env, config = resolve(plan, given)
    if not backend_of(env).one_program:
        raise ConfigError("environment", env.spec.name,
                          "one on the device: programs of host environments are compiled while "
                          "their actors play")
    folder = runtime.enable_compile_cache()
    if folder is None:
        off = os.environ.get("JAXRL_FAST_CACHE")
        raise ConfigError("JAXRL_FAST_CACHE", off,
                          "a folder or unset: compile fills the compile cache")
    prepared, began = prepare(algo, env, config, outline=True), time.perf_counter()
    names = ", ".join(compile_programs(prepared))
    print(f"{algo.name} on {plan.environment or env.spec.name}: "
          f"{plan.source}\n{on_device(algo, config.deterministic)}")
    print(f"compiled in {time.perf_counter() - began:.1f} s: {names}\ncompile cache: {folder}")
