"""Hostile text for every flag of every command: exit code 2, one line on stderr, nothing written,
nothing compiled."""

# ruff: noqa: RUF001 - digits that are not ASCII

from __future__ import annotations

import shlex

import pytest

from helpers.matrix import family
from jaxrl_fast import values
from jaxrl_fast.cli import args as cli_args
from jaxrl_fast.cli import command as cli
from jaxrl_fast.errors import ConfigError

NO_INTEGER = ("", " ", "²", "١٢", "٣.٥", "1,2", "64,", "0x10", "1e", "1__0", "_1", "--", "none",
              "nan", "-inf", "1e999", "9" * 5000, "\0", "é")
NO_NUMBER = ("", " ", "²", "١٢", "1,2", "1e-3,,", "0x10", "1e", "--", "none", "true", "1_",
             "9" * 5000, "\0", "nan(1)")
NO_PATH = ("", " ", "\t", "\0", "a\0b", "x" * 300, "y/" + "x" * 300, "z" * 5000)
BAD = {  # of every kind
    "int": NO_INTEGER,
    "float": NO_NUMBER,
    "rate": NO_NUMBER,
    "number": NO_NUMBER,
    "ints": ("", " ", ",", "64,", ",64", "64,,64", "²", "64,²", "64,none", ";;", "١٢", "1.5", "nan",
             "\0"),
    "numbers": ("", ",", "1,", "1,,2", "²", "none", ";;", "1;2", "\0"),
    "path": NO_PATH,
    "file": (*NO_PATH, ".", "/", "/proc/nowhere/x.png"),
    "picture": (*NO_PATH, ".", "/", "/proc/nowhere/x.png", "x.txt"),
    "word": ("", " ", "\n"),
    "append": ("", " ", "no such module\n", "a=\0", "²"),
    "devices": ("", "0", "-1", "²", "١", "1,", "none", "1.5", "2;", "9" * 5000),
    "mesh": ("", ",", "env", "env=", "env=²", "env=0", "env=-1", "env=1,", "env=1,env=1", "rows=1",
             "env=١", "=1",
             "env=" + "9" * 5000),
    "bool": ("", "1", "yes", "\0"),
    "any": ("²", "(", "[[]]", "{[]: 1}", "wörd", "\0", "1,,", "'"),
    "str": ("²", "\0", "no\nsuch"),
}  # fmt: skip
COMMANDS = [
    "train dqn CartPole-v1", "train ppo brax/ant", "sweep ppo CartPole-v1", "plan c51 CartPole-v1",
    "train --resume .", "sweep --resume .", "eval .", "plot .", "compare . .", "experience a b",
    "list", "doctor", "ladder pong", "forecast ppo CartPole-v1", "bench",
    "tune-speed ppo CartPole-v1",
]  # fmt: skip


@pytest.fixture
def offline(tmp_path, monkeypatch, nothing_compiles):
    """An empty working directory, in which nothing may be compiled."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flags_of(line: str) -> list[cli_args.Option]:
    """Return the flags that a command line understands."""
    found = []

    def capture(prog, options, argv):
        found.extend(options)
        raise SystemExit(0)  # as after --help

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_args, "read_flags", capture)
        assert cli.main(line.split()) == 0
    return found


def refused(argv: list[str], capsys, names: str = "") -> str | None:
    """The fault in the refusal of a bad line, or None. names: a word of the message."""
    code = cli.main(argv)
    printed = capsys.readouterr()
    lines = [line
             for line in printed.err.splitlines() if not line.startswith("jaxrl-fast: warning: ")]
    right = code == 2 and not printed.out and len(lines) == 1 and lines[0].startswith(
        "jaxrl-fast: error: ")
    if right and len(lines[0]) < 700 and names.replace("_", "-") in lines[0].replace("_", "-"):
        return None
    return f"{argv!r:.200}: exit {code}, {printed.out!r:.300} {printed.err!r:.700}"


def check_all(lines, capsys, folder) -> None:
    found = [refused(argv, capsys, names) for argv, names in lines]
    wrong = [text for text in found if text]
    assert found and not wrong, "\n".join([f"{len(wrong)} of {len(found)}", *wrong[:20]])
    assert list(folder.iterdir()) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("line", family(COMMANDS, COMMANDS[2:]))
def test_hostile_text_is_refused_by_every_flag(line, offline, capsys):
    lines = []
    # read alike
    same = flags_of("plan ppo CartPole-v1") if line.startswith(("forecast", "tune-speed")) else ()
    kinds = {o.flag: o.kind for o in flags_of(COMMANDS[0])} if line != COMMANDS[0] else {}
    for option in (o for o in flags_of(line) if o.flag not in {o.flag for o in same}):
        texts = BAD[option.kind]
        if kinds.get(option.flag) == option.kind:  # the first command tries all of them
            texts = texts[len(lines) % len(texts):][:1]
        # read when the environment is built, which takes long
        if option.kind in ("any", "str") and "brax" in line:
            continue
        # a module or a setting's choice is looked at after the run directory, and here is none
        later = option.kind == "append" or (option.kind == "str" and not option.choices)
        name = "" if line.endswith(" .") and later else option.name
        lines += [([*line.split(), f"{option.flag}={text}"], name) for text in texts]
        if option.kind == "bool":
            lines.append(([*line.split(), f"{option.off}=1"], option.name))
        elif option.name != "wandb":
            lines.append(([*line.split(), option.flag], option.name))
    check_all(lines, capsys, offline)


@pytest.mark.parametrize("line", [
    "eval", "plot", "compare .", "experience", "experience a", "train --resume", "sweep --resume",
    "train --config", "sweep --config", "plan --config",
])  # fmt: skip
def test_hostile_paths_are_refused(line, offline, capsys):
    check_all([([*line.split(), text], "") for text in NO_PATH], capsys, offline)


SWEEP = "sweep ppo CartPole-v1 --total-steps 64"
GRIDS = (
    "algo.learning-rate=1e-3,,", "algo.learning-rate=,", "algo.learning-rate=,1e-3",
    "algo.learning-rate=", "=1", "algo.learning-rate", "algo.learning-rate=²",
    "algo.learning-rate=١", "algo.learning-rate=1e-3,1e-3", "algo.hidden=;;", "algo.hidden=64,;32",
    "algo.hidden=64,64;", "algo.hidden=64;;32", "algo.hidden=64 ²", "algo.num-envs=4,²",
    "algo.clip-value=true,2", "seeds=1,2", "algo.network=mlp,", "env.gravity=9.8;9.9",
    "algo.learning-rate=[1,2]",
)  # fmt: skip
PRIORS = (
    "algo.learning-rate=uniform:", "algo.learning-rate=uniform:1",
    "algo.learning-rate=uniform:1,2,", "algo.learning-rate=uniform:١,٢",
    "algo.learning-rate=uniform:²,3", "algo.learning-rate=integer:1,²",
    "algo.learning-rate=choice:1,,2", "algo.learning-rate=choice:", "algo.learning-rate=gauss:0,1",
    "algo.learning-rate=uniform:2,1", "algo.learning-rate=uniform:nan,1", "uniform:1,2",
)  # fmt: skip


def test_hostile_grids_and_priors_are_refused(offline, capsys):
    lines = [([*SWEEP.split(), "--grid", text], "") for text in GRIDS]
    lines += [([*SWEEP.split(), "--members", "2", "--sample", text], "") for text in PRIORS]
    lines += [([*SWEEP.split(), "--members", "2", "--pbt", "--sample", text], "")
              for text in PRIORS]
    check_all(lines, capsys, offline)


WRONG = """
-x | --- | --=1 | -- | - | --switch= | --resume= | --config= | train | train ppo |
train ppo CartPole-v1 Pendulum-v1 | train ppo '' | train '' CartPole-v1 |
train ppo CartPole-v1 --algo.no-clip-value=1 | train ppo CartPole-v1 --algo.clip-value=yes |
train ppo CartPole-v1 --algo.clip-value yes | train ppo CartPole-v1 --preset=1 |
train ppo CartPole-v1 --no-preset= | train ppo CartPole-v1 --tensorboard=no |
train ppo CartPole-v1 --distributed=1 | train ppo CartPole-v1 --seeds |
train ppo CartPole-v1 --seeds --seed 1 | train ppo CartPole-v1 --seeds=1=2 |
train ppo CartPole-v1 --seeds 1 2 | train ppo CartPole-v1 --algo.hidden |
train ppo CartPole-v1 --algo.hidden none | train ppo CartPole-v1 --algo.hidden none 64 |
train a2c CartPole-v1 --algo.hidden none | train impala CartPole-v1 --algo.hidden none |
train ppo CartPole-v1 --algo.hidden 64, | train ppo CartPole-v1 --algo.hidden 64,,64 |
train ppo CartPole-v1 --algo.hidden ',' | train ppo CartPole-v1 --algo.hidden '' |
train ppo CartPole-v1 --algo.hidden '64;64' | train ppo CartPole-v1 --algo.hidden -64 |
train ppo CartPole-v1 --out '' | train ppo CartPole-v1 --out |
train ppo CartPole-v1 --out a --out '' | train ppo CartPole-v1 --devices 0 |
train ppo CartPole-v1 --devices -1 | train ppo CartPole-v1 --devices 1.0 |
train ppo CartPole-v1 --devices all,1 | train ppo CartPole-v1 --mesh env:2 |
train ppo CartPole-v1 --mesh env=2,env=2 | train ppo CartPole-v1 --mesh 'env=2 population=2' |
train ppo CartPole-v1 --processes 2 | train ppo CartPole-v1 --process 0 |
train ppo CartPole-v1 --coordinator x:1 | train ppo CartPole-v1 --distributed --processes ² |
train ppo CartPole-v1 --distributed --process 1.5 |
train ppo CartPole-v1 --distributed --coordinator '' |
train ppo CartPole-v1 --distributed --processes 2 |
train ppo CartPole-v1 --distributed --coordinator x:1 --processes 2 --process 2 |
train --resume . --devices 0 | train --resume . --mesh env=0 | train --resume . x |
train --resume '' | train --resume nowhere | train --resume=. --resume= | sweep | sweep ppo |
sweep ppo CartPole-v1 --pbt=1 | sweep ppo CartPole-v1 --pbt | sweep ppo CartPole-v1 --grid |
sweep --resume '' | sweep ppo CartPole-v1 --members 2 |
sweep ppo CartPole-v1 --halving 0 --grid algo.discount=0.9,0.99 |
sweep ppo CartPole-v1 --eta 1 --halving 2 --grid algo.discount=0.9,0.99 |
sweep ppo CartPole-v1 --wave 0 --grid algo.discount=0.9,0.99 |
sweep ppo CartPole-v1 --pbt-every 5 --grid algo.discount=0.9,0.99 | plan | plan ppo |
plan ppo CartPole-v1 --compile=1 | plan ppo CartPole-v1 --out x | plan ppo CartPole-v1 --seeds ² |
eval | eval . . | eval nowhere --episodes ² | eval nowhere --seed 1e99 | eval nowhere --seed -1 |
eval nowhere --which worst | eval nowhere --mode random | eval nowhere --member ٣ | eval '' |
eval ' ' | plot | plot '' | plot . --out '' | plot . --out . | plot . --metric '' | compare |
compare . | compare . '' | compare . . --csv '' | compare . . --csv . | compare . . --out '' |
compare . . --out / | experience | experience a | experience a b c | experience '' b |
experience a '' | experience a.npz b --member ² | experience a . |
experience a.npz b --env.stack 2 | experience a.npz b --environment '' |
experience a.npz b --environment nothing | list x | list --import '' | list --import .. |
list --import 'a b' | ladder | ladder breakout | ladder pong --minutes ² | ladder pong --minutes 0 |
ladder pong --minutes nan | ladder pong --seed -1 | ladder pong --rungs '' |
ladder pong --rungs nothing | ladder pong --out '' | ladder pong --full --minutes 1 |
ladder pong --full=1 | trian | ² |
sweep ppo CartPole-v1 --members 0 --sample algo.discount=uniform:0.9,0.99
"""


def test_wrong_command_lines_are_refused(offline, capsys):
    lines = [shlex.split(line) for line in WRONG.replace("\n", " ").split("|")]
    assert len(lines) > 107
    check_all([(line, "") for line in lines], capsys, offline)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "+5", 5), ("int", "1_000", 1000), ("int", "1E3", 1000), ("int", "2.0", 2),
        ("float", "-.5", -0.5), ("float", "1.", 1.0), ("float", "1_0.5e-1_0", 10.5e-10),
        ("float", "-Infinity", float("-inf")), ("ints", ("64, 32",), (64, 32)),
        ("ints", ("64,32", "16"), (64, 32, 16)), ("ints", ("None",), ()), ("devices", "ALL", "all"),
        ("devices", "2", 2), ("mesh", "population=4, env=2", {"population": 4, "env": 2}),
        ("path", "new folder/x", "new folder/x"), ("str", "", ""),
    ],
)  # fmt: skip
def test_valid_text_is_accepted(kind, text, value):
    assert values.convert("--x", kind, text) == value


@pytest.mark.parametrize("kind", ["int", "float", "rate", "number", "any"])
def test_a_number_too_small_for_a_float_is_refused(kind):
    with pytest.raises(ConfigError, match="at least 1e-323"):
        values.convert("--x", kind, "1e-400")
