"""The whole state of a batch of machines: one int32 a lane and field."""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxrl_fast.envs.atari.decode import Rom

RIOT_RAM = 128
RAM = 256  # bytes a lane: the RIOT's, then those of a cartridge
WIDTH = 160  # pixels of a line
LINE = 228  # color clocks of a line
BLANK = 68  # color clocks before a line's first pixel
NEVER = 0x7FFFFFFF


class Cpu(NamedTuple):
    """Registers and flags of the 6507; a flag is 0 or 1."""

    a: jax.Array
    x: jax.Array
    y: jax.Array
    sp: jax.Array
    pc: jax.Array
    n: jax.Array
    z: jax.Array
    c: jax.Array
    v: jax.Array
    d: jax.Array
    i: jax.Array


class Riot(NamedTuple):
    """Timer and ports of the 6532; times are cycles of the frame."""

    timer: jax.Array  # value written
    shift: jax.Array  # log2 of the interval
    set_at: jax.Array
    late_at: jax.Array  # first read after the end
    late: jax.Array  # 1 after that read
    out_a: jax.Array
    dir_a: jax.Array
    out_b: jax.Array
    dir_b: jax.Array


class Tia(NamedTuple):
    """Registers, positions and clocks of the TIA; times are color clocks of the frame."""

    origin: jax.Array  # clock of the frame's first line, 0 or less
    drawn: jax.Array  # clock up to which the picture is drawn
    left: jax.Array  # clocks to the end of the line being drawn
    vsync: jax.Array
    vsync_end: jax.Array  # clock from which the end of VSYNC ends the frame
    vblank: jax.Array
    nusiz0: jax.Array
    nusiz1: jax.Array
    colup0: jax.Array
    colup1: jax.Array
    colupf: jax.Array
    colubk: jax.Array
    ctrlpf: jax.Array
    refp0: jax.Array
    refp1: jax.Array
    pf: jax.Array  # 20 bits, the leftmost lowest
    grp0: jax.Array
    grp1: jax.Array
    old0: jax.Array  # GRP0 at the last write of GRP1
    old1: jax.Array
    enam0: jax.Array
    enam1: jax.Array
    enabl: jax.Array
    oldbl: jax.Array
    hmp0: jax.Array  # the upper four bits of each motion register
    hmp1: jax.Array
    hmm0: jax.Array
    hmm1: jax.Array
    hmbl: jax.Array
    vdelp0: jax.Array
    vdelp1: jax.Array
    vdelbl: jax.Array
    resmp0: jax.Array
    resmp1: jax.Array
    collisions: jax.Array  # one bit a pair, see `picture.PAIRS`
    x0: jax.Array  # positions, 0 to 159: players, missiles, ball
    x1: jax.Array
    xm0: jax.Array
    xm1: jax.Array
    xbl: jax.Array
    skip0: jax.Array  # 1: the player's first copy is not drawn on this line
    skip1: jax.Array
    mirror: jax.Array  # reflection of the playfield's right half on this line
    moved_at: jax.Array  # clock of the last HMOVE
    comb: jax.Array  # 1: the line's first 8 pixels are black
    stars: jax.Array  # 1: missile 0 wanders, as after a change of HMM0 during its motion
    star: jax.Array  # the line of the wander's period, 0 to 3
    loss: jax.Array  # 1: a PAL set shows this frame in grey, as the last had an odd number of lines
    dumped: jax.Array  # 1: the paddles' capacitors are grounded
    charge_at: jax.Array  # cycle at which they began to charge


class Cart(NamedTuple):
    """The map of a cartridge's image to addresses."""

    start: jax.Array  # the image in the joined tables
    kind: jax.Array  # 0: banks of 4 KiB, 1: E0's slices, 2: FE
    first: jax.Array  # address of the first hot spot
    banks: jax.Array  # number of hot spots
    extra: jax.Array  # bytes of the cartridge's RAM
    s0: jax.Array  # address of each slice of 1 KiB in the image
    s1: jax.Array
    s2: jax.Array
    s3: jax.Array


class Dpc(NamedTuple):
    """The oscillator of DPC's music; the chip's bytes lie in `Machine.ram`, see `dpc`."""

    present: jax.Array  # 1: the cartridge has the chip
    clocks: jax.Array  # from the last read of the music to the frame's begin, or less than 0
    phase: jax.Array  # part of a clock at the frame's begin, in units of 1 / dpc.PERIOD


class Inputs(NamedTuple):
    """The controllers and the console's switches in a frame."""

    port_a: jax.Array  # SWCHA
    port_b: jax.Array  # SWCHB
    fire0: jax.Array  # INPT4, 0x80 or 0
    fire1: jax.Array
    charge0: jax.Array  # cycles until each of INPT0 to INPT3 reads 0x80
    charge1: jax.Array
    charge2: jax.Array
    charge3: jax.Array


class View(NamedTuple):
    """The lines that a game shows."""

    top: jax.Array  # first line of the picture
    height: jax.Array  # lines of the picture
    limit: jax.Array  # lines after which a frame ends without VSYNC
    pal: jax.Array  # 1: a PAL set
    combs: jax.Array  # 1: HMOVE blackens eight pixels; ALE has games without


class Machine(NamedTuple):
    """A batch of consoles: arrays [N], `ram` [N, 256]."""

    cpu: Cpu
    riot: Riot
    tia: Tia
    cart: Cart
    view: View
    ram: jax.Array
    screens: jax.Array  # [N, 2, lines, 160]: frames draw on them in turns
    turn: jax.Array  # the screen of the last frame, 0 or 1
    cycles: jax.Array  # since the frame began
    steps: jax.Array  # instructions since `frame` was called
    partial: jax.Array  # 1: the last call ended before VSYNC did
    done: jax.Array  # 1: this call is over
    bad: jax.Array  # 1: an instruction that is not supported, or code in RAM
    dpc: Dpc | tuple[()] = ()  # empty if no lane has the chip: the program then has none of it


__all__ = ["Cart", "Cpu", "Dpc", "Inputs", "Machine", "Riot", "Rom", "Tia", "View"]
