"""The Dockerfiles and the workflow, which nothing here can run: what they name is there."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILES = sorted((ROOT / "scripts/docker").glob("*.Dockerfile"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def steps(path: Path) -> list[list[str]]:
    """Return the instructions of a Dockerfile, split at spaces."""
    lines = path.read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def test_there_is_an_image_for_cpu_and_cuda():
    assert [path.name for path in DOCKERFILES] == ["cpu.Dockerfile", "cuda.Dockerfile"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.stem)
def test_an_image_copies_files_that_exist_and_all_that_a_wheel_needs(path, tmp_path):
    copies = [words[1:] for words in steps(path) if words[0] == "COPY"]
    for *sources, target in copies:
        for source in sources:
            place = tmp_path / target / (source if target == "./" else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / source, place)
    named = [PROJECT["project"]["readme"], "LICENSE", "pyproject.toml", "jaxrl_fast/py.typed"]
    assert all((tmp_path / name).is_file() for name in named)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.stem)
def test_an_image_is_a_python_that_we_support_with_an_extra_that_exists(path):
    image, version = re.search(r"^FROM (\w+):([\d.]+)-slim$", path.read_text(), re.M).groups()
    assert image == "python"
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
    (install,) = [" ".join(words) for words in steps(path) if words[0] == "RUN"]
    assert re.fullmatch(r"RUN pip install --no-cache-dir ('\.\[\w+\]'|\.)", install)
    assert set(re.findall(r"\[(\w+)\]", install)) <= EXTRAS.keys()
    (entry,) = [words[1] for words in steps(path) if words[0] == "ENTRYPOINT"]
    assert re.fullmatch(r'\["([\w-]+)"\]', entry)[1] in PROJECT["project"]["scripts"]


def test_the_workflow_runs_files_that_exist():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    scripts = [command for command in commands if command.startswith(".ci/")]
    assert {".ci/run", ".ci/package", ".ci/site/build"} == set(scripts)
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)
    others = [re.findall(r"\[(\w+)\]", command) for command in commands if command not in scripts]
    assert others and all(set(extras) <= EXTRAS.keys() for extras in others)
    (site,) = [step["with"]["path"] for job in jobs.values() for step in job["steps"]
               if step.get("uses", "").startswith("actions/upload-pages-artifact@")]
    assert f"site_dir: ../../{site}" in (ROOT / ".ci/site/mkdocs.yml").read_text()
