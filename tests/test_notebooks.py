"""The notebooks run from first cell to last, at tiny sizes, and are stored small and without traces
of a machine."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import bench_notebook
import nbformat
import pytest
import repository
from jupyter_client.manager import start_new_kernel

from helpers.matrix import family

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
# These write run directories; the cells that do run again in the folder where they have.
WRITES = re.compile(r"out=|--out")
# `seed_sweep` comes first: it asks for a CPU device a core, which JAX gives until its backend
# starts.
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"), key=lambda path: (path.stem != "seed_sweep", path.stem))


def test_notebooks_in_the_docs_exist():
    assert {FOLDER / "quickstart.ipynb", FOLDER / "brax_control.ipynb"} <= set(NOTEBOOKS)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel for all notebooks: each has a fresh namespace and a folder of its own, and JAX is
    imported once."""
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXRL_FAST_TINY", "1")
        patch.setenv("MPLBACKEND", "agg")
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        manager, client = start_new_kernel()
        # as in conftest.py
        execute(client, "import gc\ngc.set_threshold(50_000, 20, 10)")
        yield manager, client, folder
        client.stop_channels()
        manager.shutdown_kernel(now=True)


FRESH = "%reset -f\nimport os\nos.makedirs({0!r})\nos.chdir({0!r})\n%reset -f"


def execute(client, code: str, look=lambda message: None) -> None:
    """Run one cell; an error of it fails the test with its traceback. look: gets its messages."""
    reply = client.execute_interactive(code, timeout=200, output_hook=look)["content"]
    assert reply["status"] == "ok", "\n".join(reply["traceback"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "path", family(NOTEBOOKS, lambda path: path.stem == "quickstart"), ids=lambda p: p.stem)
def test_a_notebook_runs(path: Path, kernel):
    _, client, folder = kernel
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    execute(client, FRESH.format(str(folder / path.stem)))
    for code in [*cells, *filter(WRITES.search, cells)]:
        execute(client, code)


@pytest.mark.parametrize("there", [True, False])
def test_the_install_cell_takes_a_checkout_for_no_package(there, tmp_path, monkeypatch):
    """Python finds a folder of the package's name, a checkout, as a namespace without content."""
    first = {next(cell.source for cell in nbformat.read(path, as_version=4).cells
                  if cell.cell_type == "code") for path in NOTEBOOKS}
    (code,) = first
    monkeypatch.chdir(tmp_path)
    (tmp_path / ("jaxrl_fast" if there else "other")).mkdir()
    monkeypatch.setattr(sys, "path", [""])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])  # an editable install may have one more
    monkeypatch.delitem(sys.modules, "jaxrl_fast", raising=False)
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    exec(code, {})
    assert ran[-1][1:] == ["-m", "pip", "install", "-q", "./jaxrl_fast[pandas]"]
    assert [x.split()[:2] for x in ran[:-1]] == ([] if there else [["git", "clone"]])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_small_and_without_paths(path: Path):
    text = path.read_text()
    assert len(text.encode()) < 200_000
    assert not re.search(r"(/(home|root|Users|tmp|work)/|C:\\\\)", text)
    for cell in nbformat.read(path, as_version=4).cells:
        assert all(out.output_type != "error" for out in cell.get("outputs", ()))


@pytest.mark.parametrize("path", repository.PAGES, ids=lambda p: p.stem)
def test_addresses_follow_pyproject(path: Path):
    assert path.read_text() == repository.page(
        path, repository.address()), "run: python scripts/repository.py"
    moved = repository.page(path, "https://github.com/me/fork")
    assert "/OWNER/" not in moved and "https://github.com/me/fork jaxrl_fast" in moved
    if path.suffix == ".ipynb":
        assert (
            f"Open in Colab: "
            f"<https://colab.research.google.com/github/me/fork/blob/main/notebooks/{path.name}>"
            in moved
        )


TRAIN = """
import jaxrl_fast as jf
algo = jf.PPO(num_envs=4, num_steps=32, hidden=(8,), num_epochs=1)
run = jf.train(algo, jf.make("CartPole-v1"), 50_000_000, eval_every=0, eval_episodes=4,
               log_every=12_800, chunk_seconds=0.1, pictures=False)
"""
RESUME = """
before = run.env_steps
print(run.resume() is run, run.env_steps > before > 0)
"""


@pytest.mark.matrix(
    "tests/logs/test_notebook.py::test_an_interrupted_cell_returns_the_run_and_another_goes_on")
@pytest.mark.timeout(240)
def test_interrupting_the_kernel_ends_a_cell_and_another_goes_on(kernel):
    """Each cell has one output, its curve, which is updated in place, and no error."""
    manager, client, folder = kernel
    execute(client, FRESH.format(str(folder / "interrupted")))
    kinds, texts, streams = [], [], set()

    def look(message):
        """Interrupt at the second update of the cell."""
        kinds.append(message["msg_type"])
        streams.add(message["content"].get("name"))
        texts.append(message["content"].get("text", ""))
        if message["msg_type"] == "update_display_data" and kinds.count("update_display_data") == 2:
            manager.interrupt_kernel()

    for code in (TRAIN, RESUME):
        kinds.clear()
        reply = client.execute_interactive(code, timeout=100, output_hook=look)
        assert reply["content"]["status"] == "ok" and "error" not in kinds
        assert kinds.count("display_data") == 1 and kinds.count("update_display_data") >= 2
    assert "stderr" not in streams  # a notebook shows it as an error
    told = "".join(texts)
    assert told.count("`resume()` of the run goes on") == 2 and "True True\n" in told, told


PICTURED = """
from concurrent.futures import Future

import jaxrl_fast as jf
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.train import start
from jaxrl_fast.runs.videos import Filming


def at_once(function, *args):  # a busy machine's thread draws less often
    done = Future()
    done.set_result(function(*args))
    return done


often = Dependencies(filming=Filming(at_once, share=1e9, apart=0.0))
algo = jf.PPO(num_envs=4, num_steps=32, hidden=(8,), num_epochs=1)
start(algo, jf.make("CartPole-v1"), 2_560, log_every=128, eval_every=0, eval_episodes=4,
      chunk_seconds=1e-9, dependencies=often)
"""


@pytest.mark.matrix(
    "tests/runs/test_live_pictures.py::test_the_cell_shows_an_environment_in_training")
@pytest.mark.timeout(240)
def test_the_newest_picture_has_one_output_below_the_curve(kernel):
    _, client, folder = kernel
    execute(client, FRESH.format(str(folder / "pictured")))
    seen: dict[str, list[tuple[str, str]]] = {}

    def look(message):
        content = message["content"]
        if "display_id" in content.get("transient", {}):
            seen.setdefault(content["transient"]["display_id"], []).append(
                (message["msg_type"], content["data"]["text/html"]))

    execute(client, PICTURED, look)
    curve, picture = seen
    assert picture == f"{curve}-picture"
    for shown in seen.values():
        assert [kind for kind, _ in shown] == ["display_data"] + ["update_display_data"] * (
            len(shown) - 1)
    assert len(seen[picture]) > 2 and all("data:image/png;base64," in html
                                          for _, html in seen[picture])


@pytest.mark.matrix("test_a_notebook_runs")
@pytest.mark.timeout(240)
def test_the_benchmark_of_the_cell_measures_both_ways(kernel):
    _, client, folder = kernel
    execute(client, FRESH.format(str(folder / "benchmark")))
    texts = []
    execute(client, bench_notebook.cell(rounds=1, steps=20_000),
            lambda message: texts.append(message["content"].get("text", "")))
    assert re.search(r"with / without: [\d.]+; updates: [\d.]+%", "".join(texts))
