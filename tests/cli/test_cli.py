"""The command line from end to end on tiny runs, and what it prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxrl_fast as jf
from helpers import fresh
from jaxrl_fast import values
from jaxrl_fast.cli import args as cli_args
from jaxrl_fast.cli import command as cli
from jaxrl_fast.cli.train import describe_train
from jaxrl_fast.envs.physics import mujoco_tools
from jaxrl_fast.errors import RunError

TINY = ["--algo.num-envs", "4", "--algo.num-steps", "32", "--algo.hidden", "8", "--eval-episodes",
        "4"]
pytestmark = pytest.mark.timeout(120)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def rows(run: Path) -> list[dict]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("wall_seconds", "steps_per_second")}
            for row in found]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """(code, stdout, run directory) of `jaxrl-fast train ppo CartPole-v1` tiny, in a folder of its
    own."""
    import contextlib
    import io

    here, before, out = tmp_path_factory.mktemp("cli"), os.getcwd(), io.StringIO()
    os.chdir(here)
    try:
        with contextlib.redirect_stdout(out):
            code = cli.main(["train", "ppo", "CartPole-v1", "--total-steps", "2_000", *TINY])
    finally:
        os.chdir(before)
    return code, out.getvalue(), here / "runs" / "ppo-CartPole-v1-s0-1"


def test_train_writes_a_run_and_prints_the_next_commands(first):
    code, out, run = first
    assert code == 0
    assert "ppo on CartPole-v1: preset ppo/CartPole-v1" in out
    assert "run directory: runs/ppo-CartPole-v1-s0-1" in out
    assert "mean of 4 greedy episodes" in out
    for command in ("jaxrl-fast eval runs/", "jaxrl-fast train --resume runs/",
                    "jaxrl-fast report runs/"):
        assert command in out
    for name in (
        "config.json",
        "metrics.jsonl",
        "result.json",
        "curve.png",
        "rollout.gif",
        "checkpoints",
        "tensorboard",
    ):
        assert (run / name).exists(), name
    content = read(run / "config.json")
    assert content["preset"] == "ppo/CartPole-v1" and content["run"]["total_steps"] == 2000
    settings = content["algorithm"]["settings"]
    assert settings["num_envs"] == 4 and settings["hidden"] == [8]  # flags
    assert settings["gae_lambda"] == 0.9  # the preset


def test_the_page_of_runs_names_every_key_of_a_result(first):
    text = (Path(__file__).parents[2] / "docs/runs.md").read_text()
    text = text[text.index("## The run directory") :]
    held = read(first[2] / "result.json")
    assert held.keys() <= set(re.findall(r"`(\w+)`", text[: text.index("\n## ", 1)]))
    for part in held["seconds"]:
        assert re.search(rf"\b{part}\b", text)


@pytest.mark.slow  # the physics of ant and their pictures compile for minutes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "line",
    [
        "sac brax/inverted_pendulum --total-steps 400 --algo.num-envs 4 --algo.hidden 8 "
        "--algo.critic-hidden 8 "
        "--algo.batch-size 8 --algo.buffer-size 256 --algo.learning-starts 64",
        "ppo brax/ant --total-steps 256 --algo.num-envs 4 --algo.num-steps 16 "
        "--algo.num-minibatches 1 "
        "--algo.num-epochs 1 --algo.hidden 8",
    ],
)
def test_physics_are_trained_and_shown(line, tmp_path):
    run = tmp_path / "run"
    assert (
        cli.main(["train", *line.split(), "--env.episode-length", "20", "--eval-episodes", "2",
                  "--out", str(run)]) == 0
    )
    assert np.isfinite(read(run / "result.json")["eval_return"]).all()
    assert "<html" in (run / "rollout.html").read_text()
    env = jf.make(line.split()[1])
    if mujoco_tools._renderer(env.env.sys.mj_model) is None:
        pytest.skip("OpenGL does not work here")
    with Image.open(run / "rollout.gif") as film:
        assert film.n_frames > 1 and np.asarray(film.convert("RGB")).std() > 5


def test_eval_prints_the_score(first, run_cli):
    code, out, _ = run_cli(
        "eval", str(first[2]), "--episodes", "8", "--seed", "3", "--which", "last", "--mode",
        "sample"
    )
    assert code == 0
    assert (
        "return " in out and "over 8 episodes" in out and "95% interval" in out and "sample" in out)
    assert (
        run_cli("eval", str(first[2]), "--episodes", "8", "--seed", "3", "--which", "last",
                "--mode", "sample")[1]
        == out
    )


def test_plot_one_and_several(first, run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, other = str(first[2]), str(tmp_path / "other")
    shutil.copytree(run, other)
    assert run_cli("plot", other)[:2] == (0, f"{other}/curve.png\n")
    assert run_cli("plot", run, other)[:2] == (0, "curves.png\n")
    assert run_cli("plot", run, other, "--metric", "value_loss", "--out", "deep/x.svg")[0] == 0
    assert (tmp_path / "deep" / "x.svg").read_text().startswith("<?xml")


def test_config_repeats_the_run_bit_for_bit(first, run_cli, tmp_path):
    out = tmp_path / "again"
    code, printed, _ = run_cli(
        "train", "--config", str(first[2] / "config.json"), "--out", str(out), "--no-tensorboard"
    )
    assert code == 0 and "config.json" in printed
    assert rows(out) == rows(first[2])
    assert read(out / "config.json") == read(first[2] / "config.json")
    assert not (out / "tensorboard").exists()


@pytest.mark.matrix("test_config_repeats_the_run_bit_for_bit")
def test_config_with_flags_and_a_population(first, run_cli, tmp_path):
    out = tmp_path / "two"
    code, printed, _ = run_cli(
        "train", "--config", str(first[2]), "--out", str(out), "--seed", "5", "--seeds", "2",
        "--algo.learning-rate",
        "1e-2", "--env.max-steps-in-episode", "60", "--total-steps", "512", "--no-tensorboard",
    )  # fmt: skip
    assert code == 0
    assert (
        ", range " in printed and "over 2 seeds" in printed and "5: " in printed
        and "6: " in printed
    )
    content = read(out / "config.json")
    assert (
        content["run"] | {"seed": 5, "seeds": 2, "total_steps": 512, "horizon": 512}
        == content["run"]
    )
    assert content["algorithm"]["settings"]["learning_rate"] == 0.01
    assert content["environment"]["settings"] == {"max_steps_in_episode": 60}
    assert len(rows(out)[-1]["episode_return"]) == 2
    assert run_cli("eval", str(out), "--member", "1", "--episodes", "2")[0] == 0


REPLAY = ["--algo.buffer-size", "256", "--algo.learning-starts", "32", "--algo.batch-size", "8",
          "--algo.hidden", "8"]


@pytest.mark.matrix("tests/algorithms/test_games.py::test_two_iterations_on_minatar")
def test_rainbow_plays_minatar(run_cli, tmp_path):
    """The preset's Rainbow but for its sizes: warm-up, updates by priority, one evaluation."""
    flags = ["--algo.num-envs", "4", "--algo.num-atoms", "5", *REPLAY, "--eval-every", "0",
             "--eval-episodes", "1"]
    out = tmp_path / "run"
    code, printed, err = run_cli(
        "train", "rainbow", "Breakout-MinAtar", *flags, "--total-steps", "64", "--log-every", "16",
        "--no-tensorboard", "--out", str(out),
    )  # fmt: skip
    assert code == 0, err
    assert (
        "rainbow on Breakout-MinAtar: preset rainbow/Breakout-MinAtar" in printed
        and "mean of 1 greedy episode" in printed
    )
    settings = read(out / "config.json")["algorithm"]["settings"]
    # the class's, and the preset's
    assert settings["prioritized"] and settings["noisy"] and settings["v_max"] == 20.0
    found = rows(out)
    # the warm-up has no updates
    assert [row["env_steps"] for row in found] == [32, 48, 64] and "loss" not in found[0]
    assert all(0 < row["loss"] < 10 and 0 < row["q_value"] < 20 for row in found[1:])
    assert read(out / "result.json")["eval_return"][0] >= 0 and (out / "rollout.gif").exists()


def test_resume_continues_a_run(first, run_cli, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(first[2], run)
    before = rows(run)
    code, out, err = run_cli("train", "--resume", str(run), "--total-steps", "2.5e3",
                             "--no-tensorboard")
    assert code == 0
    assert "jaxrl-fast: warning: total_steps 2,500 is beyond the horizon 2,000" in err
    assert f"jaxrl-fast eval {run}" in out
    assert read(run / "config.json")["run"]["total_steps"] == 2500
    after = rows(run)
    assert after[: len(before) - 1] == before[:-1] and after[-1]["env_steps"] >= 2500


# In the program of the test before.
def test_nan_exits_with_3(run_cli, tmp_path):
    code, _, err = run_cli(
        "train", "ppo", "CartPole-v1", "--total-steps", "2000", *TINY, "--out",
        str(tmp_path / "run"), "--algo.learning-rate", "1e38", "--no-tensorboard",
    )  # fmt: skip
    last = err.splitlines()[-1]
    assert (
        code == 3 and last.startswith("jaxrl-fast: error: ")
        and "environment steps in member 0" in last
    )


MODULE = """
import jaxrl_fast as jf
from jaxrl_fast.envs.native.cartpole import CartPole

jf.register("Mine-v0", CartPole)

@jf.register_algorithm
@jf.settings
class Mine(jf.PPO):
    \"\"\"An algorithm of the user.\"\"\"
    name = "mine"
    bonus: float = jf.setting(0.5, "a bonus of mine", low=0)
"""


ON_THE_HOST = {
    "ppo ale:Pong": "--algo.num-steps 8 --env.img-width 36 --env.img-height 36 "
                    "--env.max-num-frames-per-episode 80",
    "dqn gym:CartPole-v1": "--algo.num-steps 4 --algo.learning-starts 16 --algo.batch-size 8 "
                           "--actors 2 --log-every 16",
}  # fmt: skip


@pytest.mark.matrix("tests/runs/test_seeds_in_turn.py::"
                    "test_a_signal_before_the_first_seed_and_between_two")
@pytest.mark.parametrize("what", ON_THE_HOST)
def test_environments_on_the_host(what, run_cli, tmp_path):
    """Train, go on, evaluate, and the picture of where the time went."""
    out = tmp_path / "run"
    flags = (
        f"{ON_THE_HOST[what]} --algo.num-envs 4 --algo.hidden 8 --log-every 16 --eval-episodes 2 "
        f"--no-tensorboard".split()
    )
    code, printed, err = run_cli("train", *what.split(), *flags, "--total-steps", "64", "--out",
                                 str(out))
    assert code == 0, err
    assert f"{what.split()[0]} on {what.split()[1]}" in printed and "mean of 2" in printed
    assert [row["env_steps"] for row in rows(out)][-1] == 64
    assert (out / "time.png").exists()
    code, _, err = run_cli("train", "--resume", str(out), "--total-steps", "128",
                           "--no-tensorboard")
    assert code == 0, err
    steps = [row["env_steps"] for row in rows(out)]
    assert steps[-1] == 128 and len(steps) == len(set(steps))
    shares = [value for name, value in rows(out)[-1].items() if name.startswith("time_")]
    assert len(shares) == 9 and all(float(np.ravel(x)[0]) >= 0 for x in shares)
    code, printed, err = run_cli("eval", str(out), "--episodes", "2")
    assert code == 0 and "2" in printed, err


def test_a_module_of_the_user(run_cli, tmp_path, monkeypatch):
    (tmp_path / "cli_user_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = ["train", "mine", "Mine-v0", "--import", "cli_user_module", "--algo.bonus"]
    code, _, err = run_cli(*arguments, "-1", *TINY)
    assert code == 2 and "bonus must be a finite number in [0, inf), got -1" in err and list(
        tmp_path.glob("runs")) == []
    code, out, _ = run_cli(*arguments, "2", *TINY, "--total-steps", "300", "--no-tensorboard",
                           "--no-pictures")
    assert code == 0 and "mine on Mine-v0: defaults, no preset is tuned for this" in out
    content = read(tmp_path / "runs" / "mine-Mine-v0-s0-1" / "config.json")
    assert (
        content["imports"] == ["cli_user_module"] and content["algorithm"]["settings"]["bonus"] == 2
    )
    listed = [run_cli("list", part, "--import", "cli_user_module")[1]
              for part in ("algorithms", "environments")]
    assert "An algorithm of the user." in listed[0] and "Mine-v0" in listed[1]
    assert "--algo.bonus FLOAT" in run_cli(*arguments[:-1], "--help-all")[1]


OWN = """
from typing import Callable

import flax.linen as nn
import jaxrl_fast as jf


class Net(nn.Module):
    features: tuple[int, ...] = (8, 8)
    activation: Callable = nn.relu

    @nn.compact
    def __call__(self, obs):
        for n in self.features:
            obs = self.activation(nn.Dense(n)(obs))
        return obs


@jf.register_algorithm
@jf.settings
class Plain(jf.PPO):
    name = "plain"
    widths: tuple[int, ...] = jf.setting((8, 8), "sizes of mine")
    torso_of_mine: str | nn.Module = "auto"
"""


@pytest.mark.matrix("test_a_module_of_the_user")
def test_a_network_of_the_user_and_a_file_without_future_annotations(run_cli, tmp_path,
                                                                     monkeypatch):
    (tmp_path / "cli_own_module.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    train = ["train", "plain", "CartPole-v1", "--import", "cli_own_module", "--algo.network",
             "cli_own_module:Net"]
    rest = ["--algo.num-envs", "4", "--algo.num-steps", "32", "--eval-episodes", "4",
            "--no-tensorboard"]
    own = ["--algo.torso-of-mine", "cli_own_module:Net", "--algo.hidden", "32"]
    code, _, err = run_cli(*train, *rest, *own, "--algo.widths", "64", "64", "--total-steps", "300",
                           "--out", "run")
    assert code == 0, err
    settings = read(tmp_path / "run" / "config.json")["algorithm"]["settings"]
    net = {"class": "cli_own_module:Net", "fields": {"features": [8, 8]}}
    assert settings["network"] == settings["torso_of_mine"] == net
    assert settings["widths"] == [64, 64] and settings["hidden"] == [32]
    code, out, err = run_cli("eval", "run", "--episodes", "4")
    assert code == 0 and "plain on CartPole-v1" in out, err
    assert run_cli("train", "--config", "run", "--help")[0] == 0
    assert run_cli("train", "--resume", "run", "--total-steps", "400", "--no-tensorboard")[0] == 0


def test_list_says_how_to_install_gymnax(run_cli, modules):
    modules(gymnax=None)
    code, out, _ = run_cli("list")
    assert code == 0 and "  gymnax      not installed: pip install 'gymnax>=1.0.1,<2'\n" in out


def test_list_fits_a_screen_and_a_part_shows_all(run_cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run_cli("list")
    assert code == 0 and len(out.splitlines()) <= 23 and max(map(len, out.splitlines())) <= 80
    for part in ("ppo", "es", "CartPole-v1", "brax/ant", "probe/", "jsonl:PATH", "uniform:LOW,HIGH",
                 "ppo/CartPole-v1", "more"):
        assert part in out
    parts = {"algorithms": "Rainbow (", "environments": "Breakout-MinAtar", "logs": "A CSV file",
             "presets": "sac/Pendulum-v1"}
    for part, name in parts.items():
        shown = run_cli("list", part)[1]
        assert name not in out and name in shown and max(map(len, shown.splitlines())) <= 80
    assert "PART must be one of 'algorithms', 'environments'" in run_cli("list", "algo")[2]
    monkeypatch.delenv("COLUMNS")  # as in a pipe: lines are whole
    assert "..." not in run_cli("list", "algorithms")[1]


def test_help_of_everything(run_cli):
    code, out, err = run_cli()
    assert (code, err) == (0, "") and "Begin with:  jaxrl-fast train" in out
    assert out == run_cli("--help")[1]
    assert "jaxrl-fast 0." in run_cli("--version")[1]
    for command, part in (("eval", "--episodes INT"), ("plot", "--metric TEXT"),
                          ("list", "--import MODULE")):
        code, out, _ = run_cli(command, "--help")
        assert code == 0 and part in out
    assert "(default: 500_000)" in run_cli("train", "ppo", "Acrobot-v1", "--no-preset", "--help")[1]
    code, out, _ = run_cli("train", "--help-all")
    assert code == 0
    for part in ("algorithms: ppo, dqn", "CartPole-v1", "train ppo CartPole-v1", "--total-steps",
                 "--resume"):
        assert part in out
    code, out, _ = run_cli("train", "ppo", "CartPole-v1", "--help-all")
    assert code == 0
    for part in (
        "--algo.num-envs INT",
        "(preset: 8)",
        "(default: 0.2)",
        "--env.gravity FLOAT",
        "--no-preset",
        "--wandb",
    ):
        assert part in out
    assert "(preset:" not in run_cli("train", "ppo", "CartPole-v1", "--no-preset", "--help-all")[1]
    options = [o
               for o in describe_train(["ppo", "brax/inverted_pendulum"], [], None).options
               if o.group == "env"]
    # the adapter's own settings are explained
    assert len(options) > 10 and all(o.help for o in options)
    found = {o.name: o.metavar for o in options if o.metavar}
    assert found == {"backend": "{spring,positional,generalized,mjx}",
                     "resets": "{pool,every_step}"}
    assert "--total-steps INT" in run_cli("train", "--resume", "x", "--help")[1]


def test_ctrl_c_saves_and_prints_how_to_resume(run_cli, tmp_path):
    run = tmp_path / "run"

    ended = threading.Event()

    def interrupt():
        while not ended.wait(0.1):
            if (run / "metrics.jsonl").exists():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        code, _, err = run_cli(
            "train", "ppo", "CartPole-v1", "--total-steps", "5e7", *TINY, "--out", str(run),
            "--no-tensorboard", "--log-every", "128", "--chunk-seconds", "0.2",
        )  # fmt: skip
    finally:
        ended.set()
        thread.join()
    assert code == 130
    assert f"go on with: jaxrl-fast train --resume {run}" in err.splitlines()[-1]
    assert "Traceback" not in err and list((run / "checkpoints" / "last").iterdir())


def ends_with(error, warning=""):
    """Register test/ends, an environment whose making raises the error, and return the words of a
    run on it."""

    class Ends(jf.Env):
        def __init__(self):
            if warning:
                warnings.warn(warning, stacklevel=1)
            raise error

    jf.register("test/ends", Ends)
    return "train", "ppo", "test/ends"


def test_an_unexpected_error_is_one_line_and_a_traceback_on_demand(run_cli, monkeypatch):
    words = ends_with(ZeroDivisionError("division by zero"))
    code, _, err = run_cli(*words)
    assert (
        code == 1 and err.startswith("jaxrl-fast: error: ZeroDivisionError")
        and "JAXRL_FAST_DEBUG=1" in err
    )
    monkeypatch.setenv("JAXRL_FAST_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(words)


def test_imports_and_a_command_line_start_no_backend_and_import_nothing_heavy():
    """Subpackages come with a plain import, once they are read."""
    code = """
import sys
import jaxrl_fast as jf
assert not {"flax", "jaxrl_fast.envs"} & set(sys.modules)
from jaxrl_fast import runtime
from jaxrl_fast.cli import command as cli
assert cli.main(["train", "ppo", "CartPole-v1", "--seeds", "2", "--help"]) == 0
assert cli.main(["train", "ppo", "CartPole-v1", "--nope"]) == 2
assert not runtime.backend_started()
heavy = {"matplotlib", "orbax", "tensorboardX", "gymnax", "brax", "PIL", "wandb", "gymnasium"}
assert not heavy & {m.partition(".")[0] for m in sys.modules}, heavy & {
    m.partition(".")[0] for m in sys.modules}
jf.testing.check_env, jf.envs.TimeLimit, jf.memory.RolloutMemory, jf.networks.MLP
"""
    fresh.check(code)


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "jaxrl_fast", "trian"], capture_output=True,
                          text=True, timeout=60)
    assert (
        done.returncode == 2 and "did you mean 'train'" in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "500_000", 500_000), ("int", "5e5", 500_000), ("int", "500000", 500_000),
        ("int", "-1", -1),
        ("float", "1e-3", 1e-3), ("number", "5", 5), ("number", "2.5", 2.5), ("any", "none", None),
        ("any", "True", True), ("any", "7", 7), ("any", "(1, 2)", (1, 2)), ("any", "word", "word"),
        ("str", "5", "5"),
        ("ints", ("64", "32"), (64, 32)), ("ints", ("64,32",), (64, 32)), ("ints", ("none",), ()),
        ("numbers", ("0.5", "1"), (0.5, 1)),
    ],
)  # fmt: skip
def test_text_to_values(kind, text, value):
    found = values.convert("--x", kind, text)
    assert found == value and type(found) is type(value)


def test_positionals_stand_anywhere_before_the_groups():
    split = cli_args.positionals
    assert split(["ppo", "E", "--seed", "3"], 2) == (["ppo", "E"], ["--seed", "3"])
    flags = ["--seed", "3", "--no-preset"]
    assert split(["--seed", "3", "ppo", "--no-preset", "E"], 2) == (["ppo", "E"], flags)
    assert split(["--seed=3", "ppo", "E", "x"], 2) == (["ppo", "E"], ["--seed=3", "x"])
    assert split(["--seed", "-1", "ppo", "E"], 2) == (["ppo", "E"], ["--seed", "-1"])
    assert split(["ppo", "--algo.hidden", "64", "E"], 2) == (["ppo"], ["--algo.hidden", "64", "E"])


@pytest.mark.parametrize(("code", "expected"), [("licence lost", 1), (None, 0), (7, 7)])
def test_a_library_that_exits_is_reported(code, expected, run_cli):
    """A text in SystemExit is printed and is a failure, as in Python."""
    assert run_cli(*ends_with(SystemExit(code))) == (
        expected, "", f"jaxrl-fast: error: {code}\n" if expected == 1 else "")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RunError("a\n  motor\n\nburnt out; saved"), "a motor burnt out; saved"),
        (RunError("x " * 5000), "(JAXRL_FAST_DEBUG=1 shows the rest)"),
        (ValueError("\nfirst\nsecond"), "ValueError: first (JAXRL_FAST_DEBUG=1 shows where)"),
        (SystemExit("licence\nlost"), "licence lost"),
    ],
)
def test_errors_and_warnings_are_a_line_each(error, says, run_cli):
    warning, last = (
        run_cli(*ends_with(error, "\x1b[31mERROR: of a\nlibrary\x1b[0m"))[2].splitlines())
    assert warning == "jaxrl-fast: warning: ERROR: of a library"
    assert last.startswith("jaxrl-fast: error: ") and last.endswith(says) and len(last) < 1100
