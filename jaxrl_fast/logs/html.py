"""HTML of runs, settings and tables for notebooks. Every text is escaped."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from jaxrl_fast.fields import changed_settings, help_of
from jaxrl_fast.tree import describe

_LONGEST = 200  # characters of a value


def block(title: str, *parts: str) -> str:
    """Return parts of HTML under a title."""
    head = f"<div><strong>{escape(title)}</strong></div>"
    return f'<div style="max-width:960px">{head}{"".join(parts)}</div>'


def lines(*texts: str) -> str:
    """Return texts, one a line."""
    return "".join(f"<div>{escape(text)}</div>" for text in texts)


def image(content: bytes, kind: str, alt: str) -> str:
    """Return a picture as part of the page. kind: of its media type, such as "png" or "svg+xml"."""
    data = base64.b64encode(content).decode()
    source = f"data:image/{kind};base64,{data}"
    return f'<img alt="{escape(alt)}" style="max-width:100%" src="{source}">'


def table(rows: Sequence[Sequence[Any]], head: Sequence[str] = (), left: int = 1) -> str:
    """Return a table of texts, the first `left` columns flush left, the others flush right."""

    def row(kind: str, texts: Sequence[Any]) -> str:
        sides = ("left" if i < left else "right" for i in range(len(texts)))
        cell = lambda side, x: f'<{kind} style="text-align:{side}">{escape(str(x))}</{kind}>'
        return f"<tr>{''.join(map(cell, sides, texts))}</tr>"

    top = f"<thead>{row('th', head)}</thead>" if head else ""
    return f"<table>{top}<tbody>{''.join(row('td', texts) for texts in rows)}</tbody></table>"


def fold(summary: str, *parts: str) -> str:
    """Return parts of HTML that a click on `summary` shows."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def settings(value: Any) -> str:
    """Return the settings of a dataclass that differ from their defaults; all of them folded."""
    fields = [field for field in dataclasses.fields(value) if field.repr]
    changed = changed_settings(value)
    both = lambda f: (_short(getattr(value, f.name)), _short(f.default))
    rows = [(f.name, *both(f), help_of(type(value), f.name)) for f in fields]
    head = ("setting", "value", "default", "meaning")
    some = [row for row in rows if row[0] in changed]
    shown = table(some, head, left=4) if some else lines("all settings have their defaults")
    return shown + (fold(f"all {len(rows)} settings", table(rows, head, left=4)) if rows else "")


def values(pairs: Mapping[str, Any]) -> str:
    """Return names and their values, one a line; a text unchanged."""
    text = lambda value: value if isinstance(value, str) else _short(value)
    return table([(name, text(value)) for name, value in pairs.items()], left=2) if pairs else ""


def _short(value: Any) -> str:
    text = "" if value is dataclasses.MISSING else describe(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
