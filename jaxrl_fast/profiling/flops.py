"""Arithmetic operations of products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence


def of_product(out: Sequence[int], terms: Sequence[int]) -> int:
    """Return the multiplications and additions of a product. terms: sizes of the summed axes."""
    return 2 * math.prod(out) * math.prod(terms)


def of_convolution(out: Sequence[int], kernel: Sequence[int], features: int) -> int:
    """Return the multiplications and additions of a convolution. features: of the result."""
    return of_product(out, kernel) // max(features, 1)
