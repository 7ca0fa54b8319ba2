"""The GPU's kernel equals the plain program bit by bit, under Pallas' interpreter."""

from __future__ import annotations

import functools
from collections import namedtuple
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

GAMES = ("pong", "breakout", "space_invaders", "freeway", "seaquest", "beam_rider")


@functools.partial(jax.jit, static_argnames="lanes")
def _by_kernel(m: Machine, inputs: controls.Inputs, rom: Any, lanes: int) -> Machine:
    begun = machine.begin(m, m.done >= 0)
    return kernel.launch(machine.run, begun, inputs, rom, lanes, interpret=True)


def _assert_equal_frames(starts: list[snapshot.Start], frames: int, lanes: int) -> None:
    """Play both programs; `lanes` of a warp leave the last one with some that are not there."""
    m, c, rom = snapshot.batch(starts)
    rom, rng, other = atari.pad(rom), np.random.default_rng(0), m
    for _ in range(frames):
        action = rng.integers(controls.ACTIONS, size=len(starts)).astype(np.int32)
        _, inputs = controls.press(c, action)
        other = _by_kernel(other, inputs, rom, lanes)
        m, c = atari.play(m, c, rom, action)
        for a, b in zip(jax.tree.leaves(m), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    assert not np.asarray(m.bad).any() and (np.asarray(m.steps) > 0).all()


def _starts(files: dict[str, Any], per_game: int) -> list[snapshot.Start]:
    from jaxrl_fast.envs.atari.ale import open_ale

    found = []
    for name, path in files.items():
        ale, image = open_ale(path, 1), path.read_bytes()
        found += [atari.start(ale, image, name, 5) for _ in range(per_game)]
    return found


def test_six_games_equal_the_plain_program():
    files = {name: games.rom_path(name) for name in GAMES}
    _assert_equal_frames(_starts(files, 2), 2, lanes=8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_random_programs_and_longer_games_equal_the_plain_program(tmp_path):
    files = {}
    for i, make in enumerate((*[atari_programs.processor] * 3, *[atari_programs.picture] * 3)):
        files[f"program{i}"] = tmp_path / str(i) / f"{atari_programs.NAME}.bin"
        files[f"program{i}"].parent.mkdir()
        files[f"program{i}"].write_bytes(make(i))
    _assert_equal_frames(_starts(files, 2), 3, lanes=8)
    _assert_equal_frames(_starts({name: games.rom_path(name) for name in GAMES}, 2), 15, lanes=8)


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
def test_other_accelerators_run_the_plain_program_and_say_so(
    monkeypatch, recwarn, kind, capability, compiles, reason
):
    device = SimpleNamespace(device_kind=kind, platform="gpu", compute_capability=capability)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(kernel, "compile_copy", compiles)
    kernel.runs_here.cache_clear()
    assert kernel.runs_here() is (reason is None)
    kernel.runs_here.cache_clear()
    said = [str(w.message) for w in recwarn]
    assert [kind in text and reason in text for text in said] == [True] * (reason is not None)


@pytest.mark.parametrize("runs", [True, False])
def test_a_frame_holds_the_kernel_where_it_runs(monkeypatch, runs):
    """The branches of a traced frame are for platforms; without the kernel there is none."""
    monkeypatch.setattr(kernel, "runs_here", lambda: runs)
    number, screen = jnp.zeros(1, jnp.int32), jnp.zeros((1, 1, state.WIDTH), jnp.uint8)
    fields = lambda kind: kind(*[number] * len(kind._fields))
    parts = map(fields, (state.Cpu, state.Riot, state.Tia, state.Cart, state.View))
    ram = jnp.zeros((1, state.RAM), jnp.uint8)
    m = Machine(*parts, ram, screen, screen, *[number] * 5)
    rom = state.Rom(*[jnp.zeros(4096, jnp.int32)] * 3)
    fresh = lambda *args: machine.until_done.__wrapped__(*args)  # traces are kept by function
    traced = jax.make_jaxpr(fresh)(m, fields(state.Inputs), rom)
    assert ("pallas_call" in str(traced), "platform_index" in str(traced)) == (runs, runs)
    with lowering.known("cpu"):
        alone = lambda *args: machine.until_done.__wrapped__(*args)
        assert "pallas_call" not in str(jax.make_jaxpr(alone)(m, fields(state.Inputs), rom))
