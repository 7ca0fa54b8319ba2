"""The notebooks run from first cell to last, at tiny sizes, and are stored small and without traces of a machine."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
WRITE = ("seed_sweep", "watch_a_run")  # these write run directories; their cells run again in the folder where they have
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_notebooks_in_the_docs_exist():
    assert {FOLDER / "quickstart.ipynb", FOLDER / "brax_control.ipynb"} <= set(NOTEBOOKS)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("JAXRL_FAST_TINY", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    notebook.cells = notebook.cells * (2 if path.stem in WRITE else 1)
    NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_small_and_without_paths(path: Path):
    text = path.read_text()
    assert len(text.encode()) < 200_000
    assert not re.search(r"(/(home|root|Users|tmp|work)/|C:\\\\)", text)
    for cell in nbformat.read(path, as_version=4).cells:
        assert all(out.output_type != "error" for out in cell.get("outputs", ()))


TRAIN = """
import jaxrl_fast as jf
algo = jf.PPO(num_envs=4, num_steps=32, hidden=(8,), num_epochs=1)
run = jf.train(algo, jf.make("CartPole-v1"), 50_000_000, eval_every=0, eval_episodes=4, chunk_seconds=0.1)
"""
RESUME = """
before = run.env_steps
print(run.resume() is run, run.env_steps > before > 0)
"""


@pytest.mark.timeout(240)
def test_interrupting_the_kernel_ends_a_cell_and_another_goes_on(monkeypatch, tmp_path):
    """Each cell has one output, which is updated in place, and no error."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    manager, client = start_new_kernel()
    kinds, texts = [], []

    def look(message):
        """Interrupt at the second update of the cell."""
        kinds.append(message["msg_type"])
        texts.append(message["content"].get("text", ""))
        if message["msg_type"] == "update_display_data" and kinds.count("update_display_data") == 2:
            manager.interrupt_kernel()

    try:
        for code in (TRAIN, RESUME):
            kinds.clear()
            reply = client.execute_interactive(code, timeout=100, output_hook=look)
            assert reply["content"]["status"] == "ok" and "error" not in kinds
            assert kinds.count("display_data") == 1 and kinds.count("update_display_data") >= 2
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    told = "".join(texts)
    assert told.count("`resume()` of the run goes on") == 2 and "True True\n" in told, told
