"""Installed versions, requirements that they break, and the flags and variables in force."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement

from jaxrl_fast import runtime
from jaxrl_fast.doctor.facts import Unmet
from jaxrl_fast.doctor.known import PLUGINS, VARIABLES
from jaxrl_fast.runtime import version

PACKAGES = ("jaxrl_fast", "jax", "flax", "optax", "orbax-checkpoint", "gymnax", "brax")


def versions() -> dict[str, str]:
    """Return the versions that a result depends on, with JAX's plugins for NVIDIA cards."""
    return runtime.versions() | {name: version(name) for name in PLUGINS if version(name)}


def requirements(name: str) -> list[str]:
    """Return the requirements of an installed package, with and without extras."""
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def find_unmet(
    packages: Iterable[str] = PACKAGES,
    requires: Callable[[str], list[str]] = requirements,
    found: Callable[[str], str] = version,
) -> tuple[Unmet, ...]:
    """Return the requirements of `packages`, extras left out, that the installation breaks."""
    broken = []
    for package in packages:
        for text in requires(package):
            try:
                need = Requirement(text)
            except InvalidRequirement:
                continue
            if need.marker and not need.marker.evaluate({"extra": ""}):
                continue
            have = found(need.name)
            if not have or not need.specifier.contains(have, prereleases=True):
                broken.append(Unmet(package, need.name, str(need.specifier), have))
    return tuple(broken)


def flags(text: str) -> dict[str, str]:
    """Return {flag: value} of an XLA_FLAGS."""
    try:
        tokens = shlex.split(text)
    except ValueError:  # an open quote
        tokens = text.split()
    parts = (token.partition("=") for token in tokens if token.startswith("--"))
    return {name: value if equals else "true" for name, equals, value in parts}


def remove_flags(text: str, names: Iterable[str]) -> str:
    """Return an XLA_FLAGS without the flags `names`."""
    names = set(names)
    return " ".join(token for token in text.split() if token.partition("=")[0] not in names)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that matter here."""
    return {name: environment[name] for name in VARIABLES if name in environment}
