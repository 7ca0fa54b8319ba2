"""Frames as one kernel for a GPU: Pallas with Triton, a thread a lane.

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
from jaxrl_fast.envs.atari.state import RIOT_RAM, WIDTH, Inputs, Machine
from jaxrl_fast.envs.atari.words import Layout, Stored, pack, unpack
from jaxrl_fast.errors import brief

NAME = "atari_frame"
WARP = 32
_SCHEDULERS = 528  # of an H100 or H200: each runs one warp's instructions at a time
_CAPABILITY = (8, 0)  # XLA's Triton needs it
_PLAIN = "atari: {} runs the plain program, an estimated 30 times as slow as the kernel: {}"
_PIXELS = 4  # of the screen in a word
_WORDS = WIDTH // _PIXELS
_GROUP = WIDTH // bits.WORDS
_SPARE = 2  # the place of a screen that was drawn over
_HELD = ("tia", "riot", "cart")  # groups that the loop carries as words
ONE_IN = 3  # a warp draws once one of this number of its lanes waits for it


@functools.cache
def runs_here() -> bool:
    """Return whether programs for CUDA may hold the kernel; warns if the accelerator cannot."""
    device = jax.devices()[0]
    if device.platform == "cpu":  # which compiles for absent GPUs
        return True
    reason = obstacle(device, compile_copy)
    if reason:
        warnings.warn(_PLAIN.format(device.device_kind, reason), stacklevel=2)
    return not reason


def obstacle(device: jax.Device, try_out: Callable[[jax.Device], None]) -> str:
    """Return why an accelerator cannot run the kernel, or ""; try_out: compiles a small kernel."""
    capability = str(getattr(device, "compute_capability", None) or "none")
    found = re.match(r"(\d+)\.(\d+)$", capability)
    if not found or tuple(map(int, found.groups())) < _CAPABILITY:
        return f"it needs CUDA and compute capability 8.0 or later, not {capability}"
    try:
        try_out(device)
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
    run: Callable[[Machine, Inputs, Memory], Machine], m: Machine, inputs: Inputs, rom: Rom,
    lanes: int | None = None, interpret: bool = False,
) -> tuple[Machine, jax.Array, jax.Array]:
    """Return the fields of `machine.Frames`, from one kernel.

    Args:
        run: `machine.run`.
        m: Before the first frame.
        inputs: Of the frames, [K, N].
        rom: The joined tables.
        lanes: Lanes of a warp, 1 to 32; None: see `lanes_of`.
        interpret: Run without Triton, on any device.
    """
    count, _, lines = m.screens.shape[:3]
    lanes = lanes_of(count) if lanes is None else lanes
    size, frames = lines * _WORDS, inputs.port_a.shape[0]
    changing = m._replace(ram=(), screens=(), view=())
    layout, known, pressed = Layout(changing), Layout(m.view), Layout(inputs)
    grid = pl.cdiv(count, lanes)
    # The interpreter writes to masked lanes what they held: each needs a column of its own.
    more = (grid - 1) * lanes + WARP - count if interpret else 0

    def rows(array: jax.Array) -> jax.Array:
        return jnp.pad(array.reshape(-1, count), ((0, 0), (0, more)))

    arrays = rows(jnp.stack(layout.pack(changing))), rows(m.ram.T), rows(_pack_screens(m.screens))
    fixed = rows(jnp.stack(known.pack(m.view))), rows(jnp.stack(pressed.pack(inputs), 1))

    def program(*references):
        begun, _, _, views, pushed, *tables, opcode = references[:-6]
        after, ram, screens, spare, rams, places = references[-6:]
        number = jnp.arange(WARP, dtype=jnp.int32)
        first = pl.program_id(0) * lanes
        valid = (number < lanes) & (first + number < count)
        lane = first + (number if interpret else jnp.where(valid, number, 0))
        m = layout.unpack([begun[i, lane] for i in range(layout.count)])
        view = Stored(known, views, 0, lane)
        # a lane that is not there does nothing
        done = jnp.ones_like(lane)
        m = m._replace(view=view, bad=jnp.where(valid, m.bad, 1), done=done, screens=(), ram=())
        m = m._replace(**{name: pack(getattr(m, name)) for name in _HELD})
        memory = of_references(Rom(*tables), opcode, ram, screens, lane, lines)

        def frame(k: jax.Array, m: Machine) -> Machine:
            # `done` is 1: addresses that need it are made here, not held in registers
            here = lane + 1 - m.done
            inputs = Stored(pressed, pushed, k * pressed.count, lane)
            goes_on = valid & (m.partial == 1)  # on the screen that it has
            triton.store(places.at[0, here], jnp.where(goes_on, _SPARE, m.turn), mask=valid)

            @pl.when((k == frames - 1) & _some(goes_on))
            def keep():
                _copy(screens, m.turn * size, spare, 0, here, goes_on, size)

            m = run(m, inputs, memory)
            _copy(ram, 0, rams, k * RIOT_RAM, lane + 1 - m.done, valid, RIOT_RAM)
            return m

        m = jax.lax.fori_loop(0, frames, frame, m)
        m = m._replace(**{name: unpack(getattr(m, name)) for name in _HELD})._replace(view=())
        place = lane + 1 - m.done
        for i, word in enumerate(layout.pack(m)):
            triton.store(after.at[i, place], word, mask=valid)

    def like(rows: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, count + more), dtype)

    left = like(size), like(frames * RIOT_RAM, jnp.uint8), like(1)
    call = pl.pallas_call(
        program,
        out_shape=[*(like(len(x), x.dtype) for x in arrays), *left],
        grid=(grid,),
        input_output_aliases={0: 0, 1: 1, 2: 2},
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name=NAME,
    )
    found = call(*arrays, *fixed, *rom, jnp.asarray(opcodes.control_words()).T)
    state, ram, screens, spare, rams, (place,) = (x[:, :count] for x in found)
    # materialized: what reads a pixel of a transposed word in a fusion reads eight words for it
    screens, spare = jax.lax.optimization_barrier(
        [_unpack_screens(words, lines) for words in (screens, spare)])
    m = layout.unpack(state)._replace(ram=ram.T, screens=screens, view=m.view)
    at = place[:, None, None]
    before = jnp.where(at == 0, screens[:, 0], screens[:, 1])
    before = jnp.where(at == _SPARE, spare[:, 0], before)
    return m, rams.reshape(frames, RIOT_RAM, count).swapaxes(1, 2), before


def _copy(
    source: Any, begin: Any, target: Any, at: Any, lane: jax.Array, on: jax.Array, rows: int
) -> None:
    """Copy rows of a reference [..., N] to another, where `on`."""

    def row(i: jax.Array) -> jax.Array:
        value = triton.load(source.at[begin + i, lane], mask=on)
        triton.store(target.at[at + i, lane], value, mask=on)
        return i + 1

    # a vector's count is no loop that LLVM unrolls: its copies would hold 24 registers more
    jax.lax.while_loop(lambda i: _some(i < rows), row, jnp.zeros_like(lane))


def _pack_screens(screens: jax.Array) -> jax.Array:
    """Return int32 [screens * lines * 40, N] of uint8 [N, screens, lines, 160], 4 pixels a word."""
    words = screens.reshape(len(screens), -1, _PIXELS)
    return jax.lax.bitcast_convert_type(words, jnp.int32).T


def _unpack_screens(words: jax.Array, lines: int) -> jax.Array:
    return jax.lax.bitcast_convert_type(words.T, jnp.uint8).reshape(
        words.shape[1], -1, lines, WIDTH
    )


def of_references(
    rom: Rom, opcode: Any, ram: Any, screens: Any, lane: jax.Array, lines: int
) -> Memory:
    """Return the accesses to references [..., N]; a step's own RAM and screens are empty."""

    def store(empty: tuple, index: jax.Array, value: jax.Array, on: jax.Array) -> tuple:
        index = jnp.where(on, index, 0)
        triton.store(ram.at[index, lane], value.astype(jnp.uint8), mask=on)
        return empty

    def paint(empty: tuple, turn: jax.Array, strip: picture.Strip) -> tuple:
        _paint(screens, turn, strip, lane, lines)
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


def _paint(
    screens: Any, turn: jax.Array, strip: picture.Strip, lane: jax.Array, lines: int
) -> None:
    """Write the strip's pixels: four a word, a turn of the loop for 32."""
    first = (turn * lines + jnp.minimum(strip.row, lines - 1)) * _WORDS
    colors = [c * 0x01010101 for c in strip.colors]
    some = strip.begin < strip.end
    # Words that keep some of their pixels lie at the ends: no other is read.
    ends = [jnp.minimum(x // _PIXELS, _WORDS - 1) for x in (strip.begin, strip.end)]
    left, right = (triton.load(screens.at[first + x, lane], mask=some, other=0) for x in ends)

    def group(i: jax.Array, planes: tuple[bits.Words, bits.Words]) -> tuple[bits.Words, bits.Words]:
        begin, end = strip.begin - _GROUP * i, strip.end - _GROUP * i
        touched = (begin < _GROUP) & (end > 0) & some

        def word(j: jax.Array, four: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            column = _PIXELS * (_GROUP // _PIXELS * i + j)
            shade = _shade(*four, colors)
            shade = jnp.where(strip.comb & (column < picture.COMB), 0, shade)
            inside = _upto(strip.end - column) & ~_upto(strip.begin - column)
            at = screens.at[first + column // _PIXELS, lane]
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
