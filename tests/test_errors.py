"""The sentence of an error: `NAME must be EXPECTED, got VALUE`, then the reason or the remedy."""

import copy
import dataclasses
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast import errors
from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.runs.signals import Stopped
from jaxrl_fast.spelling.synonyms import ALGORITHMS, SETTINGS


@pytest.mark.parametrize(
    ("valid", "message"),
    [
        ("at least 2", "x must be at least 2, got 1"),
        ("0: dqn has no epochs; ppo has", "x must be 0, got 1: dqn has no epochs; ppo has"),
        ("a whole file; line 3 is damaged. Start again",
         "x must be a whole file, got 1; line 3 is damaged. Start again"),
        ("a known module. Add --import", "x must be a known module, got 1. Add --import"),
        ("one of 'a: b', 'c; d'; did you mean 'c; d'?",
         "x must be one of 'a: b', 'c; d', got 1; did you mean 'c; d'?"),
        ('a mapping such as {"a": 1}, not empty',
         'x must be a mapping such as {"a": 1}, not empty, got 1'),
        ("in [0, inf); in float32 this is 0", "x must be in [0, inf), got 1; in float32 this is 0"),
        ("a function such as `lambda: x`: it is copied",
         "x must be a function such as `lambda: x`, got 1: it is copied"),
        ("the run's: none has another's", "x must be the run's, got 1: none has another's"),
        ("choice:A,B,... or 0.5", "x must be choice:A,B,... or 0.5, got 1"),
        ("text (with: an end", "x must be text (with: an end, got 1"),
    ],
)
def test_the_reason_follows_the_value(valid, message):
    assert str(ConfigError("x", 1, valid)) == str(expected("x", valid, "1")) == message
    error = ConfigError("x", 1, valid)
    assert (error.argument, error.value, error.valid, error.exit_code) == ("x", 1, valid, 2)


def test_long_values_are_shortened_and_values_without_text_named_by_type():
    class Silent:
        def __repr__(self):
            raise RuntimeError("no text")

    assert str(ConfigError("x", Silent(), "a number")) == "x must be a number, got <Silent>"
    message = str(ConfigError("x", "y" * 10_000, "a number: long texts are none"))
    assert message.startswith("x must be a number, got 'yyy") and message.endswith(
        "yy': long texts are none")
    assert len(message) < 400


def test_an_array_is_shown_in_one_line():
    assert str(ConfigError("x", np.zeros((2, 2)), "a number")) == (
        "x must be a number, got array([[0., 0.], [0., 0.]])")


@pytest.mark.parametrize(("make", "ours"), [
    (lambda: jf.PPO(gamma=0.9), "discount"), (lambda: jf.PPO(lr=1e-3), "learning_rate"),
    (lambda: jf.PPO(clip_eps=0.2), "clip_ratio"),
    (lambda: jf.PPO(n_minibatches=8), "num_minibatches"),
    (lambda: jf.PPO(lerning_rate=1e-3), "learning_rate"),
    (lambda: jf.DQN(tau=0.01), "target_tau"), (lambda: jf.SAC(train_freq=1), "num_steps"),
    (lambda: run_config(100, {"num_seeds": 3}), "seeds"),
    (lambda: run_config(100, {"total_timesteps": 3}), "total_steps"),
    (lambda: run_config(100, {"callback": print}), "hooks"),
])  # fmt: skip
def test_a_setting_of_another_library_suggests_ours(make, ours):
    with pytest.raises(ConfigError, match=f"; did you mean '{ours}'\\?$"):
        make()


def test_a_setting_of_the_algorithm_names_the_algorithms_argument():
    for given in ("num_envs", "n_envs"):
        with pytest.raises(ConfigError, match=rf"{given} must be given .*jf.PPO\(num_envs=8\)"):
            run_config(100, {given: 8}, jf.PPO())


@pytest.mark.parametrize("flag", ["--plan", "--env-id", "--algo.weight-decay", "--smooth"])
def test_a_flag_unlike_any_other_suggests_none(flag, run_cli):
    code, _, err = run_cli("train", "ppo", "CartPole-v1", flag, "1")
    assert code == 2 and "did you mean" not in err


def kinds_of(kind):
    return [kind, *(x for sub in kind.__subclasses__() for x in kinds_of(sub))]


@pytest.mark.parametrize("kind", kinds_of(errors.UserError), ids=lambda kind: kind.__name__)
def test_every_error_passes_from_a_process_to_another(kind):
    """Pools pickle what a worker raises; an error that cannot be read back breaks the pool."""
    error = kind.__new__(kind)
    error.args, error.value, error.folder = ("seed must be 0",), (lambda: 1), Path("runs/x")
    error.add_note("in the third worker")
    for back, value in ((pickle.loads(pickle.dumps(error)), None), (copy.copy(error), error.value)):
        assert type(back) is kind and str(back) == "seed must be 0" and back.folder == error.folder
        assert back.value is value and back.__notes__ == ["in the third worker"]


def test_an_argument_and_its_value_pass_with_the_error():
    back = pickle.loads(pickle.dumps(ConfigError("seed", -1, "at least 0")))
    assert (back.argument, back.value, back.valid) == ("seed", -1, "at least 0")
    assert str(back) == "seed must be at least 0, got -1"


def test_every_synonym_is_of_a_setting_that_exists():
    classes = [algorithm_class(name) for name in jf.list_algorithms()]
    known = {f.name for cls in (*classes, RunConfig) for f in dataclasses.fields(cls)}
    known |= {*inspect.signature(jf.train).parameters, "wandb"}  # a flag of `train`
    assert set(SETTINGS) <= known
    theirs = [name for others in SETTINGS.values() for name in others]
    assert len(theirs) == len(set(theirs)) and not known & set(theirs)


def test_every_synonym_of_an_algorithm_is_of_one_that_exists():
    assert set(ALGORITHMS) <= set(jf.list_algorithms())
    theirs = [name for others in ALGORITHMS.values() for name in others]
    assert len(theirs) == len(set(theirs)) and not set(theirs) & set(jf.list_algorithms())


@pytest.mark.parametrize(("name", "ours"), [
    ("ddpg", "td3"), ("DDQN", "dqn"), ("double-dqn", "dqn"), ("a3c", "a2c"), ("trpo", "ppo"),
    ("reinforce", "a2c"), ("r2d2", "apex"), ("pppo", "ppo"),
])  # fmt: skip
def test_an_algorithm_of_another_library_suggests_ours(name, ours, run_cli):
    code, out, err = run_cli("train", name, "CartPole-v1")
    assert (code, out) == (2, "") and err.endswith(f"; did you mean {ours!r}?\n")


def test_a_name_of_another_library_suggests_the_class():
    with pytest.raises(AttributeError, match="'DDPG'; did you mean 'TD3'"):
        _ = jf.DDPG


def test_the_flag_of_another_library_suggests_ours(run_cli):
    for flag, ours in (
        ("--gamma", "--algo.discount"), ("--algo.lr", "--algo.learning-rate"),
        ("--total-timesteps", "--total-steps"), ("--capture-video", "--video-every"),
        ("--env.discount", "--algo.discount"), ("--algo.total-steps", "--total-steps"),
        ("--track", "--wandb"), ("--env.reward-scal", "--env.reward-scale"),
    ):  # fmt: skip
        code, _, err = run_cli("train", "ppo", "CartPole-v1", flag, "1")
        assert code == 2 and err.endswith(f"did you mean {ours!r}?\n")


def test_an_algorithm_takes_no_settings_by_position():
    with pytest.raises(ConfigError, match="PPO must be given by name, got 'MlpPolicy': PPO"):
        jf.PPO("MlpPolicy", "CartPole-v1")


@pytest.mark.parametrize("flag", ["--algo.num-envs", "--seeds", "--env.gravity"])
def test_a_resume_names_the_command_that_changes_settings(flag, run_cli):
    code, _, err = run_cli("train", "--resume", "runs/x", flag, "2")
    assert code == 2 and err.endswith("keeps its settings: `jaxrl-fast train --config RUN` begins "
                                      "another run\n")


def test_modules_given_as_text_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"modules must be .* got 'my_env'"):
        jf.load(tmp_path, modules="my_env")


def fails(call):
    """The error of a call."""
    with pytest.raises(ConfigError) as error:
        call()
    return error.value


@pytest.mark.parametrize("call", [lambda: jf.PPO(num_envs=-1), lambda: jf.make("CartPol-v1")])
def test_a_notebook_shows_the_users_line_and_the_message(call, monkeypatch):
    error = fails(call)
    first, last, *message = error._render_traceback_()
    assert first.endswith(": call()") and "lambda" in last
    assert last.startswith(f"{__file__}:{call.__code__.co_firstlineno}: ")
    assert " ".join(message) == f"ConfigError: {error}" and max(map(len, message)) <= 100
    monkeypatch.setenv("JAXRL_FAST_DEBUG", "1")
    assert error._render_traceback_()[0] == "Traceback (most recent call last):"


def test_a_notebook_shows_notes_and_keeps_paths_and_commands_whole():
    path = f"/tmp/{'a-long-folder/' * 12}run"
    error = ConfigError("out", path, "a folder")
    error.add_note(f"the run is saved (go on with jaxrl-fast train --resume {path})")
    error.__cause__ = OSError("of the disk")
    lines = error._render_traceback_()
    assert any(f"'{path}'" in line for line in lines) and any(f"{path})" in line for line in lines)
    assert lines[-1] == "JAXRL_FAST_DEBUG=1 shows the traceback"


def test_a_notebook_shows_the_line_of_a_class_that_fails_within_a_run():
    class Env(type(jf.make("CartPole-v1"))):
        @property
        def spec(self):
            return jf.EnvSpec("mine", jf.Box(1.0, 0.0, (2,)), jf.Discrete(2))

    error = fails(lambda: jf.train(jf.PPO(), jf.settings(Env)(), 1000))
    assert any("jf.Box(1.0, 0.0, (2,))" in line for line in error._render_traceback_())


def test_a_notebook_shows_an_interrupt_in_one_line():
    """IPython's own traceback takes longer than VS Code waits."""
    assert Stopped(2, "while compiling")._render_traceback_() == [
        "Stopped: stopped by SIGINT while compiling"]


def test_the_error_of_a_stopped_run_is_no_exception():
    """A script with `except Exception` around each of its runs went on after SIGTERM."""
    assert issubclass(Stopped, KeyboardInterrupt) and not issubclass(Stopped, Exception)


@pytest.mark.parametrize(("name", "own"), [
    ("num_env", "num_envs"), ("learning_rat", "learning_rate"), ("lr", "learning_rate"),
])  # fmt: skip
def test_a_setting_near_one_of_the_algorithm_says_where_it_belongs(name, own):
    error = fails(lambda: run_config(1000, {name: 4}, jf.PPO()))
    assert str(error) == f"{name} must be given to the algorithm, got 4: jf.PPO({own}=4)"


@pytest.mark.parametrize("algo", [3, object(), None])
def test_a_setting_beside_what_is_no_algorithm_is_refused(algo):
    assert "foo must be a setting of train" in str(fails(lambda: run_config(9, {"foo": 3}, algo)))


@pytest.mark.parametrize(("name", "meant"), [
    ("eval_ever", "eval_every"), ("steps", "total_steps"), ("env_steps", "total_steps"),
    ("max_steps", "total_steps"), ("eval_interval", "eval_every"), ("num_evals", None),
    ("num_epochs", None), ("reward_scale", None), ("save_interval", None), ("spec", None),
    ("name", None),
])  # fmt: skip
def test_a_setting_nearer_to_trains_does_not_name_the_algorithm(name, meant):
    error = fails(lambda: run_config(9, {name: 4}, jf.DQN()))
    assert "given to the algorithm" not in str(error)
    assert meant is None or f"did you mean {meant!r}?" in str(error)
