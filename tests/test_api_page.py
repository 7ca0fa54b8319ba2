"""The public face: what `jf` offers is what docs/api.md lists, each with a first line that fits a
table."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

import jaxrl_fast as jf

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "api_page.py"


@pytest.fixture(scope="module")
def api_page():
    spec = importlib.util.spec_from_file_location("api_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_lists_every_public_name(api_page):
    assert api_page.PAGE.read_text() == api_page.page(), "python scripts/api_page.py writes it anew"


@pytest.mark.parametrize("name", jf.__all__)
def test_a_public_name_has_a_one_line_summary(name):
    first = inspect.getdoc(getattr(jf, name)).split("\n")[0]
    assert 10 < len(first) <= 90 and first.endswith("."), first
