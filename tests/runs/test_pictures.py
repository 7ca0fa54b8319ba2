"""Pictures of episodes on the host: they end with the episode, and nothing is said where there are
none."""

from __future__ import annotations

import warnings

import gymnasium
import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import counters as tools
from helpers.drawn import Drawn
from jaxrl_fast.actors import play
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.host import gymnasium_adapter
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.runs import pictures


class Unlisted(Drawn):
    metadata = {"render_modes": []}


class Plain(Drawn):
    """An environment whose constructor takes no render mode."""

    def __init__(self):
        self.render_mode = None


class Blank(Unlisted):
    """An environment whose constructor takes a render mode, and which draws nothing."""

    render = gymnasium.Env.render


class Nothing(Drawn):
    """Its `render` returns no picture."""

    def render(self):
        return None


def swallows(**kwargs):
    return Plain()


def drawn_vector(mode):
    class Drawings(tools.Counters):
        """A vector of its own, which draws its environments as they are."""

        single_observation_space, single_action_space = Drawn.observation_space, Drawn.action_space

        def __init__(self, num_envs=1, render_mode=None):
            super().__init__(num_envs, mode)
            self.render_mode = render_mode

        def render(self):
            return tuple(np.full((4, 4, 3), env.step_, np.uint8) for env in self.envs)

    return Drawings


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("entry_point", "steps"),
    [(Drawn, [0, 1, 2, 3, 4, 5]), (Unlisted, [0, 1, 2, 3, 4, 5]), (Plain, None), (Blank, None),
     (Nothing, None), (swallows, None)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_the_last_picture_is_the_end(entry_point, steps):
    """An environment without pictures gives no message."""
    gymnasium.register("Drawn-v0", entry_point=entry_point)
    try:
        env = jf.make("gym:Drawn-v0")
        algo = jf.PPO(hidden=(8,)).bind(env.spec)
        agent = jax.jit(algo.init)(jax.random.key(0))
        frames = pictures.film(env, algo, agent, jax.random.key(0)).frames
        assert (None if frames is None else [int(x.max()) for x in frames]) == steps
        cut = pictures.film(env, algo, agent, jax.random.key(0), max_steps=3).frames
        assert cut is None if steps is None else [int(x.max()) for x in cut] == [0, 1, 2]
    finally:
        registry._make_cached.cache_clear()
        gymnasium_adapter.defaults.cache_clear(), gymnasium_adapter._own.cache_clear()
        del gymnasium.registry["Drawn-v0"]


class Failing(Drawn):
    def render(self):
        raise RuntimeError("no display\n\nmore of it")


def test_a_picture_that_fails_is_one_line_of_warning(tmp_path):
    algo = jf.PPO(num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1, hidden=(8,))
    said = "drawn: HostError: Failing failed in render: RuntimeError: no display$"
    with pytest.warns(UserWarning, match=said) as found:
        jf.train(algo, jf.make(Failing), 16, out=tmp_path / "run", eval_episodes=2,
                 tensorboard=False)
    texts = [str(warning.message) for warning in found]
    assert len([text for text in texts if "drawn:" in text]) == 1 and "\n" not in "".join(texts)


class Bare(Drawn):
    def render(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed, run `pip ...`")


def test_a_run_without_the_package_that_draws_is_silent(tmp_path):
    algo = jf.PPO(num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1, hidden=(8,))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = jf.train(algo, jf.make(Bare), 16, out=tmp_path / "run", eval_episodes=2,
                       tensorboard=False)
    assert not [str(x.message) for x in found if "drawn" in str(x.message)]
    assert (tmp_path / "run" / "curve.png").is_file()
    with pytest.raises(HostError, match="pygame is not installed"):
        run.agent().video()


@pytest.mark.parametrize("source", [lambda: Drawn("rgb_array"), Drawn("rgb_array")],
                         ids=["function", "instance"])
def test_an_object_that_has_its_render_mode_is_filmed_to_the_end(source):
    env = jf.make(source)
    algo = jf.PPO(hidden=(8,)).bind(env.spec)
    agent = jax.jit(algo.init)(jax.random.key(0))
    frames = pictures.film(env, algo, agent, jax.random.key(0)).frames
    assert [int(x.max()) for x in frames] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("mode", "steps"),
                         [("NEXT_STEP", [0, 1, 2]), ("SAME_STEP", [0, 1, None]),
                          ("DISABLED", [0, 1, None])])
def test_a_vector_of_its_own_shows_no_other_episode(mode, steps):
    """The first episode has two steps; only a vector that resets in the next step still shows its
    end."""
    vector = play.Filmed(
        gymnasium_adapter.GymnasiumVector(drawn_vector(mode)(render_mode="rgb_array"), 0))
    vector.reset()
    for _ in range(2):
        vector.send(np.zeros(1, np.int32))
        vector.receive()
    assert [None if x is None else int(x.max()) for x in vector.pictures] == steps
