"""A whole HTML page in one file, for reports: style and script inside, no network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from jaxrl_fast.logs import html

STYLE = """
:root { --ink: #22242a; --soft: #666b76; --line: #e3e5ea; --ground: #f6f7f9; --accent: #2f6db5; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--ground); }
main { max-width: 1100px; margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.5rem; margin: .2rem 0; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
h3 { font-size: .95rem; margin: 0; }
p { margin: .3rem 0 .6rem; } .soft, small { color: var(--soft); }
section { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 1rem;
  margin: 1rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: .6rem;
  margin: 1rem 0; }
.tiles div { background: #fff; border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; }
.tiles b { display: block; font-size: 1.15rem; overflow-wrap: anywhere; }
.tiles small { display: block; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr));
  gap: 1rem; }
.small { grid-template-columns: repeat(auto-fit, minmax(min(48%, 240px), 1fr)); }
.half { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.whole svg { width: 100%; }
figure { margin: 0; position: relative; break-inside: avoid; }
figcaption { font-size: .85rem; color: var(--soft); }
svg, img, video { max-width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td { overflow-wrap: break-word; }
pre { background: var(--ground); padding: .7rem; border-radius: 6px; overflow-x: auto;
  font-size: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.bar { display: flex; height: 1.1rem; border-radius: 4px; overflow: hidden; }
.tip { position: absolute; pointer-events: none; background: var(--ink); color: #fff;
  font-size: .75rem; padding: .15rem .4rem; border-radius: 4px; white-space: nowrap;
  transform: translate(-50%, -150%); display: none; z-index: 1; }
summary { cursor: pointer; color: var(--accent); }
@media (max-width: 600px) { main { padding: .6rem; } section { padding: .7rem; }
  .whole svg { font-size: 16px; overflow: visible; } }
@media print { body { background: #fff; font-size: 11px; } .tip { display: none; }
  section, .tiles div { border-color: #ccc; } h1, h2 { break-after: avoid; }
  tr, pre { break-inside: avoid; } .scroll { overflow: visible; }
  .scroll table { font-size: .75rem; }
  .scroll tr:has(:nth-child(5)) th { overflow-wrap: anywhere; } }
"""
SCRIPT = """
for (const svg of document.querySelectorAll('svg[data-axes]')) {
  const [left, right, top, bottom] = svg.dataset.frame.split(' ').map(Number);
  const [last, low, high] = svg.dataset.axes.split(' ').map(Number);
  const lines = [...svg.querySelectorAll('polyline[data-label]')].map(line => ({line,
    points: line.getAttribute('points').split(' ').map(p => p.split(',').map(Number))}));
  const tip = document.createElement('div');
  tip.className = 'tip';
  svg.parentElement.append(tip);
  const extreme = x => Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3);
  const number = x => extreme(x) ? x.toExponential(2) : +x.toPrecision(4);
  const hide = () => {
    tip.style.display = 'none';
    for (const {line} of lines) line.style.strokeWidth = '';
  };
  const show = event => {
    const inverse = svg.getScreenCTM().inverse();
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(inverse);
    let best = null;
    for (const {line, points} of lines)
      for (const [x, y] of points) {
        const far = (x - p.x) ** 2 + (y - p.y) ** 2;
        if (!best || far < best.far) best = {far, x, y, line};
      }
    hide();
    if (!best) return;
    const steps = (best.x - left) / (right - left) * last;
    const value = low + (bottom - best.y) / (bottom - top) * (high - low);
    const at_steps = ' at ' + Math.round(steps).toLocaleString('en') + ' steps';
    tip.textContent = best.line.dataset.label + ': ' + number(value) + at_steps;
    const at = new DOMPoint(best.x, best.y).matrixTransform(svg.getScreenCTM());
    const box = svg.parentElement.getBoundingClientRect(), half = tip.offsetWidth / 2 || 80;
    tip.style.display = 'block';
    tip.style.left = Math.min(Math.max(at.x - box.left, half), box.width - half) + 'px';
    tip.style.top = at.y - box.top + 'px';
    best.line.style.strokeWidth = 3;
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', hide);
}
"""


def page(title: str, parts: Iterable[str], refresh: int | None = None) -> str:
    """Return an HTML document. refresh: seconds until a browser loads it again; None: never."""
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, '
            f'initial-scale=1">{again}<title>{escape(title)}</title>'
            f"<style>{STYLE}</style></head>\n<body><main>{''.join(parts)}</main>\n"
            f"<script>{SCRIPT}</script></body></html>\n")


def section(title: str, *parts: str) -> str:
    """Return parts under a heading; nothing without any."""
    inner = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{inner}</section>\n" if inner else ""


def tiles(facts: Mapping[str, str]) -> str:
    """Return {label: number} as a row of boxes."""
    inner = "".join(f"<div><small>{escape(name)}</small><b>{escape(value)}</b></div>"
                    for name, value in facts.items())
    return f'<div class="tiles">{inner}</div>'


def figure(content: str, caption: str = "", title: str = "") -> str:
    """Return a picture with its caption."""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    return f"<figure>{head}{content}<figcaption>{escape(caption)}</figcaption></figure>"


def grid(figures: Iterable[str], kind: str = "") -> str:
    """Return figures side by side.

    kind: "small" for many in a row, "half" for two, "whole" for the page's width.
    """
    inner = "".join(figures)
    return f'<div class="grid {kind}">{inner}</div>' if inner else ""


def wide(table: str) -> str:
    """Return a table that scrolls by itself on a narrow screen."""
    return f'<div class="scroll">{table}</div>'


def picture(path: Path, alt: str) -> str:
    """Return a PNG, GIF or MP4 as part of the page."""
    if path.suffix == ".mp4":
        source = f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"
        return (f'<video title="{escape(alt)}" autoplay loop muted playsinline controls '
                f'src="{source}"></video>')
    return html.image(path.read_bytes(), path.suffix[1:], alt)


def bar(shares: Mapping[str, float], colours: Iterable[str]) -> str:
    """Return parts of a whole as one bar; shares: of 1."""
    pieces = zip(shares.items(), colours, strict=False)
    inner = "".join(
        f'<div title="{escape(name)}: {100 * share:.1f}%" '
        f'style="width:{100 * share:.2f}%;background:{colour}"></div>'
        for (name, share), colour in pieces
    )
    return f'<div class="bar">{inner}</div>'


def code(text: str) -> str:
    """Return a block of code, with its blanks and lines."""
    return f"<pre>{escape(text)}</pre>"
