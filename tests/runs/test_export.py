"""Exported policies: what JAX alone, onnxruntime and `jf.load` make of them is what the agent
does."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from helpers.matrix import family
from jaxrl_fast.algorithms import algorithm_class
from jaxrl_fast.cli.export import _hints
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.ops import lowering
from jaxrl_fast.runs.export import stablehlo
from jaxrl_fast.runs.export.policy import batch_of, policy_of, zeros


def new(name: str, made: str, **settings: Any) -> jf.Agent:
    env = jf.make(made, **settings.pop("env", {}))
    algo = algorithm_class(name)(**tools.SETTINGS.get(name, {}) | settings).bind(env.spec)
    return jf.Agent(algo, env, RunConfig(), jax.jit(algo.init)(jax.random.key(0)))


def observations(policy: Any, size: int) -> Any:
    draw = np.random.default_rng(0)
    some = lambda x: (draw.normal(size=(size, *x.shape)) if x.dtype.kind == "f"
                      else draw.integers(0, 2, (size, *x.shape)))
    return jax.tree.map(lambda x: some(x).astype(x.dtype), policy.observation)


def check(agent: jf.Agent, call: Any, size: int = 1000) -> None:
    """Two steps of `call(obs, *memory)` are those of the agent."""
    policy = policy_of(agent)
    obs, memory = observations(policy, size), [np.asarray(x) for x in zeros(policy.memory, size)]
    agent.reset()
    for step in range(2):
        obs = jax.tree.map(lambda x, step=step: x[:: (-1) ** step], obs)
        action, *memory = call(obs, *memory)
        np.testing.assert_allclose(action, agent.act(obs), atol=1e-5, rtol=1e-5)
        assert (
            np.asarray(action).shape == agent.act(obs).shape and len(memory) == len(policy.memory))


CASES = {
    "ppo": ("ppo", "CartPole-v1", {}),
    "box": ("ppo", "Pendulum-v1", {}),
    "stack": ("sac", "Pendulum-v1", {"env": {"stack": 3}, "normalize_observations": False}),
    "dict": ("ppo", "probe/dict", {}),
    "mask": ("ppo", "probe/masked", {}),
    "multi-discrete": ("ppo", "probe/multi-discrete", {}),
    "picture": ("dqn", "Breakout-MinAtar", {"network": "cnn"}),
}


@pytest.fixture(params=family(CASES, ["ppo"]))
def agent(request) -> jf.Agent:
    name, env, settings = CASES[request.param]
    return new(name, env, **settings)


def test_stablehlo_acts_as_the_agent(agent, tmp_path):
    file = agent.export(tmp_path / "policy.stablehlo")
    play = jax.export.deserialize(bytearray(file.read_bytes()))
    assert set(play.platforms) == {"cpu", "cuda", "rocm", "tpu"}
    check(agent, play.call, 7)
    check(agent, play.call, 1)


def test_stablehlo_holds_the_form_of_each_platform(tmp_path):
    """Networks multiply as each platform does best; this process traces for a CPU."""
    agent = new("ppo", "CartPole-v1")
    file, policy = agent.export(tmp_path / "policy.stablehlo"), policy_of(agent)
    given = batch_of((policy.observation, *policy.memory), 3)
    alone = jax.export.export(jax.jit(policy.step), platforms=stablehlo.PLATFORMS)(*given)
    choices = lambda exported: exported.mlir_module().count("stablehlo.case")
    assert choices(jax.export.deserialize(bytearray(file.read_bytes()))) > choices(alone)


ALONE = """
import sys
import jax, numpy as np
play = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
observation, *memory = play.in_avals
memory = [np.zeros((5, *x.shape[1:]), x.dtype) for x in memory]
for i in range(2):
    action, *memory = play.call(np.full((5, 3), i + 1, np.float32), *memory)
assert not [name for name in sys.modules if name.startswith(("jaxrl_fast", "flax", "gymnax"))]
np.save(sys.argv[2], action)
"""


def test_stablehlo_needs_jax_alone(tmp_path):
    agent = new("ppo", "Pendulum-v1", env={"stack": 2})
    file = agent.export(tmp_path / "policy.stablehlo")
    command = [sys.executable, "-c", ALONE, str(file), str(tmp_path / "action.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = [agent.act(np.full((5, 3), i + 1, np.float32)) for i in range(2)][-1]
    np.testing.assert_allclose(np.load(tmp_path / "action.npy"), wanted, atol=1e-5)


def test_the_memory_holds_only_inputs_of_actions():
    names = lambda agent: policy_of(agent).names
    # noise of training
    assert names(new("sac", "Pendulum-v1")) == names(new("apex", "CartPole-v1")) == ()
    # the frames, and whether there are some
    assert len(names(new("ppo", "Pendulum-v1", env={"stack": 2}))) == 2


@jf.settings
class Counting(jf.PPO):
    """The action is the number of the step, from 3 on: a memory that does not begin with zeros."""

    name: ClassVar[str] = "counting"

    def init_carry(self, num_envs):
        return jnp.full(num_envs, 3, jnp.int32)

    def act(self, agent, carry, obs, noise, clock, mode):
        return carry + 1, (carry % 2).astype(jnp.int32), ()


def test_zeros_begin_an_episode_whatever_the_first_memory_is():
    env = jf.make("CartPole-v1")
    algo = Counting(hidden=(8,)).bind(env.spec)
    policy = policy_of(jf.Agent(algo, env, RunConfig(), jax.jit(algo.init)(jax.random.key(0))))
    memory, obs, found = zeros(policy.memory, 2), np.zeros((2, 4), np.float32), []
    act = jax.jit(policy.step)
    for _ in range(3):
        action, *memory = act(obs, *memory)
        found.append(action.tolist())
    assert found == [[1, 1], [0, 0], [1, 1]]
    restarted = [np.where(np.arange(2) == 0, 0, x).astype(x.dtype) for x in memory]
    assert act(obs, *restarted)[0].tolist() == [1, 0]


@pytest.mark.onnx
def test_onnx_acts_as_the_agent(agent, tmp_path, caplog):
    """A batch of 1,000 observations, and one observation."""
    import onnxruntime as runtime

    caplog.set_level("WARNING")
    session = runtime.InferenceSession(str(agent.export(tmp_path / "policy.onnx", "onnx")))
    names = [x.name for x in session.get_inputs()]
    assert names[0].startswith("observation") and session.get_outputs()[0].name == "action"
    assert not [record for record in caplog.records if record.name.startswith("onnx")]
    call = lambda obs, *memory: session.run(
        None, dict(zip(names, [*jax.tree.leaves(obs), *memory], strict=True)))
    check(agent, call)
    check(agent, call, 1)


@pytest.mark.onnx
def test_an_onnx_file_is_the_same_on_a_machine_with_a_card(tmp_path):
    agent = new("ppo", "CartPole-v1")
    here = agent.export(tmp_path / "here.onnx", "onnx").read_bytes()
    with lowering.known("cuda"):
        assert agent.export(tmp_path / "there.onnx", "onnx").read_bytes() == here


@pytest.mark.onnx
@pytest.mark.parametrize("name",
                         [name for name in tools.SETTINGS if name not in ("ppo", "sac", "dqn")])
def test_onnx_takes_every_algorithm(name, tmp_path):
    import onnxruntime as runtime

    discrete = jf.Discrete in algorithm_class(name).action_spaces and name != "apg"
    agent = new(name, "CartPole-v1" if discrete else "Pendulum-v1")
    session = runtime.InferenceSession(str(agent.export(tmp_path / "policy.onnx", "onnx")))
    check(agent, lambda obs: session.run(None, {"observation": obs}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "run"
    tools.train("ppo", path, seeds=2)
    return path


@pytest.mark.safetensors
def test_safetensors_of_crossq_is_loaded_again(tmp_path):
    """Older exports hold its settings in float32; one of them must stay as it is."""
    agent = new("crossq", "Pendulum-v1")
    file = agent.export(tmp_path / "policy", "safetensors") / "config.json"
    single = np.float32(0.005).item()
    file.write_text(file.read_text().replace("0.005", str(single)))
    again = jf.load(file.parent)
    assert tools.read(file)["algorithm"]["settings"]["target_tau"] != 0.005
    np.testing.assert_array_equal(again.act(np.ones((5, 3))), agent.act(np.ones((5, 3))))
    with pytest.raises(jf.ConfigError, match="target_tau must be left at 0.005"):
        jf.CrossQ(target_tau=0.006)


@pytest.mark.safetensors
def test_safetensors_is_loaded_again(trained, tmp_path):
    agent = jf.load(trained, member=1)
    folder = agent.export(tmp_path / "policy", "safetensors")
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1  # all can read the arrays
    settings = lambda folder: tools.read(folder / "config.json")["algorithm"]
    assert settings(folder) == settings(trained)
    again = jf.load(folder)
    for name in ("score", "iteration", "environment"):
        assert getattr(again, name) == getattr(agent, name)
    for part in ("params", "moments"):
        tools.assert_same(getattr(again.state, part), getattr(agent.state, part))
    np.testing.assert_array_equal(again.evaluate(4).ret, agent.evaluate(4).ret)
    with pytest.raises(jf.ConfigError, match="which must be one of 'auto'"):
        jf.load(folder, "last")
    with pytest.raises(jf.ConfigError, match="a new or empty folder"):
        agent.export(folder, "safetensors")


def broken(content: bytes, change: str) -> bytes:
    (size,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + size])
    if change == "cut":
        return content[:-8]
    if change == "flipped":  # in the last digits of the last numbers
        return content[:-8] + bytes(x ^ 1 if i % 4 == 0 else x for i, x in enumerate(content[-8:]))
    name = next(key for key in head if key != "__metadata__")
    head["elsewhere"] = head.pop(name)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


@pytest.mark.safetensors
@pytest.mark.parametrize(("change", "message"),
                         [("cut", "a whole file of safetensors"),
                          ("flipped", "its checksum differs"),
                          ("renamed", "is missing|of no layer")])
def test_a_damaged_file_of_safetensors_is_refused(change, message, trained, tmp_path):
    folder = jf.load(trained).export(tmp_path / "policy", "safetensors")
    file = folder / "policy.safetensors"
    file.write_bytes(broken(file.read_bytes(), change))
    with pytest.raises(jf.ConfigError, match=message):
        jf.load(folder)


@pytest.mark.safetensors
@pytest.mark.parametrize(("exported", "says"), [
    (3, "exported is an integer, not an object"), ({}, "exported.iteration is missing"),
    ({"iteration": "x", "score": 1.0}, "exported.iteration is a text"),
])  # fmt: skip
def test_an_exported_config_of_another_form_is_named(exported, says, trained, tmp_path):
    folder = jf.load(trained).export(tmp_path / "policy", "safetensors")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"exported": exported}))
    with pytest.raises(jf.ConfigError, match=f"config must be .*config.json.*{says}"):
        jf.load(folder)


@pytest.mark.safetensors
@pytest.mark.parametrize("settings", ["5", "null", '"x"', "[]"])
def test_a_header_of_another_form_is_named(settings, trained, tmp_path):
    import safetensors.numpy

    folder = jf.load(trained).export(tmp_path / "policy", "safetensors")
    file = folder / "policy.safetensors"
    arrays = safetensors.numpy.load_file(file)
    file.write_bytes(safetensors.numpy.save(arrays, metadata={"settings_of_config": settings}))
    with pytest.raises(jf.ConfigError, match="a whole file of safetensors.*no JSON object"):
        jf.load(folder)


@pytest.mark.safetensors
def test_an_edited_config_beside_safetensors_is_refused(trained, tmp_path):
    folder = jf.load(trained).export(tmp_path / "policy", "safetensors")
    assert jf.load(folder).algo.activation == "tanh"
    content = json.loads((folder / "config.json").read_text())
    content["algorithm"]["settings"]["activation"] = "relu"
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(jf.ConfigError,
                       match='algo.activation is "relu" there and was "tanh" in.* FLAGS`$'):
        jf.load(folder)


@pytest.mark.parametrize("format", ["onnx", "safetensors"])
def test_without_its_package_a_format_names_the_extra(format, modules, tmp_path):
    modules(**{"jax2onnx": None, "safetensors": None, "safetensors.numpy": None})
    with pytest.raises(ImportError, match=rf"pip install 'jaxrl_fast\[{format}\]'"):
        new("ppo", "CartPole-v1").export(tmp_path / "policy", format)
    modules(**{"jax2onnx": "jax2onnx", "safetensors.numpy": "safetensors.numpy"})  # empty folders
    with pytest.raises(ImportError, match=rf"pip install 'jaxrl_fast\[{format}\]'"):
        new("ppo", "CartPole-v1").export(tmp_path / "policy", format)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_the_policy(trained, run_cli):
    code, out, err = run_cli("export", str(trained))
    file = trained / "policy.stablehlo"
    assert code == 0 and out.splitlines()[0] == str(file), err
    assert f"jax.export.deserialize(bytearray(open({str(file)!r}, 'rb').read()))" in out
    agent = jf.load(trained)
    check(agent, jax.export.deserialize(bytearray(file.read_bytes())).call, 3)


@pytest.mark.parametrize(("case", "format", "call"), [
    ("ppo", "onnx", "run(None, {'observation': observations})"),
    ("dict", "onnx", "run(None, {'observation.column': ..., 'observation.row': ...})"),
    ("stack", "stablehlo", "call(observations, *memory)"),
    ("stack", "onnx", "run(None, {'observation': ..., "),
])  # fmt: skip
def test_the_hint_names_every_input(case, format, call):
    name, env, settings = CASES[case]
    agent = new(name, env, **settings)
    first, *memory = _hints(agent, "policy", format)
    policy = policy_of(agent)
    assert call in first
    assert len(memory) == bool(policy.memory)
    assert all(f"{name} " in memory[0] for name in policy.names)


@pytest.mark.parametrize(("words", "message"), [
    ((), "RUN must be given, got none: jaxrl-fast export RUN"),
    (("nowhere",), "run must be an existing run directory, got 'nowhere'"),
    (("RUN", "--format", "pickle"),
     "--format must be one of 'stablehlo', 'onnx', 'safetensors', got 'pickle'"),
    (("RUN", "--out", "RUN/config.json"), "path must be a new file"),
])  # fmt: skip
def test_bad_input_of_the_command(words, message, trained, run_cli):
    code, _, err = run_cli("export", *(word.replace("RUN", str(trained)) for word in words))
    assert code == 2 and message in err and err.count("\n") == 1, err
