"""ROM images decoded once: the instruction at each address.

The tables are arguments of the compiled program, never a part of it: one program plays every game,
several in one batch, and no image enters a compile cache.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_fast.envs.atari.opcodes import control_words

BANK = 4096
SLICE = 1024


class Rom(NamedTuple):
    """Images side by side, decoded at each address.

    Attributes:
        code: int32 [size], three bytes from each address on, the first in the low bits.
        address: int32 [size], how the instruction there finds its operand.
        operation: int32 [size], what it does.
    """

    code: jax.Array | np.ndarray
    address: jax.Array | np.ndarray
    operation: jax.Array | np.ndarray


def decode(image: bytes) -> Rom:
    """Return the tables of one image of whole banks of 4 KiB; a smaller image is repeated.

    An instruction at the end of a bank goes on at the bank's start, as the 6507's thirteen address
    lines have it.
    """
    data = np.frombuffer(image, np.uint8)
    if data.size < BANK:
        data = np.tile(data, BANK // data.size)
    if data.size % BANK:
        raise ValueError(f"image must be whole banks of {BANK} bytes, got {data.size} bytes.")
    banks = data.reshape(-1, BANK).astype(np.int32)
    code = banks | np.roll(banks, -1, 1) << 8 | np.roll(banks, -2, 1) << 16
    words = control_words()[data]
    return Rom(code.reshape(-1), words[:, 0], words[:, 1])


def join(roms: list[Rom]) -> tuple[Rom, np.ndarray]:
    """Return the images side by side and where each begins, in addresses."""
    sizes = [rom.code.size for rom in roms]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    return Rom(*(np.concatenate(parts) for parts in zip(*roms, strict=True))), starts
