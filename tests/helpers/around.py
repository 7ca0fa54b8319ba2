"""A host environment around another one, for tests of what vectors do wrong. Apart: processes
import `counters`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxrl_fast.envs.host.api import HostEnv
from jaxrl_fast.envs.host.vector import Vector


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
