"""Datasets in a memory: every window of theirs against a walk through the list of episodes; and
what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import (
    Filled,
    PrioritizedMemory,
    Row,
    Transition,
    TransitionMemory,
    UniformMemory,
    episodes_to_rows,
    fill,
    hold,
    rows_of,
    transitions_to_rows,
)
from jaxrl_fast.spaces import Box, Dict, Discrete
from jaxrl_fast.types import Clock, EnvSpec

SPEC = EnvSpec("test", Box(-np.inf, np.inf, (1,)), Discrete(1000))
BATCH = 1024


def episode(first: int, length: int, end: str, final: bool = True) -> dict:
    """Observations are numbers from `first` on; the action is the observation's, the reward its
    tenth."""
    number = np.arange(first, first + length + 1)
    ended = np.arange(length) == length - 1
    return {
        "observations": number[: length + final, None].astype(np.float64), "actions": number[:-1],
        "rewards": number[:-1] / 10, "terminations": ended & (end == "terminated"),
        "truncations": ended & (end == "truncated"),
    }  # fmt: skip


def some_episodes(rng, final: bool = True) -> list[dict]:
    """Ends: `terminated`, `truncated`, or `open`, as data has it that stops in mid-episode."""
    lengths = rng.integers(1, 7, size=16)
    ends = rng.permutation(["terminated"] * 6 + ["truncated"] * 6 + ["open"] * 4)
    return [episode(20 * i, int(n), str(end), final)
            for i, (n, end) in enumerate(zip(lengths, ends, strict=True))]


def draw(filled, n: int = 1):
    memory = filled.memory

    def windows(store, key):
        xs = memory.plan(key, n, jnp.int32(filled.w), Clock(0, 0, jnp.float32(0)))
        return memory.fetch(store, tree.take(xs, 0))[0]

    return jax.tree.map(np.asarray, jax.jit(windows)(filled.store, jax.random.key(1)))


def check(window, episodes, n_step: int, stack: int, final: bool):
    """Every step of every episode is drawn, and every window is what the list of episodes says."""
    real = window.weight > 0
    expected = set()
    for e in episodes:
        first, length, ended = int(e["actions"][0]), len(e["actions"]), bool(e["terminations"][-1])
        usable = length if final or ended else length - 1
        expected |= set(range(first, first + usable))
    assert set(window.action[real].tolist()) == expected
    for b in np.flatnonzero(real):
        number = int(window.action[b])
        e = next(e for e in episodes if number in e["actions"])
        first, length, ended = int(e["actions"][0]), len(e["actions"]), bool(e["terminations"][-1])
        usable = length if final or ended else length - 1
        steps = min(n_step, first + usable - number)
        assert window.steps[b] == steps and window.use[:, b].tolist() == [
            i < steps for i in range(n_step)]
        np.testing.assert_allclose(window.reward[:steps, b], np.arange(number, number + steps) / 10,
                                   rtol=1e-6)
        terminal = ended and number + steps == first + length
        assert window.boot[b] == float(not terminal)
        frames = lambda newest, first=first: [max(first, newest - i)
                                              for i in reversed(range(stack))]
        assert window.obs[b].tolist() == frames(number)
        if not terminal:
            assert window.boot_obs[b].tolist() == frames(number + steps)


@pytest.mark.parametrize("cls", family([UniformMemory, PrioritizedMemory], [PrioritizedMemory]))
@pytest.mark.parametrize(("n_step", "stack", "envs", "final"),
                         [(1, 1, 1, True), (3, 1, 2, False), (2, 3, 3, True)])
def test_windows_of_episodes_equal_brute_force(cls, n_step, stack, envs, final, rng):
    episodes = some_episodes(rng, final)
    rows = episodes_to_rows(episodes, SPEC, envs)
    assert (
        rows.reward.shape[1] == envs and rows.obs.dtype == np.float32
        and rows.action.dtype == np.int32
    )
    filled = hold(cls(1000, 1, 1, BATCH, n_step, stack), rows)
    check(draw(filled), episodes, n_step, stack, final)


def test_a_ring_holds_the_same_windows(rng):
    """`fill` leaves the sizes alone; blocks of 4 rows, and room to spare."""
    episodes = some_episodes(rng)
    rows = episodes_to_rows(episodes, SPEC, 2)
    filled = fill(UniformMemory(200, 4, 2, BATCH, 2, 1), rows)
    assert filled.memory.num_blocks > filled.w
    check(draw(filled), episodes, 2, 1, True)


def test_a_flat_dataset_and_minari_episodes_are_the_same_rows(rng):
    episodes = some_episodes(rng, final=False)
    flat = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    ends = np.cumsum([len(e["actions"]) for e in episodes]) - 1
    # mid-episode stops cannot be seen in flat arrays
    flat["truncations"][ends] = ~flat["terminations"][ends]
    objects = (SimpleNamespace(**e) for e in episodes)
    jax.tree.map(np.testing.assert_array_equal, episodes_to_rows([flat], SPEC),
                 episodes_to_rows(objects, SPEC))


def transitions(episodes, order):
    parts = {name: np.concatenate([e[name] for e in episodes])
             for name in ("actions", "rewards", "terminations")}
    obs = np.concatenate([e["observations"][:-1] for e in episodes])
    after = np.concatenate([e["observations"][1:] for e in episodes])
    args = (obs, parts["actions"], parts["rewards"], after, parts["terminations"])
    return transitions_to_rows(*(x[order] for x in args), SPEC)


@pytest.mark.parametrize("cls", [UniformMemory, PrioritizedMemory])
def test_windows_of_shuffled_transitions_equal_brute_force(cls, rng):
    episodes = some_episodes(rng)
    rows = transitions(episodes, rng.permutation(sum(len(e["actions"]) for e in episodes)))
    filled = hold(cls(1000, 1, 1, BATCH), rows)
    assert isinstance(filled.memory, TransitionMemory) == (cls is UniformMemory)
    window = draw(filled)
    assert (window.weight > 0).all()  # none is spent on rows that are only successors
    check(window, episodes, 1, 1, True)


@pytest.mark.parametrize("build", [hold, fill])
def test_rows_of_another_layout_are_refused_before_anything_is_built(build, rng):
    """Successors are in the row or they are the next row; what a memory does not read would fail at
    the first batch."""
    rows, loose = episodes_to_rows([OK], SPEC), transitions([OK], np.arange(3))
    memory = TransitionMemory(3, 3, 1, BATCH)
    check(draw(build(memory, loose)), [OK], 1, 1, True)
    # more than could be built
    rows = jax.tree.map(lambda x: np.broadcast_to(x[:1], (10**12, *x.shape[1:])), rows)
    with pytest.raises(ConfigError,
                       match="rows must be Transition for a TransitionMemory, got 'Row'"):
        build(memory, rows)
    with pytest.raises(ConfigError,
                       match="rows must be Row or Transition for a UniformMemory, got 'dict'"):
        build(UniformMemory(100, 1, 1, 4), rows._asdict())


def test_a_transition_memory_is_a_ring_too():
    memory = TransitionMemory(12, 2, 2, 64)
    mem, store, add = None, {}, jax.jit(memory.add)
    draw = jax.jit(lambda mem, w: memory.fetch(
        mem, tree.take(memory.plan(jax.random.key(w), 1, w + 1, None), 0))[0])
    for w in range(5):  # goes round: 3 blocks
        number = np.arange(4 * w, 4 * w + 4).reshape(2, 2)
        obs = number[..., None].astype(np.float32)
        rows = Transition(obs, number, number.astype(np.float32), obs + 1, number % 2 == 0)
        rows = jax.tree.map(jnp.asarray, rows)
        mem = add(memory.init(rows) if mem is None else mem, rows, w)
        store[w] = set(number.reshape(-1).tolist())
        window = draw(mem, w)
        alive = set().union(*(store[k] for k in range(max(0, w - 2), w + 1)))
        assert set(np.asarray(window.action).tolist()) == alive
        np.testing.assert_array_equal(window.boot_obs, window.obs + 1)
        np.testing.assert_array_equal(window.boot, np.asarray(window.action) % 2)


def test_rows_come_out_in_the_order_of_time():
    memory = UniformMemory(20, 2, 2, 4)
    flags = jnp.zeros((2, 2), bool)
    mem, w, add = None, 8, jax.jit(memory.add)  # goes round: 5 blocks
    for t in range(w):
        number = jnp.arange(4 * t, 4 * t + 4).reshape(2, 2)
        rows = Row(number[..., None], number, number * 1.0, flags, flags)
        mem = add(memory.init(rows) if mem is None else mem, rows, t)
    out = rows_of(Filled(memory, mem, w))
    np.testing.assert_array_equal(out.action, np.arange(12, 32).reshape(10, 2))


def test_dict_observations():
    spec = EnvSpec("test", Dict.of(a=Box(0, 255, (2,), np.uint8), b=Discrete(3)), Discrete(2))
    obs = {"a": np.full((4, 2), 200), "b": [0, 1, 2, 0]}
    e = episode(0, 3, "truncated") | {"actions": np.zeros(3, np.int64), "observations": obs}
    rows = episodes_to_rows([e], spec)
    assert rows.obs["a"].shape == (4, 1, 2) and rows.obs["a"].dtype == np.uint8
    assert rows.obs["b"].dtype == np.int32 and rows.truncated[:, 0].tolist() == [
        False, False, False, True]


OK = episode(0, 3, "terminated")
BAD = [
    ({"rewards": OK["rewards"][:2]},
     r"episodes\[1\].actions must be of shape \(2,\).*got 'int64 array of shape \(3,\)'"),
    ({"rewards": np.array([0, np.nan, 1])},
     r"episodes\[1\].rewards\[1\] must be a finite number, got nan"),
    ({"rewards": np.zeros(0)}, r"episodes\[1\].rewards .* at least one number"),
    ({"rewards": ["a", "b", "c"]}, r"episodes\[1\].rewards .* number"),
    ({"observations": None},
     r"episodes\[1\] must be .* observations, actions.*got 'dict without observations'"),
    ({"observations": np.zeros((3, 2))}, r"episodes\[1\].observations .* \(3, 1\) or \(4, 1\)"),
    ({"observations": np.zeros((5, 1))}, r"episodes\[1\].observations .* \(3, 1\) or \(4, 1\)"),
    ({"observations": [[0.0], [1.0, 2.0], [0.0]]},
     r"episodes\[1\].observations must be an array .*got 'list'"),
    ({"observations": np.array([[0], [np.inf], [1]])},
     r"episodes\[1\].observations\[1, 0\] must be .*got inf"),
    ({"observations": np.zeros((3, 1), complex)}, r"episodes\[1\].observations .* dtype float32"),
    ({"observations": {"a": np.zeros((3, 1))}}, r"episodes\[1\].observations"),
    ({"actions": np.zeros(3)},
     r"episodes\[1\].actions must be .* dtype int32.*got 'float64 array of shape \(3,\)'"),
    ({"actions": np.array([0, 1, 1000])},
     r"episodes\[1\].actions must be .* Discrete.*got 'values from 0 to 1000'"),
    ({"actions": np.array([0, 1, 2**40])}, r"episodes\[1\].actions .* int32 can hold"),
    ({"terminations": np.zeros(4, bool)}, r"episodes\[1\].terminations .* 3 flags"),
    ({"truncations": np.array([0, 0, 2])}, r"episodes\[1\].truncations .* 3 flags"),
]


@pytest.mark.parametrize(("change", "message"), BAD,
                         ids=[f"{next(iter(c))}-{i}" for i, (c, _) in enumerate(BAD)])
def test_bad_episodes_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        episodes_to_rows([OK, OK | change], SPEC)


def test_other_bad_data_is_refused(rng):
    with pytest.raises(ConfigError, match="episodes must be at least 1, .*got '0 episodes'"):
        episodes_to_rows([], SPEC)
    with pytest.raises(ConfigError, match="episodes must be at least 2, .*got '1 episodes'"):
        episodes_to_rows([OK], SPEC, num_envs=2)
    with pytest.raises(ConfigError, match="num_envs must be .*got 0"):
        episodes_to_rows([OK], SPEC, num_envs=0)
    with pytest.raises(ConfigError, match="next_observations"):
        transitions_to_rows(OK["observations"][:3], OK["actions"], OK["rewards"],
                            OK["observations"], [0, 0, 1], SPEC)
    rows, loose = episodes_to_rows([OK], SPEC), transitions([OK], np.arange(3))
    with pytest.raises(ConfigError, match="n_step must be 1 for shuffled .*got 3"):
        hold(UniformMemory(100, 1, 1, 4, n_step=3), loose)
    with pytest.raises(ConfigError, match="rows of 2 environments"):
        fill(UniformMemory(100, 1, 2, 4), rows)
    with pytest.raises(ConfigError, match="capacity must be at least 4 for these 3 rows, got 3"):
        fill(UniformMemory(3, 1, 1, 4), rows)
    with pytest.raises(ConfigError, match="TransitionMemory whose num_steps divides 3"):
        fill(UniformMemory(100, 1, 1, 4), loose)
    with pytest.raises(ConfigError, match="stack must be 1 with stored successors, got 2"):
        TransitionMemory(10, 1, 1, 4, stack=2)
