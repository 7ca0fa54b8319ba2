"""Parts of the Atari machine against plain loops and public documents; ALE is not needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_fast.envs.atari import (
    bits,
    cpu,
    decode,
    games,
    motion,
    opcodes,
    outcomes,
    picture,
    registers,
    tia,
)
from jaxrl_fast.errors import ConfigError


def _row(words: bits.Words) -> np.ndarray:
    return np.asarray(bits.pixels(jnp.stack(words, -1))).reshape(-1, 160).astype(int)


def test_a_player_is_drawn_at_every_position_with_its_copies():
    x = jnp.arange(160)
    graphics, copies = 0b10110001, {0: (0,), 1: (0, 16), 3: (0, 16, 32), 4: (0, 64), 6: (0, 32, 64)}
    for size, starts in copies.items():
        drawn = _row(bits.player(*(jnp.full(160, v) for v in (graphics, 0, size)), x, 0 * x))
        wanted = np.zeros((160, 160), int)
        for start in starts:
            for i in range(8):
                wanted[np.arange(160),
                       (np.arange(160) + start + i) % 160] |= graphics >> (7 - i) & 1
        np.testing.assert_array_equal(drawn, wanted)


@pytest.mark.parametrize(("size", "width"), [(5, 2), (7, 4)])
def test_a_wide_player_begins_one_pixel_later(size, width):
    x = jnp.array([0, 100, 150])
    drawn = _row(bits.player(*(jnp.full(3, v) for v in (0b11000001, 1, size)), x, 0 * x))
    for row, start in zip(drawn, (0, 100, 150), strict=True):
        wanted = np.zeros(160, int)
        for i in (0, 6, 7):  # reflected: the lowest bit comes first
            wanted[(start + 1 + i * width + np.arange(width)) % 160] = 1
        np.testing.assert_array_equal(row, wanted)


def test_a_playfield_is_repeated_or_reflected():
    pf = 0b1100_0101_0011_0000_1111
    left = np.repeat([pf >> i & 1 for i in range(20)], 4)
    drawn = _row(bits.playfield(jnp.array([pf, pf]), jnp.array([0, 1])))
    np.testing.assert_array_equal(drawn, [[*left, *left], [*left, *left[::-1]]])


@pytest.mark.parametrize("lanes", [12, 136, 264, 520])
def test_the_playfield_does_not_depend_on_the_number_of_lanes(lanes):
    """jaxlib 0.10.2 compiles some merges of bits wrongly for AVX-512 and these numbers."""
    rng = np.random.default_rng(0)
    pf, value = rng.integers(0, 1 << 20, lanes), rng.integers(0, 256, lanes)
    register = rng.integers(tia.PF0, tia.PF2 + 2, lanes)
    reverse = np.array([int(f"{x:08b}"[::-1], 2) for x in value])
    wanted = np.select(
        [register == tia.PF0, register == tia.PF1, register == tia.PF2],
        [pf & ~15 | value >> 4, pf & ~0xFF0 | reverse << 4, pf & ~0xFF000 | value << 12], pf)
    found = jax.jit(registers.playfield)(*(x.astype(np.int32) for x in (pf, register, value)))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(5, 7), (5, 2, 3, 4)])
def test_writes_one_by_one_equal_a_scatter(shape, rng):
    array = jnp.asarray(rng.integers(0, 256, shape), jnp.uint8)
    at = tuple(jnp.asarray(rng.integers(0, n, 5), jnp.int32) for n in shape[1:3])
    new = jnp.asarray(rng.integers(0, 256, (5, *shape[1 + len(at):])), jnp.uint8)
    on = jnp.asarray([True, False, True, False, True])
    wanted = np.array(array)
    for n in (0, 2, 4):
        wanted[(n, *(i[n] for i in at))] = new[n]
    for put in (picture.scatter, picture.one_by_one):
        np.testing.assert_array_equal(put(array, at, new, on), wanted)


def test_hmove_at_the_start_of_a_line_moves_by_the_signed_register():
    for cycle in (0, 3, 75):
        moved = motion.hmove(jnp.arange(16), jnp.full(16, cycle))
        assert moved.tolist() == [0, -1, -2, -3, -4, -5, -6, -7, 8, 7, 6, 5, 4, 3, 2, 1]
    for cycle in (21, 40, 54):
        assert not motion.hmove(jnp.arange(16), jnp.full(16, cycle)).any()


def test_cycles_and_lengths_of_documented_instructions():
    table = opcodes.control_words()[:, 0]
    documented = {  # opcode: bytes, cycles
        0x69: (2, 2), 0x65: (2, 3), 0x7D: (3, 4), 0x71: (2, 5), 0x61: (2, 6), 0x0A: (1, 2),
        0x1E: (3, 7),
        0x00: (2, 7), 0x20: (3, 6), 0x40: (1, 6), 0x60: (1, 6), 0x4C: (3, 3), 0x6C: (3, 5),
        0x48: (1, 3),
        0x68: (1, 4), 0x9D: (3, 5), 0x91: (2, 6), 0x96: (2, 4), 0xEA: (1, 2), 0xD0: (2, 2),
        0xC6: (2, 5),
    }  # fmt: skip
    for code, wanted in documented.items():
        assert tuple(opcodes.ADDRESS.get(table[code], n) for n in ("length", "cycles")) == wanted
    halts = [code for code in range(256) if code & 0x1F == 0x12 or code in (0x02, 0x22, 0x42, 0x62)]
    assert opcodes.ADDRESS.get(table[halts], "bad").all()
    assert not opcodes.ADDRESS.get(table[list(documented)], "bad").any()


def test_decimal_sums_and_differences_of_all_digits():
    numbers = np.arange(100)
    a, b = (jnp.array(x.ravel()) for x in np.meshgrid(numbers, numbers))
    left, right = (x // 10 << 4 | x % 10 for x in (a, b))
    for carry in (0, 1):
        total, over = cpu._decimal(left, right, jnp.full_like(a, carry), jnp.zeros_like(a, bool))
        wanted = a + b + carry
        np.testing.assert_array_equal((total >> 4) * 10 + total % 16, wanted % 100)
        np.testing.assert_array_equal(over, wanted // 100)
        rest, kept = cpu._decimal(left, right, jnp.full_like(a, carry), jnp.ones_like(a, bool))
        wanted = a - b - (1 - carry)
        np.testing.assert_array_equal((rest >> 4) * 10 + rest % 16, wanted % 100)
        np.testing.assert_array_equal(kept, wanted >= 0)


def test_an_instruction_at_the_end_of_a_bank_goes_on_at_its_start():
    image = bytes(range(256)) * 32
    code = decode.decode(image).code
    assert [code[4095] >> 8 * i & 0xFF for i in range(3)] == [255, 0, 1]
    with pytest.raises(ValueError, match="whole banks of 4096 bytes, got 5000"):
        decode.decode(bytes(5000))


def test_names_of_games(monkeypatch, tmp_path):
    assert games.snake_case("atari:SpaceInvaders") == "space_invaders"
    (tmp_path / "pong.bin").write_bytes(b"image")
    monkeypatch.setenv(games.FOLDER, str(tmp_path))
    assert games.rom_path("Pong").read_bytes() == b"image"
    with pytest.raises(ConfigError, match="did you mean 'pong'"):
        games.rom_path("Pnog")
    with pytest.raises(ConfigError, match="one of the 88 in docs/atari.md .*, got 'VideoChess'"):
        outcomes.rules("VideoChess")


def test_the_score_and_the_end_of_pong():
    ram = np.zeros(128, np.uint8)
    ram[[0x0D, 0x0E]] = 20, 5
    rules, none = outcomes.rules("Pong"), jnp.zeros(3, jnp.int32)
    read = outcomes.read(rules, jnp.array(ram), jnp.int32(0), none)
    assert [int(read.score[1]), int(read.lives), int(read.over)] == [-15, 0, 0]
    ram[0x0D] = 21
    read = outcomes.read(rules, jnp.array(ram), jnp.int32(0), none)
    assert [int(read.score[1]), int(read.lives), int(read.over)] == [-16, 0, 1]
