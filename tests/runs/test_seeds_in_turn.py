"""Seeds of environments on the host: one after another, each equal to a run by itself, and together
one run."""

from __future__ import annotations

import gc
import json
import shutil
import signal
import sys
import weakref

import jax
import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import counters as tools
from helpers.matrix import family
from jaxrl_fast.actors.on_host import HostPrograms
from jaxrl_fast.envs.host.api import HostError
from jaxrl_fast.errors import ConfigError, NonFiniteError, RunError, WriteError
from jaxrl_fast.files import folders
from jaxrl_fast.logs.jsonl import JsonlSink, read_jsonl
from jaxrl_fast.logs.sinks import Row
from jaxrl_fast.runs import seeds_in_turn
from jaxrl_fast.runs.checkpoints.save import describe_last_good
from jaxrl_fast.runs.dependencies import Dependencies
from jaxrl_fast.runs.rundir import RunDir, seed_folder
from jaxrl_fast.runs.seed_results import overall_rate, side_by_side
from jaxrl_fast.runs.signals import Interrupted, Signals, Stopped
from jaxrl_fast.runs.train import start
from jaxrl_fast.sweeps.comparison import compare_runs
from jaxrl_fast.types import Mean

tools.register()
ENV = "gym:CartPole-v1"
ALGO = dict(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(4,))
RUN = dict(total_steps=128, eval_episodes=2, eval_every=64, log_every=16, progress=False,
           tensorboard=False, pictures=False)
FLAGS = [
    "--algo.num-envs", "2", "--algo.num-steps", "8", "--algo.num-epochs", "1",
    "--algo.num-minibatches", "2",
    "--algo.hidden", "4", "--total-steps", "128", "--eval-episodes", "2", "--eval-every", "64",
    "--log-every", "16",
    "--no-tensorboard", "--no-pictures", "--no-preset", "--env.vectorization", "sync",
]  # fmt: skip
SEEDS = (5, 6, 7)
WALL = ("wall_seconds", "steps_per_second")


def train(seeds=3, seed=5, env=None, **more):
    env = env or jf.make(ENV, vectorization="sync")
    call = start if "dependencies" in more else jf.train
    return call(jf.PPO(**ALGO), env, seeds=seeds, seed=seed, **RUN | more)


def learned(rows):
    """Rows without what the clock says."""
    timed = lambda name: name.startswith("time_") or name in WALL
    return [{k: v for k, v in row.items() if not timed(k)} for row in rows]


def params(agent):
    return jax.tree.leaves(jax.device_get(agent.state.params))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(params(a), params(b), strict=True))


@pytest.fixture(scope="module")
def alone():
    return [train(seeds=1, seed=seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three seeds in a folder."""
    return train(out=tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(autouse=True)
def _freeze():
    """Freeze living objects: the collection after each seed then passes over them."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _unfreeze():
    gc.collect()
    yield
    gc.unfreeze()


def interrupt(seed, rows=3, signum=signal.SIGINT):
    """A hook that interrupts a seed."""

    def hook(session, new):
        if session.config.seed == seed and session.rows == rows:
            signal.raise_signal(signum)

    return hook


def test_each_seed_is_the_run_with_that_seed(whole, alone):
    np.testing.assert_array_equal(whole.eval_return, [run.eval_return[0] for run in alone])
    for member, run in enumerate(alone):
        assert same(whole.agent(member), run.agent())
        for metric in ("policy_loss", "entropy", "episode_return", "eval_return"):
            steps, values = run.curve(metric)
            found, together = whole.curve(metric)
            np.testing.assert_array_equal(together[np.isin(found, steps), member], values[:, 0])
    assert {len(params(whole.agent(m))) for m in range(3)} == {len(params(alone[0].agent()))}
    assert not same(whole.agent(0), whole.agent(1))


def test_the_result_reads_as_a_device_population(whole):
    scores = whole.eval_return
    assert scores.shape == (3,) and np.isfinite(scores).all() and whole.over and not whole.lost
    assert (
        whole.env_steps == 128 and whole.best_score >= scores.mean() and whole.steps_per_second > 0)
    steps, values = whole.curve("policy_loss")
    assert steps.tolist() == list(range(16, 129, 16)) and values.shape == (8, 3)
    assert whole.agent().score == scores.max()
    text = repr(whole)
    assert (
        text.count("\n") == 2 and "3 members, seeds 5 to 7" in text
        and "3 of 3 seeds trained" in text
    )
    with pytest.raises(AttributeError, match=r"no 'grid': a hook gets the Result"):
        _ = whole.grid
    with pytest.raises(AttributeError, match=r"no 'nonsense'$"):
        _ = whole.nonsense
    with pytest.raises(ConfigError, match=r"member must be .*0 to 2, got 3"):
        whole.agent(3)
    with pytest.raises(ConfigError, match=r"one that was interrupted, got 'over'"):
        whole.resume()


def test_the_frame_has_a_row_a_seed_and_log_row(whole):
    frame = whole.frame()
    assert len(frame) == 24 and set(frame["seed"]) == set(SEEDS)


def test_the_folder_is_a_run_directory_of_all_seeds(whole):
    path = whole.out.path
    result = RunDir(path).result()
    assert result["seeds"] == list(SEEDS) and result["lost"] is None
    np.testing.assert_array_equal(np.float32(result["eval_return"]), whole.eval_return)
    rows = read_jsonl(path / "metrics.jsonl")
    for member, seed in enumerate(SEEDS):
        own = read_jsonl(seed_folder(path, seed) / "metrics.jsonl")
        assert (
            learned([{
                k: [v[member]] if isinstance(v, list) else v for k, v in row.items()
            } for row in rows]) == learned(own)
        )
        assert (
            json.loads((seed_folder(path, seed) / "config.json").read_text())["run"]["seeds"] == 1)
        assert same(jf.load(path, "last", member), whole.agent(member))
    assert not (path / ".lock").exists()
    best = [RunDir(seed_folder(path, seed)).result()["best_eval_return"] for seed in SEEDS]
    assert jf.load(path).score == max(best)


def test_commands_take_the_folder(whole, run_cli, tmp_path):
    path = str(whole.out.path)
    code, out, err = run_cli("eval", path, "--member", "1", "--episodes", "3")
    assert code == 0 and "over 3 episodes" in out, err
    code, out, err = run_cli("compare", path, f"{path}/seed-6", "--csv", str(tmp_path / "x.csv"))
    assert code == 0 and (tmp_path / "x.csv").read_text().count("\n") == 3, err
    code, out, err = run_cli("plot", path, "--metric", "policy_loss", "--out",
                             str(tmp_path / "x.png"))
    assert code == 0 and (tmp_path / "x.png").exists(), err
    code, out, err = run_cli("eval", path, "--member", "3")
    assert (
        code == 2 and "member must be an integer from 0 to 2, got 3" in err and err.count("\n") == 1
    )


@pytest.fixture(scope="module")
def continued():
    """The second seed by itself, interrupted and gone on with: its environments begin anew."""
    with pytest.raises(Interrupted) as stop:
        train(seeds=1, seed=6, hooks=[interrupt(6)])
    return stop.value.run.resume()


def test_an_interrupt_in_the_second_seed_and_on(whole, continued, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(
        Interrupted, match=rf"SIGINT at 48 environment steps of seed 6, saved; .*--resume {out}$"
    ) as stop:
        train(out=out, hooks=[interrupt(6)])
    part = stop.value.run
    assert (
        part.eval_return[0] == whole.eval_return[0] and np.isnan(part.eval_return[1:]).all()
        and not part.over
    )
    assert "1 of 3 seeds trained" in repr(part) and part.curve("policy_loss")[1].shape == (8, 3)
    assert params(part.agent(1)) and same(part.agent(), whole.agent(0))
    with pytest.raises(ConfigError, match=r"member must be .*has begun \(0, 1\), got 2$"):
        part.agent(2)
    with pytest.raises(ConfigError, match=r"member must be .*checkpoint \(0, 1\), got 2$"):
        jf.load(out, member=2)
    assert not (out / "result.json").exists() and not (out / ".lock").exists()
    first = (seed_folder(out, 5) / "metrics.jsonl").stat().st_mtime_ns

    seen = []
    run = jf.resume(out,
                    hooks=[
                        lambda session, rows: seen.append((session.config.seed, rows[0].env_steps))
                    ], tensorboard=False)
    # finished seeds are not trained again
    assert seen[0] == (6, 64) and {seed for seed, _ in seen} == {6, 7}
    assert (seed_folder(out, 5) / "metrics.jsonl").stat().st_mtime_ns == first
    np.testing.assert_array_equal(
        run.eval_return, [whole.eval_return[0], continued.eval_return[0], whole.eval_return[2]])
    assert all(same(run.agent(m), x)
               for m, x in enumerate((whole.agent(0), continued.agent(), whole.agent(2))))
    entropy = lambda run: np.float32(run.curve("entropy")[1])
    np.testing.assert_array_equal(entropy(run)[:, [1]], entropy(continued))
    np.testing.assert_array_equal(entropy(run)[:, [0, 2]], entropy(whole)[:, [0, 2]])

    seen.clear()
    again = jf.resume(out, hooks=[lambda session, rows: seen.append(rows)])
    assert not seen and again.over and all(same(again.agent(m), run.agent(m)) for m in range(3))


@pytest.mark.parametrize("folder", family([True, False], 1))
def test_an_interrupt_in_a_notebook_and_on(folder, whole, continued, tmp_path, monkeypatch):
    out = tmp_path / "run" if folder else None
    if not folder:
        with pytest.raises(Interrupted, match="of seed 6; nothing is saved without `out`"):
            train(hooks=[interrupt(6)])
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    part = train(hooks=[interrupt(6)], out=out)
    assert not part.over and part.curve("policy_loss")[0].size == 8
    run = part.resume()
    assert run is part and run.over and (not folder or RunDir(out).result()["seeds"] == list(SEEDS))
    assert all(same(run.agent(m), x)
               for m, x in enumerate((whole.agent(0), continued.agent(), whole.agent(2))))


def test_a_signal_before_the_first_seed_and_between_two(tmp_path, monkeypatch, run_cli):
    with pytest.raises(Stopped, match="SIGINT before it was compiled"):
        train(out=tmp_path / "none", sinks=lambda part: signal.raise_signal(signal.SIGINT) or [])
    assert not (tmp_path / "none").exists()

    out, drawn, draw = tmp_path / "run", [], seeds_in_turn.plots.learning_curve

    def stop(curves, path):
        if path.parent == out:  # of all seeds
            drawn.append(signal.raise_signal(signal.SIGTERM))
        return draw(curves, path)

    with monkeypatch.context() as patched:
        patched.setattr(seeds_in_turn.plots, "learning_curve", stop)
        code, _, err = run_cli("train", "ppo", ENV, "--seeds", "2", *FLAGS, "--pictures", "--out",
                               str(out))
    assert code == 143 and len(drawn) == 1 and err.splitlines()[-1].endswith(
        f"SIGTERM at 0 environment steps of seed 1, saved; go on with: jaxrl-fast train --resume "
        f"{out}"
    )
    code, printed, err = run_cli("train", "--resume", str(out), "--no-tensorboard")
    assert code == 0 and "over 2 seeds, each the mean of 2 greedy episodes" in printed, err
    assert (out / "curve.png").stat().st_size > 5000
    assert (seed_folder(out, 0) / "time.png").exists()
    assert "by seed: 0:" in printed and "seed 1, 2 of 2" in err and "seed 0, 1 of 2" not in err


@pytest.mark.parametrize("when", family(["__exit__", "__enter__"], 1))
def test_a_signal_beside_the_handlers_of_a_seed_loses_nothing(when, whole):
    """Just before they are there, and just after they are gone, without a folder to read a seed
    from."""

    class Beside(Signals):
        entered = 0

        def __enter__(self):
            Beside.entered += 1
            if when == "__enter__" and Beside.entered == 2:
                signal.raise_signal(signal.SIGINT)
            return super().__enter__()

        def __exit__(self, *exception):
            super().__exit__(*exception)
            if when == "__exit__" and Beside.entered == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as stop:
        train(seeds=3, dependencies=Dependencies(signals=Beside))
    part = stop.value.run
    assert sorted(part.trained) == ([0] if when == "__enter__" else [0, 1]) and part.going is None
    run = part.resume()
    assert run.over and all(same(run.agent(m), whole.agent(m)) for m in range(3))


@pytest.mark.matrix("test_an_interrupt_in_the_second_seed_and_on")
def test_a_hook_that_fails_keeps_the_seed_that_was_interrupted(whole, continued):
    calls = []

    def hook(session, new):
        interrupt(6)(session, new)
        if session.config.seed == 6 and session.rows > 3:
            calls.append(session.rows)
            if len(calls) == 1:
                raise ValueError("a fault of the hook")

    with pytest.raises(Interrupted) as stop:
        train(hooks=[hook])
    part = stop.value.run
    with pytest.raises(ValueError, match="a fault of the hook"):
        part.resume()
    assert sorted(part.trained) == [0] and part.going is not None
    run = part.resume()
    assert run.over and calls[1] > calls[0] and same(run.agent(0), whole.agent(0))


def test_a_seed_killed_before_its_first_checkpoint_restarts(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    shutil.rmtree(seed_folder(out, 6) / "checkpoints")
    (seed_folder(out, 6) / "result.json").unlink()
    shutil.rmtree(seed_folder(out, 7))
    with pytest.raises(ConfigError,
                       match=rf"out must be .*to go on with it: train --resume {out} "):
        train(out=out)
    run = jf.resume(out, tensorboard=False)
    np.testing.assert_array_equal(run.eval_return, whole.eval_return)
    assert all(same(run.agent(m), whole.agent(m)) for m in range(3))


@pytest.mark.parametrize(("ends", "said"), family([((192,), 1), ((), 0), ((192, 192), 0)], 2))
def test_an_end_beyond_the_horizon_is_said_once_a_run(ends, said, whole, tmp_path, recwarn):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    shutil.rmtree(seed_folder(out, 7))  # it begins anew
    assert jf.resume(out, *ends, tensorboard=False).env_steps == (192 if ends else 128)
    found = [str(w.message) for w in recwarn if "beyond the horizon" in str(w.message)]
    assert len(found) == said and all("total_steps 192 is beyond the horizon 128" in text
                                      for text in found)


def test_a_resume_takes_no_other_settings(whole):
    with pytest.raises(ConfigError, match="resume must be .*got 'part'"):
        jf.resume(whole.out.path, part=True)


def everything_in(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("begun", [True, False])
def test_a_seed_that_is_a_link_is_not_written_through(begun, whole, tmp_path):
    out, victim = tmp_path / "run", tmp_path / "victim"
    shutil.copytree(whole.out.path, out)
    seed_folder(out, 6).rename(victim)
    if not begun:
        shutil.rmtree(victim / "checkpoints")
    seed_folder(out, 6).symlink_to(victim)
    before = everything_in(victim)
    with pytest.raises(ConfigError,
                       match="seed-6 must be a folder in the run, to go on with it, got a link"):
        jf.resume(out, 192, tensorboard=False)
    assert everything_in(victim) == before and seed_folder(out, 6).is_symlink()
    with pytest.raises(ConfigError, match="got a link"):
        folders.discard(seed_folder(out, 6))


def test_a_seed_that_ended_and_lost_its_checkpoints_is_not_thrown_away(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    shutil.rmtree(seed_folder(out, 6) / "checkpoints")
    before = [everything_in(seed_folder(out, seed)) for seed in SEEDS]
    with pytest.raises(ConfigError, match="move seed-6 elsewhere"):
        jf.resume(out, 192, tensorboard=False)
    assert [everything_in(seed_folder(out, seed)) for seed in SEEDS] == before
    np.testing.assert_array_equal(jf.resume(out, tensorboard=False).eval_return, whole.eval_return)


def changed(file, change):
    """Write a JSON file anew, with what `change` does to its content."""
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def flip(out, seed):
    """Damage the last checkpoints of a seed."""
    for file in (seed_folder(out, seed) / "checkpoints" / "last").glob("*/state/**/*"):
        if file.is_file():
            file.write_bytes(bytes(b ^ 0xFF for b in file.read_bytes()))


# what was done to the run of seeds 5, 6 and 7 -> the end that is asked for, more settings, the
# error
REFUSED = {
    "settings": (lambda out: None, dict(total_steps=192, actors=3),
                 "actors must be at most num_envs = 2, got 3"),
    "damage": (lambda out: flip(out, 6), dict(total_steps=192),
               "seed-6/checkpoints/last/.*damaged|seed-6/checkpoints/last"),
    "beyond": (lambda out: jf.resume(seed_folder(out, 6), 192), {},
        "total_steps must be at least the 192 steps that seed-6 has"),
    "algorithm": (
        lambda out: changed(seed_folder(out, 7) / "config.json",
                            lambda c: c["algorithm"]["settings"].update(discount=0.5)), {},
        r"algorithm.settings.discount of .*seed-7 must be 0.99, as in the run it is a part of, got "
        r"0.5; move seed-7 elsewhere",
    ),
    "its own config.json": (
        lambda out: changed(out / "config.json", lambda c: c["run"].update(eval_mode="sample")),
        dict(total_steps=192),
        r'config must be .*seed-5 was trained with.*eval_mode is "sample" there and was "greedy"',
    ),
    "seed": (
        lambda out: changed(seed_folder(out, 7) / "config.json", lambda c: c["run"].update(seed=9)),
        {},
        "seed of .*seed-7 must be 7, got 9 with seeds = 1",
    ),
    "file": (
        lambda out: (shutil.rmtree(seed_folder(out, 7)), seed_folder(out, 7).write_text("x")),
        dict(total_steps=192),
        "seed-7 must be a folder in the run, to go on with it, got a file",
    ),
    "trash": (
        lambda out: (
            shutil.rmtree(seed_folder(out, 7)), (out / "seed-7.trash").symlink_to(out / "nowhere")
        ), {},
        "seed-7.trash must be a folder in the run, to go on with it, got a link",
    ),
    "hooks": (lambda out: None, dict(total_steps=192, hooks=[3]),
              r"hooks must be a list of functions .*got \[3\]"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_resume_that_is_refused_writes_nothing(what, whole, tmp_path):
    """No seed's folder changes, whichever seed is the reason: the finished run stays finished."""
    prepare, settings, message = REFUSED[what]
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    prepare(out)
    before = everything_in(out)
    with pytest.raises(ConfigError, match=message):
        jf.resume(out, tensorboard=False, **settings)
    assert everything_in(out) == before
    if what in ("algorithm", "seed"):
        with pytest.raises(ConfigError, match=message):
            jf.load(out, member=2)
        assert same(jf.load(out, "last", member=0), whole.agent(0))


@pytest.mark.parametrize(("change", "says"), [
    ({"eval_mode": "sample"}, 'eval_mode is "sample" there and was "greedy"'),
    ({"ahead": 3}, "ahead is 3 there and was null"),
])  # fmt: skip
def test_an_edited_run_of_seeds_in_turn_is_not_loaded(change, says, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    jf.load(out, "last", 1)
    changed(out / "config.json", lambda c: c["run"].update(change))
    with pytest.raises(ConfigError, match=says):
        jf.load(out, "last", 1)


@pytest.mark.matrix("test_a_new_end_applies_to_every_seed")
def test_the_result_of_an_end_goes_when_another_one_is_begun(whole, tmp_path):
    """result.json and config.json agree about a run, for all seeds and for each."""
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    with pytest.raises(Interrupted):
        jf.resume(out, 192, tensorboard=False, hooks=[interrupt(6, rows=9)])
    has = {seed: (seed_folder(out, seed) / "result.json").exists() for seed in SEEDS}
    assert not (out / "result.json").exists() and has == {5: True, 6: False, 7: True}
    with pytest.raises(ConfigError, match="a run that has ended"):
        compare_runs([out])
    run = jf.resume(out, tensorboard=False)
    assert run.over and RunDir(out).result()["env_steps"] == 192


def test_a_seed_started_from_memory_cannot_restart(whole, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(out=out, start_from=whole, hooks=[interrupt(5)])
    with pytest.raises(ConfigError,
                       match="start_from must be a run directory, got parameters .* seed-6 has no "
                             "checkpoint"):
        jf.resume(out, tensorboard=False)


def test_a_result_of_another_form_is_named(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    file = seed_folder(out, 5) / "result.json"
    content = json.loads(file.read_text())
    for change in ({"reached": 5}, {"reached": {"a": 1}}, {"lost": [3]}, {"seconds": 1}):
        file.write_text(json.dumps(content | change))
        with pytest.raises(ConfigError, match="seed-5/result.json"):
            jf.resume(out, tensorboard=False)


def test_the_best_of_seeds_with_a_damaged_result_ends_with_code_2(whole, tmp_path, run_cli):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    assert run_cli("eval", str(out), "--episodes", "2")[0] == 0
    (seed_folder(out, 6) / "result.json").write_text("{}")
    code, printed, err = run_cli("eval", str(out), "--episodes", "2")
    assert (
        code == 2 and "return " in printed and "seed-6/result.json" in err and err.count("\n") == 1
    ), err
    code, printed, err = run_cli("eval", str(out), "--episodes", "2", "--member", "0")
    assert code == 0 and err == "", err


def test_a_seed_that_has_ended_gives_its_session_up():
    sessions = []
    run = train(seeds=2, hooks=[lambda session, new: sessions.append(weakref.ref(session))])
    gc.collect()
    assert run.over and not any(ref() for ref in sessions)
    assert run.agent(0).act(np.zeros(4, np.float32)) in (0, 1)


def test_a_new_end_applies_to_every_seed(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.out.path, out)
    with pytest.raises(ConfigError,
                       match=r"total_steps must be at least the 128 steps that seed-5 has, got 64"):
        jf.resume(out, 64)
    with pytest.warns(UserWarning, match="beyond the horizon"), pytest.raises(
        Interrupted, match="at 144 .* of seed 6"
    ):
        jf.resume(out, 192, hooks=[interrupt(6, rows=9)], tensorboard=False)
    run = jf.resume(out, tensorboard=False)  # to the end that was asked for
    assert run.env_steps == 192 and run.over and RunDir(out).result()["env_steps"] == 192
    assert [RunDir(seed_folder(out, seed)).result()["env_steps"] for seed in SEEDS] == [192] * 3
    one = tmp_path / "one"
    shutil.copytree(seed_folder(whole.out.path, 6), one)
    assert same(run.agent(1), jf.resume(one, 192, tensorboard=False).agent())


def test_a_lost_seed_is_marked_and_the_others_continue(whole, tmp_path):
    lost = {6}

    class Broken(HostPrograms):
        def chunk(self, *args):
            chunk = super().chunk(*args)
            if self.config.seed in lost:
                chunk.metrics["value_loss"] = Mean(np.full(1, np.nan), np.ones(1))
            return chunk

    broken = Dependencies(Broken)
    for out in (tmp_path / "run", None):
        with pytest.warns(UserWarning, match="seed 6 is lost: value_loss is nan"):
            run = train(out=out, on_nan="mark", dependencies=broken)
        assert (
            run.lost == {1: {"env_steps": 16, "reason": "value_loss is nan"}} and run.live == [0, 2]
        )
        np.testing.assert_array_equal(run.eval_return,
                                      np.where(np.arange(3) == 1, np.nan, whole.eval_return))
        assert "1 of them lost" in repr(run)
    out = tmp_path / "run"
    assert RunDir(out).result()["lost"] == [
        {"member": 1, "env_steps": 16, "reason": "value_loss is nan"}]
    assert jf.resume(out).lost == run.lost  # it stays so, with another end too
    longer = jf.resume(out, 192, tensorboard=False)
    assert longer.lost == run.lost and longer.env_steps == 192 and np.isfinite(
        longer.eval_return[[0, 2]]).all()
    with pytest.raises(NonFiniteError, match="value_loss is nan"):
        train(out=tmp_path / "stop", dependencies=broken)
    assert not (tmp_path / "stop" / "seed-7").exists()
    lost.update(SEEDS)
    with pytest.warns(UserWarning, match="is lost"), pytest.raises(NonFiniteError,
                                                                   match="no seed has a score"):
        train(on_nan="mark", dependencies=broken)


def test_an_error_in_a_seed_says_how_to_resume_all(tmp_path):
    out = tmp_path / "run"
    env = jf.make(f"gym:{tools.ID}", fault="raises", at=60)
    with pytest.raises(HostError,
        match=rf"motor burnt out.*--resume {out} or, from Python, jf.resume\('{out}'\)\)"):
        train(env=env, out=out)
    assert RunDir(out).resumable and (seed_folder(out, 5) / "checkpoints").is_dir()
    opens = []
    env = jf.make(f"gym:{tools.ID}", fault="raises", at=1)
    with pytest.raises(HostError, match="motor burnt out"):
        train(env=env, out=tmp_path / "first", hooks=[lambda *a: opens.append(a)])
    assert not opens


@pytest.mark.matrix("test_an_error_in_a_seed_says_how_to_resume_all")
def test_a_full_disk_in_a_later_seed_says_how_to_resume_all(tmp_path, monkeypatch):
    """The seed has no checkpoint yet: the seeds before it are whole, so nothing is started
    again."""
    out, write = tmp_path / "run", JsonlSink.write

    def full(sink, row):
        if sink.path == RunDir(seed_folder(out, 6)).metrics:
            raise WriteError(sink.path, OSError(28, "No space left on device"))
        return write(sink, row)

    monkeypatch.setattr(JsonlSink, "write", full)
    message = (
        rf"seed-6/metrics.jsonl: .*: once it can be written again, go on with .*--resume {out} or")
    with pytest.raises(RunError, match=message):
        train(out=out)
    assert (
        "which begins seed-6 anew" in describe_last_good(seed_folder(out, 6))
        and f"--resume {out} " in describe_last_good(seed_folder(out, 5))
    )
    monkeypatch.undo()
    assert jf.resume(out, tensorboard=False).over


def test_sinks_are_made_for_each_seed():
    class Kept(jf.Sink):
        def __init__(self, seed):
            self.seed, self.rows, self.closed = seed, [], 0

        def write(self, row):
            assert not self.closed
            self.rows.append(row)

        def close(self):
            self.closed += 1

    made = []
    train(seeds=2, sinks=lambda part: made.append(Kept(part.seed)) or made[-1:])
    assert [(sink.seed, len(sink.rows), sink.closed) for sink in made] == [(5, 8, 1), (6, 8, 1)]
    train(seeds=1, sinks=lambda part: made.append(Kept(part.seed)) or made[-1:])
    assert made[2].seed == 5 and len(made[2].rows) == 8


PRIOR = {"algo.learning_rate": "loguniform:1e-4,1e-2"}
RATES = {"algo.learning_rate": [1e-3, 1e-2]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(seeds=0), r"seeds must be .*from 1 .*got 0"),
        (dict(seeds=2.0), r"seeds must be an integer .*got 2\.0"),
        (dict(seed=2**32 - 1, seeds=2), r"seed must be at most"),
        (dict(sinks=[jf.Sink()]), r"sinks must be a function of a seed's RunConfig .*got 'Sink'"),
        (dict(population=RATES), r"population must be .*got .*one after another: `jf\.sweep"),
        (dict(selection=jf.PBT(PRIOR)), r"selection must be None, got 'pbt'.*one after another"),
        (dict(selection=jf.PBT(PRIOR), population=RATES, seeds=1),
         r"must be None, got .*: the environments are on the host"),
        (dict(mesh={"env": 2}), r"mesh must be None, got .*on the host"),
        (dict(devices=99), r"devices must be at most the .*got 99"),
        (dict(actors=3), r"actors must be at most num_envs = 2, got 3"),
        (dict(ahead=1, actors_on="nothing"), r"actors_on must be .*got 'nothing'"),
        (dict(keep_checkpoints=0), r"keep_checkpoints must be .*got 0"),
    ],
)
def test_bad_input_leaves_nothing(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message) as refused:
        train(out=tmp_path / "run", **settings)
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


def test_a_population_search_over_host_members_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="selection must be .*got 'pbt'"):
        jf.sweep(jf.PPO(**ALGO), jf.make(ENV), 128, selection=jf.PBT(PRIOR), members=4,
                 out=tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_the_plan_counts_one_seed(run_cli):
    one, three = (jf.plan(jf.PPO(**ALGO), jf.make(ENV), seeds=seeds) for seeds in (1, 3))
    assert one.need == three.need and three.population.size == 1
    code, out, err = run_cli("plan", "ppo", ENV, "--seeds", "3",
                             *(f for f in FLAGS if f != "--no-tensorboard"))
    assert code == 0 and "3 seeds train one after another: memory is for one seed" in out, err


@pytest.mark.matrix("test_each_seed_is_the_run_with_that_seed")
def test_seeds_in_turn_keep_settings_and_start_from(whole, tmp_path):
    settings = dict(actors=2, keep_checkpoints=1, eval_every=32, checkpoint_minutes=1e-9,
                    start_from=whole)
    run = train(seeds=2, out=tmp_path / "run", **settings)
    one = train(seeds=1, seed=6, start_from=whole.out.path, actors=2, eval_every=32)
    kept = [p
            for p in (tmp_path / "run" / "seed-6" / "checkpoints" / "last").iterdir()
            if p.name.isdigit()]
    assert len(kept) == 1 and run.eval_return[1] == one.eval_return[0]


@pytest.mark.matrix("test_each_seed_is_the_run_with_that_seed")
def test_replays_are_read_from_the_folder(tmp_path):
    algo = jf.DQN(num_envs=2, num_steps=2, batch_size=8, buffer_size=64, learning_starts=32,
                  hidden=(4,))
    env = jf.make(ENV, vectorization="sync")
    run = jf.train(algo, env, seeds=2, out=tmp_path / "run", **RUN | dict(eval_every=0))
    for member in range(2):
        found = jf.experience(run, member)
        alone = jf.experience(seed_folder(tmp_path / "run", member))
        assert all(np.array_equal(x, y)
                   for x, y in zip(*map(jax.tree.leaves, (found.store, alone.store)), strict=True))
    run.out = None
    with pytest.raises(ConfigError, match="keep no replay in memory"):
        jf.experience(run)


def test_the_rate_of_all_is_all_steps_over_all_seconds():
    assert overall_rate([(1_000, 100.0), (100_000, 1_000.0)]) == pytest.approx(101_000 / 110)
    assert overall_rate([(10, 5.0), (10, np.nan)]) == 5 and np.isnan(overall_rate([]))


def test_rows_side_by_side():
    row = lambda steps, wall, rate, **metrics: Row(steps, wall, rate,
                                                   {k: np.float32([v]) for k, v in metrics.items()})
    found = (
        side_by_side([[row(8, 1.0, 10.0, a=1.0), row(16, 2.0, 10.0, a=2.0, b=3.0)], [
            row(8, 3.0, 30.0, a=4.0)], []])
    )
    assert [(r.env_steps, r.wall_seconds) for r in found] == [(8, 4.0), (16, 5.0)]
    assert (
        found[0].steps_per_second == pytest.approx(2 / (1 / 10 + 1 / 30))
        and found[1].steps_per_second == 10
    )
    np.testing.assert_array_equal(found[0].metrics["a"], [1, 4, np.nan])
    np.testing.assert_array_equal(found[1].metrics["b"], [3, np.nan, np.nan])
    assert "b" not in found[0].metrics and found[0].metrics["a"].dtype == np.float32
    assert side_by_side([[], []]) == []
