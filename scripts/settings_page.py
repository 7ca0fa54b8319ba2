"""Write docs/settings.md, the settings of a run and of a selection."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from jaxrl_fast.cli.args import option_of_field, show
from jaxrl_fast.engine.config import by_group
from jaxrl_fast.sweeps.selection import PBT, Halving

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """# Settings of a run

Keywords of `jf.train`, `jf.plan`, `jf.sweep` and `jf.tune`, and flags of `jaxrl-fast train`, `sweep`
and `plan`, beside the algorithm and the environment. Step counts are environment steps of one member.
`scripts/settings_page.py` writes this page from the declarations in `jaxrl_fast/engine/config.py`.
"""


def row(field: dataclasses.Field, flags: bool) -> str:
    """Return the table row of a setting: keyword, flag, default, meaning."""
    option, none = option_of_field(field, None), field.metadata.get("none")
    default = none if field.default is None else "required" if field.default is dataclasses.MISSING else show(field.default)
    bar = lambda text: text.replace("|", "\\|")
    usage = f"{option.flag}, {option.off}"
    if option.kind != "bool":
        usage = f"{option.flag} {option.shown_metavar}"
    flag = f"`{bar(usage)}`" if field.metadata.get("flag", "") is not None else ""
    cells = [f"`{field.name}`", *([flag] if flags else []), default, bar(field.metadata.get("help", ""))]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def section(title: str, cls: type, fields: list[dataclasses.Field], flags: bool = True) -> str:
    """Return the part of the page about one group."""
    heads = ["keyword", *(["flag"] if flags else []), "default", "meaning"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(row(f, flags) for f in fields)]
    return "\n".join([f"\n## {title}\n", (cls.__doc__ or "").partition("\n")[0] + "\n", *table, ""])


def page() -> str:
    """Return the text of docs/settings.md."""
    groups = [section(group.__name__, group, fields) for group, fields in by_group().items()]
    chosen = [section(f"`jf.{cls.__name__}`", cls, [f for f in dataclasses.fields(cls) if f.metadata], flags=False)
              for cls in (PBT, Halving)]  # fmt: skip
    return HEAD + "".join([*groups, *chosen])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page())
