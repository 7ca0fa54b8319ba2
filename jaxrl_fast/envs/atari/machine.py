"""One instruction of every lane, and the frames that instructions make."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrl_fast import runtime
from jaxrl_fast.envs.atari import addressing, cartridge, dpc, kernel, picture, registers, riot, tia
from jaxrl_fast.envs.atari import opcodes as op
from jaxrl_fast.envs.atari.addressing import Access, Instruction
from jaxrl_fast.envs.atari.cpu import execute, flags, is_unsupported
from jaxrl_fast.envs.atari.memory import Memory, of_arrays
from jaxrl_fast.envs.atari.state import LINE, NEVER, RIOT_RAM, Inputs, Machine, Rom, Tia
from jaxrl_fast.ops import lowering

_INSTRUCTIONS = 25_000  # of a frame at most


def _where(on: jax.Array, new, old):
    """Return `new` where `on`, for every leaf with a lane axis."""
    return jax.tree.map(lambda a, b: jnp.where(on, a, b), new, old)


def _fetch(m: Machine, memory: Memory) -> Instruction:
    """Return the instruction at the program counter, from the decoded image or from RAM."""
    pc = m.cpu.pc
    decoded = Instruction(*memory.image(cartridge.place(m.cart, pc)))
    in_ram = addressing.is_ram(pc)

    def from_ram() -> Instruction:
        code, second, third = (memory.load(m.ram, (pc + i) & 0x7F) for i in range(3))
        words = memory.opcode(code)
        code = code | second << 8 | third << 16
        return _where(in_ram, Instruction(code, *words), decoded)

    return lax.cond(memory.some(in_ram), from_ram, lambda: decoded)


def step(m: Machine, inputs: Inputs, memory: Memory) -> Machine:
    """Return every lane after one instruction, or after a part of the picture before it.

    An access to the TIA waits for the picture up to its clock: a call draws at most the rest of one
    line, and the instruction takes effect in the call that draws the last part. Lanes that are
    `done` stay as they are.
    """
    word = _fetch(m, memory)

    def ram_byte(address: jax.Array) -> jax.Array:
        return memory.load(m.ram, address & 0x7F)

    def rom_byte(address: jax.Array) -> jax.Array:
        return memory.image(cartridge.place(m.cart, address)).code & 0xFF

    access = addressing.resolve(m.cpu, word, ram_byte, rom_byte)
    reads, writes = op.ADDRESS.has(word.address, "reads"), op.ADDRESS.has(word.address, "writes")
    cycles = m.cycles + access.cycles
    reads_tia = reads & addressing.is_tia(access.read_at)
    writes_tia = writes & addressing.is_tia(access.write_at)
    active = memory.admit(m.done == 0, reads_tia | writes_tia)
    uses_tia = active & (reads_tia | writes_tia)

    def catch_up() -> tuple[Tia, Any, jax.Array]:
        clock = cycles * 3
        later = tia.write_clock(m.tia, access.write_at & 0x3F, clock)
        target = jnp.where(writes_tia, later, clock)
        segment = picture.next_segment(m.tia, m.view, target)
        segment = segment._replace(wanted=segment.wanted & uses_tia)
        drawn, screens = _draw(m, segment, memory)
        waits = segment.wanted & picture.next_segment(drawn, m.view, target).wanted
        return drawn, screens, waits

    as_before = m.tia, m.screens, jnp.zeros_like(uses_tia)
    drawn, screens, waits = memory.rare(uses_tia, catch_up, as_before)
    m = m._replace(tia=drawn, screens=screens)
    return _commit(m, inputs, memory, word, access, cycles, active & ~waits)


def _draw(m: Machine, segment: picture.Segment, memory: Memory) -> tuple[Tia, Any]:
    """Return the TIA and the screens after the segment, where it is wanted.

    Two conditionals: what one returns is computed once, while a fusion would compute a line's words
    anew for each of its pixels.
    """
    some = memory.some(segment.wanted)

    def draw() -> tuple[Tia, picture.Strip]:
        new, strip = picture.draw(m.tia, m.view, segment)
        return _where(segment.wanted, new, m.tia), strip

    def nothing() -> tuple[Tia, picture.Strip]:
        return m.tia, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(draw)[1])

    drawn, strip = lax.cond(some, draw, nothing)
    screens = lax.cond(some, lambda: memory.paint(m.screens, m.turn, strip), lambda: m.screens)
    return drawn, screens


def _read(
    m: Machine, inputs: Inputs, memory: Memory, access: Access, cycles: jax.Array, on: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the byte at the address and whether it shows that the timer is past its end.

    Lanes that are not `on` read nothing.
    """
    at = access.read_at
    hit, index = cartridge.extra(m.cart, at, reads=True)
    byte = memory.load(m.ram, jnp.where(hit, index, at & 0x7F))
    image = memory.image(cartridge.place(m.cart, at)).code & 0xFF
    nothing = jnp.zeros_like(at)
    ports, late = memory.rare(
        on & addressing.is_ports(at),
        lambda: riot.read(m.riot, inputs, at, cycles),
        (nothing, nothing == 1),
    )
    video = memory.rare(
        on & addressing.is_tia(at),
        lambda: tia.read(m.tia, inputs, at, cycles, access.bus),
        nothing,
    )
    chips = jnp.where(addressing.is_ports(at), ports, video)
    inner = jnp.where(addressing.is_ram(at), byte, chips)
    value = jnp.where(addressing.is_cartridge(at), jnp.where(hit, byte, image), inner)
    return value, late & addressing.is_ports(at)


def _commit(
    m: Machine,
    inputs: Inputs,
    memory: Memory,
    word: Instruction,
    access: Access,
    cycles: jax.Array,
    on: jax.Array,
) -> Machine:
    """Return the lanes where `on` after the instruction."""
    reads, writes = (on & op.ADDRESS.has(word.address, name) for name in ("reads", "writes"))
    cart = cartridge.switch(m.cart, access.read_at, reads)
    byte, late = _read(m._replace(cart=cart), inputs, memory, access, cycles, reads)
    if m.dpc:
        m, byte, strays = dpc.read(m, memory, word, access, cycles, on, byte)
        access = access._replace(bad=access.bad | strays)
    new, stored = execute(m.cpu, word, access, byte, memory.rare)

    flow = op.ADDRESS.get(word.address, "flow")
    calls = (flow == op.CALL) | (flow == op.BREAK)
    back = (m.cpu.pc + 2) & 0xFFFF
    stored = jnp.where(calls, back >> 8, stored)
    at = access.write_at
    to_ram = writes & addressing.is_ram(at)
    hit, index = cartridge.extra(m.cart, at, reads=False)
    index = jnp.where(hit, index, at & 0x7F)
    ram = memory.store(m.ram, index, stored, to_ram | (writes & hit))
    ram = memory.store(ram, (m.cpu.sp - 1) & 0x7F, back, on & calls)
    ram = memory.store(ram, (m.cpu.sp - 2) & 0x7F, flags(m.cpu), on & (flow == op.BREAK))
    if m.dpc:
        ram = dpc.write(m, memory, ram, at, stored, writes)
    cart = cartridge.switch(cart, at, writes)
    chips = riot.mark_late(m.riot, reads & late, cycles)
    chips = riot.write(chips, at, stored, writes & addressing.is_ports(at), cycles)

    to_tia = writes & addressing.is_tia(at)
    register = at & 0x3F
    video, ends = lax.cond(
        memory.some(to_tia),
        lambda: registers.write(m.tia, register, stored, to_tia, cycles * 3, cycles),
        lambda: (m.tia, jnp.zeros_like(to_tia)),
    )
    stops = to_tia & ((cycles * 3 - m.tia.origin) // LINE > m.view.limit)
    wait = jnp.where(to_tia & (register == tia.WSYNC), registers.wait_cycles(m.tia, cycles), 0)
    steps = m.steps + on.astype(jnp.int32)
    over = ends | stops
    bad = (access.bad | is_unsupported(m.cpu, word)) & on
    return m._replace(
        cpu=_where(on, new, m.cpu),
        riot=chips,
        tia=video,
        cart=cart,
        ram=ram,
        cycles=jnp.where(on, cycles + wait, m.cycles),
        steps=steps,
        partial=jnp.where(over, 0, m.partial),
        done=jnp.where(over | bad | (steps >= _INSTRUCTIONS), 1, m.done),
        bad=jnp.where(bad, 1, m.bad),
    )


def begin(m: Machine) -> Machine:
    """Return the machine at the start of a call: times count from the frame that begins."""
    fresh = m.partial == 0
    back = jnp.where(fresh, m.cycles, 0)
    clocks = back * 3
    t = m.tia
    origin = jnp.where(fresh, -jnp.remainder(clocks - t.origin, LINE), t.origin)
    video = t._replace(
        origin=origin,
        drawn=jnp.where(fresh, origin + m.view.top * LINE, t.drawn),
        left=jnp.where(fresh, LINE, t.left),
        loss=jnp.where(fresh, m.view.pal & (clocks - t.origin) // LINE, t.loss) & 1,
        vsync_end=jnp.where(t.vsync_end == NEVER, NEVER, t.vsync_end - clocks),
        moved_at=t.moved_at - clocks,
        charge_at=t.charge_at - back,
    )
    chips = m.riot._replace(set_at=m.riot.set_at - back, late_at=m.riot.late_at - back)
    return m._replace(
        tia=video,
        riot=chips,
        cycles=m.cycles - back,
        steps=jnp.zeros_like(m.steps),
        turn=jnp.where(fresh, 1 - m.turn, m.turn),
        partial=jnp.ones_like(m.partial),
        done=m.bad,
        dpc=dpc.begin(m.dpc, back) if m.dpc else (),
    )


def run(m: Machine, inputs: Inputs, memory: Memory) -> Machine:
    """Return the machine after a frame: up to the end of VSYNC, or 25,000 instructions."""
    going = lambda m: memory.some(m.done == 0)
    return lax.while_loop(going, lambda m: step(m, inputs, memory), begin(m))


def last_screens(m: Machine) -> jax.Array:
    """Return the screens of the last frame, uint8 [N, lines, 160]."""
    return jnp.where(m.turn[:, None, None] == 0, m.screens[:, 0], m.screens[:, 1])


class Frames(NamedTuple):
    """Machines after K frames, and the RAMs and screens of these frames."""

    machine: Machine
    rams: jax.Array  # uint8 [K, N, 128]: the RIOT's bytes after each frame
    before: jax.Array  # uint8 [N, lines, 160]: the screen before the last frame


def play(m: Machine, inputs: Inputs, rom: Rom, put: picture.Put = picture.scatter) -> Frames:
    """Return `frames` by a loop of XLA's."""
    memory = of_arrays(rom, put)

    def frame(carry: tuple, inputs: Inputs) -> tuple:
        before = carry[0]
        after = run(before, inputs, memory)
        return (after, last_screens(before)), after.ram[:, :RIOT_RAM]

    (m, before), rams = lax.scan(frame, (m, last_screens(m)), inputs)
    return Frames(m, rams, before)


@jax.jit
def by_platform(m: Machine, inputs: Inputs, rom: Rom) -> Frames:
    """Return `frames`: by one kernel on CUDA, else by a loop of XLA's."""
    special = {}
    if lowering.platform() in (None, "cuda") and kernel.runs_here():
        special["cuda"] = lambda *args: Frames(*kernel.launch(run, *args))
    if runtime.loops_are_kernels():
        special["cpu"] = functools.partial(play, put=picture.one_by_one)
    # a kernel for CUDA alone: a program of a process with a card may still run on its CPU
    every = lowering.ALL if "cuda" in special else None
    with lowering.known(lowering.known.value or every):
        return lowering.by_platform(special, play, m, inputs, rom)


@jax.custom_batching.custom_vmap
def frames(m: Machine, inputs: Inputs, rom: Rom) -> Frames:
    """Return the machines after each of `inputs`, [K, N], was held for a frame.

    Under `vmap` the new axis becomes lanes, so that the conditionals of `step` stay branches.
    """
    return by_platform(m, inputs, rom)


def frame(m: Machine, inputs: Inputs, rom: Rom) -> Machine:
    """Return the machines after one frame of `inputs`, [N]."""
    return frames(m, jax.tree.map(lambda x: x[None], inputs), rom).machine


@frames.def_vmap
def _frames_of_lanes(size: int, batched, m: Machine, inputs: Inputs, rom: Rom):
    if any(jax.tree.leaves(batched[2])):
        raise NotImplementedError("vmap over images: join them, and give each lane its `start`.")

    def merged(axis: int, is_batched: bool, x: jax.Array) -> jax.Array:
        x = jnp.moveaxis(x, 0, axis) if is_batched else jnp.stack([x] * size, axis)
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

    def parted(axis: int, x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(*x.shape[:axis], size, -1, *x.shape[axis + 1 :]), axis, 0)

    m = jax.tree.map(functools.partial(merged, 0), batched[0], m)
    inputs = jax.tree.map(functools.partial(merged, 1), batched[1], inputs)
    after = frames(m, inputs, rom)
    lanes, rest = functools.partial(parted, 0), functools.partial(parted, 1)
    after = Frames(jax.tree.map(lanes, after.machine), rest(after.rams), lanes(after.before))
    return after, jax.tree.map(lambda _: True, after)
