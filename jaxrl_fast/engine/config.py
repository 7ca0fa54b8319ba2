"""The settings of a run beside its algorithm and environment. A new one is a field of a group of `RunConfig`.

Keywords of `jf.train`, checks, flags with their help, config.json and docs/settings.md follow from the fields.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jaxrl_fast.errors import ConfigError, check_int, nearest
from jaxrl_fast.fields import check_settings, setting

EVAL_EPISODES = 128  # by default; environments on the host play as many of them as fit the share
IN_MEMORY = "<parameters in memory>"  # what config.json holds of a `start_from` that is no run directory
SELECTS = ("kind", "traced", "check", "boundaries", "select")  # what a selection among members has
MODES = ("greedy", "sample")  # how a policy's actions are chosen
MOST_STEPS, MOST_MEMBERS = 2**53, 1_000_000


def _path(valid: str, name: str, value: Any) -> str:
    if not isinstance(value, (str, Path)):
        raise ConfigError(name, value, f"{valid}, or None")
    return value if value == IN_MEMORY else os.path.abspath(value)


def _mesh(name: str, value: Any) -> Mapping[str, int]:
    if not isinstance(value, Mapping) or not value or not set(value) <= {"population", "env"}:
        raise ConfigError(name, value, 'axes "population" and "env", such as {"population": 4, "env": 2}')
    for axis, size in value.items():
        check_int(f"{name} {axis}", size)
    return value


def _population(name: str, value: Any) -> dict[str, Any]:
    valid = 'a mapping such as {"algo.learning_rate": [1e-4, 1e-3]}, as many values for each setting, at least one'
    if not isinstance(value, Mapping) or not value or not all(isinstance(k, str) for k in value):
        raise ConfigError(name, value, valid)
    columns = {k: _column(k, v) for k, v in value.items()}
    lengths = {len(v) if isinstance(v, (list, tuple)) else 0 for v in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ConfigError(name, columns, valid)
    return columns


def _column(name: str, values: Any) -> Any:
    """Return the values of a setting as config.json can hold them: arrays as lists, functions as text."""
    if hasattr(values, "tolist"):
        return values.tolist()
    if not isinstance(values, (list, tuple)) or not any(map(callable, values)):
        return values
    from jaxrl_fast.ops.optimizer_settings import as_text  # here, because optax is slow to import

    return [as_text(name, v) for v in values]


def _selection(name: str, value: Any) -> Any:
    if not all(hasattr(value, part) for part in SELECTS):
        raise ConfigError(name, value, "a jf.PBT or jf.Halving, or None")
    return value


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained: how long, from which seeds, from where."""

    total_steps: int = setting(500_000, "environment steps of one member, from the start of the run", high=MOST_STEPS)
    seed: int = setting(0, "seed of the first member; the others have the ones after it", low=0, high=2**32 - 1)
    seeds: int = setting(1, "members trained side by side in one program; environments on the host: one after another",
                         high=MOST_MEMBERS)
    horizon: int | None = setting(None, "environment steps that schedules are fractions of", low=1, high=MOST_STEPS,
                                  none="the total steps at the start")
    start_from: str | None = setting(None, "run whose trained agent every member begins with", none="none",
                                     convert=partial(_path, "a run directory"), flag="path", metavar="RUN")
    on_nan: str = setting("stop", "a member that is no longer finite: stop the run, or mark it and go on",
                          choices=("stop", "mark"))
    population: Mapping[str, Sequence[Any]] | None = setting(
        None, 'settings that differ, such as `{"algo.learning_rate": [1e-4, 1e-3]}`; each configuration has `seeds` members',
        none="all alike", convert=_population, flag=None)
    selection: Any | None = setting(None, "`jf.PBT` or `jf.Halving`: which members go on", none="all of them",
                                    convert=_selection, flag=None)

    @property
    def configurations(self) -> int:
        """How many different settings there are among the members; each has `seeds` members."""
        return len(next(iter(self.population.values()))) if self.population else 1

    @property
    def members(self) -> int:
        return self.configurations * self.seeds

    def member_seeds(self) -> list[int]:
        """The seed of every member: configuration by configuration, each with the same seeds."""
        return [self.seed + i % self.seeds for i in range(self.members)]

    def settings_of(self, member: int) -> dict[str, Any]:
        """What this member has for itself; empty where all are the same but for their seeds."""
        return {name: values[member // self.seeds] for name, values in (self.population or {}).items()}

    def member_settings(self) -> dict[str, list[Any]]:
        """{setting: one value a member}."""
        return {name: [v for v in values for _ in range(self.seeds)] for name, values in (self.population or {}).items()}

    def label(self, member: int) -> str:
        """`seed 3, algo.learning_rate = 0.001`."""
        own = [f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
               for name, value in self.settings_of(member).items()]  # fmt: skip
        return ", ".join([f"seed {self.member_seeds()[member]}", *own])


@dataclasses.dataclass(frozen=True)
class Logging:
    """Log rows, checkpoints and pictures."""

    log_every: int | None = setting(None, "environment steps between log rows", low=1, high=MOST_STEPS,
                                    none="a hundredth of the run")
    checkpoint_minutes: float = setting(5.0, "minutes between checkpoints", low=0, open_low=True)
    keep_checkpoints: int = setting(2, "checkpoints of a kind that stay on the disk, the newest", high=1000)
    chunk_seconds: float = setting(1.0, "seconds the device works between two looks of the host", low=0, open_low=True)
    pictures: bool = setting(True, "draw the learning curve and the trained agent at the end")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes that are played with the policy alone, and what they decide."""

    eval_every: int | None = setting(None, "environment steps between evaluations; 0: only at the end", low=0,
                                     high=MOST_STEPS, none="a tenth of the run")
    eval_episodes: int | None = setting(None, "episodes of an evaluation", low=1, high=1_000_000,
                                        none=f"{EVAL_EPISODES}; on the host what fits an eighth of the steps")
    eval_mode: str = setting("greedy", "how actions are chosen in evaluations", choices=MODES)
    target_return: float | None = setting(None, "stop when every member's evaluation has reached it", none="never")

    @property
    def most_episodes(self) -> int:
        """Episodes of an evaluation, at most."""
        return EVAL_EPISODES if self.eval_episodes is None else self.eval_episodes


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices, and how members and environments are laid out on them."""

    batching: str = setting("auto", "how members share the device", choices=("auto", "vmap", "map"))
    devices: int | None = setting(None, "number of devices to use, or all", low=1, none="all, at most one a member",
                                  flag="devices")
    mesh: Mapping[str, int] | None = setting(
        None, "devices along the population and along one member's environments, such as population=4,env=2",
        none="all along the population", convert=_mesh, flag="mesh")
    groups: int | None = setting(None, "parts of the environments that are sampled by themselves", low=1,
                                 none="devices along env")
    unroll: int | None = setting(None, "steps of a rollout compiled in a row", low=1, high=1024, none="1, on a GPU up to 8")

    @property
    def env_devices(self) -> int:
        """Devices that one member is divided over."""
        return (self.mesh or {}).get("env", 1)

    @property
    def sampling_groups(self) -> int:
        return self.env_devices if self.groups is None else self.groups


@dataclasses.dataclass(frozen=True)
class Host:
    """How environments on the host are stepped. Environments on the device take the defaults alone."""

    actors: int = setting(1, "vectors of environments on the host, which take turns")
    actors_on: str = setting("threads", "where actors are: taking turns in this process, or each in one of Ray's",
                             choices=("threads", "ray"))
    ahead: int | None = setting(None, "rollouts that actors may be ahead of the learner", low=0, high=8,
                                none="1 where old experience is learned from, else 0")
    host_timeout: float = setting(120.0, "seconds in which an environment on the host must answer", low=0, open_low=True)
    restarts: int = setting(0, "how often environments on the host that fail are begun anew", low=0)


@dataclasses.dataclass(frozen=True)
class Experience:
    """Old experience to learn from, beside new steps or alone."""

    experience: str | None = setting(None, "folder of old experience to learn from too; `jaxrl-fast experience` writes one",
                                     none="none", convert=partial(_path, "the name of a folder"), flag="path", metavar="FOLDER")
    experience_fraction: float = setting(
        0.5, "part of every batch that is old experience; 0: the replay starts with it; 1: all, without a step of an "
        "environment, and steps are updates", low=0, high=1)
    experience_id: str | None = setting(None, "which experience it was at the start; `train` fills it in",
                                        none="found in the folder", flag=None)

    @property
    def offline(self) -> bool:
        """Whether no environment is stepped but for evaluations; steps are updates then."""
        return self.experience is not None and self.experience_fraction == 1


@dataclasses.dataclass(frozen=True)
class RunConfig(Experience, Host, Placement, Evaluation, Logging, Training):
    """The settings of a run beside its algorithm and environment, in one flat namespace; its bases are the groups.

    Step counts are environment steps of one member.  Raises ConfigError for a value out of its range, and for two
    settings that exclude each other.
    """

    def __post_init__(self):
        check_settings(self)
        check_int("members", self.members, 1, MOST_MEMBERS)
        if self.seed + self.seeds > 2**32:
            raise ConfigError("seed", self.seed, f"at most {2**32 - self.seeds} with seeds = {self.seeds}")
        if self.sampling_groups % self.env_devices:
            raise ConfigError("groups", self.groups, f"a multiple of mesh env = {self.env_devices}")
        if self.target_return is not None and self.eval_every == 0:
            raise ConfigError("target_return", self.target_return, "None where eval_every = 0: evaluations test it")
        if self.experience is None and self.experience_fraction != RunConfig.experience_fraction:
            raise ConfigError("experience_fraction", self.experience_fraction, "left out without experience")

    def settings(self) -> dict[str, Any]:
        """Return {name: value} of every setting, objects as they are: what `train` takes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


def by_group(cls: type = RunConfig) -> dict[type, list[dataclasses.Field]]:
    """Return {group: its fields}, in the order of the declaration. A field's group is the first class that declares it."""
    found: dict[type, list[dataclasses.Field]] = {}
    for field in dataclasses.fields(cls):
        owner = next(base for base in reversed(cls.__mro__) if field.name in getattr(base, "__dataclass_fields__", ()))
        found.setdefault(owner, []).append(field)
    return found


def check_names(names: Iterable[str], settings: Mapping[str, Any], prefix: str = "", owner: str = "") -> None:
    """Raise ConfigError for a setting that is not among `names`, and list them."""
    for name, value in settings.items():
        if name not in names:
            listed = ", ".join(sorted(names))
            valid = f"a setting of {owner} ({listed})" if owner else f"one of {listed}"
            raise ConfigError(prefix + name, value, valid + nearest(name, names))


def run_config(total_steps: int, settings: dict[str, Any]) -> RunConfig:
    """Make a RunConfig of the keyword settings of `train`.  Raises ConfigError for an unknown or a bad one."""
    check_names(RunConfig.__dataclass_fields__, settings, owner="train")
    if not isinstance(settings.get("start_from"), (str, Path, type(None))):
        settings = settings | {"start_from": IN_MEMORY}
    return RunConfig(total_steps=total_steps, **settings)
