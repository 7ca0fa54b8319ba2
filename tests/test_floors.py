"""The order of the files, what importing them costs, and which tests run by default."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import jaxrl_fast
from helpers import runs as tools
from jaxrl_fast import _moved

ROOT = Path(jaxrl_fast.__file__).parent
FLOORS = [  # the folders of the package, each importing only from its own floor and those below
    "_moved background errors fields imports distributed runtime spaces spelling tree types values",
    "files registry",
    "memory ops networks logs doctor random",
    "envs",
    "algorithms testing",
    "engine",
    "actors",
    "runs profiling forecast bench speed",
    "sweeps",
    "cli __main__",
]
FLOOR = {name: i for i, names in enumerate(FLOORS) for name in names.split()}
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(ROOT.rglob("*.py"))
    if file != ROOT / "__init__.py"
}


@functools.cache
def names_imported(source: str) -> set[str]:
    """Modules and names that a file imports, inside functions too; for type checkers only does not
    count."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
            names = [f"{node.module}.{a.name}" for a in node.names]
        else:
            names = []
        found.update(names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def with_parent(name: str) -> list[str]:
    """An imported name without the package, and what holds it: one of them is a module."""
    package, _, rest = name.partition(".")
    return [rest, rest.rpartition(".")[0]] if package == "jaxrl_fast" else []


def imports(file: Path) -> set[str]:
    """Modules of this package that a file imports."""
    found = map(with_parent, names_imported(file.read_text()))
    return {next((module for module in names if module in FILES), "") for names in found} - {""}


def old_names(source: str) -> set[str]:
    """Modules that a file imports by a name of an older version."""
    found = (name for one in names_imported(source) for name in with_parent(one))
    return {name for name in found if name in _moved.MOVED and name not in FILES}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """{module: modules of this package that it imports}."""
    return {name: imports(file) for name, file in FILES.items()}


floor = lambda name: FLOOR[name.partition(".")[0]]


def test_every_file_has_a_floor(graph):
    assert {name.partition(".")[0] for name in FILES} == FLOOR.keys()
    assert sum(map(len, graph.values())) > 100  # imports are found


@pytest.mark.parametrize("name", FILES)
def test_a_file_imports_from_its_floor_and_lower_floors(name, graph):
    above = {other for other in graph[name] if floor(other) > floor(name)}
    assert not above, f"{name} (floor {floor(name)}) imports from above: {sorted(above)}"


@pytest.mark.parametrize("name", FILES)
def test_no_file_imports_a_module_by_its_old_name(name):
    assert old_names(FILES[name].read_text()) == set()


def test_the_search_sees_old_names():
    old = (
        "from jaxrl_fast import rundir, tree\nfrom jaxrl_fast.collect import Noise\nimport "
        "jaxrl_fast.runs.session"
    )
    assert old_names(old) == {"rundir", "collect", "runs.session"}
    assert (
        old_names("def f():\n    from jaxrl_fast.envs.cartpole import CartPole")
        == {"envs.cartpole"}
    )


def test_no_old_name_hides_a_file():
    assert not (_moved.MOVED.keys() & FILES.keys()) - {"envs.host", "envs.physics", "envs.probes"}


def test_no_cycles(graph):
    """Modules of one floor have an order, imports inside functions included."""
    TopologicalSorter({name: found - {name} for name, found in graph.items()}).prepare()


def test_the_search_sees_imports(graph):
    assert (
        {"algorithms.base", "engine.grid", "engine.evaluate", "engine.rollout", "tree"}
        <= graph["engine.iteration"]
    )
    # inside functions
    assert "logs.plots" in graph["runs.rundir"] and "runs.train" in graph["runs.load"]
    assert "envs.native.draw" in graph["envs.native.cartpole"]


IMPORT = """
import sys, time
import jax
before, began = set(sys.modules), time.perf_counter()
import jaxrl_fast
seconds = time.perf_counter() - began
heavy = {"gymnax", "brax", "orbax", "matplotlib", "tensorboardX", "gymnasium", "wandb", "PIL",
         "tyro", "rich", "flax", "optax"}
found = heavy & ({m.partition(".")[0] for m in sys.modules} - {m.partition(".")[0] for m in before})
assert not found, found
from jaxrl_fast import runtime
assert not runtime.backend_started()
print(seconds)
"""


def test_importing_the_package_costs_next_to_nothing():
    seconds = lambda: float(tools.python(IMPORT, timeout=60).stdout)
    assert any(seconds() < 0.3 for _ in range(3))  # a busy machine may need another try


USE = """
import sys
import jaxrl_fast as jf
env, algo = jf.make("CartPole-v1"), jf.PPO()
jf.make_train(algo, env, 10_000)
heavy = {"gymnax", "brax", "orbax", "matplotlib", "tensorboardX", "gymnasium", "wandb", "PIL",
         "seaborn"}
found = heavy & {m.partition(".")[0] for m in sys.modules}
assert not found, found
"""


def test_a_native_run_imports_nothing_heavy():
    done = tools.python(USE, timeout=60)
    assert done.returncode == 0, done.stderr


def test_names_of_the_package():
    for name in jaxrl_fast.__all__:
        assert getattr(jaxrl_fast, name) is not None
    assert set(dir(jaxrl_fast)) == {*jaxrl_fast.__all__, *jaxrl_fast._PACKAGES, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = jaxrl_fast.nope
    assert (
        callable(jaxrl_fast.train) and callable(jaxrl_fast.load) and callable(jaxrl_fast.evaluate))


def test_names_for_type_checkers_are_the_names_at_run_time():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(
        n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    listed = {a.name: n.module for n in block.body for a in n.names}
    names = {name: f"jaxrl_fast.{module}" for name, module in jaxrl_fast._NAMES.items()}
    assert listed == names | dict.fromkeys(jaxrl_fast._PACKAGES, "jaxrl_fast")


def test_tests_of_an_extra_have_a_marker_and_never_skip():
    checkout = Path(__file__).parents[1]
    options = (
        tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"])
    markers = {text.partition(":")[0] for text in options["markers"]}
    assert set(re.findall(r"not (\w+)", options["addopts"])) == markers
    word = "import" + "orskip"
    assert [file for file in (checkout / "tests").rglob("*.py") if word in file.read_text()] == []
