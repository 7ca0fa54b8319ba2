"""Named bit fields of an int32: how control words are packed and read."""

from __future__ import annotations

from typing import Any


class Fields:
    """Layout of named bit fields in one int32, lowest bits first."""

    def __init__(self, **widths: int):
        self._at: dict[str, tuple[int, int]] = {}
        start = 0
        for name, width in widths.items():
            self._at[name] = start, width
            start += width
        if start > 31:
            raise ValueError(f"fields must fit 31 bits, got {start}.")

    def pack(self, **values: int) -> int:
        """Return the word with `values`; fields that are not named are 0."""
        word = 0
        for name, value in values.items():
            start, width = self._at[name]
            if not 0 <= int(value) < 1 << width:
                raise ValueError(f"{name} must fit {width} bits, got {value}.")
            word |= int(value) << start
        return word

    def get(self, word: Any, name: str) -> Any:
        """Return field `name` of `word`, a number or an array."""
        start, width = self._at[name]
        return (word >> start) & ((1 << width) - 1)

    def has(self, word: Any, name: str) -> Any:
        """Return whether field `name` of `word` is not 0."""
        start, width = self._at[name]
        return (word & (((1 << width) - 1) << start)) != 0
