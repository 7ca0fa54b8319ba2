"""The GPU's kernel equals the plain program bit by bit, under Pallas' interpreter."""

from __future__ import annotations

import functools
import warnings
from collections import namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import atari_programs
from jaxrl_fast.envs.atari import controls, games, kernel, machine, snapshot, state, words
from jaxrl_fast.envs.atari.state import Machine
from jaxrl_fast.ops import lowering
from jaxrl_fast.testing import atari

_FRAMES = 2  # of a launch
GAMES = ("pong", "breakout", "space_invaders", "freeway", "seaquest", "beam_rider")


def _plain(m: Machine, c: controls.Controls, rom: Any, actions: np.ndarray) -> machine.Frames:
    """Play frame by frame, in the program of `check_atari`."""
    rams = []
    for action in actions:
        before = machine.last_screens(m)
        m, c = atari.play(m, c, rom, np.asarray(action, np.int32))
        rams.append(m.ram[:, : state.RIOT_RAM])
    return machine.Frames(m, jnp.stack(rams), before)


@functools.partial(jax.jit, static_argnames="lanes")
def _by_kernel(m: Machine, inputs: controls.Inputs, rom: Any, lanes: int) -> machine.Frames:
    return machine.Frames(*kernel.launch(machine.run, m, inputs, rom, lanes, interpret=True))


def _pressed(c: controls.Controls, actions: np.ndarray) -> tuple[controls.Controls, Any]:
    """Return the controllers after actions [K, N], and what the chips read, [K, N]."""
    return jax.lax.scan(controls.press, c, jnp.asarray(actions, jnp.int32))


def _assert_equal_steps(starts: list[snapshot.Start], steps: int, lanes: int) -> machine.Frames:
    """Play both programs; `lanes` of a warp leave the last one with some that are not there."""
    m, c, rom = snapshot.batch(starts)
    rom, rng, other = atari.pad(rom), np.random.default_rng(0), m
    for _ in range(steps):
        actions = rng.integers(controls.ACTIONS, size=(_FRAMES, len(starts)))
        expected = _plain(m, c, rom, actions)
        c, inputs = _pressed(c, actions)
        found = _by_kernel(other, inputs, rom, lanes)
        for a, b in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        m, other = expected.machine, found.machine
        assert not np.asarray(m.bad).any() and (np.asarray(m.steps) > 0).all()
    return found


def _drawn_over(start: snapshot.Start) -> snapshot.Start:
    """Return a start whose first frame is partial, and whose second goes on and then draws.

    LDY #60, LDX #0, DEX, BNE, DEY, BNE, STX COLUBK, JMP to the begin: 31,000 instructions.
    """
    code = "a0 3c a2 00 ca d0 fd 88 d0 fa 86 09 4c 80 00"
    ram, cpu = start.machine.ram.copy(), start.machine.cpu._replace(pc=0x80)
    ram[:15] = list(bytes.fromhex(code))
    return start._replace(machine=start.machine._replace(ram=ram, cpu=cpu, partial=0))


def _starts(files: dict[str, Any], per_game: int) -> list[snapshot.Start]:
    from jaxrl_fast.envs.atari.ale import open_ale

    found = []
    for name, path in files.items():
        ale, image = open_ale(path, 1), path.read_bytes()
        starts = [atari.start(ale, image, name, 5) for _ in range(per_game)]
        # one image a game, as `check_atari` has it: its program has this size
        found += [start._replace(rom=starts[0].rom) for start in starts]
    return found


def _programs(folder: Path, makers: Sequence[Callable[[int], bytes]]) -> dict[str, Path]:
    files = {}
    for i, make in enumerate(makers):
        files[f"program{i}"] = folder / str(i) / f"{atari_programs.NAME}.bin"
        files[f"program{i}"].parent.mkdir()
        files[f"program{i}"].write_bytes(make(i))
    return files


def test_six_games_equal_the_plain_program():
    first, *others = _starts({name: games.rom_path(name) for name in GAMES}, 2)
    found = _assert_equal_steps([_drawn_over(first), *others], 1, lanes=8)
    differs = (found.before != machine.last_screens(found.machine)).any((1, 2))
    assert differs[0] and found.rams.shape == (_FRAMES, 12, state.RIOT_RAM)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_random_programs_and_longer_games_equal_the_plain_program(tmp_path):
    makers = (*[atari_programs.processor] * 3, *[atari_programs.picture] * 3)
    _assert_equal_steps(_starts(_programs(tmp_path, makers), 2), 2, lanes=8)
    _assert_equal_steps(_starts({name: games.rom_path(name) for name in GAMES}, 2), 8, lanes=8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pitfall_2_and_programs_of_its_chip_equal_the_plain_program(tmp_path):
    files = _programs(tmp_path, [atari_programs.chip] * 4)
    files |= {name: games.rom_path(name) for name in ("pitfall2", "pong")}
    _assert_equal_steps(_starts(files, 2), 4, lanes=8)


def test_few_lanes_fill_the_gpu_with_warps():
    counts = (1, 512, 1024, 4096, 8192, 16_384, 65_536)
    assert [kernel.lanes_of(n) for n in counts] == [1, 1, 2, 8, 16, 32, 32]


def test_words_hold_the_ends_of_every_fields_range():
    name = {None: "cycles"} | dict(enumerate(words._BITS))
    tree = namedtuple("Fields", name.values())
    bits = [words._BITS.get(field, 32) for field in tree._fields]
    for low, high in ((0, 1), (1, 0)):
        ends = [(-(1 << 31), (1 << 31) - 1) if n == 32 else (0, (1 << n) - 1) for n in bits]
        values = tree(*[jnp.array([e[low], e[high]], jnp.int32) for e in ends])
        layout = words.Layout(values)
        for a, b in zip(values, layout.unpack(layout.pack(values)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert layout.count == 1 + -(-sum(bits[1:]) // 32)  # no bit is left but at the end


@pytest.mark.parametrize(("kind", "capability", "compiles", "reason"), [
    ("NVIDIA H100", "9.0", lambda device: None, None),
    ("NVIDIA X900", "19.0", lambda device: {}["sm_190"], "compiles nothing here (KeyError"),
    ("Tesla V100", "7.0", None, "capability 8.0 or later, not 7.0"),
    ("AMD Instinct MI300X", "gfx942", None, "not gfx942"),
    ("TPU v5 lite", None, None, "not none"),
])  # fmt: skip
def test_an_accelerator_without_the_kernel_has_a_reason(kind, capability, compiles, reason):
    device = SimpleNamespace(device_kind=kind, platform="gpu", compute_capability=capability)
    found = kernel.obstacle(device, compiles)
    assert reason in found if reason else not found


@pytest.fixture
def asked_anew():
    kernel.runs_here.cache_clear()
    yield
    kernel.runs_here.cache_clear()


def test_an_accelerator_without_the_kernel_runs_the_plain_program_and_says_so(monkeypatch,
                                                                              asked_anew):
    card = SimpleNamespace(device_kind="Tesla V100", platform="gpu", compute_capability="7.0")
    monkeypatch.setattr(jax, "devices", lambda: [card])
    with pytest.warns(UserWarning, match="Tesla V100.*not 7.0"):
        assert not kernel.runs_here()


def test_a_processor_compiles_the_kernel_for_absent_cards_and_says_nothing(monkeypatch, asked_anew):
    here = SimpleNamespace(device_kind="cpu", platform="cpu")
    monkeypatch.setattr(jax, "devices", lambda: [here])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel.runs_here()


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.usefixtures("every_platform")
def test_a_frame_holds_the_kernel_where_it_runs(monkeypatch, runs):
    """The branches of a traced frame are for platforms; without the kernel there is none."""
    monkeypatch.setattr(kernel, "runs_here", lambda: runs)
    # both play nothing: a frame's program takes seconds to trace
    rams = lambda m: m.ram[None, :, : state.RIOT_RAM]
    nothing = lambda m, *_, **__: machine.Frames(m, rams(m), m.screens[:, 0])
    monkeypatch.setattr(machine, "play", nothing)
    monkeypatch.setattr(machine, "run", lambda m, *_: m)
    number, screens = jnp.zeros(1, jnp.int32), jnp.zeros((1, 2, 1, state.WIDTH), jnp.uint8)
    fields = lambda kind: kind(*[number] * len(kind._fields))
    parts = map(fields, (state.Cpu, state.Riot, state.Tia, state.Cart, state.View))
    ram = jnp.zeros((1, state.RAM), jnp.uint8)
    m = Machine(*parts, ram, screens, *[number] * 6)
    rom = state.Rom(*[jnp.zeros(4096, jnp.int32)] * 3)
    fresh = lambda *args: machine.by_platform.__wrapped__(*args)  # traces are kept by function
    inputs = state.Inputs(*[number[None]] * len(state.Inputs._fields))
    traced = jax.make_jaxpr(fresh)(m, inputs, rom)
    assert ("pallas_call" in str(traced), "platform_index" in str(traced)) == (runs, runs)
    if runs:  # else there is none on any platform
        with lowering.known("cpu"):
            alone = lambda *args: machine.by_platform.__wrapped__(*args)
            assert "pallas_call" not in str(jax.make_jaxpr(alone)(m, inputs, rom))
