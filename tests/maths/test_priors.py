"""What settings are drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.sweeps.priors import parse_prior


def draws(text, size=4000):
    return parse_prior("algo.x", text).draw(np.random.default_rng(0), size)


def test_ranges_and_shapes():
    x = np.array(draws("uniform:0.95,0.999"))
    assert x.min() >= 0.95 and x.max() < 0.999 and abs(x.mean() - 0.9745) < 1e-3
    x = np.log10(draws("loguniform:1e-5,1e-1"))
    assert x.min() >= -5 and x.max() < -1 and abs(x.mean() + 3) < 0.06 and abs(np.mean(x < -4) - 0.25) < 0.03
    x = draws("integer:1,3")
    assert set(x) == {1, 2, 3} and all(type(v) is int for v in x)
    x = draws("choice:32,0.5,relu,true,none")
    assert set(x) == {32, 0.5, "relu", True, None}
    assert all(isinstance(v, float) for v in draws("uniform:0,1", 3))


@pytest.mark.parametrize(
    "text, valid",
    [
        ("normal:0,1", "uniform:LOW,HIGH"), ("loguniorm:1,2", "did you mean 'loguniform'"), ("uniform", "uniform:LOW"),
        ("uniform:1", "uniform:LOW"), ("uniform:1,2,3", "uniform:LOW"), ("uniform:a,b", "uniform:LOW"),
        ("uniform:2,1", "the lower one first"), ("uniform:nan,1", "finite"), ("loguniform:0,1", "above 0"),
        ("integer:1,2.5", "whole"), ("choice:", "between the commas"), (3, "uniform:LOW"),
    ],
)  # fmt: skip
def test_bad_priors(text, valid):
    with pytest.raises(ConfigError, match=f"algo.x must be .*{valid}"):
        parse_prior("algo.x", text)
