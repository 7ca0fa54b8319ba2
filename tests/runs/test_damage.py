"""Every file of a run directory damaged in every way, against every command that reads it: one
error that names the file, or a warning and what is whole; never Python's own errors, and never
another agent than the one that was saved. Nothing is trained."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from helpers.runs import evaluations
from jaxrl_fast.cli import command as cli
from jaxrl_fast.errors import UserError
from jaxrl_fast.files import folders
from jaxrl_fast.logs import jsonl
from jaxrl_fast.memory import open_memory, save_memory
from jaxrl_fast.runs import config_json
from jaxrl_fast.runs.checkpoints.store import Checkpoints
from jaxrl_fast.runs.rundir import RunDir
from jaxrl_fast.sweeps.results import read_sweep


@pytest.fixture(scope="module")
def whole(made) -> dict:
    """The arrays that each reader finds in a run that is not damaged."""
    return {reader: jax.tree.leaves(READERS[reader](made / "run").state)
            for reader in ("load", "load best", "load last")}


class Reached(Exception):
    """A resume has read all that it reads before it builds programs."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run with two checkpoints of each kind, and another beside it."""
    base = tmp_path_factory.mktemp("damage")
    settings = dict(eval_every=64, checkpoint_minutes=1e-9, chunk_seconds=1e-9)
    with evaluations(lambda rows: [rows]):  # better each time
        tools.train("dqn", base / "run", total_steps=256, **settings)
    shutil.copytree(base / "run", base / "other")
    for which in ("last", "best"):
        assert len(Checkpoints(base / "run" / "checkpoints", read_only=True).numbers(which)) == 2
    return base


@pytest.fixture
def run(made, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs" / "run"


def reached(*_):
    raise Reached


def resume(run: Path) -> None:
    with pytest.raises(Reached):
        jf.resume(run, 512, horizon=512, sinks=reached)


def command(*line: str):
    def call(run: Path) -> None:
        code = cli.main([word.format(run=run, other=run.parent / "other") for word in line])
        if code:
            raise UserError("said")  # its text is looked at in what was printed

    return call


READERS = {  # each third holds a reader of each JSON file
    "load": lambda run: jf.load(run),
    "load best": lambda run: jf.load(run, "best"),
    "report": command("report", "{run}"),
    "plot": command("plot", "{run}"),
    "resume": resume,
    "experience": lambda run: jf.experience(run),
    "compare": command("compare", "{run}", "{other}"),
    "load last": lambda run: jf.load(run, "last"),
    "repeat": command("train", "--config", "{run}", "--help"),
}


def flip(file: Path) -> None:
    """Some bytes in the middle."""
    content = bytearray(file.read_bytes())
    for i in range(len(content) // 2, min(len(content) // 2 + 8, len(content))):
        content[i] ^= 0xFF
    file.write_bytes(content)


def replaced(content: bytes):
    return lambda file: file.write_bytes(content)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = {
    "deleted": Path.unlink,
    "a folder": folder,
    "empty": replaced(b""),
    "half": lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]),
    "flipped": flip,
    "binary": replaced(bytes(range(256))),
    "null": replaced(b"null\n"),
    "a list": replaced(b"[1]\n"),
    "a text": replaced(b'"abc"\n'),
    "no keys": replaced(b"{}\n"),
    "a bomb": replaced(b"[" * 100_000),
}


def files(run: Path, which: str, damage: str) -> list[Path]:
    """The JSON files of a run; those of its newest checkpoint of a kind, where another content is
    tried on its JSON alone."""
    if which == "json":
        return [run / name for name in ("config.json", "result.json", "metrics.jsonl")]
    newest = max((run / "checkpoints" / which).iterdir(), key=lambda p: int(p.name))
    if damage not in ("deleted", "a folder", "empty", "flipped"):
        return [newest / "checksums.json", newest / "meta" / "metadata"]
    return sorted(p for p in newest.rglob("*") if p.is_file())


def read(reader: str, run: Path, capsys) -> tuple[object, str]:
    """(what came of it or None, all that was said): a UserError, warnings, or nothing; any other
    exception fails the test."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        try:
            found, error = READERS[reader](run), ""
        except UserError as refused:
            found, error = None, str(refused)
    assert "\n" not in error
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err and "JAXRL_FAST_DEBUG" not in printed.err
    return found, "\n".join([error, *(str(w.message) for w in said), printed.err])


def readers(which: str, at: int) -> list[str]:
    """The readers of a file. at: place of file plus damage, so that all pairs of two meet."""
    if which == "json":
        return list(READERS)[at % 3::3]
    return [("load last", "resume")[at % 2]] if which == "last" else ["load"] * (at % 2)


# A folder and an empty file meet the readers of JSON by default.
@pytest.mark.parametrize(("which", "damage"), family(
    [(which, damage) for which in ("json", "last", "best") for damage in DAMAGES],
    lambda which, damage: which == "json" or (which == "last" and damage not in ("a folder",
                                                                                "empty"))))
def test_damage_is_named_or_skipped(which, damage, run, made, whole, capsys):
    """Each damage meets each reader and each file, each file each reader; best checkpoints, which
    have the files of the last, every other damage."""
    for at, file in enumerate(files(run, which, damage), list(DAMAGES).index(damage)):
        if not (names := readers(which, at)):
            continue
        shutil.rmtree(run)
        shutil.copytree(made / "run", run)
        DAMAGES[damage](file)
        for reader in names:
            found, said = read(reader, run, capsys)
            # then it is the agent that was saved
            if reader in whole and found is not None and not said.strip():
                same = [np.array_equal(a, b)
                        for a, b in zip(jax.tree.leaves(found.state), whole[reader], strict=True)]
                assert all(same), (file, reader)
            if said.strip():
                assert str(run) in said, (file, reader, said)


VALUES = [
    ("config.json", "algorithm", [1], "algorithm is a list"),
    ("config.json", "run", {"total_steps": "many"}, "run.total_steps is a text"),
    ("config.json", "environment", {"settings": {}}, "environment.name is missing"),
    ("config.json", "imports", "os", "imports is a text"),
    ("config.json", "run", {"total_steps": 1, "seed": "0"}, "run.seed is a text"),
    ("config.json", "versions", None, "versions is null"),
    ("config.json", "algorithm", {"name": 3, "settings": {}}, "algorithm.name is an integer"),
    ("result.json", "eval_return", "abc", "eval_return is a text"),
    ("result.json", "eval_return", [True], "eval_return[0] is true"),
    ("result.json", "env_steps", None, "env_steps is null"),
    ("result.json", "steps_per_second", True, "steps_per_second is true"),
    ("result.json", "best_eval_return", "1", "best_eval_return is a text"),
    ("result.json", "eval_return", [2**70], "eval_return[0] is an integer of more than 64 bits"),
    ("result.json", "seconds", "1", "seconds is a text"),
    ("result.json", "seconds", {"train": [1]}, "seconds.train is a list"),
    ("result.json", "wall_seconds", "1", "wall_seconds is a text"),
    ("result.json", "lost", [{"member": 0}], "lost[0].env_steps is missing"),
]


@pytest.mark.parametrize(("name", "key", "value", "says"), VALUES)
def test_json_of_another_form_is_named(name, key, value, says, run, run_cli):
    content = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps(content | {key: value}))
    code, _, err = run_cli("compare", str(run), str(run.parent / "other"))
    assert code == 2 and says in err and str(run / name) in err and err.count("\n") == 1, err


@pytest.mark.parametrize(
    "row",
    [
        '{"env_steps": 64, "wall_seconds": "x", "steps_per_second": 1}',
        '{"env_steps": "64"}',
        '{"env_steps": 64, "wall_seconds": [1], "steps_per_second": [2]}',
        '{"env_steps": true, "wall_seconds": 1, "steps_per_second": 2}',
        "[]",
        "{}",
        '{"env_steps": 64, "wall_seconds": 1, "steps_per_second": 1, "loss": ["x"]}',
    ],
)
def test_a_row_of_another_form_is_named(row, run, run_cli):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], row, *lines[1:]]) + "\n")
    code, _, err = run_cli("plot", str(run))
    assert code == 2 and "line 2 is damaged" in err and str(run) in err, err


@pytest.mark.parametrize(
    "content",
    ["null", "[1]", '{"format": 1}', '{"format": 1, "base": 3, "configurations": [], "parts": []}',
     "{", json.dumps({"format": 1, "configurations": [{"algo.discount": 0.9}],
                      "parts": [{"configurations": [0], "seed": 0, "seeds": 1}],
                      "base": {"format": 2, "algorithm": {"name": "ppo", "settings": {}},
                               "environment": {"name": "CartPole-v1"},  # no settings
                               "run": {"total_steps": 1, "seed": 0, "seeds": 1}}})]
)
def test_a_sweep_that_is_damaged_is_named(content, run, run_cli):
    (run.parent / "sweep.json").write_text(content)
    code, _, err = run_cli("sweep", "--resume", str(run.parent))
    assert code == 2 and str(run.parent / "sweep.json") in err and err.count("\n") == 1, err


def test_both_newest_damaged_leaves_the_older_ones(run):
    """`best` falls back to the best before it, and with none of them whole to `last`."""
    older = Checkpoints(run / "checkpoints", read_only=True).numbers("best")[1]
    for file in files(run, "best", "empty"):
        file.write_bytes(b"")
    with pytest.warns(UserWarning,
                      match=rf"best.* is damaged .* read in its place: .*best/{older}"):
        jf.load(run)
    for file in (run / "checkpoints" / "best" / str(older)).rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.warns(UserWarning, match=r"is damaged .* read in its place: .*last/"):
        jf.load(run)
    with pytest.raises(jf.ConfigError, match="The checkpoint 'last' is whole"):
        jf.load(run, "best")


def test_checkpoints_that_a_run_replaces_during_a_read_are_not_damage(run, recwarn):
    folder = run / "checkpoints" / "last"

    def attempt(which: str, number: int) -> int:
        if (which, number) == ("last", newest):
            for old in (newest, older):  # as a writer that keeps two
                shutil.copytree(folder / str(old), folder / str(old + 1000))
                shutil.rmtree(folder / str(old))
        checkpoints.meta(which, number)
        return number

    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        newest, older = checkpoints.numbers("last")
        assert checkpoints.read(["last", "best"], attempt) == newest + 1000
        checkpoints.verify("last", newest + 1000)
    assert not recwarn.list
    assert jax.tree.leaves(jf.load(run, "last").state)


@pytest.mark.filterwarnings("ignore::UserWarning")  # as a user may have set it
@pytest.mark.parametrize(
    ("which", "line", "says"),
    family([
        ("best", "eval {run} --episodes 2", "return "),
        ("last", "experience {run} replay", "steps"),
        ("last", "eval {run} --episodes 2 --which last", "return "),
        ("best", "export {run} --out policy", "policy"),
    ], 2),
)
def test_an_answer_from_another_checkpoint_ends_with_code_2(which, line, says, run, run_cli):
    words = line.format(run=run).split()
    code, out, err = run_cli(*words)
    assert code == 0 and says in out and err == "", err
    shutil.rmtree("replay", ignore_errors=True)
    Path("policy").unlink(missing_ok=True)
    flip(max((
        p for p in newest(run, which).rglob("state/**/*") if p.is_file()
    ), key=lambda p: p.stat().st_size))
    code, out, err = run_cli(*words)
    assert code == 2 and says in out, (out, err)
    assert (
        err.count("\n") == 1
        and f"{which}/{newest(run, which).name} is damaged" in err
        and "in its place" in err
    ), err


def test_a_resume_from_an_older_checkpoint_ends_with_code_0(made, tmp_path, run_cli):
    run = shutil.copytree(made / "run", tmp_path / "run")
    flip(newest(run, "last") / "meta" / "metadata")
    code, out, err = run_cli("train", "--resume", str(run), "--total-steps", "320", "--horizon",
                             "320")
    assert code == 0 and "320 steps in " in out and "in its place" in err, (out, err)


def test_a_resume_without_a_whole_checkpoint_says_what_the_best_one_is_good_for(
    made, tmp_path, run_cli
):
    run = shutil.copytree(made / "run", tmp_path / "run")
    for file in run.glob("checkpoints/last/*/meta/metadata"):
        flip(file)
    code, _, err = run_cli("train", "--resume", str(run))
    assert code == 2
    assert "'best' is whole: start_from (--start-from RUN) begins a new run" in err, err


def test_checkpoints_without_checksums_load_silently(run):
    for file in run.rglob("checksums.json"):
        file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jf.load(run), jf.load(run, "last"), resume(run)


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "file/x", "loop"])
@pytest.mark.parametrize(
    "line",
    ["eval {}", "plot {}", "compare {} {}", "train --resume {}", "train --config {}",
     "sweep --resume {}"]
)
def test_a_run_with_a_bad_path(line, path, tmp_path, monkeypatch, run_cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text(""), (tmp_path / "loop").symlink_to("loop")
    code, out, err = run_cli(*(word.format(path) for word in line.split()))
    assert code == 2 and out == "" and err.count("\n") == 1 and len(err) < 700, err


@pytest.mark.parametrize("path", [5, None, 1.5, ["a"]], ids=repr)
def test_objects_that_are_no_path(path):
    for read, name in ((jf.load, "run"), (jf.resume, "path")):
        with pytest.raises(jf.ConfigError,
                           match=f"^{name} must be the path of a run directory, got "):
            read(path)


def newest(run: Path, which: str) -> Path:
    return max((run / "checkpoints" / which).iterdir(), key=lambda p: int(p.name))


METAS = [
    ({"lanes": [5]}, "lanes are"),
    ({"lanes": []}, "lanes are"),
    ({"lanes": [0, 0]}, "lanes are"),
    ({"settings": {"algo.learning_rate": 3}}, "learning_rate is an integer, not a list"),
    ({"settings": {"algo.learning_rate": []}}, "has 0 values"),
    ({"reached": []}, "reached has 0 values"),
    ({"reached": ["x"]}, "reached"),
    ({"seconds": {"train": "x"}}, "seconds.train is a text"),
    ({"part": {"loss": 3}}, "part.loss"),
    ({"rows": True}, "rows is true"),
]


@pytest.mark.parametrize(("change", "says"), family(
    METAS, lambda change, says: change.keys() & {"lanes", "reached", "part"}))
def test_numbers_beside_a_checkpoint_of_another_form_are_damage(change, says, run):
    """No checksum tells, as in a run of another author; the older checkpoint is read."""
    folder = newest(run, "last")
    (folder / "checksums.json").unlink()
    file = folder / "meta" / "metadata"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.warns(UserWarning,
                      match=rf"last/{folder.name} is damaged \(.*{says}.*read in its place"):
        jf.load(run, "last")
    with pytest.warns(UserWarning, match=rf"last/{folder.name} is damaged \(.*{says}"):
        resume(run)


def test_folders_named_by_other_digits_are_no_checkpoints(run):
    for name in ("²", "٣", "9" * 30):
        (run / "checkpoints" / "last" / name).mkdir()
    found = Checkpoints(run / "checkpoints", read_only=True).numbers("last")
    assert len(found) == 2 and RunDir(run).resumable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jf.load(run, "last")


@pytest.mark.parametrize("name", family(
    ["config.json", "metrics.jsonl", "meta/metadata", "result.json", "checksums.json"], 3))
def test_a_pipe_is_refused_as_a_runs_file(name, run, capsys):
    """A reader of a pipe would wait for ever."""
    file = run / name if "." in name and name != "checksums.json" else newest(run, "last") / name
    if name == "meta/metadata":
        (newest(run, "last") / "checksums.json").unlink()
    file.unlink()
    os.mkfifo(file)
    for reader in READERS:
        read(reader, run, capsys)


def test_a_file_beyond_any_size_is_not_read(run, capsys):
    os.truncate(run / "config.json", 2 << 30)
    for reader in ("load", "resume", "plot"):
        assert "config.json" in read(reader, run, capsys)[1]


def test_links_of_a_run_are_not_written_through(run):
    """A run from elsewhere may hold links to files outside of it, which would be read or written
    through them."""
    victim = run.parent / "victim"
    victim.write_text("precious\n")
    for name in ("metrics.jsonl.tmp", "result.json.tmp", "config.json.tmp"):
        (run / name).symlink_to(victim)
    for write in (
        lambda: jsonl.JsonlSink(run / "metrics.jsonl").cut(64),
        lambda: config_json.write_json(run / "result.json", {}),
        lambda: config_json.write_text(run / "config.json", "\ud800"),
    ):
        write()
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(victim)
    jsonl.mend(run / "metrics.jsonl")
    assert not (run / "metrics.jsonl").is_symlink()
    (run / ".lock").symlink_to(victim)
    with pytest.raises(jf.ConfigError, match="a folder that can be written"):
        folders.hold("out", run)
    assert victim.read_text() == "precious\n" and not list(run.glob("*.tmp"))


@pytest.mark.parametrize("which", ["", "best", "last", "last/newest"])
def test_linked_checkpoints_are_read_but_not_resumed(which, run):
    path = newest(run, "last") if which == "last/newest" else run / "checkpoints" / which
    outside = run.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    jf.load(run, "last")
    with pytest.raises(jf.ConfigError,
                       match=r"a folder in the run, not a link, .*got '.*checkpoints"):
        jf.resume(run, 512)


BAD = [None, "", [], {}, -1, float("inf"), float("nan"), "x" * 10_000, True, 10**100, 0.5,
       [[1], [None]], "\ud800"]


@pytest.mark.parametrize("bad", family(
    [pytest.param(x, id=repr(x)[:20]) for x in BAD],
    lambda bad: not isinstance(bad, bool | float | str) or bad in ("", True) or bad != bad))
def test_a_layout_of_another_form_is_named(bad, run, recwarn):
    folder = run.parent / "memory"
    save_memory(folder, jf.experience(run))
    file = folder / "layout.json"
    about, refused = json.loads(file.read_text()), 0
    places = [(about, key) for key in about] + [(about["layout"], key) for key in about["layout"]]
    places += [(about["rows"], key) for key in about["rows"]]
    for part, key in places:
        kept, part[key] = part[key], bad
        file.write_text(json.dumps(about))
        part[key] = kept
        try:
            open_memory(folder, outline=True), open_memory(folder)
        except jf.ConfigError as error:
            refused += 1
            assert str(folder) in str(error) and "\n" not in str(error), (key, error)
    assert refused > 5


@pytest.mark.parametrize(("name", "value"),
                         [("seed", -1), ("seed", 99), ("seeds", -1), ("seeds", 10**100),
                          ("seed", 10**100)])
def test_a_sweep_that_contradicts_its_parts_is_named(name, value, run):
    base = json.loads((run / "config.json").read_text())
    base["run"][name] = value
    part = {"configurations": [0], "seed": 0, "seeds": 1}
    about = {"format": 1, "base": base, "configurations": [{"algo.learning_rate": 1e-3}],
             "parts": [part]}
    (run.parent / "parts").mkdir()
    shutil.copytree(run, run.parent / "parts" / "00")
    (run.parent / "sweep.json").write_text(json.dumps(about))
    with pytest.raises(jf.ConfigError, match=r"sweep must be "):
        read_sweep(run.parent)


@pytest.mark.parametrize(("changes", "says"), [
    ({"total_steps": 51_200, "horizon": 51_200, "log_every": None},
     r"its checkpoint is at 256 steps, and its settings \(.*\) put it at \d,\d+"),
    ({"seeds": 2}, "seeds is 2 there and was 1 in training"),
], ids=["rows", "seeds"])  # fmt: skip
def test_a_resume_refuses_edited_settings_that_contradict_the_checkpoint(run, changes, says):
    edit_config(run, ("run",), changes)
    with pytest.raises(jf.ConfigError, match=says):
        resume(run)


@pytest.mark.parametrize(("changes", "says"), [
    ({"hidden": [16]}, r"kernel is float32\[8, \d\] in the checkpoint and float32\[16, \d\] by"),
    ({"optimizer": "lion"}, r"opt_state/.* is missing"),
    ({"optimizer": "sgd"}, r"opt_state/.* and missing by config.json"),
], ids=str)  # fmt: skip
def test_an_array_that_contradicts_the_settings_is_named(run, changes, says):
    """Of a checkpoint without its settings, as older versions wrote them."""
    for file in run.rglob("meta/metadata"):
        content = json.loads(file.read_text())
        assert content.pop("settings_of_config")
        file.write_text(json.dumps(content))
    for file in run.rglob("checksums.json"):
        file.unlink()
    edit_config(run, ("algorithm", "settings"), changes)
    with pytest.raises(jf.ConfigError, match=says) as caught:
        jf.load(run)
    assert "strict" not in str(caught.value)  # orbax's own advice


def test_an_end_before_the_checkpoint_is_refused_as_total_steps(run):
    with pytest.raises(jf.ConfigError, match="total_steps must be at least the 256 steps"):
        jf.resume(run, total_steps=32, horizon=32)


def edit_config(run: Path, section: tuple[str, ...], changes: dict) -> None:
    """Edit config.json by hand."""
    file = run / "config.json"
    content = part = json.loads(file.read_text())
    for name in section:
        part = part[name]
    part.update(changes)
    file.write_text(json.dumps(content))
