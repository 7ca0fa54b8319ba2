"""`jaxrl-fast new` and `completion`: what they write works at once."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jaxrl_fast as jf
from helpers import packages
from jaxrl_fast.algorithms import ALGORITHMS
from jaxrl_fast.cli import args, completion, help, other_flags, runs
from jaxrl_fast.cli import command as cli
from jaxrl_fast.cli.commands import COMMANDS
from jaxrl_fast.testing import check_env

SMALL = ["--total-steps", "1024", "--eval-episodes", "2", "--no-tensorboard", "--no-pictures"]


def run_tests(folder: Path, file: str) -> None:
    """Call the tests of a file here: a process of its own would import JAX again."""
    names: dict[str, object] = {}
    exec(compile((folder / file).read_text(), file, "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


@pytest.mark.matrix("test_a_new_project_is_found_by_its_entry_points")
def test_a_new_algorithm_trains_and_passes_its_tests(place, run_cli):
    code, out, _ = run_cli("new", "algorithm", "fresh_algo")
    assert code == 0 and "jaxrl-fast train fresh_algo CartPole-v1 --import fresh_algo" in out
    assert sorted(x.name for x in place.iterdir()) == ["fresh_algo.py", "test_fresh_algo.py"]
    line = ["train", "fresh_algo", "CartPole-v1", "--import", "fresh_algo", "--out", "run", *SMALL]
    assert cli.main(line) == 0 and (place / "run/result.json").is_file()
    run_tests(place, "test_fresh_algo.py")
    assert "skeleton" not in (place / "fresh_algo.py").read_text().lower()
    assert "fresh_algo" in ALGORITHMS


@pytest.mark.matrix("test_a_new_project_is_found_by_its_entry_points")
def test_a_new_environment_conforms_and_is_trained(place, run_cli):
    assert run_cli("new", "environment", "fresh-env")[0] == 0
    line = ["train", "ppo", "fresh_env", "--import", "fresh_env", "--algo.hidden", "8", "--out",
            "run", *SMALL]
    code, out, _ = run_cli(*line)
    assert code == 0
    # what it says to try works as it is
    assert {"jaxrl-fast eval run --import fresh_env",
            "jaxrl-fast report run --import fresh_env"} <= {
        text.strip() for text in out.splitlines()}
    run_tests(place, "test_fresh_env.py")
    assert len(jf.show(jf.make("fresh_env"), [1, 0, 1]).frames) == 4
    assert "skeleton" not in (place / "fresh_env.py").read_text().lower()


@pytest.mark.parametrize("there", [True, False])
def test_the_tests_of_a_skeleton_need_pytest(there, place, run_cli, monkeypatch):
    if not there:  # as after a plain `pip install`
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec",
                            lambda name: None if name == "pytest" else find(name))
    out = run_cli("new", "environment", "with_tests")[1]
    assert ("pip install pytest && pytest test_with_tests.py" in out) != there
    assert out.endswith("pytest test_with_tests.py\n")


def test_a_new_project_is_found_by_its_entry_points(place, run_cli, monkeypatch):
    assert run_cli("new", "project", "fresh-things")[0] == 0
    project = place / "fresh-things"
    content = tomllib.loads((project / "pyproject.toml").read_text())
    groups = content["project"]["entry-points"]
    assert content["tool"]["setuptools"]["package-dir"] == {"": "."}  # editors follow a path
    package = {str(x.relative_to(project)): x.read_text()
               for x in project.glob("fresh_things/*.py")}
    (place / "site").mkdir()
    monkeypatch.syspath_prepend(str(place / "site"))
    packages.install(place / "site", "fresh-things", groups, package)
    line = ["train", "fresh-things", "fresh-things/walk", "--algo.hidden", "8", "--out", "run",
            *SMALL]
    assert cli.main(line) == 0
    check_env(jf.make("fresh-things/walk", length=4), num_envs=4)
    for file in ("test_algorithm.py", "test_environment.py"):
        compile((project / "tests" / file).read_text(), file, "exec")
    readme = (project / "README.md").read_text()
    assert "jaxrl-fast train ppo fresh-things/walk" in readme


@pytest.mark.parametrize(("words", "message"), [
    ((), "KIND must be given, got none: jaxrl-fast new environment maze"),
    (("enviroment", "x"), "did you mean 'environment'"),
    (("environment", "2fast"), "NAME must be the name of a module, got '2fast'"),
    (("environment", "class"), "NAME must be the name of a module"),
    (("environment", "x" * 300), "at most 100 lower-case letters"),
    (("algorithm", "ppo"), "NAME must be a name that jaxrl_fast does not use itself, got 'ppo'"),
    (("algorithm", "jax"),
     "NAME must be a name that is not installed, got 'jax': jax.py would hide"),
    (("project", "json"), "NAME must be a name that is not installed, got 'json'"),
    (("algorithm", "there"), "NAME must be one whose file there.py is not there yet"),
])  # fmt: skip
def test_bad_names_write_nothing(words, message, place, run_cli):
    (place / "there.py").write_text("mine")
    code, _, err = run_cli("new", *words)
    assert code == 2 and message in err and err.count("\n") == 1
    assert (
        [x.name for x in place.iterdir()] == ["there.py"]
        and (place / "there.py").read_text() == "mine"
    )


COMPLETE = """
source ./script
f=$(complete -p jaxrl-fast | sed 's/.*-F \\([^ ]*\\).*/\\1/')
for line in "tr" "train ppo CartPole-v1 --total" "export RUN --for" "train q" \\
    "sweep ppo Mountain" "eval ./scr" "new env" "export RUN --format o" \\
    "train ppo CartPole-v1 --batching v" "report RUN --out ./scr" "ladder p" \\
    "bench ppo_cart" "train ppo CartPole-v1 --algo.lea" "sweep dqn CartPole-v1 --env.grav" \\
    "plan sac Pendulum-v1 --algo.no-norm" "train nothing CartPole-v1 --algo.lea"; do
  COMP_WORDS=(jaxrl-fast $line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMP_LINE="jaxrl-fast $line"; COMP_POINT=${#COMP_LINE}; COMPREPLY=(); $f; echo "${COMPREPLY[@]}"
done
"""


def test_bash_completes_commands_names_files_and_flags(place, run_cli):
    code, out, _ = run_cli("completion", "bash")
    assert code == 0
    (place / "script").write_text(out)
    done = subprocess.run(["bash", "-c", COMPLETE], capture_output=True, text=True, timeout=60)
    names = ["qr_dqn", "MountainCar-v0 MountainCarContinuous-v0", "./script", "environment",
             "onnx", "vmap", "./script", "pong", "ppo_cartpole", "--algo.learning-rate",
             "--env.gravity", "--algo.no-normalize-observations", ""]
    assert done.stdout.splitlines() == ["train", "--total-steps", "--format", *names], done.stderr


def parser_flags(*words: str) -> set[str]:
    """Return the flags of the parser of a command line."""
    with pytest.raises(args.UnknownFlag) as refused:
        cli._call(words[0], [*words[1:], "--help", "--never"])
    return {*refused.value.known}


def test_completion_offers_the_flags_that_each_parser_takes(run_cli):
    _, out, _ = run_cli("completion", "bash")
    known = ast.literal_eval(re.search(r"^COMPLETION_SPEC = (.*)$", out, re.MULTILINE)[1])
    offered = {command: {flag for option in found["options"] for flag in option["flags"]}
               for command, found in known["subcommands"].items()}
    parsed = {command: parser_flags(command) for command in COMMANDS}
    for command in parsed:
        if "--resume" in parsed[command]:
            parsed[command] |= parser_flags(command, "--resume", "RUN")
    assert offered == parsed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell, run_cli):
    code, out, _ = run_cli("completion", shell)
    assert code == 0 and "jaxrl-fast" in out and "total-steps" in out and "'MountainCar-v0'" in out
    assert "--help-all" in out
    assert ("compdef _tyro_jaxrl_fast jaxrl-fast" in out) == (shell == "zsh")


def test_fish_passes_the_words_before_the_cursor_alone(run_cli):
    _, out, _ = run_cli("completion", "fish")
    assert '"$pycode" | $python_cmd - $words' in out  # it is too long for an argument
    source = re.search(r'set -l pycode "(.*?)"\n    set -l results', out, re.DOTALL)[1]
    source = re.sub(r"\\(.)", r"\1", source)
    for words, offered in (((), "train"), (("train",), "ppo"), (("train", "ppo"), "CartPole-v1"),
                           (("train", "ppo", "CartPole-v1"), "--algo.learning-rate")):
        command = [sys.executable, "-", "jaxrl-fast", *words, str(len(words) + 1)]
        done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60)
        names = [line.partition("\t")[0] for line in done.stdout.splitlines()]
        assert offered in names, (words, done.stderr)


def test_the_help_has_a_line_for_each_shell(run_cli):
    code, out, _ = run_cli("completion", "--help")
    lines = [line.strip() for line in out.splitlines()]
    assert code == 0 and set(completion.SHELLS.values()) <= set(lines)


def test_a_shell_that_is_not_known(run_cli):
    code, _, err = run_cli("completion", "tcl")
    assert code == 2 and "SHELL must be" in err


def test_the_overview_fits_a_screen(run_cli):
    lines = run_cli()[1].splitlines()
    assert len(lines) <= 23 and max(map(len, lines)) <= 80 and lines[-1].startswith("Begin with:")


RUNS = [f"{name} ppo CartPole-v1"
        for name in ("train", "sweep", "plan", "forecast", "compile", "profile")]


@pytest.mark.parametrize(
    "words", [*COMMANDS, "train --resume RUN", *RUNS, "train rainbow ale:Pong"])
def test_the_help_of_a_command_fits_a_screen(words, run_cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run_cli(*words.split(), "--help")
    lines = [-(-len(line) // 80) for line in re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()]
    assert code == 0 and 3 < sum(map(max, lines, [1] * len(lines))) <= help.ROWS, out
    assert "\ntry:  " in out or "\nall " in out  # what to type next


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_a_help_have_flags_of_the_command(command):
    known = [option.flag for option in other_flags.flags_of(command)]
    assert COMMANDS[command].tries
    for typed in COMMANDS[command].tries:
        flags = [word for word in typed.split() if word.startswith("--")]
        assert {flag for flag in flags if not flag.startswith(("--algo.", "--env."))} <= {*known}


def test_a_help_is_coloured_on_a_terminal(run_cli, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033" not in run_cli("eval", "--help")[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = help.first_screen("jaxrl-fast eval RUN", "Play.", runs.EVAL)
    assert "\033[1mflags of the command\033[0m" in shown
    assert "\033[36m--episodes INT\033[0m" in shown


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_the_help_of_a_resume_needs_no_folder(command, run_cli):
    code, out, _ = run_cli(command, "--resume", "--help")
    assert code == 0 and "--resume" in out and "Resume a " in out


def test_the_examples_of_sweep_have_settings_to_compare(run_cli):
    _, out, _ = run_cli("sweep", "--help")
    examples = [line.strip() for line in out.splitlines() if "jaxrl-fast sweep ppo" in line]
    assert examples and all("--grid" in line or "--sample" in line for line in examples)


def test_the_first_screen_names_the_way_to_all_flags(run_cli):
    first, whole = (run_cli("train", "ppo", "CartPole-v1", flag)[1]
                    for flag in ("--help", "--help-all"))
    assert (
        first.endswith("jaxrl-fast train ppo CartPole-v1 --help-all\n")
        and len(whole.splitlines()) > 200
    )
    flags = set(re.findall("^  (--[a-z.-]+)", first, flags=re.M))
    assert {"--total-steps", "--seeds", "--out", "--algo.learning-rate"} <= flags and all(
        flag in whole for flag in flags)
