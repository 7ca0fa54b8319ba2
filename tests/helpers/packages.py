"""Distributions as pip leaves them, with entry points, for tests: modules and a folder of
metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(place: Path, name: str, entry_points: Mapping[str, Mapping[str, str]],
            modules: Mapping[str, str]) -> None:
    """Write a distribution to a folder that is on `sys.path`.

    Args:
        entry_points: {group: {name: "module:object"}}.
        modules: {file: its code}.
    """
    for file, code in modules.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(code)
    folder = place / f"{name.replace('-', '_')}-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = ["\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in found.items())])
              for group, found in entry_points.items()]
    (folder / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
