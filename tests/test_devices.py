"""The device of a run: what its header says, and a card that JAX does not use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata

import jax
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast import distributed, runtime
from jaxrl_fast.cli import before_jax
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.runs import sentinel


def test_a_card_is_found_by_its_driver_or_its_tool(tmp_path):
    nothing = lambda name: None
    assert not runtime.has_nvidia_card(tmp_path / "gpus", nothing)
    (tmp_path / "gpus").mkdir()
    assert not runtime.has_nvidia_card(tmp_path / "gpus", nothing)
    assert runtime.has_nvidia_card(tmp_path / "none", lambda name: f"/usr/bin/{name}")
    (tmp_path / "gpus/0000:01:00.0").mkdir()
    assert runtime.has_nvidia_card(tmp_path / "gpus", nothing)


@pytest.mark.parametrize(
    ("platform", "chosen", "card", "told"),
    [("cpu", None, True, True), ("cpu", None, False, False), ("gpu", None, True, False),
     ("cpu", "cpu", True, False)],
)
def test_an_idle_card_is_told_with_the_remedy(platform, chosen, card, told):
    found = runtime.idle_card(platform, chosen, lambda: card)
    command = f"pip install 'jax[cuda12]=={metadata.version('jax')}'"
    assert found == (f"an NVIDIA card is here, but JAX runs on the CPU: {command}" if told
                     else None)


def test_a_run_tells_its_device_and_an_idle_card(run_cli, tmp_path, monkeypatch):
    sentinel.warn_of_idle_card.cache_clear()
    monkeypatch.setattr(runtime, "idle_card",
                        lambda platform, chosen: f"a card beside the {platform}")
    line = (  # in the programs of `tools.train("ppo")`
        "train ppo CartPole-v1 --total-steps 128 --no-preset --algo.num-envs 4 --algo.num-steps 8 "
        "--algo.num-epochs 2 --algo.num-minibatches 2 --algo.hidden 8 --log-every 64 "
        "--algo.normalize-observations --env.max-steps-in-episode 30 --eval-every 0"
    )
    code, out, err = run_cli(*line.split(), "--eval-episodes", "4", "--no-pictures", "--out",
                             str(tmp_path / "run"))
    sentinel.warn_of_idle_card.cache_clear()
    assert code == 0, err
    assert f"device: {len(jax.devices())} x cpu (cpu), products in float32\n" in out
    assert "jaxrl-fast: warning: a card beside the cpu\n" in err


FLAG = "--xla_gpu_deterministic_ops"
PREPARE = "prepare(jf.PPO(), jf.make('CartPole-v1'), run_config(64, {}))"
CLI = "assert command.main('plan {} ppo CartPole-v1'.split()) == 0"
CASES = {  # environment, and what a process does before it shows its own
    "fraction": ({}, PREPARE.format({"memory_fraction": 0.4})),
    "as needed": ({}, PREPARE.format({"memory_fraction": 0.0})),
    "user's fraction": ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"},
                        PREPARE.format({"memory_fraction": 0.4})),
    "flag of a fraction": ({}, CLI.format("--memory-fraction 0.4")),
    "nothing": ({}, PREPARE.format({})),
    "deterministic": ({}, PREPARE.format({"deterministic": True})),
    "late": ({}, "jax.devices(); " + PREPARE.format({"deterministic": True})),
    "user's no": ({"XLA_FLAGS": f"{FLAG}=false"}, PREPARE.format({})),
    "user's yes": ({"XLA_FLAGS": f"{FLAG}=true"}, PREPARE.format({"deterministic": True})),
    "flag": ({}, CLI.format("--deterministic")),
    "flags": ({}, CLI.format("--deterministic --no-deterministic")),
}
FORK = """
import json, os, sys
import jax
import jaxrl_fast as jf
from jaxrl_fast.cli import command
from jaxrl_fast.engine.config import run_config
from jaxrl_fast.engine.prepared import prepare

for name, (environment, code) in json.loads(sys.argv[1]).items():
    sys.stdout.flush()
    child = os.fork()  # JAX's backend has not started
    if not child:
        os.environ |= environment
        exec(code)
        print("\\n" + json.dumps([name, dict(os.environ)]))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


@pytest.fixture(scope="module")
def environments() -> dict[str, dict[str, str]]:
    """The environment that each case leaves, in a process whose backend it starts."""
    env = {k: v for k, v in os.environ.items() if k not in (*runtime._MEMORY, "XLA_FLAGS")}
    code = [sys.executable, "-c", FORK, json.dumps(CASES)]
    ended = subprocess.run(code, env=env, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(line) for line in ended.stdout.splitlines() if line.startswith('["'))


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("fraction", "XLA_CLIENT_MEM_FRACTION=0.4"),
        ("as needed", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ("user's fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.3"),
        ("flag of a fraction", "XLA_CLIENT_MEM_FRACTION=0.4"),
    ],
)
def test_the_part_of_a_gpus_memory_is_set_before_the_backend_starts(case, found, environments):
    assert [f"{k}={v}" for k, v in environments[case].items() if k in runtime._MEMORY] == [found]


def test_a_late_part_of_a_gpus_memory_is_an_error_on_a_gpu_alone(monkeypatch):
    for name in runtime._MEMORY:
        monkeypatch.delenv(name, raising=False)
    jax.devices()
    runtime.set_gpu(True, 0.4, lambda: "cpu")
    valid = (
        "memory_fraction must be given before JAX's backend starts, got 0.4: "
        "XLA_CLIENT_MEM_FRACTION=0.4 in the environment"
    )
    with pytest.raises(ConfigError, match=valid):
        runtime.set_gpu(False, 0.4, lambda: "gpu")
    assert not any(name in os.environ for name in runtime._MEMORY)
    with pytest.raises(ConfigError, match="memory_fraction must be .*got 2.0"):
        jf.plan(jf.PPO(), jf.make("CartPole-v1"), memory_fraction=2.0)


@pytest.mark.parametrize(
    ("case", "flag"),
    [
        ("nothing", None), ("deterministic", "true"), ("flag", "true"), ("flags", None),
        ("user's no", "false"), ("user's yes", "true"),
        ("late", None),  # a CPU needs none
    ],
)  # fmt: skip
def test_bitwise_programs_set_their_flag_before_the_backend_starts(case, flag, environments):
    found = [x for x in environments[case].get("XLA_FLAGS", "").split() if x.startswith(FLAG)]
    assert found == ([f"{FLAG}={flag}"] if flag else [])


@pytest.mark.parametrize("value", ["false", "False", "0"])
def test_bitwise_programs_against_the_users_flag_are_refused(value, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}={value}")
    with pytest.raises(ConfigError,
                       match=f"deterministic must be False with XLA_FLAGS={FLAG}=false, got True: "
                             f"leave one"):
        runtime.set_gpu(True, None, lambda: "cpu")


@pytest.fixture
def earlier(monkeypatch):
    """A process whose first run has set both before JAX's backend started."""
    for name in (*runtime._MEMORY, "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(runtime, "_own", {})
    monkeypatch.setattr(runtime, "backend_started", lambda: False)
    runtime.set_gpu(True, 0.4, lambda: "gpu")
    monkeypatch.setattr(runtime, "backend_started", lambda: True)


def test_a_later_run_of_a_process_names_settings_that_it_cannot_change(earlier):
    runtime.set_gpu(True, 0.4, lambda: "gpu")  # the same
    for other in (0.3, 0.0):
        with pytest.raises(ConfigError,
                           match=f"memory_fraction must be 0.4 as in an earlier run of this "
                                 f"process, got {other}"):
            runtime.set_gpu(True, other, lambda: "gpu")
    with pytest.warns(UserWarning,
                      match="deterministic=False has no effect: an earlier run of this process has "
                            "set it"):
        runtime.set_gpu(False, None, lambda: "gpu")
    runtime.set_gpu(False, 0.3, lambda: "cpu")  # no GPU, nothing to tell
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.4"


def test_a_later_setting_counts_until_the_backend_starts(earlier, monkeypatch):
    monkeypatch.setattr(runtime, "backend_started", lambda: False)
    runtime.set_gpu(True, 0.0, lambda: "gpu")
    assert [name for name in runtime._MEMORY if name in os.environ] == [
        "XLA_PYTHON_CLIENT_PREALLOCATE"]


@pytest.mark.parametrize("flag", ["--resume", "--config"])
def test_joining_processes_take_stored_settings(flag, monkeypatch):
    stored, seen = {"run": {"deterministic": True, "memory_fraction": 0.4}}, []
    monkeypatch.setattr(runtime, "set_gpu", lambda *given: seen.append(given))
    monkeypatch.setattr(runtime, "request_host_devices", lambda count: True)
    monkeypatch.setattr(distributed, "start", lambda **given: None)
    before_jax.join(["--distributed", flag, "runs/a"], {"runs/a": stored}.__getitem__)
    before_jax.join(["--distributed", flag, "runs/a", "--no-deterministic"],
                  {"runs/a": stored}.__getitem__)
    before_jax.join(["--distributed"], {}.__getitem__)
    assert seen == [(True, 0.4), (False, 0.4), (False, None)]


def test_late_bitwise_programs_are_an_error_on_a_gpu():
    jax.devices()
    valid = (
        f"deterministic must be given before JAX's backend starts, got True: XLA_FLAGS={FLAG}=true "
        f"in the environment"
    )
    with pytest.raises(ConfigError, match=valid):
        runtime.set_gpu(True, None, lambda: "gpu")
    runtime.set_gpu(False, None, lambda: "gpu")


def test_the_header_names_the_cost_of_bitwise_programs():
    from jaxrl_fast.cli.train import on_device

    assert on_device(jf.PPO(), True, "cpu").endswith("products in float32")
    cost = "; deterministic: without autotuning, scatters in order, slower"
    assert on_device(jf.PPO(precision="tf32"), True, "gpu").endswith(cost)


@pytest.mark.parametrize(("platform", "command"), family([
    ("rocm", "train ppo CartPole-v1"), ("nonsense", "plan ppo CartPole-v1"),
], ["rocm"]))  # fmt: skip
def test_a_platform_without_a_device_is_one_line(platform, command, tmp_path):
    """jaxlib without a plugin for rocm fails with an AssertionError that has no text."""
    done = subprocess.run(
        [sys.executable, "-m", "jaxrl_fast", *command.split()], cwd=tmp_path, text=True,
        capture_output=True, env=tools.subprocess_environment() | {"JAX_PLATFORMS": platform},
        timeout=120,
    )  # fmt: skip
    line = f"jaxrl-fast: error: JAX_PLATFORMS must be platforms with a device here.*{platform!r}"
    assert done.returncode == 2 and re.match(line, done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("switch", "value"), [
    ("jax_disable_jit", True), ("jax_numpy_rank_promotion", "raise"),
    ("jax_numpy_dtype_promotion", "strict"),
])  # fmt: skip
def test_a_switch_under_which_no_run_works_is_refused_by_name(switch, value):
    before = getattr(jax.config, switch)
    jax.config.update(switch, value)
    try:
        with pytest.raises(jf.ConfigError, match=f"{switch} must be .* for a run, got {value!r}: "):
            jf.train(jf.PPO(num_envs=4, num_steps=16), jf.make("CartPole-v1"), 64)
    finally:
        jax.config.update(switch, before)
