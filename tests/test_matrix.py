"""No property leaves the default run: a row that only `pytest -m matrix` runs has one there."""

from __future__ import annotations

import argparse
import re
from types import SimpleNamespace

import pytest

from helpers.matrix import (
    REPRESENTATIVES,
    complaints,
    drop_marks,
    family,
    keep_share,
    other_marks,
    share,
)
from jaxrl_fast.algorithms import algorithm_class, list_algorithms
from jaxrl_fast.algorithms.base import Algorithm


def test_every_marked_row_has_a_property_in_the_default_run(pytestconfig):
    """Of the files that this run collects: all in README's command."""
    others = other_marks(pytestconfig)
    assert {"slow", "onnx"} <= others
    found = complaints(pytestconfig.collected_items, others)
    assert not found, "\n".join(found)


def item(name: str, *marks: pytest.MarkDecorator) -> SimpleNamespace:
    own = [x.mark for x in marks]
    return SimpleNamespace(
        nodeid=f"tests/test_a.py::{name}", own_markers=own,
        iter_markers=lambda wanted=None: [x for x in own if wanted in (None, x.name)])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([item("test_x[a]", pytest.mark.matrix), item("test_x[b]")], None),
        ([item("test_x", pytest.mark.matrix("test_y")), item("test_y")], None),
        ([item("test_x[a]", pytest.mark.matrix)], "test_x has no row"),
        ([item("test_x[a]", pytest.mark.matrix), item("test_x[b]", pytest.mark.slow)],
         "test_x has no row"),
        ([item("test_x", pytest.mark.matrix("test_z"))], "names tests/test_a.py::test_z"),
        ([item("test_x", pytest.mark.matrix("test_y")),
          item("test_y", pytest.mark.matrix("test_x"))], "names tests/test_a.py::test_y"),
        ([item("test_x", pytest.mark.matrix("tests/gone.py::test_y"))], "names tests/gone.py"),
        ([item("test_x", pytest.mark.matrix("tests/test_docs.py::test_y"))], None),
        ([item("test_x[a]", pytest.mark.matrix, pytest.mark.slow), item("test_x[b]")],
         r"marks matrix and \['slow'\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_property_that_leaves_is_named(items, message):
    found = complaints(items, ["slow"])
    assert re.search(message, found[0]) if message else not found


def test_a_row_that_needs_an_extra_is_of_no_other_run():
    items = [item("test_x[a]", pytest.mark.matrix, pytest.mark.onnx),
             item("test_x[b]", pytest.mark.matrix)]
    drop_marks(items, {"onnx"})
    assert [[mark.name for mark in one.own_markers] for one in items] == [["onnx"], ["matrix"]]


@pytest.mark.parametrize("parts", [1, 4, 7])
def test_every_row_is_in_exactly_one_share(parts):
    rows = [item(f"test_x[{i}]", pytest.mark.matrix) for i in range(400)]
    others = [item("test_x"), item("test_y[a]")]
    kept = []
    for part in range(1, parts + 1):
        items = [*rows, *others]
        dropped = keep_share(items, part, parts)
        assert items[-2:] == others
        assert sorted(x.nodeid for x in items[:-2] + dropped) == sorted(x.nodeid for x in rows)
        assert len(items[:-2]) > 0.7 * len(rows) / parts, "the shares are not equal"
        kept += items[:-2]
    assert sorted(x.nodeid for x in kept) == sorted(x.nodeid for x in rows)


def test_a_share_is_the_same_in_every_process():
    items = [item(f"test_x[{i}]", pytest.mark.matrix) for i in range(12)]
    keep_share(items, 2, 3)
    assert [re.search(r"\d+", x.nodeid)[0] for x in items] == ["5", "8", "9", "10", "11"]


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "2", "a/b", "1/3/5", "-1/3", ""])
def test_a_share_that_does_not_exist_is_named(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be K/N"):
        share(text)


def test_rows_but_the_first_have_the_mark():
    marked = lambda rows: [[mark.name for mark in row.marks] for row in rows]
    assert marked(family(["ppo", "a2c", ("dqn", 3)])) == [[], ["matrix"], []]
    assert marked(family([1, 2, pytest.param(3, marks=pytest.mark.slow)], 1)) == [
        [], ["matrix"], ["slow"]]
    assert marked(family([pytest.param({}, id="a"), pytest.param({}, id="b")], ["b"])) == [
        ["matrix"], []]
    with pytest.raises(ValueError, match="no row of the default run"):
        family(["a2c"])


def test_every_base_class_has_a_representative():
    base = {}
    for name in list_algorithms():
        cls = algorithm_class(name)
        base[name] = cls.__mro__[cls.__mro__.index(Algorithm) - 1].__name__
    assert set(base.values()) == set(REPRESENTATIVES)
    assert all(base[name] == cls for cls, names in REPRESENTATIVES.items() for name in names)
