"""A host environment around another one, for tests of what vectors do wrong. Apart: processes
import `counters`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxrl_fast.actors.handover import Handover
from jaxrl_fast.actors.on_host import HostPrograms
from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.host.vector import Vector
from jaxrl_fast.runs.dependencies import Dependencies


@dataclasses.dataclass(frozen=True, kw_only=True)
class Around(HostEnv):
    """`inner`, whose vectors are put into `around(vector, training)`."""

    inner: HostEnv
    around: Callable[[Vector, bool], Vector]

    @property
    def spec(self):
        return self.inner.spec

    def open(self, num_envs, seed, training=True, render=False):
        return self.around(self.inner.open(num_envs, seed, training, render), training)


def with_actors(kind: type[Handover]) -> Dependencies:
    """For `train(dependencies=...)`: a run whose actors on threads are of class `kind`."""

    class Programs(HostPrograms):
        kinds = HostPrograms.kinds | {"threads": kind}

    return Dependencies(Programs)
