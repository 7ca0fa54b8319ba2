"""HTML of runs, settings and tables for notebooks. Every text is escaped."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from jaxrl_fast.fields import changed_settings
from jaxrl_fast.tree import describe

_LONGEST = 200  # characters of a value


def block(title: str, *parts: str) -> str:
    """Return parts of HTML under a title."""
    return f'<div style="max-width:960px"><div><strong>{escape(title)}</strong></div>{"".join(parts)}</div>'


def lines(*texts: str) -> str:
    return "".join(f"<div>{escape(text)}</div>" for text in texts)


def table(rows: Sequence[Sequence[Any]], head: Sequence[str] = (), left: int = 1) -> str:
    """Return a table of texts, the first `left` columns flush left, the others flush right."""
    cell = lambda kind, i, x: f'<{kind} style="text-align:{"left" if i < left else "right"}">{escape(str(x))}</{kind}>'
    row = lambda kind, cells: f"<tr>{''.join(cell(kind, i, x) for i, x in enumerate(cells))}</tr>"
    top = f"<thead>{row('th', head)}</thead>" if head else ""
    return f"<table>{top}<tbody>{''.join(row('td', cells) for cells in rows)}</tbody></table>"


def folded(summary: str, *parts: str) -> str:
    """Return parts of HTML that a click on `summary` shows."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def settings(value: Any) -> str:
    """Return the settings of a dataclass that differ from their defaults; all of them folded."""
    fields = [field for field in dataclasses.fields(value) if field.repr]
    changed = changed_settings(value)
    rows = [[f.name, _short(getattr(value, f.name)), _short(f.default), f.metadata.get("help", "")] for f in fields]
    head = ("setting", "value", "default", "meaning")
    some = [row for row in rows if row[0] in changed]
    shown = table(some, head, left=4) if some else lines("all settings have their defaults")
    return shown + (folded(f"all {len(rows)} settings", table(rows, head, left=4)) if rows else "")


def values(pairs: Mapping[str, Any]) -> str:
    """Return names and their values, one a line; a text as it is."""
    rows = [[name, value if isinstance(value, str) else _short(value)] for name, value in pairs.items()]
    return table(rows, left=2) if rows else ""


def _short(value: Any) -> str:
    text = "" if value is dataclasses.MISSING else describe(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
