"""Write the repository's address, which pyproject.toml holds, into the notebooks and the docs.

    python scripts/repository.py [https://github.com/OWNER/NAME]

With an address, pyproject.toml gets it first. The lines "Open in Colab" and `git clone` follow it.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)")
COLAB = re.compile(r"(?<=Open in Colab: )[`<].*?[`>](?=\\n)")
PAGES = [*sorted(ROOT.glob("notebooks/*.ipynb")), ROOT / "README.md",
         ROOT / "docs/getting-started.md"]


def address() -> str:
    """Return the address in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def page(path: Path, url: str) -> str:
    """Return a page's text with the repository at `url`; a link while its owner has a name."""
    place = (
        f"https://colab.research.google.com/github/{url.removeprefix('https://github.com/')}/blob/main/notebooks/{path.name}"
    )
    line = f"`{place}`" if "/OWNER/" in url else f"<{place}>"
    return re.sub(r"(?<=git clone )(--depth 1 )?\S+", rf"\g<1>{url}",
                  COLAB.sub(line, path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?", help="of the repository")
    url = parser.parse_args().address
    project = ROOT / "pyproject.toml"
    if url is not None:
        if not ADDRESS.fullmatch(url):
            sys.exit(f"address must be https://github.com/OWNER/NAME, got {url!r}")
        project.write_text(project.read_text().replace(address(), url))
    for path in PAGES:
        path.write_text(page(path, address()))


if __name__ == "__main__":
    main()
