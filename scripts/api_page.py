"""Write docs/api.md: every public name of `jaxrl_fast` with the first line of its docstring.

    python scripts/api_page.py            # write it
    python scripts/api_page.py --check    # exit code 1 where it is not what this script writes
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

import jaxrl_fast as jf

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
HEAD = """# Public names

`import jaxrl_fast as jf` offers these names and, with an import of their own, the packages
`jf.envs`, `jf.memory`, `jf.networks` and `jf.testing`. Arguments and settings are in each
docstring: `help(jf.train)`.
Written by `scripts/api_page.py` from the docstrings.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for group, names in jf._GROUPS.items():
        rows = [f"| `{name}` | {first_line(getattr(jf, name))} |" for name in names]
        parts.append(
            "\n".join([f"## {group}", "", "| name | what it is |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def first_line(value: object) -> str:
    """Return the first line of a docstring, with | escaped for a table."""
    return (inspect.getdoc(value) or "").split("\n")[0].replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if parser.parse_args().check:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
