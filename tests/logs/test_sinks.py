"""The files and screens of sinks: strict JSON that survives kills, events that TensorBoard reads,
an honest display."""

import io
import json
import re
import shutil
import struct
import sys
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jaxrl_fast.cli import command as cli
from jaxrl_fast.cli import output as cli_output
from jaxrl_fast.cli.args import OUTPUT
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.errors import ConfigError, MissingExtraError, RunError
from jaxrl_fast.logs import terminal
from jaxrl_fast.logs.boards import TensorBoardSink
from jaxrl_fast.logs.jsonl import JsonlSink, read_jsonl
from jaxrl_fast.logs.progress import ProgressSink
from jaxrl_fast.logs.sinks import SINKS, Clip, Guarded, LoggedRun, Row, Sink, sink_of
from jaxrl_fast.logs.trackers import WandbSink
from jaxrl_fast.runs import pictures


def row(env_steps, rate=268_123.4, **metrics):
    named = {name: np.asarray(values, np.float32) for name, values in metrics.items()}
    return Row(env_steps, env_steps / 1000, rate,
               named or {"episode_return": np.float32([env_steps, np.nan])})


def write(path, *steps):
    sink = JsonlSink(path)
    for s in steps:
        sink.write(row(s))
    sink.close()


# metrics.jsonl


def test_jsonl_rows_are_strict_and_read_back(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    sink = JsonlSink(path)
    assert not path.parent.exists()  # nothing is written before the first row
    sink.write(Row(2048, 0.31249, float("inf"), {
        "a": np.float32([1.5, np.nan, -np.inf]), "n": np.int32([3, 4, 5])}))
    text = path.read_text()  # visible at once, before any flush
    assert text == (
        '{"env_steps":2048,"wall_seconds":0.312,"steps_per_second":null,'
        '"a":[1.5,null,null],"n":[3,4,5]}\n'
    )
    sink.close()
    sink.close()
    assert read_jsonl(path) == [json.loads(text)]


def test_jsonl_of_one_member_holds_numbers_and_an_older_one_reads_alike(tmp_path):
    """pandas reads the values as numbers; `read_jsonl` gives lists, and so it does for older logs,
    which hold lists of one."""
    now, then = tmp_path / "now.jsonl", tmp_path / "then.jsonl"
    sink = JsonlSink(now)
    for value in (1.5, np.nan):
        sink.write(Row(8, 0.5, 2.0, {"a": np.float32([value])}))
    sink.close()
    assert [json.loads(line)["a"] for line in now.read_text().splitlines()] == [1.5, None]
    then.write_text(now.read_text().replace("1.5", "[1.5]").replace("null", "[null]"))
    assert (
        read_jsonl(now) == read_jsonl(then)
        and [row["a"] for row in read_jsonl(now)] == [[1.5], [None]]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_jsonl_floats_round_trip_in_few_digits(tmp_path, dtype):
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.normal(size=2000), 10.0 ** rng.uniform(-30, 30, 2000), [0.1, 1 / 3, 16777216, 1e-45]])
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    sink = JsonlSink(tmp_path / "m.jsonl")
    sink.write(Row(1, 1.0, 1.0, {"a": values}))
    sink.close()
    text = (tmp_path / "m.jsonl").read_text()
    back = np.array([np.inf if v is None else v for v in json.loads(text)["a"]],
                    np.float32).astype(dtype)
    np.testing.assert_array_equal(back, np.where(np.isfinite(values), values, np.inf).astype(dtype))
    assert "0.1," in text or dtype != np.float32  # and not 0.10000000149011612
    assert len(text) < 16 * len(values)


def test_jsonl_appends(tmp_path):
    write(tmp_path / "m", 1, 2)
    write(tmp_path / "m", 3)
    assert [r["env_steps"] for r in read_jsonl(tmp_path / "m")] == [1, 2, 3]


@pytest.mark.parametrize(
    "torn", [b'{"env_steps":3,"wall_', b'{"env_steps":3}', b"\0\0\0\0", b"\xff\xfe\n", b"[1]"])
def test_jsonl_survives_a_torn_last_line(tmp_path, torn):
    path = tmp_path / "m"
    write(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [r["env_steps"] for r in read_jsonl(path)] == [1, 2]
    write(path, 3)  # does not run into the torn line
    assert (
        [r["env_steps"] for r in read_jsonl(path)] == [1, 2, 3]
        and path.read_bytes().startswith(whole)
    )
    path.write_bytes(whole + torn)
    JsonlSink(path).cut(10)
    assert path.read_bytes() == whole


def test_jsonl_keeps_a_whole_last_line_without_its_newline(tmp_path):
    write(tmp_path / "m", 1, 2)
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes()[:-1])
    write(tmp_path / "m", 3)
    assert [r["env_steps"] for r in read_jsonl(tmp_path / "m")] == [1, 2, 3]


def test_jsonl_cut_keeps_bytes_and_appends(tmp_path):
    path = tmp_path / "m"
    write(path, 10, 20)
    kept = path.read_bytes()
    write(path, 30, 40)
    unbroken = path.read_bytes()
    sink = JsonlSink(path)
    sink.cut(25)
    assert path.read_bytes() == kept and [p.name for p in tmp_path.iterdir()] == ["m"]
    sink.write(row(30))
    sink.write(row(40))
    sink.close()
    assert path.read_bytes() == unbroken  # a resumed log equals an unbroken one
    sink.cut(40)
    assert path.read_bytes() == unbroken
    sink.cut(5)
    assert read_jsonl(path) == []
    JsonlSink(tmp_path / "absent").cut(5)
    assert not (tmp_path / "absent").exists()


def test_jsonl_cut_in_the_middle_of_writing(tmp_path):
    sink = JsonlSink(tmp_path / "m")
    for s in (1, 2, 3):
        sink.write(row(s))
    sink.cut(1)
    sink.write(row(7))
    sink.flush()
    assert [r["env_steps"] for r in read_jsonl(tmp_path / "m")] == [1, 7]


def test_a_crash_while_cutting_leaves_the_old_file(tmp_path, monkeypatch):
    write(tmp_path / "m", 1, 2, 3)
    before = (tmp_path / "m").read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        JsonlSink(tmp_path / "m").cut(1)
    assert (tmp_path / "m").read_bytes() == before


@pytest.mark.parametrize(
    "damage", [b"{oops\n", b'{"env_steps":NaN}\n', b'{"step":1}\n', b'{"env_steps":"1"}\n'])
def test_damage_inside_is_an_error_that_names_the_line(tmp_path, damage):
    path = tmp_path / "m"
    write(path, 1, 2)
    path.write_bytes(path.read_bytes() + damage + path.read_bytes())
    before = path.read_bytes()
    for read in (read_jsonl, lambda p: JsonlSink(p).cut(1)):
        with pytest.raises(ConfigError, match="line 3 is damaged"):
            read(path)
    assert path.read_bytes() == before


def test_unreadable_and_unwritable_files(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.*No such file"):
        read_jsonl(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        JsonlSink(tmp_path / "file" / "m").write(row(1))
    with pytest.raises(RunError, match="cannot write"):
        TensorBoardSink(tmp_path / "file" / "tb").write(row(1))
    with pytest.raises(ConfigError, match="'env_steps'"):
        JsonlSink(tmp_path / "m").write(Row(1, 1.0, 1.0, {"env_steps": np.ones(1)}))
    assert not (tmp_path / "m").exists()


# TensorBoard


def events(directory):
    """Every event of a directory in TensorBoard's order: (length, crc, data, crc) records, files by
    name."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            (n,) = struct.unpack("<Q", data[:8])
            found.append(Event.FromString(data[12 : 12 + n]))
            data = data[16 + n :]
    return found


def scalars(directory):
    """tag -> {step: value}, with the marks of a restart obeyed as TensorBoard does."""
    from tensorboardX.proto.event_pb2 import SessionLog

    found = {}
    for event in events(directory):
        if event.session_log.status == SessionLog.START:
            found = {tag: {s: v for s, v in steps.items() if s < event.step}
                     for tag, steps in found.items()}
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def test_tensorboard_holds_finite_means_and_members(tmp_path):
    sink = TensorBoardSink(tmp_path / "new" / "tb")
    assert not (tmp_path / "new").exists()
    sink.write(row(100, a=[1, np.nan, 3], b=[np.nan, np.inf, np.nan]))
    sink.write(row(3_000_000_000, a=[1, 2, 6], b=[1, 1, 1]))
    sink.flush()
    found = scalars(tmp_path / "new" / "tb")
    assert found["a"] == {100: 2, 3_000_000_000: 3}  # steps beyond int32
    assert (
        found["a/member_000"] == {100: 1, 3_000_000_000: 1}
        and found["a/member_001"] == {3_000_000_000: 2}
    )
    assert found["b"] == {3_000_000_000: 1}
    assert set(found) == {"steps_per_second", "wall_seconds"} | {
        f"{m}{s}" for m in "ab" for s in ("", "/member_000", "/member_001", "/member_002")
    }
    sink.close()
    sink.close()


def test_tensorboard_of_one_member_and_of_many(tmp_path):
    sink = TensorBoardSink(tmp_path / "one")
    sink.write(row(1, a=[5]))
    sink.close()
    assert set(scalars(tmp_path / "one")) == {"a", "steps_per_second", "wall_seconds"}
    sink = TensorBoardSink(tmp_path / "many", members=4)
    sink.write(row(1, a=np.arange(1000)))
    sink.close()
    found = scalars(tmp_path / "many")
    assert found["a"] == {1: 499.5} and sum(tag.startswith("a/member") for tag in found) == 4


def test_tensorboard_resumes_within_the_same_second(tmp_path):
    sink = TensorBoardSink(tmp_path)
    for s in (10, 20, 30):
        sink.write(row(s, a=[s]))
    sink.close()
    sink = TensorBoardSink(tmp_path)  # a second process
    sink.cut(20)
    sink.write(row(40, a=[40]))
    sink.cut(20)  # and once more in the same one
    sink.write(row(35, a=[35]))
    sink.close()
    assert scalars(tmp_path)["a"] == {10: 10, 20: 20, 35: 35}


# Weights & Biases


def test_tensorboard_shows_videos(tmp_path):
    frames = [np.full((3, 4, 3), 60 * i, np.uint8) for i in range(4)]
    content = pictures.gif(frames)
    sink = TensorBoardSink(tmp_path)
    sink.write(row(7))
    sink.video(Clip(7, content, (4, 3)))
    sink.close()
    (image,) = [v.image for e in events(tmp_path) for v in e.summary.value if v.tag == "video"]
    assert image.encoded_image_string == content and (image.width, image.height) == (4, 3)


def test_tensorboard_keeps_the_video_of_a_row_with_a_late_evaluation(tmp_path):
    """And gets none of the row's other values again."""
    from tensorboardX.proto.event_pb2 import SessionLog

    sink = TensorBoardSink(tmp_path)
    sink.write(row(9, a=[1.0]))
    sink.video(Clip(9, pictures.gif([np.zeros((3, 4, 3), np.uint8)] * 2), (4, 3)))
    sink.close()
    sink = TensorBoardSink(tmp_path)  # a resume
    sink.cut(9)
    sink.open()
    sink.evaluated(9, np.float32([475.0]))
    sink.cut(8)
    sink.write(row(9, a=[1.0], eval_return=[475.0], eval_episodes=[2.0]))
    sink.close()
    found = events(tmp_path)
    assert [e.step for e in found if e.session_log.status == SessionLog.START] == [10]
    tags = [value.tag for event in found for value in event.summary.value]
    assert sorted(tags) == sorted({"a", "eval_episodes", "eval_return", "steps_per_second",
                                   "video", "wall_seconds"})
    assert scalars(tmp_path)["eval_return"] == {9: 475.0}


# absent; a folder `wandb` that an old run left
@pytest.mark.parametrize("module", [None, types.ModuleType("wandb")])
def test_wandb_absent_names_the_extra(tmp_path, modules, module):
    modules(wandb=module)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxrl_fast\[wandb\]'"):
        WandbSink("p", LoggedRun(tmp_path / "new", {}))
    assert not (tmp_path / "new").exists()


class FakeWandb(types.ModuleType):
    """The part of wandb that the sink uses."""

    class errors:
        class Error(Exception):
            pass

        class CommError(Error):
            pass

        class AuthenticationError(CommError):
            pass

        class UsageError(Error):
            pass

    offline = False

    def __init__(self, fails=None):
        super().__init__("wandb")
        self.fails, self.logged, self.metrics, self.finished = fails, [], [], 0
        self.id, self.summary, self.Video = "abc", {}, lambda source, caption, format: (
            source, caption, format)

    def init(self, **kwargs):
        if self.fails:
            raise getattr(self.errors, self.fails)("api_key not configured")
        self.settings = kwargs
        return self

    def define_metric(self, *args, **kwargs):
        self.metrics.append((args, kwargs))

    def log(self, values):
        self.logged.append(values)
        self.summary["env_steps"] = values["env_steps"]  # of the last call, as W&B does

    def finish(self):
        self.finished += 1


def test_wandb_gets_the_same_scalars_over_env_steps(tmp_path, modules):
    fake = FakeWandb()
    modules(wandb=fake)
    sink = WandbSink(project="mine", run=LoggedRun(tmp_path / "new", {"seed": 0}))
    sink.close()
    assert not (tmp_path / "new").exists() and not fake.finished  # a run that was refused
    sink.open()
    assert "mode" not in fake.settings  # WANDB_MODE decides
    assert fake.settings["project"] == "mine"
    assert (tmp_path / "new").is_dir() and fake.settings["dir"] == str(tmp_path / "new")
    sink.write(row(7, 5.0, a=[1, np.nan]))
    sink.cut(3)
    sink.close()
    sink.close()
    assert fake.logged == [
        {"env_steps": 7, "steps_per_second": 5, "wall_seconds": 0.007, "a": 1, "a/member_000": 1}]
    assert (("*",), {"step_metric": "env_steps"}) in fake.metrics and fake.finished == 1


def test_a_tracker_gets_the_final_evaluation_that_its_last_row_lacks(tmp_path, modules):
    """And no other value of the row again."""
    fake = FakeWandb()
    modules(wandb=fake)
    first = WandbSink(project="mine", run=LoggedRun(tmp_path / "run", {}))
    first.open()
    fake.summary = {"env_steps": 9}
    sink = WandbSink(project="mine", run=LoggedRun(tmp_path / "run", {}, resumed=True))
    sink.open()
    sink.evaluated(9, np.float32([475.0]))
    sink.cut(8)
    sink.write(row(9, 5.0, a=[1.0], eval_return=[475.0]))
    assert fake.logged == [{"env_steps": 9, "eval_return": 475.0}]


def test_wandb_goes_on_in_its_run_and_is_not_sent_rows_again(tmp_path, modules):
    fake = FakeWandb()
    modules(wandb=fake)
    new = LoggedRun(tmp_path / "run", {})
    sink = sink_of("wandb:p", new)
    sink.open()
    assert "id" not in fake.settings and (tmp_path / "run/wandb.id").read_text() == "abc"
    for again, group in ((new, None), (new._replace(resumed=True, group="run"), "run")):
        fake.summary = {"env_steps": 9}
        sink = sink_of("wandb:p", again)
        sink.open()
        assert fake.settings["group"] == group
    assert fake.settings["id"] == "abc" and fake.settings["resume"] == "allow"
    fake.logged.clear()
    for steps in (8, 9, 10):
        sink.write(row(steps))
        sink.video(Clip(steps, b"GIF", (4, 3)))
    assert [x["env_steps"] for x in fake.logged] == [10, 10]
    source, caption, kind = fake.logged[1]["video"]
    assert source.getvalue() == b"GIF" and kind == "gif" and caption == "10 steps"
    sink.video(Clip(11, b"GIF", (4, 3), tmp_path / "a.gif"))
    assert fake.logged[2]["video"] == (str(tmp_path / "a.gif"), "11 steps", "gif")


def test_wandb_is_not_sent_rows_again_after_a_late_video(tmp_path, modules):
    """A run that is killed at 10,000, after the video of 5,000, goes on from 4,000."""
    fake = FakeWandb()
    modules(wandb=fake)
    run = LoggedRun(tmp_path / "run", {})
    for again, first in ((run, 1_000), (run._replace(resumed=True), 5_000)):
        sink = sink_of("wandb:p", again)
        sink.open()
        for steps in range(first, 11_000, 1_000):
            sink.write(row(steps))
        sink.video(Clip(5_000, b"GIF", (4, 3)))
    sink.write(row(11_000))
    assert [x["env_steps"] for x in fake.logged if "video" not in x] == list(
        range(1_000, 12_000, 1_000))
    (video,) = (x for x in fake.logged if "video" in x)
    assert video["env_steps"] == 10_000 and video["video"][1] == "5,000 steps"


def test_wandb_of_the_command_line_writes_into_the_run_directory(tmp_path, modules):
    fake = FakeWandb()
    modules(wandb=fake)
    for given, project in (({"wandb": "p"}, "p"), ({"log": ("wandb:q",)}, "q"),
                           ({"log": ("wandb",)}, "jaxrl_fast")):
        texts, tensorboard = cli_output.logs_of(given)
        (sink,) = cli_output.sinks_of(texts, tmp_path / "run", {}, 1)(RunConfig())
        assert tensorboard and not (tmp_path / "run").exists()
        sink.open()
        assert fake.settings["dir"] == str(tmp_path / "run") and fake.settings["name"] == "run"
        assert fake.settings["project"] == project
        shutil.rmtree(tmp_path / "run")
    assert cli_output.sinks_of([], tmp_path, {}, 1) == ()


def test_seeds_one_after_another_have_a_wandb_run_each_in_one_group(tmp_path, modules):
    fake = FakeWandb()
    modules(wandb=fake)
    make = cli_output.sinks_of(["wandb:p"], tmp_path / "run", {"run": {"seeds": 2}}, seeds=2)
    for seed, folder, group in ((3, tmp_path / "run" / "seed-3", "run"),
                                (4, tmp_path / "run" / "seed-4", "run")):
        (sink,) = make(RunConfig(seed=seed))
        sink.open()
        assert fake.settings["dir"] == str(folder) and fake.settings["group"] == group
        assert (
            fake.settings["name"] == folder.name and fake.settings["config"]["run"]["seed"] == seed)
    (sink,) = make(RunConfig(seeds=2))  # side by side: one run
    sink.open()
    assert fake.settings["dir"] == str(tmp_path / "run") and fake.settings["group"] is None


def test_a_resume_to_another_end_tells_wandb_so(tmp_path, modules):
    fake = FakeWandb()
    modules(wandb=fake)
    content = {"run": {"seeds": 1, "total_steps": 60_000}}
    (sink,) = cli_output.sinks_of(["wandb"], tmp_path / "run", content, 1, resumed=True)(
        RunConfig(total_steps=120_000))
    sink.open()
    assert fake.settings["config"]["run"]["total_steps"] == 120_000


# --log KIND:TARGET


RUN = LoggedRun(Path("runs/x"), {})


def test_texts_make_sinks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sink_of("jsonl:a.jsonl", RUN).path == Path("a.jsonl")
    assert sink_of("tensorboard", RUN).directory == Path("runs/x/tensorboard")
    assert sink_of("tensorboard:tb", RUN).directory == Path("tb")
    one = RUN._replace(path=Path("runs/x/seed-3"), seed=3, group="x")
    assert sink_of("jsonl:logs/a.jsonl", one).path == Path("logs/a-seed-3.jsonl")
    assert sink_of("tensorboard:tb", one).directory == Path("tb-seed-3")
    assert sink_of("tensorboard", one).directory == Path("runs/x/seed-3/tensorboard")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text, valid",
    [
        ("json:x",
         r"jsonl:PATH, csv:PATH, tensorboard\[:DIR\], .* got 'json:x'; did you mean 'jsonl'"), ("",
            "jsonl:PATH"),
        ("jsonl", "jsonl:PATH, got 'jsonl'; the path of a file"), ("jsonl:.",
            "jsonl:PATH, got 'jsonl:.'; the name of a file; this is a directory"),
        ("jsonl:there", "a new file, and there is there"),
        *((f"{kind}:{path}", "a file that the run itself does not write, such as runs/x/rows")
          for path in ("runs/x/metrics.jsonl", "runs/x/config.json", "runs/x/result.json",
                       "runs/x/.lock", "runs/x/checkpoints", "runs/x/checkpoints/a.csv",
                       "runs/x/tensorboard", "runs/x/seed-0/a.csv", "runs/x", "runs",
                       "runs/y/../x/metrics.jsonl", "./runs/x/./config.json")
          for kind in ("jsonl", "csv")),
        ("tensorboard:there", r"tensorboard\[:DIR\], got .*; the name of a folder"),
    ],
)  # fmt: skip
def test_bad_texts_of_sinks(text, valid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("")
    with pytest.raises(ConfigError, match=rf"--log must be .*{valid}"):
        sink_of(text, RUN)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    assert sink_of("jsonl:there", RUN._replace(resumed=True))  # which cuts it, and goes on
    assert sink_of("csv:runs/x/rows.csv", RUN)


@pytest.mark.parametrize("second", ["csv:a.csv", "jsonl:a.csv", "csv:x/../a.csv"])
def test_two_logs_have_two_files(second, tmp_path, monkeypatch, run_cli):
    monkeypatch.chdir(tmp_path)
    line = ["train", "ppo", "CartPole-v1", "--log", "csv:a.csv", "--log", second, "--out", "run"]
    code, _, err = run_cli(*line)
    assert code == 2 and "a file of its own" in err and not list(tmp_path.iterdir()), err


def test_a_users_sink_needs_only_a_target():
    class Kept(Sink):
        def __init__(self, target):
            self.target = target

    SINKS.add("kept", Kept)
    assert sink_of("kept:a:b", RUN).target == "a:b"
    with pytest.raises(ConfigError, match="a subclass of jf.Sink"):
        SINKS.add("other", dict)


def test_the_flag_names_the_kinds():
    (option,) = (option for option in OUTPUT if option.name == "log")
    assert [cls.form for _, cls in SINKS.items()] == option.help.split(": ")[1].split(", ")[:-1]


def test_logs_of_a_run_and_of_its_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--algo.num-envs", "4", "--algo.num-steps", "16", "--algo.hidden", "8",
             "--eval-episodes", "2", "--no-pictures"]
    flags += ["--log", "jsonl:a.jsonl", "--log=tensorboard"]
    assert (
        cli.main(["train", "ppo", "CartPole-v1", "--total-steps", "128", "--no-preset", "--out",
                  "run", *flags]) == 0
    )
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "run/metrics.jsonl").read_bytes()
    # once, not beside the usual one
    assert len(list((tmp_path / "run/tensorboard").iterdir())) == 1
    assert (
        "train --resume run --total-steps 256 --horizon 256 --log jsonl:a.jsonl --log tensorboard\n"
        in capsys.readouterr().out)
    line = ["train", "--resume", "run", "--total-steps", "256", "--horizon", "256"]
    assert cli.main([*line, "--no-tensorboard", "--log", "jsonl:a.jsonl"]) == 0
    assert "--horizon 512 --log jsonl:a.jsonl\n" in capsys.readouterr().out
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "run/metrics.jsonl").read_bytes()
    assert len(read_jsonl(tmp_path / "a.jsonl")) > 2 and len(
        list((tmp_path / "run/tensorboard").iterdir())) == 1
    capsys.readouterr()
    assert cli.main(["train", "ppo", "CartPole-v1", "--out", "other", *flags]) == 2
    assert "got 'jsonl:a.jsonl'" in capsys.readouterr().err and not (tmp_path / "other").exists()


@pytest.mark.parametrize("error", ["AuthenticationError", "UsageError"])
def test_a_failing_wandb_names_the_remedy(error, tmp_path, modules):
    modules(wandb=FakeWandb(error))
    with pytest.raises(ConfigError, match=r"api_key not configured.*WANDB_MODE=offline"):
        Guarded(WandbSink("p", LoggedRun(tmp_path, {}))).open()


@pytest.mark.parametrize("error", ["CommError", "Error"])
def test_without_a_network_a_run_goes_on_without_wandb(error, tmp_path, modules):
    fake = FakeWandb(error)
    modules(wandb=fake)
    sink = Guarded(WandbSink("p", LoggedRun(tmp_path, {})))
    with pytest.warns(UserWarning,
                      match=f"WandbSink failed, and the run goes on without it: {error}"):
        sink.open()
    sink.write(row(1))
    sink.close()
    assert not fake.logged and not (tmp_path / "wandb.id").exists()


# The terminal


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_progress_prints_plain_lines_without_a_terminal():
    stream, clock = io.StringIO(), Clock()
    sink = ProgressSink(500_000, stream, clock=clock)
    sink.write(Row(123_456, 1.0, 268_123.0, {"episode_return": np.float32([475.1])}))
    assert (
        stream.getvalue() == "  123,456 / 500,000 steps  268,000 steps/s  return 475.1  ETA 0:01\n")
    sink.write(Row(2_000, 2.0, 61_700.0, {"episode_return": np.float32([np.nan])}))
    # the last row is printed, whenever it came; a row without a return keeps the last one
    sink.close()
    assert stream.getvalue().splitlines()[1].startswith(
        "    2,000 / 500,000 steps  61,700 steps/s  return 475.1")
    assert "\x1b" not in stream.getvalue()


def test_progress_prints_at_a_sane_rate():
    def lines(seconds, rows):
        stream, clock = io.StringIO(), Clock()
        sink = ProgressSink(rows, stream, clock=clock)
        for i in range(1, rows + 1):
            clock.now = seconds * i / rows
            sink.write(Row(i, clock.now, 1000.0, {}))
        sink.close()
        return stream.getvalue().splitlines()

    assert 5 <= len(lines(10, 1000)) <= 7
    assert lines(10, 1000)[-1] == "  1,000 / 1,000 steps  1,000 steps/s  return -"
    assert 300 < len(lines(3600, 36_000)) < 600  # a long run prints less often
    assert len(lines(0.001, 5)) == 2  # the first and the last


def test_progress_shows_the_range_of_several_members():
    stream = io.StringIO()
    sink = ProgressSink(100, stream)
    sink.write(row(50, episode_return=[1, np.nan, 9, np.inf]))
    assert "return 5.00 (1.00..9.00)" in stream.getvalue()


def test_eta_is_per_member_and_follows_the_clock():
    stream, clock = io.StringIO(), Clock()
    sink = ProgressSink(1_000_000, stream, clock=clock)
    metrics = {"episode_return": np.zeros(4, np.float32)}
    sink.write(Row(1_000, 100.0, 0.0, metrics))  # a warm-up; then the compiler took 50 seconds
    # 4 members at 4,000 steps/s together: each at 1,000, but rows come at 500 (evaluations)
    for i in range(1, 41):
        clock.now = 3.0 * i
        sink.write(Row(100_000 + 1_500 * i, 150.0 + 3 * i, 4_000.0, metrics))
    lines = stream.getvalue().splitlines()
    assert "ETA" not in lines[0]
    assert "ETA 14:58" in lines[1]  # (1,000,000 - 101,500) / 1,000
    assert "ETA 28:00" in lines[-1]  # (1,000,000 - 160,000) / 500


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def no_dumb_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")


def test_progress_is_a_live_bar_on_a_terminal(no_dumb_terminal):
    stream = Terminal()
    sink = ProgressSink(500_000, stream)
    sink.status("compiling")
    assert "compiling" in stream.getvalue()
    sink.write(Row(250_000, 1.0, 268_123.0, {"episode_return": np.float32([475.1])}))
    sink.message("[bold]a message[/bold]")
    sink.close()
    text = stream.getvalue()
    assert "250,000 / 500,000 steps  268,000 steps/s  return 475.1  ETA 0:01" in text
    assert "[bold]a message[/bold]\n" in text  # as it is, no markup
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is given back
    sink.message("after")
    assert stream.getvalue().endswith("after\n")


def test_a_narrow_terminal_gets_one_line(no_dumb_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    stream = Terminal()
    sink = ProgressSink(500_000, stream)
    sink.write(row(250_000, episode_return=[1, 2]))
    sink.close()
    assert "\x1b[1A" not in stream.getvalue()  # never moves up: the bar is one line high


def screen(text: str, columns: int) -> list[str]:
    """The lines that a terminal of `columns` columns shows of `text`: the codes that a progress bar
    needs."""
    lines, y, x = [""], 0, 0
    for code, char in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|(.)", text, re.S):
        if code.endswith("A"):
            y = max(0, y - int(code[:-1] or 1))
        elif code.endswith("K"):
            lines[y] = "" if code[:-1] == "2" else lines[y][:x]
        elif char == "\r":
            x = 0
        elif char and (char == "\n" or x == columns):
            y, x = y + 1, 0
            lines += [""] * (y == len(lines))
        if char >= " ":
            lines[y] = lines[y].ljust(x)[:x] + char + lines[y][x + 1 :]
            x += 1
    return lines


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_the_terminal_s_own_ctrl_c_leaves_no_second_bar(columns, no_dumb_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    sink = ProgressSink(50_000_000, stream)
    sink.status("compiling")
    for steps in (1_000_000, 2_000_000):
        sink.write(Row(steps, 10.0, 200_000.0, {"episode_return": np.float32([475.1])}))
        sink._live.refresh()
        stream.write("^C")  # where the cursor is
    sink.close()
    bars = [line for line in screen(stream.getvalue(), columns) if "000,000 /" in line]
    assert len(bars) == 1 and "2,000,000 / 50,000,000" in bars[0]
    assert columns == 50 or "ETA" in bars[0]  # the bar gives way to the text


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    ProgressSink(10, stream).write(row(5))
    assert "\x1b" not in stream.getvalue() and "5 / 10 steps" in stream.getvalue()


def test_messages_and_status_without_a_terminal():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    sink = ProgressSink(10, stream)
    sink.status("compiling")
    sink.message("Größe")  # a stream that cannot hold it
    stream.seek(0)
    assert stream.read() == "compiling\nGr??e\n"


class Broken(io.StringIO):
    def write(self, text):
        raise BrokenPipeError

    flush = write


class BrokenTerminal(Broken):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Broken(), BrokenTerminal()])
def test_progress_never_raises_into_the_run(stream, no_dumb_terminal):
    sink = ProgressSink(10, stream)
    for _ in range(3):
        sink.status("compiling")
        sink.write(row(5))
        sink.message("x")
        sink.flush()
    sink.close()
    # rich alone would close standard output and exit here
    assert not stream.closed and sys.stdout.write("") == 0
    closed = io.StringIO()
    closed.close()
    ProgressSink(10, closed).write(row(5))


def test_plain_lines_of_an_evaluation_are_rare():
    """A long evaluation is seen; a short one and a start leave no line. The last row is printed
    once. A start has no speed."""
    stream, clock = io.StringIO(), Clock()
    sink = ProgressSink(10, stream, clock=clock)
    sink.evaluating(0, 8)  # before any row
    sink.write(Row(5, 1.0, 0.0, {}))
    for clock.now, played in ((1.0, 3), (3.0, 6), (3.5, 8), (9.0, 0), (9.9, 8)):
        sink.evaluating(played, 8)
    sink.close()
    assert stream.getvalue().splitlines() == ["   5 / 10 steps  - steps/s  return -",
                                              "  evaluating 6/8"]


def test_progress_survives_unprintable_rows():
    stream = io.StringIO()
    sink = ProgressSink(10, stream)
    sink.write(Row(5, 1.0, 1.0, {"episode_return": np.array(["x"])}))
    sink.write(Row(6, float("nan"), float("nan"), {}))
    sink.close()
    assert "5 steps" in stream.getvalue() and "6 / 10 steps  - steps/s" in stream.getvalue()


def test_no_display_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    display = terminal.Display(10)
    display.show(1, "text")
    display.close()


def test_a_sink_does_nothing_by_default():
    sink = Sink()
    assert [sink.open(), sink.write(row(1)), sink.flush(), sink.cut(0), sink.close()] == [None] * 5
