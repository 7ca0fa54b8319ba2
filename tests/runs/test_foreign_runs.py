"""A run directory of somebody else's is data: no command executes what its files name. `hostile/`
has a file a way to try it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import imports
from jaxrl_fast.errors import UserError
from jaxrl_fast.logs import plots
from jaxrl_fast.runs import config_json

HOSTILE = sorted((Path(__file__).parent / "hostile").glob("*.json"))
EVIL = """
open({mark!r}, "w").close()
import dataclasses
import flax.linen as nn
import jaxrl_fast as jf

class Net(nn.Module):
    pass

PPO = World = jf.PPO
rate = print
"""
LOADING = {  # commands that make objects of what is in config.json
    "eval": "eval {run} --episodes 2",
    "eval last": "eval {run} --episodes 2 --which last",
    "resume": "train --resume {run} --total-steps 1024 --no-tensorboard",
    "repeat": "train --config {run} --total-steps 128 --out again --no-tensorboard",
    "plan": "plan --config {run}",
    "start": "train ppo CartPole-v1 --start-from {run} --out again --no-tensorboard",
    "sweep": "sweep --config {run} --grid algo.learning-rate=1e-3 --out again",
    "sweep resume": "sweep --resume {sweep}",
    "experience": "experience {run} folder",
}
READING = ("plot {run}", "compare {run} {run}/../other", "list", "list --import jaxrl_fast")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("foreign") / "run"
    tools.train("ppo", run, total_steps=256)
    return run


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """(the run, a sweep with its config.json): evil_module.py is in the working directory, in the
    run and beside both."""
    monkeypatch.chdir(tmp_path)
    run, sweep = tmp_path / "run", tmp_path / "sweep"
    shutil.copytree(made, run)
    for file in run.rglob("meta/metadata"):  # its author leaves out what would refuse the edits
        content = json.loads(file.read_text())
        del content["settings_of_config"]
        file.write_text(json.dumps(content))
    for file in run.rglob("checksums.json"):
        file.unlink()
    shutil.copytree(made, tmp_path / "other")
    sweep.mkdir()
    for folder in (run, sweep, tmp_path):
        (folder / "evil_module.py").write_text(EVIL.format(mark=str(tmp_path / "PWN")))
    return run, sweep


def change(run: Path, sweep: Path, changes: dict) -> None:
    content = json.loads((run / "config.json").read_text())
    for key, value in changes.items():
        *path, last = key.split(".")
        part = content
        for name in path:
            part = part[name]
        part[last] = value
    (run / "config.json").write_text(json.dumps(content))
    part = {"configurations": [0], "seed": 0, "seeds": 1}
    about = {"format": 1, "base": content, "configurations": [{"algo.learning_rate": 1e-3}],
             "parts": [part]}
    (sweep / "sweep.json").write_text(json.dumps(about))


def assert_nothing_ran(folder: Path, path: list[str]) -> None:
    assert not (folder / "PWN").exists()
    assert not [name for name in sys.modules if "evil_module" in name]
    assert sys.path == path


# By default each file meets a third of the commands, and each command a third of the files.
@pytest.mark.parametrize(("file", "lines"), family(
    [pytest.param(file, list(LOADING)[at % 3 :: 3], id=file.stem)
     for at, file in enumerate(HOSTILE)]
    + [pytest.param(file, [name for i, name in enumerate(LOADING) if i % 3 != at % 3],
                    id=f"{file.stem}, others") for at, file in enumerate(HOSTILE)],
    len(HOSTILE)))
def test_a_foreign_run_executes_nothing(file, lines, here, run_cli, tmp_path, monkeypatch):
    """Each command is refused with what to type; so are the functions; those that only read
    pictures and scores go on."""
    monkeypatch.setattr(plots, "save", lambda figure, path: Path(path))  # what a plot reads is read
    case, before = json.loads(file.read_text()), list(sys.path)
    (run, sweep), population = here, "run.population" in case["changes"]
    change(run, sweep, case["changes"])
    for name in lines:
        line = LOADING[name]
        # members are a sweep's own there
        if population and name in ("plan", "sweep", "sweep resume"):
            run_cli(*line.format(run=run, sweep=sweep).split())
            continue
        code, out, err = run_cli(*line.format(run=run, sweep=sweep).split())
        errors = [text for text in err.splitlines() if "warning: total_steps" not in text]
        assert code == 2 and len(errors) == 1, (name, out, err)
        assert all(text in err for text in case["says"]), (name, err)
    for call in (jf.load, jf.resume, jf.experience):
        with pytest.raises(jf.ConfigError):
            call(run)
    for line in READING:
        assert run_cli(*line.format(run=run).split())[0] in (0, 2)
    assert_nothing_ran(tmp_path, before)
    assert not (tmp_path / "again").exists() and not (tmp_path / "folder").exists()


def test_named_modules_are_imported(here, run_cli, tmp_path, monkeypatch):
    """The line that the refusal says is the way on, and the working directory is behind everything
    else."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    change(*here, {"imports": ["evil_module"]})
    before = list(sys.path)
    try:
        code, _, err = run_cli("eval", str(here[0]), "--episodes", "2", "--import", "evil_module")
        assert code == 0 and (tmp_path / "PWN").exists(), err
        assert sys.path == [*before, str(tmp_path)]
        assert run_cli("eval", str(here[0]), "--episodes", "2")[0] == 0  # this process knows it now
    finally:
        sys.modules.pop("evil_module", None)


def test_a_module_from_elsewhere_puts_no_folder_on_the_path(here, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    before = list(sys.path)
    imports.import_user_module("json")
    assert sys.path == before


@pytest.mark.parametrize(
    "name", ["jax.nn:relu", "jax.numpy:bfloat16", "flax.linen.linear:Dense", "optax:adamw"])
def test_plain_functions_of_the_libraries_are_found(name):
    found, home = imports.look_up(name, "x")
    assert callable(found) and imports.is_known(home)


def test_a_foreign_folder_of_experience_executes_nothing(here, run_cli, tmp_path):
    """layout.json names a memory and the kind of its rows: both are words of a list."""
    folder, before = tmp_path / "replay", list(sys.path)
    sizes = {"class": "evil_module:Memory", "capacity": 8, "num_steps": 1, "num_envs": 1}
    about = {"format": 1, "layout": sizes, "written": 1, "kind": "evil_module:Row", "rows": {},
             "id": "0"}
    for change in ({}, {"kind": "Row"}, {"kind": "Transition"}):
        folder.mkdir(exist_ok=True)
        (folder / "layout.json").write_text(json.dumps(about | change))
        code, _, err = run_cli("train", "dqn", "CartPole-v1", "--experience", str(folder), "--out",
                               "again")
        assert code == 2 and str(folder) in err, err
    assert_nothing_ran(tmp_path, before)


@pytest.mark.parametrize("place", ["dist-packages", "lib/python3/site-packages", "user"])
def test_an_installed_package_is_no_module_of_the_users(place, here, tmp_path, monkeypatch):
    """Although the process has imported it: anything of it could be called. The user may name
    it."""
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "a_helper.py").write_text("def run(*_): raise SystemExit\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(imports.site, "getusersitepackages", lambda: str(tmp_path / "user"))
    imports._installation.cache_clear()
    try:
        __import__("a_helper")
        assert imports.is_known("a_helper") and not imports.is_users("a_helper")
        change(*here, {"algorithm.settings.optimizer": {"import": "a_helper:run"}})
        with pytest.raises(jf.ConfigError,
                           match=r"algo.optimizer.*a module of yours.*--import.*config\.json"):
            jf.load(here[0])
        imports.import_user_module("a_helper")
        assert imports.is_users("a_helper")
    finally:
        sys.modules.pop("a_helper", None)
        imports._installation.cache_clear()


@pytest.mark.parametrize("where", ["here", "run", "below"])
@pytest.mark.parametrize("last", [False, True])
def test_a_library_beside_the_run_is_not_taken(where, last, here, tmp_path, monkeypatch):
    folder = {"here": tmp_path, "run": here[0], "below": tmp_path / "src"}[where]
    (folder / "a_library").mkdir(parents=True)
    (folder / "a_library" / "core.py").write_text("")
    monkeypatch.setattr(imports, "LOADED", ("a_library",))
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)] if last else [str(folder), *sys.path])
    if where == "below" and last:  # installed from there, as `pip install -e` does
        jf.load(here[0])
        return
    with pytest.raises(jf.ConfigError,
                       match=r"library must be .*got 'a_library'.*add --import a_library .*in "
                             r".*config\.json"):
        jf.load(here[0])
    assert "a_library" not in sys.modules
    try:
        jf.load(here[0], modules=("a_library",))
    finally:
        sys.modules.pop("a_library", None)


def test_a_file_cannot_make_a_module_trusted(here, run_cli, monkeypatch):
    """A file names a module because it is imported; the module is imported again, and is trusted no
    more than before."""
    change(*here,
           {"imports": ["orbax.checkpoint"],
            "environment": {"name": "gym:orbax.checkpoint:CartPole-v1",
        "settings": {}}})
    __import__("orbax.checkpoint"), __import__("jaxrl_fast.sweeps.sweep")

    jf.load(here[0])
    monkeypatch.setattr(sys.modules["jaxrl_fast.sweeps.sweep"], "begin", lambda *_, **__: None)
    run_cli("sweep", "--resume", str(here[1]))
    assert imports.named == [] and not imports.is_users("orbax.checkpoint")


BAD = {
    "null": "null", "empty": '""', "list": "[]", "object": "{}", "negative": "-1",
    "infinite": "1e400", "nan": "NaN", "long": json.dumps("x" * 10_000),
    "deep": "[" * 2000 + "]" * 2000, "as deep as is read": "[" * 900 + "]" * 900, "true": "true",
    "large": "1" + "0" * 100, "surrogate": '"\\ud800"', "class": '{"class": 3}',
    "import": '{"import": []}', "float": '{"float": "x"}',
}  # fmt: skip


def keys(value, path=()):
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        yield from keys(inner, (*path, key))


# One value of each type by default, and those that are code or too long.
TYPES = ("null", "list", "object", "nan", "true", "long", "deep", "class", "import")


@pytest.mark.parametrize("text", family(
    [pytest.param(text, id=name) for name, text in BAD.items()], TYPES))
def test_any_config_value_is_accepted_or_refused_with_its_file(text, here):
    file = here[0] / "config.json"
    content, refused = json.loads(file.read_text()), 0
    for path in keys({key: content[key] for key in ("format", "algorithm", "environment", "run")}):
        changed = json.loads(json.dumps(content))
        part = changed
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = "@"
        file.write_text(json.dumps(changed).replace('"@"', text))
        try:
            config_json.load(here[0])
        except UserError as error:
            refused += 1
            assert str(file) in str(error) and "\n" not in str(error), (path, error)
            named = any(name in str(error) for name in path[-2:])
            assert named or "damaged" in str(error) or path[-1] == "settings", (path, error)
    assert refused > 5
