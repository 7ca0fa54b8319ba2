"""The content of a run's config.json."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxrl_fast import runtime
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.envs import registry
from jaxrl_fast.files import forms
from jaxrl_fast.ops import precision
from jaxrl_fast.runs import config_json as configs


def add_content(prepared: Prepared) -> Prepared:
    """Return the run with config.json's content. Raises ConfigError for other values."""
    if prepared.content is not None:
        return prepared
    return dataclasses.replace(prepared, content=describe(prepared))


def describe(run: Any) -> dict[str, Any]:
    """Return the content of config.json. run: a `Prepared`, or a sweep for its base."""
    configs.check_about(run.about)
    origin, grid = registry.describe(run.env), run.grid
    resolved = {  # default settings, for readers; nothing reads them back
        "environment": forms.to_json(registry.settings_of(origin[0]) | origin[1]) if origin
        else None,
        "max_episode_steps": run.env.spec.max_episode_steps,
        "log_every": grid.row * grid.steps,
        "eval_every": grid.eval_rows * grid.row * grid.steps,
        "random_steps": grid.warmup * grid.steps,
    }
    return {
        "format": configs.FORMAT,
        "algorithm": configs.encode_algorithm(run.algo),
        "environment": configs.encode_environment(run.env),
        "run": configs.encode_run(run.config),
        "resolved": resolved,
        **run.about,
        "device": device_name(),
        "products": precision.in_force(run.algo.precision, jax.default_backend()),
        "versions": runtime.versions(),
    }


def device_name() -> str:
    devices = jax.devices()
    return f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})"
