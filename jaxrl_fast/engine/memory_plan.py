"""The memory plan: the bytes of a run, whether they fit its devices, and remedies.

XLA's temporaries (activations, gradients) are known only after compilation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import jax

from jaxrl_fast import distributed, runtime
from jaxrl_fast.doctor.quantities import gib
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.engine.footprint import footprint
from jaxrl_fast.engine.grid import Grid, plan_grid
from jaxrl_fast.engine.iteration import Run
from jaxrl_fast.engine.members import load_data
from jaxrl_fast.engine.placement import plan_population
from jaxrl_fast.engine.population import Population
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs import html
from jaxrl_fast.ops import precision

# Parts that grow with a setting, for the search of one that fits.
_GROWS = {
    "buffer_size": ("replay",), "num_envs": ("environments", "rollout", "batch", "actors"),
    "batch_size": ("batch",), "eval_episodes": ("evaluation",),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class MemoryPlan:
    """Bytes of one member by part; `need`: of `population` in one device's memory.

    CPU devices share one memory, so all of them count.
    """

    name: str
    state: dict[str, int]  # kept across iterations and in checkpoints
    agent: int  # bytes of the agent within `state`
    # "rollout", "batch", "evaluation" of a program; "metrics" of a chunk; "actors"
    work: dict[str, int]
    settings: int  # of the algorithm and environment, once a device
    population: Population
    have: int | None  # bytes of the device, on a CPU the container's limit; None: unknown
    run: Run = dataclasses.field(repr=False)
    config: RunConfig = dataclasses.field(repr=False)
    temporaries: int | None = None  # largest temporaries of compiled programs on a device

    @property
    def places(self) -> int:
        """Return the devices that share this memory: on a CPU, all of a host."""
        first, *_ = devices = self.population.devices
        return sum(d.process_index == first.process_index
                   for d in devices) if first.platform == "cpu" else 1

    @property
    def members(self) -> int:
        """Return the agents in this memory, padding included; a divided member has one a device."""
        return self.population.padded // self.population.places * self.places

    @property
    def at_once(self) -> int:
        """Return the members that a program works on at once: with `map`, one a device."""
        return self.members if self.population.mode == "vmap" else self.places

    @property
    def state_bytes(self) -> int:
        return sum(self.state.values())

    @property
    def arguments(self) -> int:
        """Return the bytes of a chunk's arguments on one device: state and settings."""
        return self.state_bytes * self.members // self.places + self.settings

    @property
    def results(self) -> int:
        """Return the bytes of a chunk's results on one device: new state and metrics."""
        return (self.state_bytes + self.work["metrics"]) * self.members // self.places

    def resident(self) -> list[tuple[str, int, int]]:
        """Return (part, bytes, count) of permanent parts."""
        return [
            *((part, size, self.members) for part, size in self.state.items()),
            ("the next state, not donated", self.state_bytes,
             0 if self.config.donate else self.members),
            ("a checkpoint's snapshot", self.state_bytes, self.members),
            ("best agent's snapshot", self.agent, self.members),
            ("rollouts and agents of actors", self.work["actors"], self.members),
            # fetch overlaps a chunk
            ("metrics of two chunks", 2 * self.work["metrics"], self.members),
            ("settings", self.settings, self.places),
        ]

    def passing(self) -> list[tuple[str, int, int]]:
        """Return (part, bytes, count) of parts of a running chunk, and last an evaluation's."""
        looped = self.population.size > 1 and self.population.mode == "map"
        return [
            ("state of the member whose turn it is", self.state_bytes,
             self.at_once if looped else 0),
            ("rollout", self.work["rollout"], self.at_once),
            ("batch of an update", self.work["batch"], self.at_once),
            ("evaluation", self.work["evaluation"], self.at_once),
        ]

    @property
    def need(self) -> int:
        """Return the bytes in one device's memory: the larger of training and evaluation counts."""
        *training, evaluation = self.passing()
        # compiled temporaries may still lack the evaluation's
        most = _total(training) if self.temporaries is None else self.temporaries * self.places
        return _total(self.resident()) + max(most, _total([evaluation]))

    @property
    def disk(self) -> int:
        """Return the largest bytes of checkpoints with one in progress, before compression."""
        one = (self.state_bytes * self.population.env + self.agent) * self.population.size
        return (self.config.keep_checkpoints + 1) * one

    @property
    def fits(self) -> bool:
        return self.have is None or self.need <= self.have

    def compiled(self, analyses: Iterable[Any]) -> MemoryPlan:
        """Return the plan with the largest temporaries in `memory_analysis()` results (or None)."""
        found = [x.temp_size_in_bytes for x in analyses if x is not None]
        return dataclasses.replace(self, temporaries=max(found, default=self.temporaries))

    def check(self) -> None:
        """Raise ConfigError, with settings that would fit, for a run that does not fit."""
        if self.fits:
            return
        donated = dataclasses.replace(self, config=dataclasses.replace(self.config, donate=True))
        if donated.fits:
            advice = "the run fits with donate = True"
        elif self.temporaries is not None:  # unknown for other settings before another compilation
            which = "lower batch_size, num_envs, buffer_size, seeds or the --wave of a sweep"
            advice = f"{gib(self.temporaries)} of it are XLA's temporaries: {which}"
        else:
            found = " or ".join(f"{name} = {value}" for name, value in self.remedies().items())
            advice = "lower buffer_size, hidden, num_envs or num_steps"
            if found:
                advice = f"the run fits with {found}"
        where = self.population.devices[0].device_kind
        raise ConfigError("memory", gib(self.need),
                          f"at most the {gib(self.have)} of {where}; {advice}")

    def remedies(self) -> dict[str, int]:
        """Return {setting: largest value found that fits}, each alone; empty if none does."""
        own = lambda name: self._largest(name, vars(self.run.algo).get(name))
        seeds = _bisect(lambda v: self.of_size(v * self.config.configurations).fits,
                        self.config.seeds)
        found = {"buffer_size": own("buffer_size"), "seeds": seeds, "num_envs": own("num_envs"),
                 "batch_size": own("batch_size")}
        if not any(found.values()):
            found["eval_episodes"] = self._largest("eval_episodes", self.config.most_episodes)
        return {name: value for name, value in found.items() if value}

    def _largest(self, name: str, now: Any) -> int | None:
        """Guess in proportion, round down and plan again, so the advice really fits."""
        if not isinstance(now, int):
            return None
        scaled = lambda parts, v: {k: math.ceil(x * v / now) if k in _GROWS[name] else x
                                   for k, x in parts.items()}
        guess = lambda v: dataclasses.replace(self, state=scaled(self.state, v),
                                              work=scaled(self.work, v))
        value = _bisect(lambda v: guess(v).fits, now)
        for _ in range(4):
            value = _round(name, value, now)
            with contextlib.suppress(ConfigError):  # the algorithm refuses this value
                if value > 0 and self._planned(name, value).fits:
                    return value
            value = value * 9 // 10
        return None

    def of_size(self, members: int) -> MemoryPlan:
        """Return the plan of another number of members on the same devices."""
        place = plan_population(members, self.config.batching, self.population.devices,
                                self.population.env)
        return dataclasses.replace(self, population=place)

    @property
    def most_members(self) -> int:
        """Return the largest population that fits, at most this one; 0 if one member does not."""
        if self.fits:
            return self.population.size
        return _bisect(lambda v: self.of_size(v).fits, self.population.size)

    def _planned(self, name: str, value: int) -> MemoryPlan:
        run, config = self.run, self.config
        if name == "eval_episodes":
            config = dataclasses.replace(config, eval_episodes=value)
        else:
            run = dataclasses.replace(run, algo=dataclasses.replace(run.algo, **{name: value}))
            if run.experience is not None:  # a replay that starts with experience holds as much
                run = dataclasses.replace(run, experience=load_data(run.algo, config, outline=True))
        grid, metrics = plan_grid(run.algo, config), self.work["metrics"]
        parts = footprint(run, grid, self.population, config, metrics)
        return dataclasses.replace(self, run=run, config=config, temporaries=None, **parts)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for a pickle or copy, which describes the devices."""
        devices = tuple(map(_described, self.population.devices))
        return self.__dict__ | {"population": dataclasses.replace(self.population, devices=devices)}

    def __str__(self) -> str:
        title, lines, (note, *verdict) = cells(self)
        text = [f"  {part:32}{one:>12}{times:>8}{every:>12}" for part, one, times, every in lines]
        return "\n".join([title, *text, f"  {note}", *verdict])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title, (head, *lines), notes = cells(self)
        return html.block(title, html.table(lines, head), html.lines(*notes))


def _described(device: Any) -> Any:
    """Return what a plan reads of a device, which itself does not pickle."""
    client = SimpleNamespace(platform_version=device.client.platform_version)
    return SimpleNamespace(platform=device.platform, process_index=device.process_index,
                           device_kind=device.device_kind, client=client)


def _total(rows: list[tuple[str, int, int]]) -> int:
    return sum(size * count for _, size, count in rows)


def _bisect(fits: Any, too_many: int) -> int:
    """Return the largest value in [1, too_many) that fits; 0 if none does."""
    low, high = 0, too_many
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _round(name: str, value: int, now: int) -> int:
    """Round down to a usual value: buffers to two digits, batches by halving."""
    if name == "buffer_size":
        unit = 10 ** max(0, len(str(value)) - 2)
        return value // unit * unit
    while now > value:
        now //= 2
    return now


def memory_plan(run: Run, grid: Grid, population: Population,
                config: RunConfig, metrics: int | None = None) -> MemoryPlan:
    """Return the plan of a run; its algorithm is bound. metrics: their bytes, if known."""
    mine = next((d for d in population.devices if d.process_index == jax.process_index()),
                population.devices[0])
    have = distributed.tell(runtime.device_memory(mine))
    parts = footprint(run, grid, population, config, metrics)
    name = f"{run.algo.name} on {run.env.spec.name}"
    return MemoryPlan(name, population=population, have=have, run=run, config=config, **parts)


def cells(plan: MemoryPlan) -> tuple[str, list[tuple[str, ...]], list[str]]:
    """Return the plan's title, its lines (part, one, times, all) from head to total, and notes."""
    p = plan.population
    devices = f"{len(p.devices)} device{'s' * (len(p.devices) > 1)}"
    many = f"{p.size} members by {p.mode} on {devices}" if p.size > 1 else "one member"
    many += ", each of which holds" if len(p.devices) > 1 and p.devices[0].platform != "cpu" else ""
    parts = [row for row in (*plan.resident(), *plan.passing()) if row[1] * row[2]]
    if plan.temporaries is not None:
        parts.append(("compiled temporaries", plan.temporaries, plan.places))
    lines = [(part, gib(size), str(count), gib(size * count)) for part, size, count in parts]
    device = p.devices[0].device_kind + ", which all host devices share" * (plan.places > 1)
    fits = f"the memory of {device} is not known"
    if plan.have is not None:
        share = f"{100 * plan.need / plan.have:.0f}% of the {gib(plan.have)} of {device}"
        fits = f"{'fits' if plan.fits else 'does not fit'}: {share}"
    note = "with the larger of"
    if plan.temporaries is not None:
        note = "with the compiled temporaries for"
    disk = (f"checkpoints: at most {gib(plan.disk)} on the disk (keep_checkpoints = "
            f"{plan.config.keep_checkpoints})")
    used = precision.in_force(plan.run.algo.precision, p.devices[0].platform)
    notes = [f"({note} training and evaluation, which take turns)", fits, used, disk]
    head, total = ("", "one", "times", "all"), ("total", "", "", gib(plan.need))
    return f"{plan.name}: {many}", [head, *lines, total], notes
