"""A dataset that Minari itself has recorded, through our path: every row, and every kind of end.
Nothing goes to the network.

Minari is not in [dev]: `pip install -e '.[minari]' && pytest -m minari`.
"""

from __future__ import annotations

import socket
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import jaxrl_fast as jf
from jaxrl_fast.memory import episodes_to_rows, open_memory, rows_of

pytestmark = pytest.mark.minari
NAME, LIMIT = "cartpole/three-v0", 20


@pytest.fixture
def minari(tmp_path, monkeypatch):
    def connect(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    import minari

    return minari


def record(minari) -> list[tuple]:
    """Three episodes as Minari's collector writes them: the pole falls, time is up, and another one
    is begun in the middle.

    What the environment said, a list a row: (observation, action, reward, terminated), and of what
        is not terminated the last
    observation alone.
    """
    env, rows, ends = minari.DataCollector(
        gymnasium.make("CartPole-v1", max_episode_steps=LIMIT)), [], []
    for seed, (steps, policy) in enumerate(
        [(LIMIT, lambda t: 1), (LIMIT, lambda t: t % 2), (5, lambda t: t % 2)]
    ):
        obs, terminated, truncated = env.reset(seed=seed)[0], False, False
        for t in range(steps):
            after, reward, terminated, truncated, _ = env.step(policy(t))
            rows.append((obs, policy(t), reward, terminated))
            obs = after
            if terminated or truncated:
                break
        ends.append((terminated, truncated))
        if not terminated:
            rows.append((obs,))
    assert ends == [(True, False), (False, True), (False, False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an author without an address, no description
        env.create_dataset(NAME, algorithm_name="none", author="nobody", code_permalink="none")
    env.close()
    return rows


def test_minari_episodes_round_trip(minari, run_cli, tmp_path):
    wanted, spec = record(minari), jf.make("CartPole-v1").spec
    code, out, err = run_cli("experience", f"minari:{NAME}", str(tmp_path / "kept"),
                             "--environment", "CartPole-v1")
    steps = sum(len(row) > 1 for row in wanted)
    assert code == 0 and f"{steps} steps" in out, err
    direct = episodes_to_rows(minari.load_dataset(NAME).iterate_episodes(), spec)
    for found in (rows_of(open_memory(tmp_path / "kept")), direct):
        count = len(wanted)
        # rows that fill a block
        assert found.reward.shape[1] == 1 and found.truncated[count:].all()
        np.testing.assert_array_equal(found.obs[:count, 0], np.stack([row[0] for row in wanted]))
        alone = [len(row) == 1 for row in wanted]  # the observation after a step that was cut off
        np.testing.assert_array_equal(found.truncated[:count, 0], alone)
        for name, i in (("action", 1), ("reward", 2), ("terminated", 3)):
            np.testing.assert_array_equal(getattr(found, name)[:count, 0],
                                          [row[i] if len(row) > 1 else 0 for row in wanted])
        assert found.terminated.sum() == 1 and sum(alone) == 2


def test_unreadable_minari_datasets_are_named(minari, run_cli, tmp_path):
    record(minari)
    words = ["experience", "minari:other-v0", str(tmp_path / "kept"), "--environment",
             "CartPole-v1"]
    code, _, err = run_cli(*words)
    assert code == 2 and "minari list local" in err and "other-v0" in err
    file = next(Path(tmp_path / "datasets").rglob("main_data.hdf5"))
    file.write_bytes(file.read_bytes()[:1000])
    code, _, err = run_cli(words[0], f"minari:{NAME}", *words[2:])
    assert code == 2 and "minari list local" in err
    assert not (tmp_path / "kept").exists()
