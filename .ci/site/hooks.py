"""What mkdocs adds to docs/: pages that the checkout has elsewhere, and the references.

README, CHANGELOG, CONTRIBUTING and CITATION.cff stay where GitHub looks for them. The pages of
public names and of the command line come from the package.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

import jaxrl_fast as jf
from jaxrl_fast.cli import command
from jaxrl_fast.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
MOVED = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md",
         "CONTRIBUTING.md": "CONTRIBUTING.md"}
FOLDERS = {"Algorithms": "algorithms", "Benchmarks": "benchmarks", "Decisions": "decisions"}
FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
# a code block of a numbered list: GitHub wants 7 spaces, Python-Markdown 8
IN_LIST = re.compile(r"(?<=\n\n)(?: {7,}\S.*\n)+")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config):
    """List the pages of folders in the navigation."""
    for place, name, folder in list(_lists(config.nav)):
        paths = sorted(path.relative_to(ROOT / "docs").as_posix()
                       for path in (ROOT / "docs" / folder).rglob("*.md"))
        first = [path for path in paths if path.endswith("README.md")]
        beside = [f"{folder}.md"] if (ROOT / "docs" / f"{folder}.md").exists() else []
        place[name] = [*first, *beside, *(path for path in paths if path not in first)]
    return config


def _lists(nav: list):
    for entry in nav:
        for name, pages in entry.items() if isinstance(entry, dict) else ():
            if name in FOLDERS:
                yield entry, name, FOLDERS[name]
            elif isinstance(pages, list):
                yield from _lists(pages)


def on_files(files, config):
    """Add the generated pages."""
    pages = {to: _moved((ROOT / name).read_text()) for name, to in MOVED.items()}
    pages |= {"cli.md": cli(), "api.md": api(), "citation.md": citation()}
    for name, text in pages.items():
        if name in files.src_uris:
            files.remove(files.src_uris[name])
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Turn links out of docs/ into links to a moved page, or into the name of the file.

    Indent equations of lists as Python-Markdown wants code blocks.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def one(found: re.Match) -> str:
        image, text, target, anchor = found.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if "://" in target or path.startswith("docs/"):
            return found.group()
        if path in MOVED:
            return f"{image}[{text}]({posixpath.relpath(MOVED[path], folder or '.')}{anchor or ''})"
        return text if text.startswith("`") else f"{text} (`{path}`)"

    return LINK.sub(one, _indent_equations(markdown))


def _indent_equations(markdown: str) -> str:
    more = lambda found: " " + found.group()[:-1].replace("\n", "\n ") + "\n"
    parts = FENCED.split(markdown)  # texts, with fenced code between them
    return "".join(part if part.startswith("```") else IN_LIST.sub(more, part) for part in parts)


def _moved(text: str) -> str:
    """Return a page of the checkout's root with its links seen from docs/."""
    own = lambda target: target if "://" in target else posixpath.relpath(target, "docs")
    return LINK.sub(lambda m: f"{m[1]}[{m[2]}]({own(m[3])}{m[4] or ''})", text)


def cli() -> str:
    """Return the page of the command line: the help of every command."""
    parts = ["# Command line", _help()]
    for name in COMMANDS:
        parts += [f"## {name}", _help(name)]
    return "\n\n".join(parts)


def _help(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        command.main([*words, "--help-all"])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    return f"```text\n{plain.strip()}\n```"


def api() -> str:
    """Return the page of public names, with signatures and whole docstrings."""
    parts = ["# Public names", "`import jaxrl_fast as jf` offers these names."]
    for group, names in jf._GROUPS.items():
        parts.append(f"## {group}")
        parts += [f"::: jaxrl_fast.{name}\n    options:\n      heading_level: 3" for name in names]
    return "\n\n".join(parts)


def citation() -> str:
    return f"# Citation\n\n```yaml\n{(ROOT / 'CITATION.cff').read_text().strip()}\n```"
