"""A sweep's folder: its name, its lock and its sweep.json."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast import distributed
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.files import folders
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.rundir import AUTO, check_empty, check_free, check_outside, numbered
from jaxrl_fast.sweeps.parts import read_json


def folder_of(out: str | Path, algo: Algorithm, env: Environment) -> Path:
    """Return a sweep's folder; "auto" is the next free one in `sweeps/`."""
    if out == AUTO:
        return numbered("sweeps", algo.name, registry.name_of(env))
    return folders.folder_path("out", out)


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Lock the folder of a sweep for this process."""
    check_folder(out)
    with folders.hold_lock("out", out, create=True):
        yield


def check_folder(out: Path) -> None:
    """Raise ConfigError unless a folder is new or the sweep's own."""

    def check() -> None:
        if not (out / "sweep.json").is_file():
            check_outside(out)
            check_free(out)

    distributed.on_first(check)


def _algorithm(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an algorithm's entry with every setting; an unreadable entry unchanged."""
    try:
        return json.loads(json.dumps(configs.encode_algorithm(configs.decode_algorithm(entry))))
    except ConfigError:
        return entry


def open_folder(out: Path, content: dict[str, Any], same: Sequence[str]) -> dict[str, Any]:
    """Return the sweep.json of a locked folder: `content` if new, else the one there.

    Raises ConfigError for other content, and for a sweep with another base or other `same` keys.
    """
    content = json.loads(json.dumps(content, allow_nan=False))
    file = out / "sweep.json"
    if file.is_file():
        there = read_json(file)
        # a setting that is newer than the folder has its default
        run = lambda c: configs.decode_run(c["base"]["run"])
        others = lambda c: [c["base"]["environment"], *(c.get(k) for k in same)]
        identity = lambda c: [_algorithm(c["base"]["algorithm"]), run(c), others(c)]
        if identity(there) != identity(content):
            raise ConfigError("out", str(out), "the folder of this very sweep, or a new one; this "
                                               "holds another sweep")
        return there
    check_empty(out)
    try:
        configs.write_json(file, content)
    except OSError as error:
        raise folders.not_writable("out", out, error) from error
    return content
