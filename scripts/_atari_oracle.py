"""Games on ALE, and ALE's outcomes as a function of RAM, for `atari_outcomes.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxrl_fast.envs.atari import ale, games

RAM = 128
_RAM = 0x80  # its first address
_ORIGIN = 0xF000
_SELECTED = {"name_this_game": (0xDE, 8)}  # ALE presses SELECT until this byte is this value
# ALE presses SELECT until a byte has some value; counted up from these, bytes reach it.
_BEGUN_AS = {"air_raid": 1, "crossbow": 1, "human_cannonball": 1, "lost_luggage": 1, "turmoil": 0}
_ENDED_BY_COUNTS = ("gopher",)  # counting bytes would end the game before its first frame
_PROBES = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF)  # changes that show a byte matters


class Trace(NamedTuple):
    """Frames of whole games on ALE: arrays [T, ...]."""

    ram: np.ndarray  # [T, 128] after the frame
    reward: np.ndarray
    lives: np.ndarray
    over: np.ndarray
    first: np.ndarray  # bool: the state in which a game begins; no frame was played


def play(name: str, frames: int, seed: int = 0, hold: int = 6) -> Trace:
    """Return frames of random play; an action is held for up to `hold` frames."""
    emulator, rng = ale.open_ale(games.rom_path(name), seed + 1), np.random.default_rng(seed)
    known = emulator.getMinimalActionSet()
    rows: list[tuple] = []

    def add(reward: int, first: bool) -> None:
        state = emulator.getRAM().copy(), reward, emulator.lives(), emulator.game_over(), first
        rows.append(state)

    while len(rows) < frames:
        emulator.reset_game()
        add(0, True)
        while not emulator.game_over() and len(rows) < 4 * frames:
            action = known[int(rng.integers(len(known)))]
            for _ in range(int(rng.integers(1, hold + 1))):
                reward = emulator.act(action)
                add(reward, False)
                if emulator.game_over():
                    break
    return Trace(*(np.array(column) for column in zip(*rows, strict=True)))


def still_image(ram: np.ndarray, counts: bool = True) -> bytes:
    """Return an image that writes `ram` to RAM while RESET is pressed, and else nothing.

    counts: While SELECT or the controller is used each byte of RAM counts, as ALE waits for some
        to change.
    """
    again, data = 5, 0x800
    reset = bytes([0xA2, 0x7F, 0xBD, data & 0xFF, 0xF0 | data >> 8, 0x95, 0x80, 0xCA, 0x10, 0xF8])
    change = 0xF6 if counts else 0xB5  # INC or LDA of the zero page
    count = bytes([0xA2, 0x80, change, 0x00, 0xE8, 0xD0, 0xFB])
    code = bytes([0x78, 0xD8, 0xA2, 0xFF, 0x9A])  # SEI CLD LDX #$FF TXS
    code += bytes([0xA9, 2, 0x85, 0, *[0x85, 2] * 3, 0xA9, 0, 0x85, 0])  # three lines of VSYNC
    code += bytes([0xAD, 0x82, 0x02, 0x4A, 0xB0, len(reset)]) + reset  # bit 0 of SWCHB is RESET
    code += bytes([0xAD, 0x80, 0x02, 0xC9, 0xFF, 0xD0, 11, 0x24, 0x0C, 0x10, 7])  # SWCHA, INPT4
    code += bytes([0xAD, 0x82, 0x02, 0x29, 2, 0xD0, len(count)]) + count  # bit 1 is SELECT
    code += bytes([0xA2, 250, 0x85, 2, 0xCA, 0xD0, 0xFB, 0x4C, again, _ORIGIN >> 8])
    rom = bytearray(4096)
    rom[: len(code)] = code
    rom[data : data + RAM] = bytes(ram)
    rom[-4:] = bytes([0, _ORIGIN >> 8] * 2)
    return bytes(rom)


class Oracle:
    """ALE's outcomes of a game as a function of RAM."""

    def __init__(self, name: str, ram: np.ndarray):
        first = np.full_like(ram, _BEGUN_AS[name]) if name in _BEGUN_AS else ram.copy()
        if name in _SELECTED:
            at, value = _SELECTED[name]
            first[at - _RAM] = value
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.bin"
            path.write_bytes(still_image(first, name not in _ENDED_BY_COUNTS))
            self.ale = ale.open_ale(path)
        self.ale.reset_game()
        self.set(ram)
        self.ale.act(0)
        self.state, self.ram = self.ale.cloneState(), self.ale.getRAM().copy()
        if (self.ram != ram).any() or self.ale.game_over():
            raise RuntimeError(f"{name}: the image does not hold its RAM.")

    def set(self, ram: np.ndarray) -> None:
        for i in np.flatnonzero(self.ale.getRAM() != ram):
            self.ale.setRAM(int(i), int(ram[i]))

    def __call__(self, ram: np.ndarray) -> tuple[int, int, bool]:
        """Return the score above the start's, the lives and the end of a RAM."""
        self.ale.restoreState(self.state)
        self.set(ram)
        reward = self.ale.act(0)
        return reward, self.ale.lives(), self.ale.game_over()


def tables(oracle: Oracle, ram: np.ndarray) -> dict[int, list[tuple[int, int, bool]]]:
    """Return, for each byte that matters in `ram`, the outcomes of its 256 values."""
    found, usual = {}, oracle(ram)

    def changed(i: int, value: int) -> tuple[int, int, bool]:
        other = ram.copy()
        other[i] = value
        return oracle(other)

    for i in range(RAM):
        values = {0, 0xFF, *(int(ram[i]) ^ probe for probe in _PROBES)}
        if any(changed(i, value) != usual for value in values):
            found[i] = [changed(i, value) for value in range(256)]
    return found


def ask(name: str, choices: dict[int, np.ndarray], count: int, seed: int = 0) -> Trace:
    """Return ALE's outcomes of `count` sequences of one to five RAMs; an end closes a sequence.

    choices: {address: values}. A RAM comes from a game, the RAM before or random bytes; about half
    of these bytes take one of their values, all in fresh random RAMs.
    """
    trace, rng = play(name, 1500, seed + 5), np.random.default_rng(seed)
    oracle = Oracle(name, trace.ram[0])
    rows: list[tuple] = []

    def vary(ram: np.ndarray, every: bool) -> np.ndarray:
        other = ram.astype(np.uint8)
        for at, values in choices.items():
            if every or rng.random() < 0.5:
                other[at - _RAM] = rng.choice(values)
        return other

    for _ in range(count):
        from_noise, ram = bool(rng.random() < 0.3), trace.ram[0]
        for step in range(5):
            fresh = step == 0 or rng.random() < 0.5
            known = trace.ram[rng.integers(len(trace.ram))]
            base = (rng.integers(0, 256, RAM) if from_noise else known) if fresh else ram
            ram = vary(base, fresh and from_noise)
            if step:
                oracle.set(ram)
            else:
                oracle(ram)
            reward = oracle.ale.act(0) if step else 0
            over = oracle.ale.game_over()
            rows.append((ram, reward, oracle.ale.lives(), over, step == 0))
            if over:
                break
    return Trace(*(np.array(column) for column in zip(*rows, strict=True)))
