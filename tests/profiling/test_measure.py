"""The profile of a run: shares by part, checked against what the program does."""

from __future__ import annotations

from unittest import mock

import jax
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import runtime
from jaxrl_fast.doctor.facts import Limits
from jaxrl_fast.engine.config import run_config
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.profiling import ablation, hlo, trace
from jaxrl_fast.profiling import measure as measuring
from jaxrl_fast.profiling.measure import attribute, check, measure, with_scopes
from jaxrl_fast.profiling.parts import ARITHMETIC, MEMORY, NAMES, STARTS, Part, with_roof

PPO = jf.PPO(num_envs=4, num_steps=8, hidden=(8,), num_minibatches=1, num_epochs=1)
DQN = jf.DQN(num_envs=2, hidden=(64,), buffer_size=64, batch_size=16, learning_starts=32)
LIMITS = Limits("cpu", {"float32": 1e11}, bandwidth=1e10, call=5e-6, round_trip=6e-6, turn=3e-7)


def run_of(algo, env="CartPole-v1", **settings):
    return prepare(algo, jf.make(env), run_config(1_000, settings))


@pytest.fixture(scope="module")
def measured():
    return measure(run_of(DQN), LIMITS, seconds=0.02)


@pytest.fixture(scope="module")
def traced():
    """environment -> (profile, platforms asked for options) of a run that is compiled anew for its
    trace."""
    done = {}

    def get(env):
        if env not in done:
            asked = []
            options = lambda platform: (
                asked.append(platform) or {"xla_backend_optimization_level": 1})
            with (mock.patch.object(runtime, "traced_options", options),
                  mock.patch.object(measuring, "TRACED", 2e-3),  # a short trace is read quickly
                  mock.patch.object(measuring, "TRACES", 2)):
                done[env] = measure(run_of(PPO, env), None, seconds=0.02)[0], asked
        return done[env]

    return get


@pytest.mark.matrix("test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_the_shares_of_a_program_sum_to_one_and_name_each_part(measured):
    profile, _ = measured
    assert profile.source == "trace" and profile.sides == ("program",)
    assert sum(part.share for part in profile.parts) == pytest.approx(1)
    assert {part.name for part in profile.parts} <= set(NAMES)
    for name in ("environment", "policy", "store", "sample", "forward", "backward", "optimizer"):
        assert profile.share(name) > 0, name
    seconds = sum(part.seconds for part in profile.parts)
    assert seconds == pytest.approx(profile.timing.iteration)


@pytest.mark.matrix("test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_arithmetic_of_the_loss_equals_its_products(measured):
    profile, _ = measured
    parts = {part.name: part for part in profile.parts}
    product = lambda rows: 2 * rows * (4 * 64 + 64 * 2)
    updates = DQN.updates
    # the online network at both observations, the target at one; no gradient of observations
    assert parts["forward"].flops == pytest.approx(3 * updates * product(16), rel=0.3)
    expected = updates * 2 * 16 * (4 * 64 + 2 * 64 * 2)
    assert parts["backward"].flops == pytest.approx(expected, rel=0.3)
    assert parts["policy"].flops == pytest.approx(product(2), rel=0.3)
    assert parts["policy"].starts > 1 and parts["policy"].roof in (ARITHMETIC, MEMORY, STARTS)


@pytest.mark.matrix("test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_pieces_alone_have_all_groups(measured):
    profile, run = measured
    alone = ablation.time_pieces(run, budget=0.02)
    assert set(alone) == set(ablation.GROUPS) and min(alone.values()) >= 0 < alone["sampling"]
    for shares in (ablation.shares(alone), ablation.group_shares(profile)):
        assert sum(shares.values()) == pytest.approx(1)
    assert sum(ablation.compare_shares(profile, alone).values()) == pytest.approx(0, abs=1e-6)


@pytest.mark.matrix("test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_a_run_on_the_host_has_two_sides_from_its_own_clock(traced):
    profile, _ = traced("gym:CartPole-v1")
    assert profile.source == "clock" and profile.sides == ("actors", "learner")
    for side in profile.sides:
        assert sum(part.share for part in profile.side(side)) == pytest.approx(1, abs=0.02)
    assert profile.share("environment", side="actors") > 0 < profile.share("policy", side="actors")
    assert profile.share("backward", side="learner") > 0 < profile.share("waiting", side="learner")


def test_pieces_are_refused_where_there_are_none():
    with pytest.raises(ConfigError,
                       match="--ablation must be left out, got True: es learns from whole"):
        ablation.check(run_of(tools.algorithm("es")))
    with pytest.raises(ConfigError, match="--ablation must be left out with several members"):
        ablation.check(run_of(PPO, seeds=2, devices=1))


def test_programs_with_scopes_have_their_own_place_in_the_compile_cache():
    name = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, name)
    with pytest.raises(ZeroDivisionError), with_scopes():
        assert getattr(jax.config, name)
        raise ZeroDivisionError
    assert getattr(jax.config, name) == before


@pytest.mark.parametrize(
    ("flops", "size", "starts", "roof", "reached"),
    [(5e10, 1e6, 10, ARITHMETIC, 0.5), (1e6, 5e9, 10, MEMORY, 0.5), (0, 0, 5e6, STARTS, 0.5)],
)
def test_the_nearest_limit_is_the_roof(flops, size, starts, roof, reached):
    part = with_roof(Part("policy", "program", 0.5, 1.0, flops, size, starts), LIMITS, "highest")
    assert (part.roof, part.of_roof) == (roof, pytest.approx(reached))
    assert with_roof(part, LIMITS, "highest", devices=2).of_roof == pytest.approx(reached / 2)


@pytest.mark.matrix("test_a_traced_program_has_instructions_that_a_profiler_sees")
def test_without_events_the_pieces_alone_are_the_profile(monkeypatch):
    monkeypatch.setattr(trace, "read", lambda folder: trace.sum_events([]))
    taken = {"environment": 1e-9, "learning": 3e-9}
    monkeypatch.setattr(ablation, "time_pieces", lambda one: taken)
    profile, _ = measure(run_of(PPO), None, seconds=0.02)
    assert profile.source == "ablation" and "pieces alone" in profile.note
    assert sum(part.share for part in profile.parts) == pytest.approx(1)
    assert profile.share("learn") == pytest.approx(3 * profile.share("environment"))


def test_kernels_of_a_graph_have_no_module_but_a_name():
    text = 'HloModule m\n\nENTRY %e (x: f32[8]) -> f32[8] {\n  %x = f32[8] parameter(0)\n'
    text += '  ROOT %add.3 = f32[8] add(%x, %x), metadata={op_name="rl.policy/add"}\n}\n'
    spent = {("", "add_3"): trace.Spent([2e-6, 2e-6]), ("", "MemcpyH2D"): trace.Spent([1e-6])}
    found = attribute(spent, {"m": hlo.parse(text)}, trace.Overhead(), iterations=2)
    assert found["policy"] == pytest.approx((2e-6, 8.0, 96.0, 1.0))
    assert found["transfer"].seconds == pytest.approx(5e-7)


@pytest.mark.parametrize("env", family(["CartPole-v1", "gym:CartPole-v1"], ["CartPole-v1"]))
def test_a_traced_program_has_instructions_that_a_profiler_sees(env, traced):
    profile, asked = traced(env)
    assert asked == ["cpu"]
    assert sum(part.share for part in profile.side(profile.sides[-1])) == pytest.approx(1, abs=0.02)


def test_graphs_are_off_in_the_traces_of_gpus():
    assert runtime.traced_options("gpu") == {"xla_gpu_enable_command_buffer": ""}
    assert runtime.traced_options("cpu") is runtime.traced_options("tpu") is None


def test_an_offline_run_is_refused():
    with pytest.raises(ConfigError, match="experience_fraction must be below 1 for a profile"):
        check(run_config(100, {"experience": "folder", "experience_fraction": 1}))
