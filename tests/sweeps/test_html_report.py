"""Reports of runs and sweeps: complete, by themselves, and alive in a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from html import unescape

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import browser
from helpers import runs as tools
from jaxrl_fast.cli.report import answer, server
from jaxrl_fast.files import folders
from jaxrl_fast.logs.jsonl import read_jsonl
from jaxrl_fast.logs.meanings import MEANINGS, meaning
from jaxrl_fast.runs import pictures
from jaxrl_fast.sweeps.report import report


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "run"
    tools.train("ppo", path, seeds=2, hooks=[lambda run, rows: {"mine": 1}])
    frames = [np.full((6, 8, 3), 20 * i, np.uint8) for i in range(9)]
    for name in ("videos/000000000320.gif", "rollout.gif"):
        pictures.rollout_gif(frames, path / name)
    return path


def texts(page: str) -> str:
    return unescape(
        re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.S)))


def test_a_page_of_a_run_has_all_of_it(run):
    page = report(run)
    seen = texts(page)
    clocks = {"env_steps", "wall_seconds"}
    for name in read_jsonl(run / "metrics.jsonl")[-1].keys() - clocks - {"episode_return"}:
        assert f" {name} " in seen and meaning(name) in seen, name
    result = tools.read(run / "result.json")
    assert f"{np.mean(result['eval_return']):,.4g}" in seen and "finished" in seen
    assert (
        page.count("data:image/gif;base64,") == 2 and "after 320 steps" in seen
        and "at the end" in seen
    )
    assert {"seed 0", "seed 1", "mean"} <= set(re.findall('data-label="([^"]*)"', page))
    assert f"jaxrl-fast train --config {run}/config.json" in seen and "observations" in seen
    for words in ("Time", "compile", "Memory", "parameters", "Settings", "num_envs"):
        assert words in seen, words
    assert '"hidden"' in seen


def test_the_learning_curve_alone_is_told_from_its_evaluations(tmp_path):
    tools.train("ppo", tmp_path / "run")
    assert report(tmp_path / "run").count(">training<") == 1


def test_a_page_needs_no_network(run):
    page = report(run)
    assert set(re.findall(r"https?://[^\"' <]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"<link|<script[^>]+src|@import|url\(", page)


def test_the_page_of_a_run_in_training_loads_again(run, tmp_path):
    going = tmp_path / "run"
    shutil.copytree(run, going)
    (going / "result.json").unlink()
    assert "not finished" in texts(report(going))
    with folders.hold_lock("run", going):
        assert "in training" in texts(report(going)) and "http-equiv" not in report(going)
        assert '<meta http-equiv="refresh" content="10">' in report(going, refresh=True)
    (going / "metrics.jsonl").unlink()
    assert "No log row yet." in report(going)


def test_a_run_of_a_module_that_is_not_here_still_has_its_page(run, tmp_path):
    other = tmp_path / "run"
    shutil.copytree(run, other)
    content = tools.read(other / "config.json")
    content["algorithm"]["class"] = "nowhere:Mine"
    content["algorithm"]["name"] = "mine"
    (other / "config.json").write_text(json.dumps(content | {"imports": ["nowhere"]}))
    seen = texts(report(other))
    assert "mine on" in seen and "nowhere:Mine" in seen and "--import nowhere" in seen


def test_the_plan_of_a_run_on_a_card_is_left_out(run, tmp_path):
    there = shutil.copytree(run, tmp_path / "run")
    content = tools.read(there / "config.json")
    assert "checkpoints: at most" in report(there)
    (there / "config.json").write_text(
        json.dumps(content | {"device": "1 x NVIDIA H100 80GB HBM3 (gpu)"}))
    assert "checkpoints: at most" not in report(there)


def test_a_diverged_run_has_a_page(run, tmp_path):
    there = shutil.copytree(run, tmp_path / "run")
    rows = [json.dumps(row | {"value_loss": [1e20, 1e20]})
            for row in read_jsonl(there / "metrics.jsonl")]
    (there / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    assert "1e+20" in report(there) or "value_loss" in report(there)


@pytest.mark.parametrize(("path", "host", "code"), [
    ("/", "127.0.0.1:1", 200), ("/", "localhost:1", 200), ("/", "evil.example:1", 404),
    ("/../config.json", "127.0.0.1:1", 404),
])  # fmt: skip
def test_the_server_answers_only_for_its_page_and_its_own_name(path, host, code):
    assert answer(path, host, lambda: "page")[0] == code


def test_the_server_goes_on_after_an_error():
    code, kind, content = answer("/", "localhost:1", lambda: 1 / 0)
    assert (code, kind) == (500, "text/plain") and content.startswith("ZeroDivisionError")


def test_names_are_escaped(run, tmp_path):
    other = tmp_path / "run"
    shutil.copytree(run, other)
    content = tools.read(other / "config.json")
    content["environment"]["name"] = content["algorithm"]["name"] = "<script>alert(1)</script>"
    (other / "config.json").write_text(json.dumps(content))
    assert "<script>alert" not in report(other)


def test_every_column_has_a_meaning():
    assert (
        meaning("success_end")
        == "Mean of success, as the environment reports it, over the steps that end an episode."
    )
    assert "wall clock" in meaning("time_learn") and "setting" in meaning("algo.learning_rate")
    assert all(10 < len(text) < 130 and text.endswith(".") for text in MEANINGS.values())


@pytest.mark.matrix("test_a_page_of_a_run_has_all_of_it")
def test_the_page_of_seeds_in_turn_shows_the_one_in_training(tmp_path):
    pages = {}
    look = lambda run, rows: pages.update({run.config.seed: texts(report(tmp_path / "run"))})
    algo = jf.PPO(num_envs=2, num_steps=8, hidden=(4,), num_epochs=1, num_minibatches=2)
    tiny = dict(total_steps=64, log_every=16, eval_every=0, eval_episodes=1, progress=False,
                pictures=False, tensorboard=False)
    jf.train(algo, jf.make("gym:CartPole-v1"), seeds=2, out=tmp_path / "run", hooks=[look], **tiny)
    for seed, page in pages.items():
        assert "No log row yet" not in page and "in training" in page and "value_loss" in page
        assert len(read_jsonl(tmp_path / f"run/seed-{seed}/metrics.jsonl")) > 2
    assert len(pages) == 2 and "finished" in texts(report(tmp_path / "run"))


def test_a_page_of_a_sweep(tmp_path, monkeypatch, run_cli):
    # six members: in the programs of test_sweep.py
    grid = {"algo.learning_rate": [1e-3, 2e-3, 1e-2]}
    settings = tools.RUN | {"total_steps": 320, "pictures": True}
    found = jf.sweep(tools.algorithm("ppo"), tools.environment(), grid=grid, seeds=2,
                     out=tmp_path / "sweep", **settings)
    page = report(tmp_path / "sweep")
    seen = texts(page)
    assert "3 configurations with 2 seeds each" in seen and "best IQM" in seen
    assert page.index("Ranking") < page.index("Curves of the best") < page.index("Responses")
    assert "data:image/png;base64," in page and "response of algo.learning_rate" in seen
    assert (
        f"{found.table()[0]['iqm']:,.4g}" in seen and f"sweep --resume {tmp_path}/sweep" in seen
        and "Lineage" not in seen and "PBT changed" not in seen and "sweep: finished." in seen
    )
    monkeypatch.chdir(tmp_path)
    again, best = (next(line for line in seen.splitlines() if part in line)
                   for part in ("mkdir again", "best.json"))
    make, copy, resume = (shlex.split(part) for part in again.partition("  #")[0].split(" && "))
    subprocess.run(make, check=True)
    subprocess.run(copy, check=True)
    assert run_cli(*resume[1:])[0] == 0
    line = shlex.split(best.partition("  #")[0])[1:]
    # one seed: in the programs of a test above
    assert run_cli(*line, "--out", "best", "--seeds", "1", "--no-pictures")[0] == 0
    assert (tmp_path / "again/table.csv").read_text() == (tmp_path / "sweep/table.csv").read_text()


@pytest.mark.matrix("test_a_page_of_a_sweep")
def test_the_lineage_of_a_sweep(tmp_path):
    settings = tools.RUN | {"total_steps": 640, "pictures": True}
    pbt = jf.PBT({"algo.learning_rate": "loguniform:1e-4,1e-2"}, every=128, fraction=0.5)
    found = jf.sweep(tools.algorithm("ppo"), tools.environment(), members=3, selection=pbt,
                     out=tmp_path / "sweep", **settings)
    seen = texts(report(tmp_path / "sweep"))
    took = found.lineage()
    assert took and f"{len(took)} takeovers" in seen and "schedule of algo.learning_rate" in seen
    assert f"{int(took[0]['member'])} (seed 0)" in seen
    assert "PBT changed the settings. This page shows those of the start;" in seen
    (found.path / "table.csv").unlink()
    assert "sweep: not finished." in texts(report(found.path))


def test_the_command_writes_the_page(run, run_cli, tmp_path):
    code, out, _ = run_cli("report", str(run), "--out", str(tmp_path / "a.html"))
    assert code == 0 and (tmp_path / "a.html").read_text() == report(run) and "MB" in out
    code, out, _ = run_cli("report", str(run))
    assert code == 0 and (run / "report.html").is_file()


@pytest.mark.parametrize(("words", "message"), [
    ([], "RUN|SWEEP must be given, got none: jaxrl-fast report RUN"),
    (["nowhere"], "run must be an existing run directory, got 'nowhere'"),
    (["RUN", "--port", "80"], "--port must be left out without --serve, got 80"),
    (["RUN", "--serve", "--port", "70000"], "port must be"),
])  # fmt: skip
def test_bad_input_of_the_command(words, message, run, run_cli):
    code, _, err = run_cli("report", *(str(run) if word == "RUN" else word for word in words))
    assert code == 2 and message in err and err.count("\n") == 1


def test_the_server_answers_with_the_page_of_now():
    pages = iter(["first", "second"])
    with server(0, lambda: next(pages)) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        ask = lambda path="": urllib.request.urlopen(
            f"http://127.0.0.1:{serving.server_port}/{path}", timeout=10)
        try:
            assert [ask().read() for _ in range(2)] == [b"first", b"second"]
            with pytest.raises(urllib.error.HTTPError):
                ask("../config.json")
        finally:
            serving.shutdown()
            thread.join()
        with pytest.raises(jf.ConfigError, match="--port must be a free port"):
            server(serving.server_port, str)


def test_a_browser_asks_again_after_an_error():
    with server(0, lambda: 1 / 0) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(f"http://127.0.0.1:{serving.server_port}/", timeout=10)
            assert error.value.code == 500 and error.value.headers["Refresh"] == "10"
        finally:
            serving.shutdown()
            thread.join()


POINT = """<script>
const svg = document.querySelector('svg[data-axes]'), box = svg.getBoundingClientRect();
const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
svg.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y}));
const width = document.documentElement.scrollWidth;
document.title = [document.querySelector('.tip').textContent, width].join('|');
</script></body>"""


MEASURE = """<body style="margin:0">
<iframe src="page.html" style="width:WIDTHpx;height:2000px;border:0"></iframe><script>
onload = () => {
  const inside = document.querySelector('iframe').contentDocument;
  const found = [...inside.querySelectorAll('svg text')];
  document.title = Math.min(...found.map(text => text.getBoundingClientRect().height));
};
</script></body>"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1100])
def test_the_letters_of_curves_are_readable(width, run, tmp_path):
    (tmp_path / "page.html").write_text(report(run))
    frame = tmp_path / "frame.html"  # a window is never as narrow as a phone
    frame.write_text(MEASURE.replace("WIDTH", str(width)))
    page = browser.page(frame.as_uri(), tmp_path / "profile", "--allow-file-access-from-files")
    # CSS pixels of a line of letters; a curve shrunk to a phone has 6
    assert float(re.search("<title>(.*?)</title>", page).group(1)) > 8


@pytest.mark.browser
def test_a_browser_shows_values_and_a_phone_the_whole_width(run, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(report(run).replace("</body>", POINT))
    page = browser.page(file.as_uri(), tmp_path / "profile", "--window-size=500,900")
    tip, width = re.search("<title>(.*?)</title>", page).group(1).split("|")
    assert re.fullmatch(r"(mean|seed [01]): [\d.]+ at [\d,]+ steps", tip)
    assert int(width) <= 500


@pytest.mark.parametrize("name", ["rollout.gif", "videos/000000000320.gif"])
def test_links_and_pipes_are_left_out(run, tmp_path, name):
    """A page must not carry other files of its reader, nor wait for a pipe."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    other.write_bytes((run / name).read_bytes())
    shutil.copytree(run, mine)
    (mine / name).unlink()
    (mine / name).symlink_to(other)
    assert report(mine).count("data:image/gif;base64,") == 1
    (mine / name).unlink()
    os.mkfifo(mine / name)
    assert report(mine).count("data:image/gif;base64,") == 1


@pytest.mark.parametrize("seeds", [10**6, 10**12])
def test_an_absurd_number_of_seeds_costs_nothing(run, tmp_path, seeds):
    shutil.copytree(run, tmp_path / "run")
    content = tools.read(tmp_path / "run" / "config.json")
    content["run"]["seeds"] = seeds
    (tmp_path / "run" / "config.json").write_text(json.dumps(content))
    (tmp_path / "run" / "result.json").unlink()
    start = time.process_time()
    assert f"seeds 0 to {seeds - 1}" in " ".join(texts(report(tmp_path / "run")).split())
    assert time.process_time() - start < 20  # 40 s and more if each label lists every seed
