"""Distributions of settings."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.sweeps.samplers import SAMPLERS, Sampler, sampler_of


def draws(text, size=4000):
    return sampler_of("algo.x", text).draw(np.random.default_rng(0), size)


def test_ranges_and_shapes():
    x = np.array(draws("uniform:0.95,0.999"))
    assert x.min() >= 0.95 and x.max() < 0.999 and abs(x.mean() - 0.9745) < 1e-3
    x = np.log10(draws("loguniform:1e-5,1e-1"))
    assert x.min() >= -5 and x.max() < -1 and abs(x.mean() + 3) < 0.06 and abs(
        np.mean(x < -4) - 0.25) < 0.03
    x = draws("integer:1,3")
    assert set(x) == {1, 2, 3} and all(type(v) is int for v in x)
    x = draws("choice:32,0.5,relu,true,none")
    assert set(x) == {32, 0.5, "relu", True, None}
    assert all(isinstance(v, float) for v in draws("uniform:0,1", 3))


@pytest.mark.parametrize(
    "text, valid",
    [
        ("normal:0,1", "uniform:LOW,HIGH"), ("loguniorm:1,2", "did you mean 'loguniform'"),
        ("uniform", "uniform:LOW"), ("uniform:1", "uniform:LOW"), ("uniform:1,2,3", "uniform:LOW"),
        ("uniform:a,b", "uniform:LOW"), ("uniform:2,1", "the lower one first"),
        ("uniform:nan,1", "finite"), ("loguniform:0,1", "above 0"), ("integer:1,2.5", "whole"),
        ("choice:", "between the commas"), (3, "uniform:LOW"),
    ],
)  # fmt: skip
def test_bad_texts(text, valid):
    with pytest.raises(ConfigError, match=f"algo.x must be .*{valid}"):
        sampler_of("algo.x", text)


TEXTS = ("uniform:0.95,0.999", "loguniform:1e-5,1e-1", "integer:1,3",
         "choice:32,0.5,relu,true,none")


@pytest.mark.parametrize("text", TEXTS)
def test_quantiles_match_the_draws(text):
    sampler, found = sampler_of("algo.x", text), draws(text)
    levels = (np.arange(400) + 0.5) / 400
    if sampler.continuous:
        assert sampler.at(0.0) == sampler.low and sampler.at(1.0) == pytest.approx(sampler.high)
        error = np.interp([sampler.at(u) for u in levels], np.sort(found),
                          np.linspace(0, 1, len(found))) - levels
        assert np.abs(error).max() < 0.03
    else:
        shares = [[x.count(v) / len(x) for v in set(found)]
                  for x in ([sampler.at(u) for u in levels], found)]
        np.testing.assert_allclose(*shares, atol=0.03)
        assert sampler.at(0.0) in found and sampler.at(1.0) in found


class Trial:
    """An Optuna trial that suggests what the test says, and what it was asked."""

    def __init__(self, value):
        self.value, self.asked = value, None

    def __getattr__(self, method):
        def suggest(name, *args, **more):
            self.asked = (method, name, *args, *more.items())
            return self.value

        return suggest


@pytest.mark.parametrize(
    "text, asked",
    [
        ("uniform:0,1", ("suggest_float", "algo.x", 0.0, 1.0)),
        ("loguniform:1e-3,1", ("suggest_float", "algo.x", 1e-3, 1.0, ("log", True))),
        ("integer:1,8", ("suggest_int", "algo.x", 1, 8)),
        ("choice:1,relu", ("suggest_categorical", "algo.x", [1, "relu"])),
    ],
)
def test_suggestions_of_a_trial(text, asked):
    trial = Trial(7)
    assert sampler_of("algo.x", text).suggest(trial, "algo.x") == 7 and trial.asked == asked


class Powers(Sampler):
    """The least that a sampler needs."""

    form = "powers:LOW,HIGH"

    def __init__(self, low, high):
        self.low, self.high = int(low), int(high)

    def check(self):
        if self.low > self.high:
            raise ConfigError("powers", (self.low, self.high), "the lower one first")

    def at(self, u):
        return 2 ** min(self.low + int(u * (self.high - self.low + 1)), self.high)


def test_a_sampler_of_a_form_and_quantiles():
    SAMPLERS.add("powers", Powers)
    assert set(draws("powers:4,6")) == {16, 32, 64}
    trial = Trial(0.5)
    assert (
        sampler_of("algo.x", "powers:4,6").suggest(trial, "algo.x") == 32
        and trial.asked[0] == "suggest_float"
    )
    for text, valid in (("powers:6,4", "HIGH, got 'powers:6,4'; the lower one"),
                        ("powers:4", "powers:LOW"), ("power:1",
        "'powers'")):
        with pytest.raises(ConfigError, match=f"algo.x must be .*{valid}"):
            sampler_of("algo.x", text)
    with pytest.raises(ConfigError, match=r"a subclass of jaxrl_fast.sweeps.samplers.Sampler"):
        SAMPLERS.add("other", dict)
