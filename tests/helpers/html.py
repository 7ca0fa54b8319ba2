"""HTML as a tree: a page that a browser would have to repair is an error."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode


def parsed(html: str) -> tuple[ElementTree.Element, list[ElementTree.Element]]:
    """A page, and its pictures in SVG, as trees."""
    page = ElementTree.fromstring(re.sub(r"(<img [^>]*)>", r"\1/>", html))
    sources = [x.get("src") for x in page.iter("img")]
    return page, [ElementTree.fromstring(b64decode(x.partition("base64,")[2]))
                  for x in sources if "svg" in x]


def text(html: str) -> str:
    return "".join(parsed(html)[0].itertext())
