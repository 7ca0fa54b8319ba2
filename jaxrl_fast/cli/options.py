"""The flag of a setting, from its declaration or, of an environment, from its default."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrl_fast.cli.option import Option, choices_text
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.fields import help_of, type_name, value_type


def option_of(cls: type, name: str, default: Any, hint: str = "",
              group: str = "", panel: str = "") -> Option:
    """Return the flag of a settings class's field; hint: its default in the help."""
    field = cls.__dataclass_fields__[name]
    meta = field.metadata
    metavar = meta.get("metavar") or choices_text(meta.get("choices"))
    if not metavar and "Module" in type_name(field):
        metavar = "NAME|MODULE:CLASS"
    elif not metavar and group and meta.get("convert") is not None:
        # an optimizer or a learning rate
        metavar = ("FLOAT" if type_name(field) == "float" else "NAME") + "|CALL|MODULE:NAME"
    if not hint and default is None and meta.get("none"):
        hint = f"default: {meta['none']}"
    return Option(name, kind_of_field(field), default, help_of(cls, name),
                  hint, group, metavar, panel)


def resume_options(*names: str) -> list[Option]:
    """Return the flags of the settings that a resume may change."""
    return [option_of(RunConfig, name, None, "default: as before") for name in names]


def kind_of_field(field: dataclasses.Field) -> str:
    """Return the kind of a settings field, from its declaration and annotation."""
    if field.metadata.get("flag"):
        return field.metadata["flag"]
    inner, optional = value_type(field)
    name = f"{inner}|None" if optional and not field.metadata.get("none") else inner
    choices = field.metadata.get("choices")
    if choices is not None:
        return "str" if all(isinstance(c, str) for c in choices) else "any"
    if field.metadata.get("convert") is not None:
        return "rate" if name == "float" else "any"
    if name in ("int", "float", "bool"):
        return "any" if name == "bool" and not isinstance(field.default, bool) else name
    if name.startswith("tuple[int"):
        return "ints"
    return "str" if "str" in name.split("|") and "None" not in name.split("|") else "any"


def kind_of_value(value: Any) -> str:
    """Return the kind of an environment's setting, from its default."""
    for cls, kind in ((bool, "bool"), (int, "number"), (float, "float"), (str, "str")):
        if isinstance(value, cls):
            return kind
    if isinstance(value, tuple) and value and all(type(v) in (int, float) for v in value):
        return "numbers"
    return "any"
