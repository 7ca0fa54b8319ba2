"""Uniform replay against a plain Python list of every transition that was ever written."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.matrix import family
from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.memory import Row, UniformMemory
from jaxrl_fast.memory.ring import at
from jaxrl_fast.memory.successors import Slots, interval_of
from jaxrl_fast.ops import returns
from jaxrl_fast.types import Clock

STEPS, ENVS, BLOCKS = 2, 3, 5  # a block, environments, blocks of the ring: 10 rows
MAX_BLOCKS = 13  # written at most: the ring goes round more than twice
TIME = MAX_BLOCKS * STEPS
CUT = TIME * ENVS  # the number of the observation behind a truncation is that of its row and this
BATCH, GAMMA = 384, 0.9
# (n_step, stack, truncation_interval); 0: rows without successors, as those of a dataset
SHAPES = [(1, 1, 1), (2, 1, 1), (3, 1, 4), (1, 2, 1), (1, 3, 6), (3, 3, 1), (2, 1, 99), (3, 2, 0),
          (1, 1, 0)]


def make(n_step: int, stack: int, interval: int = 1) -> UniformMemory:
    capacity = BLOCKS * STEPS * ENVS + 5  # 5: capacity need not divide
    return UniformMemory(capacity, STEPS, ENVS, BATCH, n_step, stack,
                         truncation_interval=interval or 1)


@functools.cache
def program(n_step: int, stack: int, interval: int):
    """(rows [TIME, ENVS], blocks written, key) -> (where windows start, windows, V by the network,
    their returns)."""
    memory = make(n_step, stack, interval)

    def run(rows, value, w, key):
        rows = rows if interval else rows._replace(next_obs=())
        blocks = jax.tree.map(lambda x: x.reshape((MAX_BLOCKS, STEPS, *x.shape[1:])), rows)
        mem = jax.lax.fori_loop(
            0, w, lambda i, mem: memory.add(mem, tree.take(blocks, i), i),
            memory.init(tree.take(blocks, 0))
        )
        x = tree.take(memory.plan(key, 1, w, Clock(w, w, jnp.float32(0))), 0)
        window, handle = memory.fetch(mem, x)
        boot_value = value.reshape(-1)[window.boot_obs[:, -1]]
        ret, factor = returns.window_return(window, GAMMA)
        return handle, window, ret + factor * boot_value

    return jax.jit(run)


def history(ends: np.ndarray, seed: int):
    """Rows [TIME, ENVS] whose observation is their number, and values that fit: r = V(s) - gamma
    V(s').

    Where an episode is cut, s' is a state that is in no row (its number is CUT more); where it
    terminates, V(s') is 0.
    Values are of all states, by number.
    """
    rng = np.random.default_rng(seed)
    terminated, truncated = ends == 1, ends == 2
    value, behind = rng.normal(size=(2, TIME, ENVS))
    successor = np.concatenate([value[1:], rng.normal(size=(1, ENVS))])
    successor = np.where(truncated, behind, np.where(terminated, 0.0, successor))
    reward = (value - GAMMA * successor).astype(np.float32)
    number = np.arange(TIME * ENVS, dtype=np.int32).reshape(TIME, ENVS)
    next_obs = np.where(truncated, number + CUT, number + ENVS)
    row = Row(number[..., None], (7 * number) % 5, reward, terminated, truncated,
              next_obs=next_obs[..., None])
    return jax.tree.map(jnp.asarray, row), np.concatenate([value, behind]).astype(np.float32)


def stacked(number, done, time, env, stack):
    """The last `stack` frames at (time, env) by a plain walk, the episode's first repeated."""
    frames = [number[time, env]]
    for _ in range(stack - 1):
        if time > 0 and not done[time - 1, env]:
            time -= 1
        frames.append(number[time, env])
    return frames[::-1]


def kept(row, w, n_step, stack, interval):
    """{(time, env)} of truncated rows whose successor is in the memory: the last truncation of a
    bucket and a pass."""
    last, slots = {}, make(n_step, stack, interval).slots
    whole = interval >= BLOCKS * STEPS  # one slot for the ring: the newest truncation has it
    for t, b in np.argwhere(row.truncated[: w * STEPS]).tolist() if interval else ():
        block, step = t // STEPS % BLOCKS, t % STEPS
        bucket = (block // slots.blocks, step // slots.part, t // (BLOCKS * STEPS))
        last[b, () if whole else bucket] = t
    return {(t, b) for (b, _), t in last.items()}


def expected_window(row, found, time, env, n_step, stack):
    number, done = row.obs[..., 0], row.terminated | row.truncated
    use, boot, cut = np.zeros(n_step, bool), 1.0, False
    at = time
    for i in range(n_step):
        cut = (at, env) in found
        if row.truncated[at, env] and not cut:
            break
        use[i] = True
        at += 1
        if row.terminated[at - 1, env]:
            boot = 0.0
        if done[at - 1, env]:
            break
    boot_obs = stacked(number, done, at, env, stack) if boot else None
    if cut:
        boot_obs = [*stacked(number, done, at - 1, env, stack)[1:], number[at - 1, env] + CUT]
    return use, at - time, boot, boot_obs, stacked(number, done, time, env, stack)


def check(ends, w, n_step, stack, interval, seed=0):
    row, value = history(ends, seed)
    read = program(n_step, stack, interval)
    (where, env), window, ret = read(row, value, jnp.int32(w), jax.random.key(seed))
    row = jax.tree.map(np.asarray, row)
    window, where, env, ret = jax.tree.map(np.asarray, (window, where, env, ret))
    oldest, newest, length = max(0, w - BLOCKS) * STEPS, w * STEPS - 1, BLOCKS * STEPS
    times = oldest + (where - oldest) % length
    starts = set(zip(times.tolist(), env.tolist(), strict=True))
    # Every start whose stack and window are written, and nothing else: neither unwritten, nor
    # across the head.
    assert starts == {(t, b) for t in range(oldest + stack - 1, newest - n_step + 1)
                      for b in range(ENVS)}
    found = kept(row, w, n_step, stack, interval)
    for i, (t, b) in enumerate(zip(times, env, strict=True)):
        use, steps, boot, boot_obs, obs = expected_window(row, found, t, b, n_step, stack)
        assert window.obs[i].tolist() == obs
        assert window.action[i] == row.action[t, b]
        assert (
            window.use[:, i].tolist() == use.tolist() and window.steps[i] == steps
            and window.boot[i] == boot
        )
        assert window.weight[i] == float(not row.truncated[t, b] or (t, b) in found)
        if boot:
            assert window.boot_obs[i].tolist() == boot_obs
        np.testing.assert_array_equal(window.reward[use, i], row.reward[t : t + n_step, b][use])
        # Unbiased: with true values every return is the value of its start, whatever was cut or
        # ended on the way.
        if window.weight[i]:
            assert ret[i] == pytest.approx(value[t, b], abs=2e-5)  # also that of a truncated row
        elif steps == 0:
            assert boot == 1.0  # nothing but its own value: no gradient even without the weight


@pytest.mark.parametrize(("n_step", "stack", "interval"), family(
    SHAPES, lambda *row: row in ((1, 3, 6), (3, 2, 0))))
def test_episodes_without_ends_and_with_an_end_at_every_step(n_step, stack, interval):
    for kind in (0, 1, 2):
        for w in (-(-(n_step + stack) // STEPS), BLOCKS, BLOCKS + 1, MAX_BLOCKS):
            check(np.full((TIME, ENVS), kind), w, n_step, stack, interval)


@pytest.mark.parametrize(("num_steps", "num_blocks", "interval"), family(
    [(5, 8, 2), (1, 9, 30), (1, 40, 7), (2, 20, 7), (3, 14, 3)], 2))
def test_truncations_an_interval_apart_are_all_kept(num_steps, num_blocks, interval, rng):
    """Every truncated row that is in the ring has its successor there, over several passes."""
    slots, envs = Slots(num_blocks, num_steps, interval), 4
    blocks = 4 * num_blocks
    truncated = np.zeros((blocks * num_steps, envs), bool)
    for b in range(envs):
        t = rng.integers(interval)
        while t < len(truncated):
            truncated[t, b] = True
            t += interval + rng.integers(3)
    number = np.arange(truncated.size, dtype=np.int32).reshape(blocks, num_steps, envs)
    add, found = jax.jit(slots.add), slots.init(jnp.asarray(number[0]))
    row, env = jnp.indices((num_blocks * num_steps, envs), dtype=jnp.int32)
    for w in range(blocks):
        found = add(found, number[w], truncated.reshape(number.shape)[w], jnp.int32(w))
        slot, held = slots.find(found, row, env)
        written = np.arange(max(0, w + 1 - num_blocks) * num_steps, (w + 1) * num_steps)
        place = written % (num_blocks * num_steps)
        alive = truncated[written]
        assert np.asarray(held)[place][alive].all()
        want = number.reshape(-1, envs)[written]
        np.testing.assert_array_equal(np.asarray(found.obs[slot, env])[place][alive], want[alive])


@pytest.mark.parametrize("limit", [1, 2, 7, 8, 63, 64, 200, 1000, 27_000, 10**6, None])
def test_a_slot_serves_at_most_the_rows_of_an_episode(limit):
    interval = interval_of(limit)
    assert 1 <= interval <= min(limit or 32, 4096) and (
        limit is None or interval >= min(limit, 64, 4096) // 2)


@pytest.mark.parametrize(("n_step", "stack", "interval"), family(
    SHAPES, lambda *row: row in ((1, 3, 6), (2, 1, 99), (3, 2, 0))))
@settings(derandomize=True, deadline=None, max_examples=12, database=None)
@given(data=st.data())
def test_windows_equal_brute_force(n_step, stack, interval, data):
    w = data.draw(st.integers(-(-(n_step + stack) // STEPS), MAX_BLOCKS), label="blocks written")
    seed = data.draw(st.integers(0, 2**16), label="seed")
    share = data.draw(st.sampled_from([0.05, 0.2, 0.5, 0.9]), label="share of ends")
    kinds = data.draw(st.sampled_from([(1, 2), (2,), (1,)]), label="kinds of ends")
    rng = np.random.default_rng(seed)
    ends = np.where(rng.random((TIME, ENVS)) < share, rng.choice(kinds, (TIME, ENVS)), 0)
    check(ends, w, n_step, stack, interval, seed)


def test_starts_are_uniform(clock):
    for w in (3, BLOCKS, 12):
        row, env, _ = make(2, 2).plan(jax.random.key(w), 40, jnp.int32(w), clock())
        row, env = np.asarray(row), np.asarray(env)
        assert row.shape == (40, BATCH)
        _, counts = np.unique(row * ENVS + env, return_counts=True)
        assert len(counts) == (min(w, BLOCKS) * STEPS - 3) * ENVS
        assert stats.chisquare(counts).pvalue > 1e-3


def test_the_store_is_single_frames_and_nothing_twice():
    """84x84 uint8 with stacks of four: 7,070 bytes a transition where a stacked store with
    successors takes 56,462."""
    memory = UniformMemory(1000, 10, 4, 32, n_step=3, stack=4)
    shape = lambda *s, dtype: jax.ShapeDtypeStruct((10, 4, *s), dtype)
    rows = Row(
        shape(84, 84, 1, dtype=jnp.uint8), shape(dtype=jnp.int32), shape(dtype=jnp.float32),
        shape(dtype=jnp.bool_), shape(dtype=jnp.bool_),
    )  # fmt: skip
    mem = jax.eval_shape(memory.init, rows)
    assert tree.nbytes(mem) == 1000 * (84 * 84 + 4 + 4 + 1 + 1)
    assert mem.obs.dtype == jnp.uint8 and mem.obs.shape == (250, 4, 84, 84, 1)


def written_and_drawn(memory, clock):
    """(mem, rows, w) -> the memory with a block more; (mem, w) -> a batch."""
    batch = lambda mem, w: memory.fetch(
        mem, tree.take(memory.plan(jax.random.key(0), 1, w, clock), 0))[0]
    return jax.jit(memory.add), jax.jit(batch)


def test_rows_may_be_trees(clock):
    memory = UniformMemory(12, 2, 2, 5)
    obs = {"a": jnp.ones((2, 2, 3)), "b": jnp.arange(4).reshape(2, 2)}
    flags = jnp.zeros((2, 2), bool)
    rows = Row(obs, {"u": jnp.ones((2, 2, 1))}, jnp.ones((2, 2)), flags, flags)
    mem = memory.init(rows)
    add, draw = written_and_drawn(memory, clock())
    for w in range(2):
        mem = add(mem, rows, w)
    window = draw(mem, 2)
    assert (
        window.obs["a"].shape == (5, 3) and window.boot_obs["b"].shape == (5,)
        and window.action["u"].shape == (5, 1)
    )
    np.testing.assert_array_equal(window.obs["a"], 1.0)


def test_an_empty_memory_has_zero_weights(clock):
    """Three steps and a successor must be written: what is not must not be learned from."""
    memory = UniformMemory(64, 1, 4, 4, n_step=3)
    flags = jnp.zeros((1, 4), bool)
    block = Row(jnp.ones((1, 4, 1)), jnp.zeros((1, 4), jnp.int32), jnp.ones((1, 4)), flags, flags)
    mem = memory.init(block)
    add, draw = written_and_drawn(memory, clock())
    for w in range(4):
        mem = add(mem, block, w)
        window = draw(mem, w + 1)
        assert (window.weight == (w == 3)).all()


@pytest.mark.usefixtures("every_platform")
def test_a_gpu_gathers_the_same_rows_by_one_index(rng, both_forms):
    x = jnp.arange(7 * 3 * 2).reshape(7, 3, 2)
    row, env = (jnp.asarray(rng.integers(0, n, (4, 5)), jnp.int32) for n in (7, 3))
    for found in both_forms(at, x, row, env[0]):
        np.testing.assert_array_equal(found, np.asarray(x)[row, np.broadcast_to(env[0], row.shape)])
    text = lambda on: jax.jit(at).trace(x, row, env).lower(lowering_platforms=(on,)).as_text()
    assert (
        "start_index_map = [0, 1]" in text("cpu") and "start_index_map = [0, 1]" not in text("cuda")
    )


def test_a_ring_has_places_that_int32_holds():
    with pytest.raises(ConfigError, match="capacity must be at most 1,073,741,824 with 1 env"):
        UniformMemory(2**30 + 1, 1, 1, 16)
