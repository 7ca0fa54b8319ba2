"""The settings of a run besides its algorithm and environment.

A new setting is a field of a group of `RunConfig`. Keywords of `jf.train`, checks, flags with their
help, config.json and docs/settings.md follow from the fields.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.engine.start_text import check_start, start_text
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.fields import check_settings, setting
from jaxrl_fast.spelling.nearest import meant, nearest

EVAL_EPISODES = 128  # default; environments on the host play as many of them as the share allows
SELECTS = ("kind", "traced", "check", "boundaries", "select")  # parts of a selection among members
AROUND = ("hooks", "progress", "tensorboard")  # arguments of `train` beside the settings
MODES = ("greedy", "sample")  # how a policy chooses actions
MOST_STEPS, MOST_MEMBERS = 2**53, 1_000_000


def _folder(name: str, value: Any) -> str:
    if not isinstance(value, (str, Path)):
        raise ConfigError(name, value, "the name of a folder, or None")
    return os.path.abspath(value)


def _mesh(name: str, value: Any) -> Mapping[str, int]:
    if not isinstance(value, Mapping) or not value or not set(value) <= {"population", "env"}:
        raise ConfigError(name, value,
                          'axes "population" and "env", such as {"population": 4, "env": 2}')
    for axis, size in value.items():
        check_int(f"{name} {axis}", size)
    return value


def _population(name: str, value: Any) -> dict[str, Any]:
    valid = ('a mapping such as {"algo.learning_rate": [1e-4, 1e-3]}, as many values for each '
             'setting, at least one')
    if not isinstance(value, Mapping) or not value or not all(isinstance(k, str) for k in value):
        raise ConfigError(name, value, valid)
    columns = {k: _column(k, v) for k, v in value.items()}
    lengths = {len(v) if isinstance(v, (list, tuple)) else 0 for v in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ConfigError(name, columns, valid)
    return columns


def _column(name: str, values: Any) -> Any:
    """Return a setting's values in config.json's form: arrays as lists, functions as text."""
    if hasattr(values, "tolist"):
        return values.tolist()
    if not isinstance(values, (list, tuple)) or not any(map(callable, values)):
        return values
    from jaxrl_fast.ops.optimizer_settings import as_text  # here, because optax is slow to import

    return [as_text(name, v) for v in values]


def _selection(name: str, value: Any) -> Any:
    if isinstance(value, type) or not all(hasattr(value, part) for part in SELECTS):
        raise ConfigError(name, value, "a jf.PBT or jf.Halving, or None")
    return value


@dataclasses.dataclass(frozen=True)
class Training:
    """Training length, seeds and starting point."""

    total_steps: int = setting(500_000, high=MOST_STEPS)
    """environment steps of one member from the run's start"""
    seed: int = setting(0, low=0, high=2**32 - 1)
    """seed of the first member; the others count up from it"""
    seeds: int = setting(1, high=MOST_MEMBERS)
    """members trained in one program; with environments on the host, one after another"""
    horizon: int | None = setting(None, low=1, high=MOST_STEPS, none="the total steps at the start")
    """environment steps over which schedules run"""
    start_from: str | None = setting(None, none="none", flag="path", metavar="RUN",
                                     convert=check_start)
    """run directory with the agent that every member starts from"""
    on_nan: str = setting("stop", choices=("stop", "mark"))
    """on NaN or inf in a member: stop the run, or mark the member and go on"""
    population: Mapping[str, Sequence[Any]] | None = setting(
        None, none="all alike", convert=_population, flag=None
    )
    """values that differ, `{"algo.learning_rate": [1e-4, 1e-3]}`, with `seeds` members each"""
    selection: Any | None = setting(None, none="all of them", convert=_selection, flag=None)
    """`jf.PBT` or `jf.Halving`: chooses the members that go on"""

    @property
    def configurations(self) -> int:
        """Return the number of different settings among the members; each has `seeds` members."""
        return len(next(iter(self.population.values()))) if self.population else 1

    @property
    def members(self) -> int:
        return self.configurations * self.seeds

    def member_seeds(self) -> list[int]:
        """Return every member's seed: each configuration has the same seeds, in order."""
        return [self.seed + i % self.seeds for i in range(self.members)]

    def settings_of(self, member: int) -> dict[str, Any]:
        """Return this member's own settings; empty if only seeds differ."""
        return {name: values[member // self.seeds]
                for name, values in (self.population or {}).items()}

    def member_settings(self) -> dict[str, list[Any]]:
        return {name: [v for v in values for _ in range(self.seeds)]
                for name, values in (self.population or {}).items()}

    def label(self, member: int) -> str:
        """Return a member's name, such as `seed 3, algo.learning_rate = 0.001`."""
        own = [f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
               for name, value in self.settings_of(member).items()]  # fmt: skip
        return ", ".join([f"seed {self.seed + member % self.seeds}", *own])


@dataclasses.dataclass(frozen=True)
class Logging:
    """Log rows, checkpoints and pictures."""

    log_every: int | None = setting(None, low=1, high=MOST_STEPS, none="a hundredth of the run")
    """environment steps between log rows"""
    checkpoint_minutes: float = setting(5.0, low=0, open_low=True)
    """minutes between checkpoints"""
    keep_checkpoints: int = setting(2, high=1000)
    """newest checkpoints of each kind to keep"""
    chunk_seconds: float = setting(1.0, low=0, open_low=True)
    """seconds of device work between two syncs with the host"""
    pictures: bool = setting(True)
    """draw curve and agent at the end, in a notebook the newest rollout"""
    video_every: int | None = setting(None, low=0, high=MOST_STEPS, none="no videos")
    """environment steps between videos of an episode; 0: at evaluations alone"""
    video_share: float = setting(0.01, low=0, high=1)
    """part of the run's time that its videos may take; 1: no limit"""
    video_format: str = setting("gif", choices=("gif", "mp4"))
    """files of the videos; mp4 needs the extra [video]"""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Evaluation episodes and the decisions that use them."""

    eval_every: int | None = setting(None, low=0, high=MOST_STEPS, none="a tenth of the run")
    """environment steps between evaluations; 0: only at the end"""
    eval_episodes: int | None = setting(
        None, low=1, high=1_000_000,
        none=f"{EVAL_EPISODES}; on the host what fits in an eighth of the steps")
    """episodes of an evaluation"""
    eval_mode: str = setting("greedy", choices=MODES)
    """choice of actions in evaluations"""
    target_return: float | None = setting(None, none="never")
    """evaluation return of every member at which the run stops"""

    @property
    def most_episodes(self) -> int:
        return EVAL_EPISODES if self.eval_episodes is None else self.eval_episodes


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices, and the layout of members and environments on them."""

    batching: str = setting("auto", choices=("auto", "vmap", "map"))
    """how members share a device"""
    devices: int | None = setting(None, low=1, none="all, at most one a member", flag="devices")
    """devices to use, or all"""
    mesh: Mapping[str, int] | None = setting(None, none="all along the population",
                                             convert=_mesh, flag="mesh")
    """devices for members and for environments, as in population=4,env=2"""
    groups: int | None = setting(None, low=1, none="devices along env")
    """groups of environments, each sampled by itself"""
    deterministic: bool = setting(False)
    """same bits in every process on a GPU: no autotuning, scatters in order; slower"""
    memory_fraction: float | None = setting(None, low=0, high=1, none="JAX's, 0.75")
    """part of a GPU's memory to take at the start; 0: as it is needed"""
    unroll: int | None = setting(None, low=1, high=1024, none="1, on a GPU up to 8")
    """rollout steps compiled in a row"""
    parallel_loops: bool = setting(True)
    """divide loops among a CPU's threads; `tune-speed` tries without"""
    donate: bool = setting(True)
    """write a chunk's state over the last one's; false takes twice its memory"""
    tuned: bool = setting(True)
    """take the settings that `jaxrl-fast tune-speed` found for this program here"""

    @property
    def env_devices(self) -> int:
        """Return the devices that one member is divided over."""
        return (self.mesh or {}).get("env", 1)

    @property
    def sampling_groups(self) -> int:
        return self.env_devices if self.groups is None else self.groups


@dataclasses.dataclass(frozen=True)
class Host:
    """Stepping of environments on the host. Environments on the device allow only the defaults."""

    actors: int = setting(1)
    """vectors of environments on the host; they take turns"""
    actors_on: str = setting("threads", choices=("threads", "ray"))
    """threads of this process, or one Ray process for each actor"""
    ahead: int | None = setting(None, low=0, high=8, none="1 for off-policy algorithms, else 0")
    """rollouts by which actors may lead the learner"""
    host_timeout: float = setting(120.0, low=0, open_low=True)
    """seconds to wait for an answer of an environment on the host"""
    restarts: int = setting(0, low=0)
    """restarts of failed environments on the host"""


@dataclasses.dataclass(frozen=True)
class Experience:
    """Old experience to learn from, beside new steps or alone."""

    experience: str | None = setting(None, none="none", flag="path", metavar="FOLDER",
                                     convert=_folder)
    """folder of old experience (`jaxrl-fast experience` writes one)"""
    experience_fraction: float = setting(0.5, low=0, high=1)
    """old share of a batch; 0: at the start alone; 1: offline, total_steps counts updates"""
    experience_id: str | None = setting(None, none="found in the folder", flag=None)
    """identity of the experience at the start; `train` fills it in"""

    @property
    def offline(self) -> bool:
        """Return whether training steps no environment; steps count updates then."""
        return self.experience is not None and self.experience_fraction == 1


@dataclasses.dataclass(frozen=True)
class RunConfig(Experience, Host, Placement, Evaluation, Logging, Training):
    """Settings of a run besides algorithm and environment, in one namespace; bases are groups.

    Step counts are environment steps of one member. Raises ConfigError for a value out of range and
    for settings that exclude each other.
    """

    def __post_init__(self):
        check_settings(self)
        check_int("members", self.members, 1, MOST_MEMBERS)
        if self.seed + self.seeds > 2**32:
            raise ConfigError("seed", self.seed,
                              f"at most {2**32 - self.seeds} with seeds = {self.seeds}")
        if self.sampling_groups % self.env_devices:
            raise ConfigError("groups", self.groups, f"a multiple of mesh env = {self.env_devices}")
        if self.target_return is not None and self.eval_every == 0:
            raise ConfigError("target_return", self.target_return,
                              "None with eval_every = 0: evaluations compare with it")
        if self.experience is None and self.experience_fraction != RunConfig.experience_fraction:
            raise ConfigError("experience_fraction", self.experience_fraction,
                              "left out without experience")

    def settings(self) -> dict[str, Any]:
        """Return {name: value} of every setting, objects unchanged, as keywords of `train`."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


def by_group(cls: type = RunConfig) -> dict[type, list[dataclasses.Field]]:
    """Return {group: its fields}; the first class that declares a field owns it."""
    found: dict[type, list[dataclasses.Field]] = {}
    for field in dataclasses.fields(cls):
        owner = next(base for base in reversed(cls.__mro__)
                     if field.name in getattr(base, "__dataclass_fields__", ()))
        found.setdefault(owner, []).append(field)
    return found


def check_names(names: Iterable[str], settings: Mapping[str, Any],
                prefix: str = "", owner: str = "") -> None:
    """Raise ConfigError for a setting outside `names`, and list them."""
    for name, value in settings.items():
        if name not in names:
            listed = ", ".join(sorted(names))
            valid = f"a setting of {owner} ({listed})" if owner else f"one of {listed}"
            near = nearest(name, [*names, *(AROUND if owner == "train" else ())])
            raise ConfigError(prefix + name, value, valid + near)


def run_config(total_steps: int | None, settings: Mapping[str, Any], algo: Any = None) -> RunConfig:
    """Make a RunConfig of `train`'s keywords. Raises ConfigError for an unknown or bad setting.

    algo: the run's algorithm; the error for a setting of its own says where it belongs.
    """
    known = RunConfig.__dataclass_fields__
    fields = dataclasses.fields(algo) if dataclasses.is_dataclass(algo) else ()
    for name in settings.keys() - known.keys():
        if own := meant(name, [f.name for f in fields if f.repr], [*known, *AROUND]):
            raise ConfigError(name, settings[name], "given to the algorithm: "
                              f"jf.{type(algo).__name__}({own}={settings[name]!r})")
    check_names(known, settings, owner="train")
    settings = {**settings, "start_from": start_text(settings.get("start_from"))}
    return RunConfig(**({} if total_steps is None else {"total_steps": total_steps}), **settings)
