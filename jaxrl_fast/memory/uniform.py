"""Uniform replay: every window of the ring is as likely as any other."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.memory.ring import Ring, gather_windows


@dataclasses.dataclass(frozen=True)
class UniformMemory(Ring):
    """See `Ring`."""

    def plan(self, key, n, w, clock):
        """Uniform over every start whose whole window and stack are written: (row, env) int32 [n, batch_size] each, and
        whether there is any [n]."""
        size = jnp.minimum(w, self.num_blocks) * self.num_steps
        oldest = jnp.where(w >= self.num_blocks, (w % self.num_blocks) * self.num_steps, 0)
        whole = size - self.n_step - (self.stack - 1)
        starts = jnp.maximum(whole, 1).astype(jnp.uint32)
        # modulo's bias is below (starts * num_envs) / 2^32
        draw = random.bits(key, (n, self.batch_size)) % (starts * jnp.uint32(self.num_envs))
        offset = (draw // jnp.uint32(self.num_envs)).astype(jnp.int32) + self.stack - 1
        row, env = (oldest + offset) % self.length, (draw % jnp.uint32(self.num_envs)).astype(jnp.int32)
        return row, env, jnp.broadcast_to(whole > 0, (n,))

    def fetch(self, mem, x):
        row, env, whole = x
        window = gather_windows(self, mem, row, env)
        return window._replace(weight=window.weight * whole), (row, env)
