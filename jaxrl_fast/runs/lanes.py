"""The members that train in one program: their lanes, their losses and their state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl_fast import distributed, tree
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.members import leaf_names
from jaxrl_fast.engine.population import Population
from jaxrl_fast.engine.prepared import Prepared
from jaxrl_fast.engine.programs import Context, Programs
from jaxrl_fast.errors import ConfigError


class Lanes:
    """All members of a run, and those in training, each in a lane of the program.

    Attributes:
        members: int [lanes], the member of each lane; all members unless some were dropped.
        state: the RunState on the device, leaves [lanes, ...]; donated to the next chunk.
        lost: {member: env_steps and reason} of members that are not finite.
        settings: float32 [members] each, changed by selection.
    """

    def __init__(self, prepared: Prepared, lanes: Sequence[int], context: Context,
                 make: Callable[[Prepared, Context], Programs] | None = None):
        self.prepared, self.members = prepared, np.asarray(lanes, np.int64)
        self._make = make or backend_of(prepared.env).programs
        self.programs = self._make(prepared.take(self.members), context)
        names, leaves = leaf_names(prepared.members.first), jax.tree.leaves(prepared.members.run)
        traced = prepared.config.selection.traced if prepared.config.selection else ()
        self.settings = {name: np.asarray(leaves[names.index(name)]) for name in traced}
        self.state: Any = None
        self.lost: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def population(self) -> Population:
        return self.programs.population

    @property
    def live(self) -> list[int]:
        return [int(i) for i in self.members if int(i) not in self.lost]

    def who(self) -> dict[str, Any]:
        """Return a checkpoint's members: of its lanes, and the lost ones."""
        return {"lanes": self.members,
                "lost": [{"member": m, **where} for m, where in self.lost.items()],
                "settings": self.settings}  # fmt: skip

    def by_member(self, values: Any, fill: float = 0) -> Any:
        """Spread NumPy arrays [lanes] to [members]; `fill` for members without a lane."""
        count = self.prepared.config.members
        if len(self) == count:
            return values

        def spread(x):
            # an integer is never NaN
            nothing = fill if np.issubdtype(x.dtype, np.floating) else np.nan_to_num(fill)
            whole = np.full((count, *x.shape[1:]), nothing, x.dtype)
            whole[self.members] = x
            return whole

        return jax.tree.map(spread, values)

    def keys(self) -> jax.Array:
        """Return the root key of every lane: a single run's with its member's seed."""
        seeds = self.prepared.config.member_seeds()
        return self.population.keys([seeds[i] for i in self.members])

    def exploit(self, parent: np.ndarray, settings: dict[str, np.ndarray]) -> None:
        """Continue members with agents of `parent` [members]; lost ones take the whole state."""
        lost = np.isin(self.members, list(self.lost)) & (parent != self.members)
        self.state = self.programs.move(self.state, parent, lost)
        self.lost = {member: where for member, where in self.lost.items() if not lost[member]}
        self.change(settings)

    def change(self, settings: dict[str, np.ndarray]) -> None:
        """Train with other values [members] of these settings."""
        names = leaf_names(self.prepared.members.first)
        for name, values in settings.items():
            self.programs.change(names.index(name), values)
        self.settings = self.settings | settings

    def shrink(self, members: Sequence[int]) -> None:
        """Continue with these members alone, in a program of their number."""
        at = [int(np.flatnonzero(self.members == i)[0]) for i in members]
        state = jax.jit(tree.take)(self.state, at[0] if len(at) == 1 else np.asarray(at))
        self.members = np.asarray(members, np.int64)
        self.programs = self._make(self.prepared.take(self.members), self.programs.context)
        with self.programs.clock.during("compile"):
            self.programs.compile(self.keys())
        self.state = self.programs.padded(state)

    def agent(self, member: int) -> Any:
        """Return one member's agent on the device; donated to the next chunk."""
        lane = np.flatnonzero(self.members == member)
        if not lane.size:
            raise ConfigError("member", member,
                              f"one that is still trained ({', '.join(map(str, self.members))})")
        if not distributed.several():
            return self.population.member(self.state.agent, int(lane[0]))
        taken = tree.take if self.population.size > 1 else lambda agent, _: agent
        return distributed.fetch(jax.jit(taken)(self.state.agent, lane[0]),
                                 self.population.replicated)
