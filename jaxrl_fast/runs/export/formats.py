"""The formats of an export by name."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl_fast.errors import ConfigError, check_choice, expected
from jaxrl_fast.files import folders
from jaxrl_fast.values import expand_home

if TYPE_CHECKING:
    from jaxrl_fast.runs.agent import Agent

# {format: name of the file}
FORMATS = {"stablehlo": "policy.stablehlo", "onnx": "policy.onnx", "safetensors": "policy"}


def export(agent: Agent, path: str | Path, format: str = "stablehlo") -> Path:
    """Write an agent's policy, and return the path; see `Agent.export`."""
    check_choice("format", format, FORMATS)
    if not isinstance(path, (str, os.PathLike)):
        raise expected("path", "the name of a file, or of a folder for safetensors",
                       repr(path)[:100])
    path, is_folder = Path(expand_home(path)), format == "safetensors"
    if path.exists() and (not is_folder or any(path.iterdir() if path.is_dir() else [path])):
        raise ConfigError("path", str(path), "a new file" if not is_folder
                          else "a new or empty folder")
    folders.check_writable("path", path if is_folder else path.parent)
    try:
        if not is_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        _module(format).export(agent, path)
    except OSError as error:
        raise folders.not_writable("path", path, error) from error
    return path


def _module(format: str) -> Any:
    return importlib.import_module(f"jaxrl_fast.runs.export.{format}")
