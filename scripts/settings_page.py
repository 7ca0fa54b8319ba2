"""Write docs/settings.md, jaxrl_fast/engine/keywords.py and jaxrl_fast/envs/keywords.py.

The page lists the settings of a run and of a selection. The modules tell type checkers and editors
the keywords of `jf.train`, `jf.plan`, `jf.sweep` and `jf.tune`, and those of `jf.make` with a
native environment, with help and default.
"""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from pathlib import Path

from jaxrl_fast.cli.option import show
from jaxrl_fast.cli.options import option_of
from jaxrl_fast.engine.config import RunConfig, by_group
from jaxrl_fast.envs.native.source import SOURCE
from jaxrl_fast.envs.registry import make
from jaxrl_fast.envs.wrappers import Common
from jaxrl_fast.fields import help_of
from jaxrl_fast.sweeps.selection import PBT, Halving

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEYWORDS = ROOT / "docs" / "settings.md", ROOT / "jaxrl_fast" / "engine" / "keywords.py"
ENVIRONMENTS = ROOT / "jaxrl_fast" / "envs" / "keywords.py"
HEAD = """# Settings of a run

Keywords of `jf.train`, `jf.plan`, `jf.sweep` and `jf.tune`, and flags of `jaxrl-fast train`,
`sweep` and `plan`, beside the algorithm and the environment. Step counts are environment steps of
one member.
`scripts/settings_page.py` writes this page from the declarations in `jaxrl_fast/engine/config.py`.
"""
KEYWORDS_HEAD = '''"""Keywords of `CALL` for type checkers, by scripts/settings_page.py."""

from typing import Any, TypedDict
'''


def row(cls: type, field: dataclasses.Field, flags: bool) -> str:
    """Return the table row of a setting: keyword, flag, default, meaning."""
    option, none = option_of(cls, field.name, None), field.metadata.get("none")
    default = (
        none if field.default is None else "required" if field.default is dataclasses.MISSING
        else show(field.default)
    )
    bar = lambda text: text.replace("|", "\\|")
    usage = f"{option.flag}, {option.off}"
    if option.kind != "bool":
        usage = f"{option.flag} {option.shown_metavar}"
    flag = f"`{bar(usage)}`" if field.metadata.get("flag", "") is not None else ""
    cells = [f"`{field.name}`", *([flag] if flags else []), default, bar(option.help)]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def section(title: str, cls: type, fields: list[dataclasses.Field], flags: bool = True) -> str:
    """Return the part of the page about one group."""
    heads = ["keyword", *(["flag"] if flags else []), "default", "meaning"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|",
             *(row(cls, f, flags) for f in fields)]
    return "\n".join([f"\n## {title}\n", (cls.__doc__ or "").partition("\n")[0] + "\n", *table, ""])


def page() -> str:
    """Return the text of docs/settings.md."""
    groups = [section(group.__name__, group, fields) for group, fields in by_group().items()]
    chosen = [section(
        f"`jf.{cls.__name__}`", cls, [f for f in dataclasses.fields(cls) if f.metadata], flags=False
    )
              for cls in (PBT, Halving)]  # fmt: skip
    return HEAD + "".join([*groups, *chosen])


def key(cls: type, field: dataclasses.Field) -> str:
    """Return a setting as a key of a TypedDict; one with `convert` takes more than its type."""
    kind = "Any" if field.metadata.get("convert") else field.type
    text, default = help_of(cls, field.name), show(field.default)
    if cls is RunConfig:
        default = field.metadata["none"] if field.default is None else repr(field.default)
    text = f'"""{text[0].upper()}{text[1:]}. Default: {default}."""'
    return textwrap.indent("\n".join([f"{field.name}: {kind}", *textwrap.wrap(text, 96)]), "    ")


def typed_dict(
    name: str, base: str, doc: str, fields: list[dataclasses.Field], cls: type = RunConfig
) -> str:
    head = f'\n\nclass {name}({base}, total=False):\n    """{doc}"""\n\n'
    return head + "\n".join(key(cls, field) for field in fields) + "\n"


def keywords() -> str:
    """Return the text of jaxrl_fast/engine/keywords.py."""
    fields = [f for f in dataclasses.fields(RunConfig) if f.name != "total_steps"]  # a parameter
    alone = ("population", "selection")  # a sweep's configurations take their place
    shared, own = ([f for f in fields if (f.name in alone) == x] for x in (False, True))
    sweep = typed_dict("SweepSettings", "TypedDict", "Settings of every run of a sweep.", shared)
    run = typed_dict("RunSettings", "SweepSettings", "Settings of a run.", own)
    return KEYWORDS_HEAD.replace("CALL", "jf.train` and `jf.sweep") + sweep + run


def environments() -> str:
    """Return the text of jaxrl_fast/envs/keywords.py."""
    fields = lambda cls: [field for field in dataclasses.fields(cls) if field.init]
    about = "Settings of every environment."
    parts = [typed_dict("CommonSettings", "TypedDict", about, fields(Common), Common)]
    for name in SOURCE.names:
        cls = type(make(name))
        doc = f"Settings of {name}."
        parts.append(typed_dict(f"{cls.__name__}Settings", "CommonSettings", doc, fields(cls), cls))
    return KEYWORDS_HEAD.replace("CALL", "jf.make").replace("Any, ", "") + "".join(parts)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page())
    KEYWORDS.write_text(keywords())
    ENVIRONMENTS.write_text(environments())
