"""Names of modules that change while a program runs: every one is listed, with its reason."""

from __future__ import annotations

import ast

import pytest

from test_floors import FILES

REGISTERED = {  # what a program adds to the package, by name
    "doctor.checks": {"CHECKS"}, "profiling.advice": {"RULES"}, "imports": {"named"},
    "algorithms": {"ALGORITHMS"}, "envs.own": {"_NAMED"}, "envs.registry": {"sources.USER"},
}  # fmt: skip
PROCESS = {  # facts of the operating system's process: flags, collector, locks, JAX's counter,
    # the warning of idle cores
    "runtime": {"_own", "_paused"}, "files.folders": {"_held", "_names"}, "distributed": {"_polls"},
    "engine.placement": {"_told"},
}  # fmt: skip
COMPILED = {"engine.programs": {"_alive", "_latest"}}  # a cache: a found program equals a new one
STATE = REGISTERED | PROCESS | COMPILED
INTERPRETER = {"os.environ", "sys.path", "sys.modules", "sys.meta_path", "jax.config"}

CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
           "popleft", "remove", "setdefault", "update"}  # fmt: skip
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda


def changed(source: str) -> set[str]:
    """Names of a module that its functions change: `a` of its own, `a.b` of an imported `a`."""
    module = ast.parse(source)
    own, imported = assigned(module.body), names_imported(module.body)
    found = set()
    for function in (x for x in ast.walk(module) if isinstance(x, FUNCTIONS)):
        inside = [node for part in ast.iter_child_nodes(function) for node in ast.walk(part)]
        local = assigned(inside) | {node.arg for node in inside if isinstance(node, ast.arg)}
        said = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
        for node in inside:
            name = ast.unparse(x) if (x := receiver(node)) is not None else ""
            first, _, more = name.partition(".")
            if first in own - local or (more and first in imported - local):
                found.add(name)
        found |= said
    return found


def assigned(nodes: list[ast.AST]) -> set[str]:
    """Names that the statements themselves bind to values."""
    targets = [target for node in nodes for target in getattr(node, "targets", [node])]
    targets += [getattr(node, "target", node) for node in nodes]
    return {x.id for target in targets if isinstance(target, (ast.Name, ast.Tuple, ast.List))
            for x in ast.walk(target) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def names_imported(nodes: list[ast.AST]) -> set[str]:
    kinds = (ast.Import, ast.ImportFrom)
    found = [a for node in nodes if isinstance(node, kinds) for a in node.names]
    return {(a.asname or a.name).partition(".")[0] for a in found}


def receiver(node: ast.AST) -> ast.AST | None:
    """Return the object that a node changes, if it is a name or an attribute of one."""
    found = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        found = node.func.value if node.func.attr in CHANGES else None
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "next":
        found = node.args[0]
    elif isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        found = node.value
    base = found.value if isinstance(found, ast.Attribute) else found
    return found if isinstance(base, ast.Name) else None


def test_modules_change_only_listed_state():
    """Other state is passed on or held in an object."""
    found = {name: changed(file.read_text()) - INTERPRETER for name, file in FILES.items()}
    assert {name: names for name, names in found.items() if names} == STATE


@pytest.mark.parametrize(("line", "names"), [
    ("seen.setdefault(id(env), env)", {"seen"}), ("seen[env] = 1", {"seen"}),
    ("del seen[env]", {"seen"}), ("seen[env] += 1", {"seen"}), ("seen.count = 1", {"seen"}),
    ("global seen; seen = 1", {"seen"}), ("next(seen)", {"seen"}),
    ("lambda: seen.add(env)", {"seen"}), ("api.USER[env] = 1", {"api.USER"}),
    ("api.USER.update(env)", {"api.USER"}), ("seen = {}; seen[env] = 1", set()),
    ("env.add(seen)", set()), ("seen.get(env)", set()), ("env[seen[0]] = 1", set()),
    ("api.discard(env)", set()),
])  # fmt: skip
def test_the_search_sees_changes(line, names):
    head = "import api, weakref\nseen: dict = weakref.WeakValueDictionary()\n"
    assert changed(f"{head}class A:\n    def f(self, env):\n        {line}\n") == names
