"""Each advice is given where its fact is there, and absent where it is not."""

from __future__ import annotations

import dataclasses

import pytest

from helpers.machines import CARD, CASES, GPU, HEALTHY, facts
from jaxrl_fast.doctor import known
from jaxrl_fast.doctor.checks import CHECKS, LEVELS, advise
from jaxrl_fast.doctor.facts import Backend, Unmet


def found(name: str, given) -> list:
    stem, _, level = name.rpartition(" ")
    if level in LEVELS:
        return [one for one in advise(given) if (one.name, one.level) == (stem, level)]
    return [one for one in advise(given) if one.name == name]


@pytest.mark.parametrize("name", CASES)
def test_advice_follows_from_its_fact_alone(name):
    there, absent, level, line = CASES[name]
    (one,) = found(name, there)
    assert one.level == level and line in one.line and one.text and one.gain >= 1
    assert found(name, absent) == []


def test_every_check_and_every_known_pair_has_a_case():
    pairs = {f"{one.package} {one.versions} {one.level}" for one in known.PAIRS}
    missing = {f"{one.flag} missing" for one in known.MISSING_FLAGS}
    assert {one.__name__ for one in CHECKS} | pairs | missing == CASES.keys()


SWITCHES = known.HURTING_FLAGS + known.HURTING_VARIABLES


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_a_switch_that_hurts_is_named_on_its_platform_and_for_its_values(switch):
    base = GPU if switch.platform == "gpu" else HEALTHY
    kind = "variables" if switch in known.HURTING_VARIABLES else "flags"
    bad = (switch.values or ("/tmp/dump",))[0]
    (one,) = found(switch.name, facts(base, **{kind: {switch.name: bad, "--other": "7"}}))
    assert one.level == switch.level and switch.reason in one.text
    assert one.line in (f"unset {switch.name}", "export XLA_FLAGS='--other=7'")
    assert found(switch.name, facts(base, **{kind: {}})) == []
    if switch.values:
        assert found(switch.name, facts(base, **{kind: {switch.name: "2"}})) == []
    if switch.platform:
        other = HEALTHY if base is GPU else GPU
        assert found(switch.name, facts(other, **{kind: {switch.name: bad}})) == []


def test_faults_come_first_then_the_largest_gain():
    cache = {"error": "Read-only file system", "free_bytes": 1}
    bad = facts(machine={"cores": 4, "share": 0.5}, cache=cache)
    order = [(one.level, one.gain) for one in advise(bad)]
    assert [level for level, _ in order] == sorted((level for level, _ in order), key=LEVELS.index)
    assert [gain for level, gain in order if level == "faster"] == [4, 2]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (facts(machine={"nvidia": True}, variables={"CUDA_VISIBLE_DEVICES": ""}), "hides"),
        (facts(machine={"nvidia": True}, versions={"jax-cuda13-plugin": "1", "jaxlib": "1"}),
         "jax-cuda13-plugin is installed"),
    ],
)  # fmt: skip
def test_an_idle_card_has_its_reason(given, text):
    (one,) = found("idle_card", given)
    assert text in one.text


def test_a_chosen_cpu_needs_no_card():
    assert not found("no_card", facts(versions={"jax-cuda12-plugin": "1"},
                                      backend={"chosen": "cpu"}))


def test_a_card_that_others_use_a_little_lowers_numbers_only():
    half = dataclasses.replace(CARD, utilization=0.5)
    (one,) = found("busy_card", facts(GPU, machine={"cards": (half,)}))
    assert one.level == "faster" and one.line == "nvidia-smi"


def test_the_needs_of_a_package_that_is_replaced_are_not_installed():
    own = Unmet("jaxrl_fast", "gymnax", ">=1.0.1", "0.0.9")
    old = Unmet("gymnax", "jax", "<0.5", "0.11")
    (one,) = found("requirements", facts(unmet=(own, old)))
    assert one.line == "pip install 'gymnax>=1.0.1'" and "gymnax needs jax<0.5" in one.text


SHOW = "python -c 'import jax; print(jax.devices())'"


@pytest.mark.parametrize(
    ("error", "line", "text"),
    [
        ('Could not open file "x" of "XLA_FLAGS": none', "unset XLA_FLAGS", "Could not"),
        ("RuntimeError: no answer in 40 s", SHOW, "no answer"),
        ("AssertionError", SHOW, "no device or plugin"),
    ],
)
def test_why_jax_does_not_start(error, line, text):
    (one,) = found("backend", facts(backend=Backend(error=error), limits=None))
    assert one.line == line and text in one.text


def test_a_share_of_a_core_tells_of_a_busy_machine_in_a_container():
    (one,) = found("busy_cores", facts(machine={"share": 0.25, "load": None}))
    assert one.gain == 4 and "25% of a core" in one.text


def test_a_healthy_machine_has_nothing_wrong():
    assert {one.level for one in advise(HEALTHY)} == {"note"}
