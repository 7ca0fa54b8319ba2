"""The frame as one kernel for a GPU: Pallas with Triton, a thread a lane.

A program is one warp. A lane's fields live in registers, RAM and the screen in memory with the lane
as the last axis, and a branch is taken where any of the warp's lanes needs it.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl_fast.envs.atari import bits, opcodes, picture
from jaxrl_fast.envs.atari.decode import Rom
from jaxrl_fast.envs.atari.memory import Memory
from jaxrl_fast.envs.atari.state import WIDTH, Inputs, Machine
from jaxrl_fast.envs.atari.words import Layout, packed, unpacked
from jaxrl_fast.errors import brief

NAME = "atari_frame"
WARP = 32
_SCHEDULERS = 528  # of an H100 or H200: each runs one warp's instructions at a time
_CAPABILITY = (8, 0)  # XLA's Triton needs it
_PLAIN = "atari: {} runs the plain program, an estimated 30 times as slow as the kernel: {}"
_PIXELS = 4  # of the screen in a word
_WORDS = WIDTH // _PIXELS
_GROUP = WIDTH // bits.WORDS
_HELD = ("tia", "riot", "cart", "view")  # groups that the loop carries as words
ONE_IN = 3  # a warp draws once one of this number of its lanes waits for it


@functools.cache
def runs_here() -> bool:
    """Return whether programs for CUDA may hold the kernel; warns if the accelerator cannot."""
    device = jax.devices()[0]
    if device.platform == "cpu":  # which compiles for absent GPUs
        return True
    reason = _obstacle(device)
    if reason:
        warnings.warn(_PLAIN.format(device.device_kind, reason), stacklevel=2)
    return not reason


def _obstacle(device: jax.Device) -> str:
    """Return why an accelerator cannot run the kernel, or ""."""
    capability = str(getattr(device, "compute_capability", None) or "none")
    found = re.match(r"(\d+)\.(\d+)$", capability)
    if not found or tuple(map(int, found.groups())) < _CAPABILITY:
        return f"it needs CUDA and compute capability 8.0 or later, not {capability}"
    try:
        compile_copy(device)
    except Exception as error:  # of XLA or Triton, of any kind
        return f"its Triton compiles nothing here ({brief(error)})"
    return ""


def compile_copy(device: jax.Device) -> None:
    """Compile the least kernel of Triton, a copy of 32 words, for a device."""

    def copy(source, target):
        lane = jnp.arange(WARP)
        triton.store(target.at[lane], triton.load(source.at[lane]))

    place = jax.sharding.SingleDeviceSharding(device)
    like = jax.ShapeDtypeStruct((WARP,), jnp.int32, sharding=place)
    parameters = triton.CompilerParams(num_warps=1, num_stages=1)
    jax.jit(pl.pallas_call(copy, out_shape=like, compiler_params=parameters)).lower(like).compile()


def lanes_of(count: int) -> int:
    """Return the lanes of a warp for `count` lanes: fewer where the GPU has idle schedulers.

    Lanes of a warp wait for each other.
    """
    return next((n for n in (1, 2, 4, 8, 16) if count <= n * _SCHEDULERS), WARP)


def launch(
    run: Callable[[Machine, Inputs, Memory], Machine],
    m: Machine,
    inputs: Inputs,
    rom: Rom,
    lanes: int | None = None,
    interpret: bool = False,
) -> Machine:
    """Return run(m, inputs, memory), in a kernel.

    Args:
        run: `machine.run`.
        m: At the start of a frame.
        inputs: Of the frame.
        rom: The joined tables.
        lanes: Lanes of a warp, 1 to 32; None: see `lanes_of`.
        interpret: Run without Triton, on any device.
    """
    count, lines = m.screen.shape[:2]
    lanes = lanes_of(count) if lanes is None else lanes
    changing, fixed = m._replace(ram=(), screen=(), other=(), view=()), (m.view, inputs)
    layout, known = Layout(changing), Layout(fixed)
    grid = pl.cdiv(count, lanes)
    last = (grid - 1) * lanes + WARP - count  # lanes of the last warp that are not there

    def padded(array: jax.Array) -> jax.Array:
        return jnp.pad(array, ((0, 0), (0, last)))

    arrays = tuple(map(padded, (jnp.stack(layout.pack(changing)), m.ram.T, _packed(m.screen))))

    def program(*references):
        given, after = references[3:-3], references[-3:]
        number = jnp.arange(WARP, dtype=jnp.int32)
        lane = pl.program_id(0) * lanes + number
        valid = (number < lanes) & (lane < count)
        rows = (references[0], layout), (given[0], known)
        m, (view, inputs) = (
            layout.unpack([words[i, lane] for i in range(layout.count)]) for words, layout in rows
        )
        m = m._replace(view=view, done=jnp.where(valid, m.done, 1))
        memory = of_references(Rom(*given[1:4]), given[4], *after[1:], lane, lines)
        m = m._replace(**{name: packed(getattr(m, name)) for name in _HELD})
        m = run(m, packed(inputs), memory)._replace(view=())
        m = m._replace(**{name: unpacked(getattr(m, name)) for name in _HELD if name != "view"})
        # `done` is 1: addresses that need it are made here, not held in 58 registers from the loads
        place = lane + 1 - m.done
        for i, word in enumerate(layout.pack(m)):
            triton.store(after[0].at[i, place], word, mask=valid)

    call = pl.pallas_call(
        program,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays],
        grid=(grid,),
        input_output_aliases={0: 0, 1: 1, 2: 2},
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name=NAME,
    )
    opcode = jnp.asarray(opcodes.control_words()).T
    after = call(*arrays, padded(jnp.stack(known.pack(fixed))), *rom, opcode)
    state, ram, screen = (x[:, :count] for x in after)
    return layout.unpack(state)._replace(
        ram=ram.T, screen=_unpacked(screen, lines), other=m.other, view=m.view
    )


def _packed(screen: jax.Array) -> jax.Array:
    """Return int32 [lines * 40, N], four pixels a word, from uint8 [N, lines, 160]."""
    words = screen.reshape(len(screen), -1, _PIXELS)
    return jax.lax.bitcast_convert_type(words, jnp.int32).T


def _unpacked(words: jax.Array, lines: int) -> jax.Array:
    return jax.lax.bitcast_convert_type(words.T, jnp.uint8).reshape(-1, lines, WIDTH)


def of_references(
    rom: Rom, opcode: Any, ram: Any, screen: Any, lane: jax.Array, lines: int
) -> Memory:
    """Return the accesses to references [..., N]; a step's own RAM and screen are empty."""

    def store(empty: tuple, index: jax.Array, value: jax.Array, on: jax.Array) -> tuple:
        index = jnp.where(on, index, 0)
        triton.store(ram.at[index, lane], value.astype(jnp.uint8), mask=on)
        return empty

    def paint(empty: tuple, strip: picture.Strip) -> tuple:
        _paint(screen, strip, lane, lines)
        return empty

    return Memory(
        image=lambda at: Rom(*(table[at] for table in rom)),
        opcode=lambda code: (opcode[0, code], opcode[1, code]),
        load=lambda _, index: ram[index, lane].astype(jnp.int32),
        store=store,
        paint=paint,
        some=_some,
        rare=lambda on, of_some, other: jax.lax.cond(_some(on), of_some, lambda: other),
        admit=_admit,
    )


def _some(mask: jax.Array) -> jax.Array:
    return jnp.max(mask.astype(jnp.int32)) > 0


def _admit(active: jax.Array, wants: jax.Array) -> jax.Array:
    """Return the lanes that step: those that access the TIA only once a third has come to that.

    Lanes are independent within a frame, so their order is free, and a picture costs a warp the
    same for one lane as for all.
    """
    waits = active & wants
    total = jnp.sum(active.astype(jnp.int32) + (waits.astype(jnp.int32) << 8))
    takes = ONE_IN * (total >> 8) >= total & 0xFF
    return active & (takes | ~waits)


def _paint(screen: Any, strip: picture.Strip, lane: jax.Array, lines: int) -> None:
    """Write the strip's pixels: four a word, a turn of the loop for 32."""
    first = jnp.minimum(strip.row, lines - 1) * _WORDS
    colors = [c * 0x01010101 for c in strip.colors]
    some = strip.begin < strip.end
    # Words that keep some of their pixels lie at the ends: no other is read.
    ends = [jnp.minimum(x // _PIXELS, _WORDS - 1) for x in (strip.begin, strip.end)]
    left, right = (triton.load(screen.at[first + x, lane], mask=some, other=0) for x in ends)

    def group(i: jax.Array, planes: tuple[bits.Words, bits.Words]) -> tuple[bits.Words, bits.Words]:
        begin, end = strip.begin - _GROUP * i, strip.end - _GROUP * i
        touched = (begin < _GROUP) & (end > 0) & some

        def word(j: jax.Array, four: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            column = _PIXELS * (_GROUP // _PIXELS * i + j)
            shade = _shade(*four, colors)
            shade = jnp.where(strip.comb & (column < picture.COMB), 0, shade)
            inside = _upto(strip.end - column) & ~_upto(strip.begin - column)
            at = screen.at[first + column // _PIXELS, lane]
            old = jnp.where(strip.begin > column, left, right)
            triton.store(at, old ^ ((old ^ shade) & inside), mask=inside != 0)
            return tuple(plane >> _PIXELS for plane in four)

        @pl.when(_some(touched))
        def paint():
            jax.lax.fori_loop(0, _GROUP // _PIXELS, word, tuple(plane[0] for plane in planes))

        return tuple((*plane[1:], plane[0]) for plane in planes)

    jax.lax.fori_loop(0, bits.WORDS, group, (strip.low, strip.high))


def _shade(low: jax.Array, high: jax.Array, colors: list[jax.Array]) -> jax.Array:
    """Return four pixels from the lowest four bits of both planes."""
    background, field, one, zero = colors
    low, high = (_spread((x & 15).astype(jnp.int32)) for x in (low, high))
    lower = background ^ ((background ^ field) & low)
    upper = one ^ ((one ^ zero) & low)
    return lower ^ ((lower ^ upper) & high)


def _spread(four: jax.Array) -> jax.Array:
    """Return a word whose bytes are 0xFF where the bits are set, the lowest first."""
    return ((four * 0x00204081) & 0x01010101) * 0xFF


def _upto(x: jax.Array) -> jax.Array:
    """Return a word with the first `x` bytes set, for any `x`."""
    half = jnp.clip(x, 0, _PIXELS) * 4  # a shift by 32 is not defined, two by 16 are
    return (1 << half << half) - 1
