"""`jaxrl-fast experience`: save a run's replay, or a dataset, for `train --experience`."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast import imports, runtime
from jaxrl_fast.cli.args import IMPORT, PROG, Option, peek, read_arguments
from jaxrl_fast.cli.options import kind_of_value
from jaxrl_fast.errors import ConfigError, brief, import_optional
from jaxrl_fast.values import path

ORDERED = ("observations", "actions", "rewards", "terminations", "truncations")
SHUFFLED = ("observations", "actions", "rewards", "next_observations", "terminations")
MINARI = "minari:"
HELP = f"""Save experience in a new folder, for `{PROG} train ALGO ENV --experience FOLDER`.

SOURCE is one of

  a run directory   the replay of its last checkpoint
  FILE.npz          arrays [N, ...] in time order: {", ".join(ORDERED)};
                    or transitions in any order: {", ".join(SHUFFLED)}
  {MINARI}NAME       an installed Minari dataset (pip install 'jaxrl_fast[minari]')"""
OPTIONS = (
    Option("environment", "word", help="environment with the dataset's spaces",
           metavar="ENV", hint="datasets need it"),
    Option("member", "int", 0, "member of a population"),
    IMPORT,
)


def keep(argv: list[str]) -> None:
    """Write the folder and print its content."""
    names, given = read_arguments("experience", HELP, argv, _environment_options(argv))
    source, folder = path("SOURCE", names[0]), Path(path("FOLDER", names[1]))
    if folder.exists():
        raise ConfigError("FOLDER", str(folder), "a folder that does not exist yet")
    runtime.enable_compile_cache()
    from jaxrl_fast.memory import rows_of, save_memory
    from jaxrl_fast.runs.rundir import check_outside

    check_outside(folder, "FOLDER")
    if source.startswith(MINARI) or source.endswith(".npz"):
        if "member" in given:
            raise ConfigError("--member", given["member"], "left out: a dataset has none")
        found = _dataset(source, given)
    else:
        if "environment" in given:
            raise ConfigError("--environment", given["environment"],
                              "left out: the run has its own")
        from jaxrl_fast.runs.load import experience

        found = experience(source, given.get("member", 0), tuple(given.get("import", ())))
    save_memory(folder, found)
    rows = rows_of(found)
    steps = int((~rows.truncated).sum()) if hasattr(rows, "truncated") else rows.reward.size
    print(f"{folder}: {steps:,} steps")
    print(f"what comes next:\n  {PROG} train ALGO ENV --experience {folder}")


def _environment_options(flags: list[str]) -> list[Option]:
    """Return the environment's settings of the flags; only `stack` of the common ones."""
    from jaxrl_fast.envs import registry, wrappers

    for module in peek(flags, "--import"):
        imports.import_user_module(module)
    named = peek(flags, "--environment")[-1:]
    asked = [flag for flag in flags if flag.startswith("--env.")]
    if asked and not named:
        raise ConfigError("--environment", None, f"the environment with the setting {asked[0]}")
    found = [(k, x) for name in named for k, x in registry.settings_of(name).items() if k == "stack"
             or k not in wrappers.COMMON]
    return [Option(k, kind_of_value(x), x, "the dataset's value; only the spaces matter",
                   group="env") for k, x in found]


def _dataset(source: str, given: dict[str, Any]) -> Any:
    from jaxrl_fast.envs import registry
    from jaxrl_fast.memory import UniformMemory, episodes_to_rows, hold, transitions_to_rows

    if "environment" not in given:
        raise ConfigError("--environment", None, "the dataset's environment, such as CartPole-v1")
    settings = {name.removeprefix("env."): value for name, value in given.items()
                if name.startswith("env.")}
    spec = registry.make(given["environment"], **settings).spec
    if source.startswith(MINARI):
        rows = episodes_to_rows(_minari(source.removeprefix(MINARI)), spec)
    else:
        arrays = _arrays(source)
        shuffled = "next_observations" in arrays
        wanted = SHUFFLED if shuffled else ORDERED
        missing = [name for name in wanted if name not in arrays]
        if missing:
            raise ConfigError("SOURCE", source,
                              f"a file with {', '.join(wanted)}; it has no {', '.join(missing)}")
        parts = {name: arrays[name] for name in wanted}
        rows = (transitions_to_rows(**parts, spec=spec) if shuffled
                else episodes_to_rows([parts], spec))
    return hold(UniformMemory(2 * (1 + spec.stack), 1, 1, 1, 1, spec.stack), rows)


def _arrays(source: str) -> dict[str, Any]:
    try:
        with np.load(source, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise ConfigError("SOURCE", source, "an existing .npz file") from None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError("SOURCE", source, "a whole .npz file of plain arrays; reading it "
                                            f"failed: {brief(error)}") from error


def _minari(name: str) -> Iterator[Any]:
    """Yield a dataset's episodes; Minari opens files late, so its errors come here too."""
    minari = import_optional("minari", f"the dataset {name}", "minari", "load_dataset")
    try:
        yield from minari.load_dataset(name).iterate_episodes()
    except Exception as error:  # its errors depend on its version
        valid = f"a whole dataset that `minari list local` shows; {brief(error)}"
        raise ConfigError("SOURCE", MINARI + name, valid) from error
