"""Numbers with their units, as the doctor prints them."""

from __future__ import annotations

_LARGE, _SMALL = ("", "k", "M", "G", "T", "P"), ("", "m", "u", "n")


def si(value: float, unit: str) -> str:
    """Return a number with three digits and the prefix of its size: 142 GFLOP/s, 3.21 us."""
    number, prefix = float(value), 0
    while number >= 999.5 and prefix < len(_LARGE) - 1:
        number, prefix = number / 1000, prefix + 1
    while 0 < number < 0.9995 and prefix > 1 - len(_SMALL):
        number, prefix = number * 1000, prefix - 1
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {(_LARGE if prefix >= 0 else _SMALL)[abs(prefix)]}{unit}"


def gib(size: float) -> str:
    """Return bytes in the largest binary unit up to GiB."""
    power = next((p for p in (3, 2, 1) if size >= 1024**p), 0)
    unit = ("B", "KiB", "MiB", "GiB")[power]
    return f"{size / 1024**power:,.{min(power, 1)}f} {unit}"
