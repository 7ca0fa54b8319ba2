"""The ring of frames behind every replay memory, time-major; `UniformMemory` draws from it.

Each frame is stored once: successors, stacks and n-step windows are gathered on demand. The
successor of row i is row i + 1, after a truncation the observation in `memory.successors`.

A truncated row without a stored successor (a dataset's, an old checkpoint's, the second within
`truncation_interval`) ends windows before it: they bootstrap from its observation with gamma^steps,
and a window that starts there has weight 0. Rows with both flags never store a successor (a host
environment whose reset cannot be skipped).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_fast import random
from jaxrl_fast.errors import ConfigError, check_int
from jaxrl_fast.memory.api import Memory
from jaxrl_fast.memory.successors import INTERVAL, Slots, Successors
from jaxrl_fast.ops.lowering import on_cpu, on_gpu
from jaxrl_fast.ops.places import put_block, quotient, remainder, take
from jaxrl_fast.tree import summary
from jaxrl_fast.types import Window

MOST_ROWS = 2**30  # of an environment: sums of two places stay int32


class Row(NamedTuple):
    """A replay row of one step; leaves [T, B, ...]."""

    obs: Any
    action: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    extras: Any = ()  # Stored for the algorithm, such as its actor's state; datasets leave it out.
    # The successor before any reset; a ring keeps truncated rows' as `Successors`.
    next_obs: Any = ()

    __repr__ = summary


def as_dataset(rows: Any) -> Any:
    """Return `Row`s without extras and successors, other rows unchanged."""
    return rows._replace(extras=(), next_obs=()) if isinstance(rows, Row) else rows


def _take_successors(rows: Any) -> tuple[Any, Any]:
    """Return (rows without `next_obs`, next_obs: arrays, `Successors` or ())."""
    if hasattr(rows, "row"):  # beside carries
        row, next_obs = _take_successors(rows.row)
        return rows._replace(row=row), next_obs
    # a `Transition` keeps every successor itself
    if not (hasattr(rows, "next_obs") and hasattr(rows, "truncated")):
        return rows, ()
    return rows._replace(next_obs=()), rows.next_obs


def _put_successors(rows: Any, kept: Any) -> Any:
    if not jax.tree.leaves(kept):
        return rows
    if hasattr(rows, "row"):
        return rows._replace(row=_put_successors(rows.row, kept))
    return rows._replace(next_obs=kept)


def successors_of(rows: Any) -> Successors | None:
    """Return the stored successors of a store, or None."""
    kept = getattr(getattr(rows, "row", rows), "next_obs", None)
    return kept if isinstance(kept, Successors) else None


@dataclasses.dataclass(frozen=True)
class Ring(Memory):
    """`capacity` transitions of `num_envs` environments, written in blocks of `num_steps` rows.

    n_step: window length. stack: frames per observation (see `EnvSpec.stack`).
    truncation_interval: rows of an environment with at most one stored successor.
    Batches are drawn with replacement; `bind` refuses one larger than the ring.
    Raises ConfigError where not one window fits.
    """

    capacity: int
    num_steps: int
    num_envs: int
    batch_size: int
    n_step: int = 1
    stack: int = 1
    replays: ClassVar[bool] = True
    truncation_interval: int = dataclasses.field(default=INTERVAL, kw_only=True)

    @property
    def batch_axes(self):
        return Window(0, 0, 1, 1, 0, 0, 0, 0, 0, 0)

    def __post_init__(self):
        for field in dataclasses.fields(Ring):
            check_int(field.name, getattr(self, field.name))
        need = (self.dead_blocks + 1) * self.num_steps * self.num_envs
        if self.capacity < need:
            raise ConfigError("capacity", self.capacity,
                              f"at least {need}: a block of rows, and the windows over its end")
        if self.length > MOST_ROWS:
            raise ConfigError("capacity", self.capacity,
                              f"at most {MOST_ROWS * self.num_envs:,} with {self.num_envs} "
                              "environments: places of rows are int32")

    @property
    def starts(self) -> int:
        """Return the number of rows at which a draw may begin."""
        return self.length * self.num_envs

    @property
    def dead_blocks(self) -> int:
        """Return the blocks at the write head without starts: unfinished, or frames overwritten."""
        return -(-(self.n_step + self.stack - 1) // self.num_steps)

    @property
    def num_blocks(self) -> int:
        return self.capacity // (self.num_steps * self.num_envs)

    @property
    def length(self) -> int:
        """Return the rows on the time axis."""
        return self.num_blocks * self.num_steps

    @property
    def slots(self) -> Slots:
        """Return the layout of stored successors."""
        return Slots(self.num_blocks, self.num_steps, self.truncation_interval)

    def written(self, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the oldest row and the number of rows after `w` blocks."""
        oldest = jnp.where(w >= self.num_blocks, remainder(w, self.num_blocks) * self.num_steps, 0)
        return oldest, jnp.minimum(w, self.num_blocks) * self.num_steps

    def draw_starts(self, key: jax.Array, n: int, starts: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw (start in [0, starts), env), int32 [n, batch_size] each, uniformly."""
        # modulo's bias is below (starts * num_envs) / 2^32
        several = (jnp.maximum(starts, 1) * self.num_envs).astype(jnp.uint32)
        draw = remainder(random.bits(key, (n, self.batch_size)), several)
        start, env = quotient(draw, self.num_envs), remainder(draw, self.num_envs)
        return start.astype(jnp.int32), env.astype(jnp.int32)

    def init(self, rows):
        rows, next_obs = _take_successors(rows)
        # a leaf may hold fewer than `num_steps` rows a block (see `SequenceMemory`)
        store = jax.tree.map(lambda x: jnp.zeros((self.num_blocks * x.shape[0], *x.shape[1:]),
                                                 x.dtype), rows)
        return _put_successors(store, self.slots.init(next_obs) if jax.tree.leaves(next_obs)
                               else ())

    def add(self, mem, rows, w):
        def write(mem, rows, w):
            (mem, kept), (rows, next_obs) = _take_successors(mem), _take_successors(rows)
            slot = remainder(w, self.num_blocks)
            put = lambda m, r: put_block(m, r.astype(m.dtype), slot * r.shape[0])
            if isinstance(kept, Successors):
                row = getattr(rows, "row", rows)
                kept = self.slots.add(kept, next_obs, row.truncated & ~row.terminated, w)
            return _put_successors(jax.tree.map(put, mem, rows), kept)

        def write_apart(mem, rows, w):
            # On a CPU XLA would fuse the write into the store's next reader and copy it twice.
            # A loop that runs once, unknown to XLA, prevents it: 75 instead of 610 us at 10^6 rows.
            return jax.lax.fori_loop(0, jnp.where(w < 0, 2, 1),
                                     lambda _, mem: write(mem, rows, w), mem)

        return on_cpu(write_apart, write, mem, rows, w)

    def seam(self, mem, w):
        if hasattr(mem, "rows"):  # beside a subclass's own parts
            return mem._replace(rows=self.seam(mem.rows, w))
        if hasattr(mem, "row"):  # beside carries
            return mem._replace(row=self.seam(mem.row, w))
        return seal(mem, (w * self.num_steps - 1) % self.length)


@dataclasses.dataclass(frozen=True)
class UniformMemory(Ring):
    """A ring that draws every window with equal probability."""

    def plan(self, key, n, w, clock):
        """Draw starts of written windows: (row, env) int32 [n, batch_size], any such start [n]."""
        oldest, size = self.written(w)
        whole = size - self.n_step - (self.stack - 1)
        start, env = self.draw_starts(key, n, whole)
        row = remainder(oldest + start + (self.stack - 1), self.length)
        return row, env, jnp.broadcast_to(whole > 0, (n,))

    def fetch(self, mem, x):
        row, env, whole = x
        window = gather_windows(self, mem, row, env)
        return window._replace(weight=window.weight * whole), (row, env)


def seal(rows: Row, last: jax.Array | int) -> Row:
    """Return `rows` [S, B, ...] with row `last` truncated where it is not terminated."""
    return rows._replace(truncated=rows.truncated.at[last].set(~rows.terminated[last]))


def at(x: jax.Array, row: jax.Array, env: jax.Array) -> jax.Array:
    """Return x [S, B, ...] at (row, env), int32 [...].

    A GPU takes one index: two would first be written beside each other, a launch.
    """
    by_one = lambda x, row, env: take(x.reshape(-1, *x.shape[2:]), row * x.shape[1] + env)
    return on_gpu(by_one, take, x, row, env)


def held(ring: Ring, mem: Row, row: jax.Array, env: jax.Array,
         truncated: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Return (slot, found), int32 and bool [...], of the stored successors of rows (row, env).

    truncated: of these rows, if known.
    """
    kept = successors_of(mem)
    if kept is None:
        return jnp.zeros_like(row), jnp.zeros(row.shape, bool)
    slot, found = ring.slots.find(kept, row, env)
    return slot, found & (at(mem.truncated, row, env) if truncated is None else truncated)


def gather_windows(ring: Ring, mem: Row, row: jax.Array, env: jax.Array) -> Window:
    """Gather the n-step windows that start at (row, env), int32 [b] each, from the store `mem`."""
    following = row + jnp.arange(ring.n_step, dtype=row.dtype)[:, None]  # [n, b]
    rows = remainder(following, ring.length)
    terminated, truncated = at(mem.terminated, rows, env), at(mem.truncated, rows, env)
    done = terminated | truncated
    before = jnp.cumsum(done, axis=0) - done  # ends before row i
    # Row of the first end, or the last row: only its successor may be no row of the ring.
    last, known = rows[0], truncated[0]
    if ring.n_step > 1:
        whole = jnp.sum(before == 0, axis=0, dtype=jnp.int32)
        last, known = remainder(row + (jnp.minimum(whole, ring.n_step) - 1), ring.length), None
    slot, cut = held(ring, mem, last, env, known)
    use = (before == 0) & (~truncated | cut)
    steps = jnp.sum(use, axis=0, dtype=jnp.int32)
    boot = remainder(row + steps, ring.length)
    known = jnp.where(cut, last, boot)  # no actor saw an episode's final observation
    return Window(
        obs=gather_obs(mem, row, env, ring.stack),
        action=jax.tree.map(lambda a: at(a, row, env), mem.action),
        reward=at(mem.reward, rows, env),
        use=use,
        steps=steps,
        boot_obs=gather_successors(mem, boot, env, ring.stack, slot, cut),
        boot=1.0 - jnp.any(use & terminated, axis=0).astype(jnp.float32),
        weight=use[0].astype(jnp.float32),
        extras=jax.tree.map(lambda x: at(x, row, env), mem.extras),
        boot_extras=jax.tree.map(lambda x: at(x, known, env), mem.extras),
    )


def gather_obs(mem: Row, row: jax.Array, env: jax.Array, stack: int,
               joined: jax.Array | bool = False) -> Any:
    """Return observations at (row, env); stack > 1: frames on the last axis, the first repeated.

    joined: bool [...], the previous row belongs to the stack although its episode ended.
    """
    if stack == 1:
        return jax.tree.map(lambda x: at(x, row, env), mem.obs)
    length, alive, frame = mem.reward.shape[0], jnp.ones(row.shape, bool), row
    frames = [row]
    for back in range(1, stack):
        before = remainder(row + (length - back), length)
        ended = at(mem.terminated, before, env) | at(mem.truncated, before, env)
        alive &= ~ended | joined if back == 1 else ~ended
        frame = jnp.where(alive, before, frame)
        frames.append(frame)
    frames = jnp.stack(frames[::-1], axis=-1)  # [..., stack]

    def gather(x):  # One gather, frames beside channels: on a CPU 4x faster than concatenation.
        x = jnp.moveaxis(take(x, frames, env[..., None]), env.ndim, -2)
        return x.reshape(*x.shape[:-2], -1)

    return jax.tree.map(gather, mem.obs)


def gather_successors(mem: Row, row: jax.Array, env: jax.Array,
                      stack: int, slot: jax.Array, cut: jax.Array) -> Any:
    """Return successors like `gather_obs`; where `cut`, the newest frame comes from `slot`."""
    kept = successors_of(mem)
    if kept is None:
        return gather_obs(mem, row, env, stack)
    found = gather_obs(mem, row, env, stack, cut)

    def put(found, kept):
        frame = at(kept, slot, env)
        newest = jnp.arange(found.shape[-1]) >= found.shape[-1] - kept.shape[-1]
        here = cut.reshape(cut.shape + (1,) * (found.ndim - cut.ndim))
        if stack == 1:
            return jnp.where(here, frame, found)
        return jnp.where(here & newest, jnp.concatenate([frame] * stack, axis=-1), found)

    return jax.tree.map(put, found, kept.obs)
