"""`jaxrl-fast new`: a working algorithm, environment or package to begin with."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from importlib import resources
from pathlib import Path

from jaxrl_fast.algorithms import ALGORITHMS
from jaxrl_fast.cli.args import PROG, read_arguments
from jaxrl_fast.envs import registry
from jaxrl_fast.errors import ConfigError, check_choice
from jaxrl_fast.files.folders import check_writable
from jaxrl_fast.imports import is_installed

OPTIONS = ()
KINDS = ("algorithm", "environment", "project")
PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{dashed}"
version = "0.1.0"
description = "An algorithm and an environment for jaxrl_fast"
requires-python = ">=3.11"
dependencies = ["jaxrl_fast"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[project.entry-points."jaxrl_fast.algorithms"]
{dashed} = "{module}.algorithm:{cls}"

[project.entry-points."jaxrl_fast.environments"]
{dashed} = "{module}.environment:SOURCE"

[tool.setuptools]
packages = ["{module}"]
package-dir = {{ "" = "." }} # `pip install -e .` is then a path, which editors follow
"""
README = """# {dashed}

An algorithm and an environment for jaxrl_fast; their names work after `pip install -e .`.

```bash
pip install -e '.[dev]' && pytest
jaxrl-fast train {dashed} {dashed}/walk
jaxrl-fast train ppo {dashed}/walk
jaxrl-fast train {dashed} CartPole-v1
```
"""


def new(argv: list[str]) -> None:
    """Write the skeleton, and print what to type next."""
    about = f"Write a working skeleton here: KIND is {', '.join(KINDS)}."
    (kind, name), _ = read_arguments("new", about, argv)
    check_choice("KIND", kind, KINDS)
    files, hints = (_project if kind == "project" else _module)(kind, _checked(name))
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise ConfigError("NAME", name, f"one whose file {there} is not there yet")
    check_writable("NAME", Path())
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
    print("what comes next:", *(f"  {hint}" for hint in hints), sep="\n")


def _checked(name: str) -> str:
    """Return the module's name. Raises ConfigError for a name that Python or we cannot take."""
    module = name.replace("-", "_")
    fits = re.fullmatch(r"[a-z][a-z0-9_]{0,99}", module) and not module.startswith("test_")
    if not fits or keyword.iskeyword(module):
        raise ConfigError("NAME", name,
                          "the name of a module: at most 100 lower-case letters, digits and _, "
                          "such as my_env")
    algorithm = name in ALGORITHMS or module in ALGORITHMS
    if algorithm or module == "jaxrl_fast" or name in registry.list_environments():
        raise ConfigError("NAME", name, "a name that jaxrl_fast does not use itself")
    found = None if module in sys.stdlib_module_names else importlib.util.find_spec(module)
    if module in sys.stdlib_module_names or (found and found.origin and is_installed(found.origin)):
        raise ConfigError("NAME", name,
                          f"a name that is not installed: {module}.py would hide that module here")
    return module


def _class(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))


def _text(file: str, module: str) -> str:
    """Return a skeleton's text with the new name."""
    text = (resources.files("jaxrl_fast.cli.skeletons") / file).read_text()
    text = re.sub("The (algorithm|environment) skeleton", _class(module), text)
    return text.replace("Skeleton", _class(module)).replace("skeleton", module)


def _module(kind: str, module: str) -> tuple[dict[Path, str], list[str]]:
    files = {Path(f"{module}.py"): _text(f"{kind}.py", module),
             Path(f"test_{module}.py"): _text(f"test_{kind}.py", module)}
    subject = f"{module} CartPole-v1" if kind == "algorithm" else f"ppo {module}"
    tests = "pytest" if importlib.util.find_spec("pytest") else "pip install pytest && pytest"
    return files, [f"{PROG} train {subject} --import {module}", f"{tests} test_{module}.py"]


def _project(_: str, module: str) -> tuple[dict[Path, str], list[str]]:
    """Return a package with one of each, found by entry points."""
    dashed, cls, root = module.replace("_", "-"), _class(module), Path(module.replace("_", "-"))
    algorithm = _text("algorithm.py", module).replace("@jf.register_algorithm\n", "")
    algorithm = algorithm.replace(f'"{module}"', f'"{dashed}"')
    environment, walk = _text("environment.py", module), f"{dashed}/walk"
    environment = environment.replace(f'jf.register("{module}", {cls})',
                                      f'SOURCE = table("{dashed}/", {{"{walk}": {cls}}})')
    environment = environment.replace(f'"{module}"', f'"{walk}"')
    line = "from jaxrl_fast import random\n"
    environment = environment.replace(line, f"{line}from jaxrl_fast.envs import table\n")
    of_algorithm, of_environment = (_text(f"test_{kind}.py", module)
                                    for kind in ("algorithm", "environment"))
    of_algorithm = of_algorithm.replace(f"from {module} import", f"from {module}.algorithm import")
    line = f"\nimport {module}  # noqa: F401 - registers it\n"
    of_environment = of_environment.replace(line, "")
    files = {
        "pyproject.toml": PYPROJECT.format(dashed=dashed, module=module, cls=cls),
        "README.md": README.format(dashed=dashed),
        f"{module}/__init__.py": '"""An algorithm and an environment for jaxrl_fast."""\n',
        f"{module}/algorithm.py": algorithm, f"{module}/environment.py": environment,
        "tests/test_algorithm.py": of_algorithm,
        "tests/test_environment.py": of_environment.replace(f'"{module}"', f'"{walk}"'),
    }  # fmt: skip
    hints = [f"cd {root} && pip install -e '.[dev]' && pytest", f"{PROG} train {dashed} {walk}"]
    return {root / name: text for name, text in files.items()}, hints
