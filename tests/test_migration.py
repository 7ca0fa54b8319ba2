"""The right columns of docs/migration.md: Python runs at tiny sizes, command lines are read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from helpers.matrix import family
from jaxrl_fast.cli.train import read_plan, resolve

PAGE = Path(__file__).resolve().parents[1] / "docs" / "migration.md"
SMALL = {
    "500_000": "1_024", "131_072": "1_024", "16_384": "512", "100_000": "1_024", "200_000": "2_048",
    "256)": "2)", " 8))": " 2))", "env, 64)": "env, 2)", "episodes=10": "episodes=2",
    "learning_rate=2.5e-4, num_envs=4, num_steps=128": "num_envs=4, num_steps=16, hidden=(8,)",
    "jf.PPO(num_steps=128": "jf.PPO(num_envs=4, hidden=(8,), num_steps=16",
    "jf.PPO()": "jf.PPO(num_envs=4, num_steps=16, hidden=(8,))",
}  # fmt: skip
ELSEWHERE = ("--out", "--log")  # flags of `train` that `plan` does not have, and their value


def programs() -> dict[str, list[str]]:
    """Return {section and table: the code of its right column}."""
    found = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        title = section.split("\n")[0]
        for i, table in enumerate(re.findall(r"(?:^\|.*\n)+", section, re.M)):
            rows = [re.split(r"(?<!\\) \| ", row.strip("| \n")) for row in table.splitlines()[2:]]
            if all(len(row) == 2 for row in rows):
                found[f"{title} {i}"] = [re.fullmatch(r"`(.*)`", right.strip())[1]
                                         for _, right in rows]
    return found


PROGRAMS = programs()
PYTHON = {name: lines for name, lines in PROGRAMS.items() if not lines[0].startswith("jaxrl-fast")}
SHELL = sorted({line for name, lines in PROGRAMS.items() if name not in PYTHON for line in lines})


def test_every_table_is_a_program():
    assert len(PYTHON) == 5 and len(SHELL) > 20


@pytest.mark.parametrize("lines", family(
    [pytest.param(lines, id=name) for name, lines in PYTHON.items()],
    [name for name in PYTHON if not name.startswith(("Stable", "rejax", "PureJaxRL"))]))
def test_python_runs(lines: list[str], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = (
        "import dataclasses\nimport jax, jax.numpy as jnp\nimport jaxrl_fast as jf\n"
        + "\n".join(lines)
    )
    for old, new in SMALL.items():
        code = code.replace(old, new)
    exec(compile(code, str(PAGE), "exec"), {})


@pytest.mark.parametrize("line", SHELL)
def test_command_lines_are_valid(line: str):
    """Algorithm, environment and settings, without a trace."""
    program, verb, *words = shlex.split(line)
    assert program == "jaxrl-fast" and verb in ("train", "sweep")
    for flag in ELSEWHERE:
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    if "--grid" in words:
        at = words.index("--grid")
        name, values = words[at + 1].split("=")
        words[at : at + 2] = [f"--{name}", values.split(",")[0]]
    resolve(*read_plan(words, "plan"))
