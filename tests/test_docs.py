"""The documents' examples run: their Python blocks in order, at tiny sizes, and the scripts that a
reader copies.

A block that begins with a comment such as `# my_env.py` is also saved under that name where the
blocks run, so that later blocks and the shell lines below it can import it. Sizes are made small by
replacing text; a replacement that no longer occurs is an error, so that it is not forgotten when a
document changes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import runpy
import shlex
import sys
import types
from pathlib import Path

import jax
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.algorithms import ALGORITHMS, algorithm_class
from jaxrl_fast.cli import command as cli
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.sources import SOURCES
from jaxrl_fast.logs.meanings import MEANINGS
from jaxrl_fast.logs.sinks import SINKS
from jaxrl_fast.sweeps.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "README.md": {"500_000": "2_048", ", 64)": ", 2)", "seeds=4": "seeds=2",
                  "num_envs=16": "num_envs=4, num_epochs=1, num_minibatches=1"},
    "CONTRIBUTING.md": {"100_000": "1_024", "20_000": "1_024"},
    "docs/algorithms/ppo.md": {"500_000": "2_048"},
    "docs/algorithms/a2c.md": {"500_000": "512"},
    "docs/algorithms/impala.md": {"500_000": "640"},
    "docs/algorithms/dqn.md": {"500_000": "2_048"},
    "docs/algorithms/c51.md": {"500_000": "2_048"},
    "docs/algorithms/qr_dqn.md": {"500_000": "2_048"},
    "docs/algorithms/iqn.md": {"500_000": "2_048"},
    "docs/algorithms/rainbow.md": {"500_000": "2_048"},
    "docs/algorithms/apex.md": {"200_000": "2_048", "learning_starts=2_000": "learning_starts=256",
                                "(128, 128)": "(8,)"},
    "docs/algorithms/pqn.md": {"500_000": "2_048"},
    **{f"docs/algorithms/{name}.md": {"20_000": "512", "=1_000": "=128", "(64, 64)": "(8,)",
                                  "num_envs=8": "num_envs=8, batch_size=16"}
       for name in ("sac", "td3", "tqc")},
    "docs/algorithms/crossq.md": {"20_000": "512", "num_envs=8": "num_envs=8, batch_size=16",
                                  "=1_000": "=128", "(64, 64)": "(8,)", "(256, 256)": "(8,)"},
    "docs/algorithms/apg.md": {"500_000": "2_048", "num_steps=64": "num_steps=8"},
    "docs/algorithms/ars.md": {"500_000": "8_000", "directions=16": "directions=2"},
    "docs/algorithms/es.md": {"500_000": "8_000", "directions=32": "directions=2"},
    "docs/optimizers.md": {"500_000": "2_048", "num_steps=64": "num_steps=64, hidden=(8,)"},
    "docs/getting-started.md": {"100_000": "2_048", "episodes=16": "episodes=4"},
    "docs/memory.md": {},
    "docs/notebooks.md": {"100_000": "2_048",
                          "num_envs=8": "num_envs=4, num_steps=32, hidden=(8,)"},
    "docs/physics.md": {},
    "docs/host.md": {"50_000": "512", "actors=2)": "actors=2, eval_episodes=2)",
                     "num_envs=8": "num_envs=4, num_steps=16", "(64, 64)": "(8,)"},
    "docs/offline.md": {"num_envs=8": "num_envs=8, learning_starts=64, buffer_size=4_096, "
                                      "hidden=(8,)",
                        "50_000": "512", "20_000": "64"},
    "docs/agents.md": {"100_000": "512", "num_envs=16": "num_envs=4, num_steps=16, hidden=(8,)"},
    "docs/doctor.md": {},
    "docs/profile.md": {"num_envs=8": "num_envs=4, num_steps=8, hidden=(8,)", "100_000": "1_000",
                        "seconds=1.0": "seconds=0.05"},
    "docs/forecast.md": {},
    "docs/bench.md": {},
    "docs/gymnasium.md": {"range(200)": "range(20)"},
}
# the lines that are run here, without their `jaxrl-fast`, and what is added to make them small
SHELL = {
    "CONTRIBUTING.md": {
        "train reinforce walk --import my_env --import my_algorithm": "--total-steps 1024",
    },
}


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)


def small(document: str, code: str) -> str:
    for old, new in SMALL[document].items():
        code = code.replace(old, new)
    return code


def run_block(place: Path, name: str, code: str, namespace: dict) -> None:
    """Execute a block as a module, so that its classes can be found again by their name."""
    titled = re.match(r"# (\w+)\.py\n", code)
    name = titled.group(1) if titled else name
    file = place / f"{name}.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update({k: v for k, v in namespace.items() if not k.startswith("__")})
    sys.modules[name] = module
    spec.loader.exec_module(module)
    namespace.update(module.__dict__)


# Slow, because other tests run the same.
REST = ["docs/profile.md",
        *(name
          for name in SMALL if "algorithms/" in name and Path(name).stem not in ("ppo", "dqn"))]


# The default run has the page that users see first, and the shortest.
FIRST = ("README.md", "docs/doctor.md", "docs/gymnasium.md")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", family(
    [pytest.param(name, marks=pytest.mark.slow) if name in REST else name for name in SMALL],
    FIRST))
def test_python_blocks_run(document: str, place: Path):
    namespace: dict = {}
    found = blocks(document, "python")
    assert found, f"{document} has no Python block"
    whole = "".join(found)
    for old in SMALL[document]:
        assert old in whole, f"{document} no longer has {old!r}: change SMALL"
    for i, code in enumerate(found):
        run_block(place, f"block_{Path(document).stem}_{i}", small(document, code), namespace)
    shell = "".join(blocks(document, "bash"))
    for line, more in SHELL.get(document, {}).items():
        assert f"jaxrl-fast {line}" in shell, (
            f"{document} no longer has the line {line!r}: change SHELL"
        )
        argv = shlex.split(f"{line} --eval-episodes 4 --no-tensorboard {more}")
        assert cli.main(argv) == 0, f"jaxrl-fast {line}"


@pytest.mark.parametrize("document", family(
    [name for name in REST if "algorithms/" in name],
    ["docs/algorithms/sac.md", "docs/algorithms/es.md"]))
def test_python_blocks_of_the_rest_are_whole_runs(document: str, monkeypatch):
    """Prepared and not trained: the settings exist and fit each other, the environment and the
    sizes."""
    made = []
    monkeypatch.setattr(jf, "train",
                        lambda *run, total_steps, **more: made.append(
                            jf.plan(*run, total_steps, **more)))
    traced = lambda *run, total_steps: jf.train(*run, total_steps=total_steps) or (
        lambda key: (key, key))
    monkeypatch.setattr(jf, "make_train", traced)
    for code in blocks(document, "python"):
        exec(code, {})
    assert len(made) == 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("script", "arguments"),
    family([
        ("ppo_cartpole.py", ["--total-steps", "2048", "--seeds", "2"]),
        ("dqn_minatar.py", ["--total-steps", "10400", "--out", "run"]),
    ], ["ppo_cartpole.py"]),
)
def test_scripts_run(script: str, arguments: list[str], place: Path, monkeypatch, capsys):
    path = ROOT / "scripts" / script
    assert len(path.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")
    assert "steps/s" in capsys.readouterr().out


SCRIPTS = sorted(str(p) for p in (ROOT / "scripts").rglob("*.py") if "__main__" in p.read_text())
HELP = """
import contextlib, io, json, runpy, sys, traceback

said = {}
for script in sys.argv[1:]:
    sys.argv, code = [script, "--help"], None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    said[script] = code, printed.getvalue()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, tuple[object, str]]:
    """Exit code and text of each script's --help, asked in one process of their own."""
    scripts = str(ROOT / "scripts")
    path = os.pathsep.join([scripts, os.environ.get("PYTHONPATH", "")])
    done = tools.python(HELP, *SCRIPTS, timeout=200, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: Path(path).stem)
def test_every_script_explains_itself(script: str, helps):
    code, said = helps[script]
    assert not code, code
    assert "usage:" in said


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_program_of_a_tpu_user_runs(place: Path, monkeypatch, capsys):
    path = ROOT / "scripts" / "tpu_sweep.py"
    monkeypatch.setattr(sys, "argv",
                        [str(path), "--total-steps", "2048", "--seeds", "1", "--rates", "2",
                         "--out", "x"])
    runpy.run_path(str(path), run_name="__main__")
    assert "IQM" in capsys.readouterr().out and (Path("x") / "table.csv").exists()


DOCUMENTS = ["README.md", "CONTRIBUTING.md",
             *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_have_targets(document: str):
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith("#"):
            continue
        file = (ROOT / document).parent / target.split("#")[0]
        assert file.exists(), f"{document} links to {target}, which is not there"


def test_the_site_lists_every_page():
    listed = re.findall(r"([\w-]+)\.md$", (ROOT / ".ci/site/mkdocs.yml").read_text(), re.M)
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages - {"benchmarks"} <= set(listed), (
        "a page is not in the navigation of .ci/site/mkdocs.yml"
    )


def test_equations_of_lists_are_code_on_the_site(monkeypatch):
    for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["mkdocs.structure.files"].File = None
    indent = runpy.run_path(str(ROOT / ".ci/site/hooks.py"))["_indent_equations"]
    page = (ROOT / "docs/algorithms/ppo.md").read_text()
    assert "\n\n       delta_t = " in page and "\n\n        delta_t = " in indent(page)
    assert "\n        target  = A_t" in indent(page) and indent(page).split() == page.split()
    fenced = "```python\nclass A:\n    def f():\n        x\n\n        y\n```\n"
    assert indent(fenced) == fenced


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_files_exist(document: str):
    """Paths in backticks such as `jaxrl_fast/engine/iteration.py` or `tests/engine/` are those of
    the checkout."""
    for name in re.findall(r"`((?:jaxrl_fast|tests|scripts|docs|notebooks)/[\w./-]*)`",
                           (ROOT / document).read_text()):
        assert (ROOT / name).exists(), f"{document} names {name}, which is not there"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_placeholder_is_left(document: str):
    text = (ROOT / document).read_text()
    assert not re.findall(r"@[A-Z]+@|\{\{|\bTODO\b", re.sub(r"```.*?```", "", text, flags=re.S))


def test_readme_has_the_two_commands():
    shell = "".join(blocks("README.md", "bash"))
    assert "pip install -e . && jaxrl-fast train ppo CartPole-v1" in shell
    assert "pip install -e '.[dev]' && pytest" in shell


def page(name: str) -> str:
    """An algorithm's page, with that of all and those whose settings it says are its own too."""
    text = "".join((ROOT / f"docs/algorithms/{x}.md").read_text() for x in (name, "README"))
    return text + "".join((ROOT / f"docs/algorithms/{x}").read_text()
                          for x in re.findall(r"\((\w+\.md)#settings\)", text))


PAGES = sorted(p.stem for p in (ROOT / "docs/algorithms").glob("*.md") if p.stem != "README")


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_is_explained(name: str):
    for field in dataclasses.fields(algorithm_class(name)):
        if field.name != "spec":
            assert f"`{field.name}`" in page(name), (
                f"docs/algorithms/{name}.md does not explain {field.name}"
            )


@pytest.mark.parametrize("name", family(PAGES, ["ppo", "dqn", "es"]))
def test_every_metric_is_explained(name: str):
    algo = algorithm_class(name)()
    continuous = jf.Discrete not in algo.action_spaces or name == "apg"
    env = jf.make("Pendulum-v1" if continuous else "CartPole-v1")
    metrics = jax.eval_shape(jf.make_train(algo, env, 200_000), jax.random.key(0))[1]
    for metric in metrics.keys() - {"env_steps", "episode_return", "episode_length", "finite"}:
        assert f"`{metric}`" in page(name), f"docs/algorithms/{name}.md does not explain {metric}"
        assert metric in MEANINGS, (
            f"a report does not explain {metric}: jaxrl_fast/logs/meanings.py"
        )


def test_the_page_of_environments_lists_every_one():
    text = (ROOT / "docs/environments.md").read_text()
    for known, entry in registry.list_environments().items():
        if entry.source in ("native", "gymnax"):
            stem, _, suite = known.partition("-")
            assert known in text or (suite in text and stem
                                     in text), f"docs/environments.md does not list {known}"


def column(document: str, heading: str) -> list[str]:
    """The first code of every row of the table below a heading."""
    section = (ROOT / document).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (?:\[)?`([^`]+)`", section, re.M)


def test_the_readme_names_every_algorithm():
    table = (
        (ROOT / "README.md").read_text().partition("\n| family | names |\n")[2].partition("\n\n")[0]
    )
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(ALGORITHMS.ours)


def test_tables_match_the_registries():
    assert (
        sorted(column("docs/algorithms/README.md", "By name")) == sorted(ALGORITHMS.ours)
        == sorted(PAGES)
    )
    forms = [SAMPLERS.get(kind).form for kind in SAMPLERS.ours]
    assert column("docs/sweeps.md", "Samplers") == forms
    assert column("docs/runs.md", "Logs") == [SINKS.get(kind).form for kind in SINKS.ours]
    environments = (ROOT / "docs/environments.md").read_text()
    for source in map(SOURCES.get, SOURCES.ours):
        prefix = source.prefix or next(iter(source.names)).partition("-")[0].partition("/")[0]
        assert f"`{prefix}" in environments, (
            f"docs/environments.md does not list the source of {prefix}"
        )


def test_every_algorithm_is_a_public_name():
    import jaxrl_fast as jf
    public = {f"jaxrl_fast.{module}:{name}"
              for name, module in jf._NAMES.items() if module.startswith("algorithms.")}
    others = {"jaxrl_fast.algorithms.base:Algorithm", "jaxrl_fast.algorithms.presets:preset"}
    assert set(ALGORITHMS.ours.values()) == public - others


def test_ci_is_executable_and_knows_no_machine():
    file = ROOT / ".ci" / "run"
    text = file.read_text()
    assert file.stat().st_mode & 0o111
    assert "pip install --quiet -e '.[dev]'" in text
    assert "://" not in text
    assert not re.search(r"/(root|home|work|tmp|Users)/", text)
