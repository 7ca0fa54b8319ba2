"""`atari:` plays what `ale:` plays: observations, rewards, ends, starts, and its refusals."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import fresh, runs
from helpers.matrix import family
from jaxrl_fast.algorithms.presets import find_preset
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.atari import ale, controls, games, preprocess, snapshot
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops import lowering
from jaxrl_fast.testing import check_env
from jaxrl_fast.types import Lasting

# Frames cost more than their compilation, even where a process asks for quick compilations.
_OPTIONS = {"xla_backend_optimization_level": 3}


def _made(name: str, **settings):
    return jf.make(f"atari:{name}", on_cpu=True, **settings)


@functools.cache
def _stepped(name: str, lanes: int, **settings):
    """Return an environment, its first state and observation, and its step from them, compiled."""
    env = _made(name, noop_max=1, **settings)
    state, obs = env.init(jax.random.key(0), lanes)
    noise = env.draw(jax.random.key(1), 1, lanes, jnp.int32(0)).at(0)
    lowered = jax.jit(type(env).step).lower(env, noise, state, jnp.zeros(lanes, jnp.int32))
    step = lowered.compile(compiler_options=_OPTIONS)
    return env, state, obs, functools.partial(step, env, noise)


def _compared(name: str, lanes: int, steps: int, **settings) -> int:
    """Play both sources from one start, assert that they agree, and return the number of ends."""
    env, state, obs, step = _stepped(name, lanes, **settings)
    vector = jf.make(f"ale:{name}", noop_max=1, num_threads=1, **settings).open(lanes, 0)
    np.testing.assert_array_equal(obs, vector.reset())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(steps):
        action = rng.integers(env.spec.action.n, size=lanes).astype(np.int32)
        vector.send(action)
        state, obs, ours = step(state, jnp.asarray(action))
        theirs = vector.receive()
        np.testing.assert_array_equal(obs, theirs.obs)
        np.testing.assert_array_equal(ours.info["lives"], theirs.info["lives"])
        for field in ("next_obs", "reward", "terminated", "truncated", "score", "over"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
        ends += int((theirs.terminated | theirs.truncated).sum())
    vector.close()
    return ends


_CUT = dict(episodic_life=True, max_num_frames_per_episode=14)


@pytest.mark.matrix("tests/testing/test_check_atari.py::test_six_games_equal_ale_on_every_frame")
def test_a_game_equals_ales_and_is_cut_alike():
    assert _compared("Breakout", 3, 8, **_CUT) == 6


@pytest.mark.matrix(
    "tests/testing/test_check_atari.py::test_an_opcode_that_halts_the_processor_sets_bad"
)
def test_an_opcode_that_halts_the_processor_cuts_its_episode_and_is_reported():
    _, state, first, step = _stepped("Breakout", 3, **_CUT)
    life = state.value
    m = life.game.machine
    cpu, ram = m.cpu._replace(pc=m.cpu.pc.at[1].set(0x80)), m.ram.at[1, 0].set(0x02)
    game = life.game._replace(machine=m._replace(cpu=cpu, ram=ram))
    state, obs, outcome = step(Lasting(life._replace(game=game)), jnp.zeros(3, jnp.int32))
    assert outcome.info["unsupported"].tolist() == [0, 1, 0]
    assert outcome.truncated.tolist() == [False, True, False]
    assert not state.value.game.machine.bad.any() and not outcome.terminated.any()
    np.testing.assert_array_equal(obs[1], first[1])  # the game begins anew


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Breakout", "Seaquest", "SpaceInvaders"])
def test_whole_games_equal_ales(name):
    assert _compared(name, 4, 330, episodic_life=True) >= 4


@functools.cache
def _starts(**settings):
    return _made("Pong", noop_max=6, **settings)


def test_starts_equal_ales_after_each_number_of_idle_frames():
    from ale_py.vector_env import AtariVectorEnv

    env = _starts()
    vector = AtariVectorEnv("pong", 16, stack_num=1, noop_max=6, num_threads=1)
    first, frames = np.asarray(env.console.first), np.asarray(env.console.starts.frames)
    fired = np.asarray(env.console.starts.action) == ale.FIRE
    obs, info = vector.reset(seed=0)
    counts = [int(count) for count in info["episode_frame_number"]]
    for picture, count in zip(np.asarray(obs), counts, strict=True):
        (at,) = np.flatnonzero((frames == count) & fired)
        np.testing.assert_array_equal(first[at, ..., 0], picture[0])
    assert len(first) == 10 and len(set(counts)) > 3
    vector.close()


def _shares(frames):
    return np.bincount(frames, minlength=8) / len(frames)


def _drawn(env):
    draws = env.draw_reset(jax.random.key(1), (3000,))
    return _shares(np.asarray(env.console.starts.frames)[draws])


def test_idle_frames_and_fire_are_fewer_than_noop_max():
    np.testing.assert_allclose(_drawn(_starts()), np.array([0, 2, 1, 1, 1, 1, 0, 0]) / 6, atol=0.03)


@pytest.mark.slow  # 200 starts of ALE take 26 s
@pytest.mark.parametrize(("game", "noop_max"), [("Pong", 6), ("Pong", 1), ("Freeway", 4)])
def test_numbers_of_idle_frames_are_as_frequent_as_ales(game, noop_max):
    from ale_py.vector_env import AtariVectorEnv

    vector = AtariVectorEnv(game.lower(), 50, stack_num=1, noop_max=noop_max, num_threads=1)
    theirs = _shares(np.concatenate([vector.reset(seed=1000 * i)[1]["episode_frame_number"]
                                     for i in range(4)]))
    vector.close()
    ours = _drawn(_made(game, noop_max=noop_max))
    assert np.all((theirs > 0) == (ours > 0))
    np.testing.assert_allclose(ours, theirs, atol=0.13)


def test_a_sticky_action_replaces_fire_at_the_start():
    noise = _starts().draw_reset(jax.random.key(0), (500,))
    assert set(np.asarray(noise).tolist()) == set(range(0, 10, 2))
    sticky = _starts(repeat_action_probability=0.25).draw_reset(jax.random.key(0), (2000,))
    odd = float((np.asarray(sticky) % 2).mean())
    assert 0.2 < odd < 0.3


@pytest.mark.parametrize(
    "shape", family([pytest.param(x) for x in (
        (84, 84), (63, 97), (210, 160), (42, 42), (84, 42), (105, 80), (70, 40))], 2)
)
@pytest.mark.parametrize("grayscale", family([True, False], [True]))
def test_pictures_equal_ales_bit_by_bit(shape, grayscale):
    from ale_py.vector_env import AtariVectorEnv

    settings = dict(img_height=shape[0], img_width=shape[1], grayscale=grayscale)
    vector = AtariVectorEnv("seaquest", 1, stack_num=1, noop_max=0, num_threads=1, **settings)
    emulator = ale.open_ale(games.rom_path("seaquest"))
    emulator.reset_game()
    emulator.act(ale.FIRE)
    theirs, _ = vector.reset(seed=0)
    colors = getattr(ale.colors(False), "grey" if grayscale else "rgb")
    resize = jax.jit(preprocess.resize, static_argnums=(1, 2))
    ours = resize(jnp.asarray(colors[emulator.getScreen()])[None], *shape, jnp.int32(0))
    np.testing.assert_array_equal(ours[0], np.asarray(theirs)[0, 0].reshape(ours.shape[1:]))
    vector.close()


@pytest.mark.opencv
def test_colors_of_random_pictures_are_shrunk_as_opencv_does():
    import cv2

    rng = np.random.default_rng(0)
    resize = jax.jit(preprocess.resize, static_argnums=(1, 2))
    for rows in (210, 250):
        pictures = rng.integers(0, 256, (8, rows, 160, 1), np.uint8)
        ours = resize(jnp.asarray(pictures), 84, 84, jnp.int32(0))
        theirs = [cv2.resize(x, (84, 84), interpolation=cv2.INTER_AREA) for x in pictures]
        np.testing.assert_array_equal(ours[..., 0], theirs)


def test_settings_equal_ales():
    theirs, ours = registry.settings_of("ale:Pong"), registry.settings_of("atari:Pong")
    assert {k: v for k, v in theirs.items() if k != "num_threads"}.items() <= ours.items()
    assert set(ours) - set(theirs) == {"mode", "difficulty", "on_cpu"}
    for algorithm in ("ppo", "dqn", "pqn"):
        for game in ("Pong", "Seaquest"):
            assert find_preset(algorithm, f"atari:{game}") == find_preset(algorithm, f"ale:{game}")


def test_the_spec_is_that_of_ale():
    ours, theirs = _starts().spec, jf.make("ale:Pong").spec
    for field in ("name", "observation", "action", "stack"):
        assert getattr(ours, field) == getattr(theirs, field)


def test_a_mode_begins_another_game():
    usual, other = _starts(), _starts(mode=1)
    assert (np.asarray(usual.console.starts.machine.ram) != other.console.starts.machine.ram).any()


def test_evaluations_play_whole_games_with_their_own_rewards():
    env = _made("Breakout", noop_max=1, episodic_life=True, reward_scale=0.1)
    played = env.for_evaluation()
    assert (played.episodic_life, played.reward_clip, played.reward_scale) == (False, None, 1.0)
    state, _ = played.init(jax.random.key(0), 1)
    picture = played.render(jax.tree.map(lambda x: np.asarray(x)[0], state))
    assert picture.shape == (420, 640, 3) and len(np.unique(picture.reshape(-1, 3), axis=0)) > 6


@pytest.mark.matrix("tests/testing/test_check_atari.py::test_six_games_equal_ale_on_every_frame")
def test_vmap_adds_lanes():
    env = _starts()
    state, _ = env.init(jax.random.key(0), 2)
    twice = jax.tree.map(lambda x: jnp.stack([x] * 3), state)
    noise = env.draw(jax.random.key(1), 1, 2, jnp.int32(0)).at(0)
    step = jax.vmap(type(env).step, (None, None, 0, None))
    traced = str(jax.make_jaxpr(step)(env, noise, twice, jnp.zeros(2, jnp.int32)))
    assert "u8[6,250,160]" in traced


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("Pnog", {}, "did you mean 'atari:pong'"),
    ("Pong", {"mode": 7}, r"env.mode must be one of the game's own \(0, 1\), got 7"),
    ("Pong", {"difficulty": 9}, "env.difficulty must be one of the game's own"),
    ("Pong", {"frameskip": 0}, "env.frameskip must be .*got 0"),
    ("Pong", {"img_height": 211}, "env.img_height must be at most the screen's 210 lines, got 211"),
    ("Pong", {"img_width": 161}, "env.img_width must be .*got 161"),
    ("Pong", {"action_repeat": 2}, "env.action_repeat must be 1 .*got 2.*use frameskip"),
    ("Pong", {"repeat_action_probability": 2.0}, "env.repeat_action_probability"),
    ("Pong", {"reward_clip": -1.0}, "env.reward_clip"),
    ("VideoChess", {}, r"one of the 88 in docs/atari.md .* known, got 'video_chess'"),
])  # fmt: skip
def test_bad_settings(name, settings, message):
    with pytest.raises(ConfigError, match=message) as found:
        jf.make(f"atari:{name}", **dict(on_cpu=True) | settings)
    assert "\n" not in str(found.value)


def test_making_a_game_starts_no_backend():
    """With a backend, `deterministic` and `memory_fraction` of the run would come too late on a
    GPU."""
    code = """
import jaxrl_fast as jf
from jaxrl_fast import runtime
env = jf.make("atari:Pong", noop_max=1)
assert env.console.first.shape == (2, 84, 84, 1) and not runtime.backend_started()
"""
    fresh.check(code)


@pytest.mark.parametrize("use", [
    lambda env, out: jf.train(jf.PPO(), env, 4096, out=out),
    lambda env, out: jf.make_train(jf.PPO(), jf.envs.TimeLimit(env, 9)),
    lambda env, out: backend_of(env).evaluate(env, None, None, None, 1, "greedy", None),
    lambda env, out: backend_of(env).film(env, None, None, None, 1, 1.0),
    lambda env, out: jf.to_gymnasium(env),
])  # fmt: skip
def test_a_cpu_is_refused_with_the_environment_to_use_instead(use, tmp_path):
    with pytest.raises(ConfigError,
                       match="^env.on_cpu must be True on a CPU, got False: .*ale:Pong"):
        use(jf.make("atari:Pong", noop_max=1), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_programs_for_a_gpu_that_is_not_here_need_no_switch():
    env = jf.make("atari:Pong")
    with lowering.known("cuda"):
        assert env.on_device() is env


def test_an_image_of_another_checksum_or_without_a_file(monkeypatch, tmp_path):
    (tmp_path / "pong.bin").write_bytes(bytes(4096))
    monkeypatch.setenv(games.FOLDER, str(tmp_path))
    with pytest.raises(ConfigError, match="the image of pong that ale-py supports, got .*checksum"):
        _made("Pong", noop_max=2)
    (tmp_path / "pong.bin").unlink()
    with pytest.raises(ConfigError, match=r"one whose image is .*/pong\.bin"):
        _made("Pong", noop_max=3)


def test_an_unsupported_cartridge_is_named():
    path = games.rom_path("pong")
    emulator = ale.open_ale(path)
    data, screen = emulator.cloneState().serialize(), emulator.getScreen()
    other = data.replace(snapshot.kind_of(data).encode(), b"3F")  # kinds of 2 letters, as 2K
    with pytest.raises(ConfigError, match="^cartridge must be one of 2K, 4K, F8, .*, got '3F'"):
        snapshot.parse(other, path.read_bytes(), controls.JOYSTICK, screen, screen)


@pytest.mark.slow
def test_atari_environments_conform():
    env = _made("Pong", noop_max=3, max_num_frames_per_episode=20)
    report = check_env(env, num_envs=2, num_steps=14)
    assert report.truncated > 0 and report.longest <= 6 and report.random_resets


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sources", [("ale", "atari"), ("atari", "ale")])
def test_an_agent_of_one_source_plays_the_other(sources):
    small = dict(img_height=21, img_width=16, frameskip=1, noop_max=1, max_num_frames_per_episode=8)
    own = {"ale": dict(num_threads=1), "atari": dict(on_cpu=True)}
    trained, played = (jf.make(f"{name}:Pong", **small, **own[name]) for name in sources)
    algo = jf.PPO(num_envs=2, num_steps=2, num_minibatches=1, num_epochs=1, hidden=(8,))
    agent = jf.train(algo, trained, 4, eval_every=0).agent()
    found = [agent.evaluate(1, env=env) for env in (trained, played)]
    assert [x.length.tolist() for x in found] == [[8], [8]]
    assert found[0].ret.tolist() == found[1].ret.tolist()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_population_trains_and_resumes_exactly(tmp_path):
    small = dict(img_height=21, img_width=16, frameskip=1, max_num_frames_per_episode=8)
    env = _made("Pong", noop_max=2, episodic_life=True, **small)
    algo = jf.PPO(num_envs=2, num_steps=2, num_minibatches=1, num_epochs=1, hidden=(8,))
    settings = dict(seeds=2, eval_every=0, eval_episodes=1, horizon=8)
    whole = jf.train(algo, env, 8, **settings)
    jf.train(algo, env, 4, out=tmp_path / "run", tensorboard=False, **settings)
    again = jf.resume(tmp_path / "run", 8, tensorboard=False)
    runs.assert_same(whole.state, again.state)
