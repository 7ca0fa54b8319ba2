"""The cell of a notebook: one output that updates in place, from a shell that a test holds."""

from __future__ import annotations

import io
import signal
import sys
import types
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.html import parsed
from helpers.notebook import Shell
from jaxrl_fast.logs import svg
from jaxrl_fast.logs.notebook import SHARE, NotebookSink, display
from jaxrl_fast.logs.progress import ProgressSink
from jaxrl_fast.logs.rows import Row
from jaxrl_fast.logs.terminal import rich_shell, shows


def row(env_steps, **metrics):
    return Row(env_steps, env_steps / 1000, 1000.0,
               {name: np.float32(values) for name, values in metrics.items()})


def fill(sink, history, *rows):
    for one in rows:
        sink.now = getattr(sink, "now", 0.0) + 2.0
        history.append(one)
        sink.write(one)


def test_one_output_shows_the_run():
    shell, history, lines = Shell(), [], io.StringIO()
    sink = NotebookSink(10_000, history, shell, lines, clock=lambda: getattr(sink, "now", 0.0))
    sink.open()
    sink.status("compiling <b>")
    fill(sink, history, row(1000, episode_return=[20.0, 30.0]),
         row(2000, episode_return=[40.0, 60.0], eval_return=[90.0, 110.0]))
    sink.message("a note & more")
    sink.now += 2.0
    sink.evaluating(2, 4)
    sink.close()
    assert [update for _, _, update in shell.sent] == [False] + [True] * (len(shell.sent) - 1)
    assert len({name for _, name, _ in shell.sent}) == 1 and not lines.getvalue()
    pages = [parsed(page) for page in shell.pages]
    assert "compiling <b>" in "".join(pages[0][0].itertext()) and not pages[0][1]
    text = "".join(pages[-1][0].itertext())
    assert (
        "2,000 / 10,000 steps" in text and "1,000 steps/s" in text and "ETA" in text
        and "a note & more" in text
    )
    assert (
        "return 50.0 (40.0..60.0)" in text
        and "evaluation 100.0 (90.0..110.0) at 2,000 steps" in text
    )
    assert pages[-1][0].find("progress").attrib.items() >= {"max": "10000", "value": "2000"}.items()
    assert "evaluating 2/4" in shell.pages[-2] and "evaluating" not in text
    (curve,) = pages[-1][1]
    assert "mean of 2 members, range of the members" in "".join(curve.itertext())
    assert [x.tag.rpartition("}")[2] for x in curve].count("polyline") == 1
    assert shell.sent[-1][0]["text/plain"].startswith(" 2,000 / 10,000 steps")


def test_the_evaluation_at_the_end_replaces_an_earlier_one():
    shell, history = Shell(), []
    sink = NotebookSink(2000, history, shell, io.StringIO(), lambda: getattr(sink, "now", 0.0))
    fill(sink, history, row(1000, episode_return=[20.0], eval_return=[90.0]),
         row(2000, episode_return=[40.0]))
    sink.evaluated(2000, np.float32([475.0]))
    sink.close()
    assert "evaluation 90.0 at 1,000 steps" in shell.pages[-2]
    assert "evaluation 475.0 at 2,000 steps" in shell.pages[-1]
    assert shell.pages[-1].count("evaluation ") == 1
    assert shell.sent[-1][0]["text/plain"].endswith("return 40.0  evaluation 475.0 at 2,000 steps")


def test_after_the_end_of_a_run_only_messages_are_printed():
    shell, lines = Shell(), io.StringIO()
    sink = NotebookSink(10, [], shell, lines)
    sink.close()
    sink.close()
    sink.message("the end")
    assert lines.getvalue() == "the end\n" and not shell.sent


def test_a_notebook_without_a_front_end_prints_lines():
    history, lines = [], io.StringIO()
    sink = NotebookSink(10, history, Shell(fails=True), lines)
    sink.status("compiling")
    fill(sink, history, row(5, episode_return=[1.0]))
    sink.close()
    assert lines.getvalue().splitlines()[0] == "compiling" and "5 / 10 steps" in lines.getvalue()


def test_slow_updates_are_few():
    """Drawing takes a second of this CPU: the next one waits a hundred times as long."""
    shell, history, now = Shell(), [], [0.0]
    sink = NotebookSink(10**6, history, shell, io.StringIO(), clock=lambda: now[0],
                        cpu=lambda: now[0])
    publish = shell.publish
    shell.publish = lambda *a, **k: (publish(*a, **k), now.__setitem__(0, now[0] + 1.0))
    sink._publish = shell.publish
    for i in range(1, 1001):
        now[0] += 0.5
        fill(sink, history, row(1000 * i, episode_return=[1.0]))
    assert 3 <= len(shell.sent) <= 2 + 500 / SHARE


def test_a_machine_that_stalls_once_does_not_stop_the_curve():
    """Other programs hold the core for a minute within an update, which needs no CPU time."""
    shell, history, now = Shell(), [], [0.0]
    sink = NotebookSink(10**6, history, shell, io.StringIO(), clock=lambda: now[0],
                        cpu=lambda: 0.0)
    publish = sink._publish
    sink._publish = lambda *a, **k: (publish(*a, **k), now.__setitem__(0, now[0] + 60.0))
    fill(sink, history, row(1000, episode_return=[1.0]))
    sink._publish = publish
    now[0] += 30.0
    for i in range(2, 12):
        now[0] += 1.0
        fill(sink, history, row(1000 * i, episode_return=[1.0]))
    assert len(shell.sent) == 11


def test_only_a_kernel_gets_the_cell(modules, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # no terminal
    found = [None]
    modules(ipykernel=types.ModuleType("ipykernel"),  # imported by another library
            IPython=types.SimpleNamespace(get_ipython=lambda: found[0]))
    assert rich_shell() is None and not shows(None) and type(display(1, [])) is ProgressSink
    found[0] = types.SimpleNamespace()  # a terminal's
    assert rich_shell() is None and type(display(1, [])) is ProgressSink
    found[0] = Shell()
    assert isinstance(display(1, []), NotebookSink)
    modules(IPython=types.ModuleType("IPython"))  # half imported
    assert rich_shell() is None


def test_an_interrupted_cell_returns_the_run_and_another_goes_on(monkeypatch, modules):
    """The second cell's curve begins where the first one's did."""
    shell = Shell()
    modules(IPython=types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        hook = lambda run, rows: signal.raise_signal(signal.SIGINT) if run.rows == 3 else None
        run = tools.train("ppo", hooks=[hook], chunk_seconds=1e-9, progress=True)
        assert run.rows == 3 and "192 / 1,280 steps" in shell.pages[-1]
        first = {name for _, name, _ in shell.sent}
        assert run.resume() is run and run.rows == 20 and "1,280 / 1,280 steps" in shell.pages[-1]
    finally:
        signal.signal(signal.SIGINT, old)
    assert len({name for _, name, _ in shell.sent} - first) == 1
    (curve,) = parsed(shell.pages[-1])[1]
    (line,) = [x for x in curve if x.tag.endswith("polyline")]
    seen = [r.env_steps for r in run.history if np.isfinite(r.metrics["episode_return"]).any()]
    assert len(line.get("points").split()) == len(seen) and seen[0] < 192


def curve(rows_by_run, **named):
    return ElementTree.fromstring(svg.learning_curve(rows_by_run, **named))


def test_curves_of_several_runs_are_named():
    rows = [{"env_steps": i, "episode_return": [float(i)] * 8} for i in range(1, 2000)]
    found = curve({"a <1>": rows, "b": rows})
    text = "".join(found.itertext())
    assert "a <1> (8 members)" in text and "b (8 members)" in text
    lines = [x for x in found if x.tag.endswith("polyline")]
    assert len(lines) == 2 and all(len(x.get("points").split()) < 310 for x in lines)
    assert len({x.get("stroke") for x in lines}) == 2


@pytest.mark.parametrize("values", [[], [None], [np.nan, np.inf]])
def test_a_curve_without_values_says_so(values):
    rows = [{"env_steps": 1, "episode_return": values}] if values else []
    assert "no episode_return yet" in "".join(curve({"": rows}).itertext())


def test_a_run_without_episodes_shows_its_evaluations():
    """Offline training, say."""
    found = curve({"": [{"env_steps": i, "eval_return": [i, i + 2.0]} for i in (10, 20, 30)]})
    dots = [x for x in found if x.tag.endswith("circle")]
    assert len(dots) == 3 and "evaluation at 30 steps: 31" in "".join(found.itertext())


@pytest.mark.parametrize("value", [1e16, -1e20, 1e300])
def test_equal_values_of_any_size_are_drawn(value):
    rows = [{"env_steps": 10 * i, "loss": [value]} for i in range(3)]
    assert "<polyline" in svg.learning_curve({"": rows}, "loss", evaluations=False)


def test_few_evaluations_among_many_rows_are_not_smoothed():
    few = [{"env_steps": i, "eval_return": [i / 10]} for i in range(0, 1000, 100)]
    rows = [row for one in few
            for row in (one, *[{"env_steps": one["env_steps"] + k} for k in range(1, 100)])]
    draw = lambda rows: svg.learning_curve({"": rows}, "eval_return", evaluations=False)
    assert draw(rows) == draw(few)


def test_one_point_and_equal_values_are_drawn():
    assert any(x.tag.endswith("circle")
               for x in curve({"": [{"env_steps": 5, "episode_return": [3.0]}]}))
    flat = [{"env_steps": i, "episode_return": [-2.5]} for i in range(3)]
    (line,) = [x for x in curve({"": flat}) if x.tag.endswith("polyline")]
    assert len({point.split(",")[1] for point in line.get("points").split()}) == 1


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 8.1), (0, 4e6), (1e-5, 3e-5), (5, 5)])
def test_ticks_are_round_and_within(low, high):
    found = svg.ticks(low, high)
    assert 1 <= len(found) <= 8 and all(low - 1e-12 <= x <= high + 1e-12 for x in found)
    assert len({svg.short(x) for x in found}) == len(found)


def test_labels_of_ticks():
    assert [svg.short(x) for x in (0.0, -250.0, 0.05, 1e5, 1.5e6, 2e9)] == [
        "0", "-250", "0.05", "100k", "1.5M", "2G"]


def test_train_is_the_same_with_the_cell(modules, unbroken):
    modules(IPython=types.SimpleNamespace(get_ipython=lambda: shell))
    shell = Shell()
    run = tools.train("ppo", progress=True)
    tools.assert_same(tools.state(run), tools.state(unbroken("ppo")[0]))
    assert isinstance(run, jf.train.__globals__["Result"]) and len(shell.sent) >= 2
