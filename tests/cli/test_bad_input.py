"""Bad input: one short line that names the argument, the value and what is valid; exit code 2;
nothing written.

Every row is run through the command line in this process, in an empty folder, beside a real tiny
run `{run}` that must stay as it is byte for byte. A row may damage a copy of that run first.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast.cli import command as cli
from jaxrl_fast.envs.host import envpool_adapter
from jaxrl_fast.envs.physics import brax_adapter
from jaxrl_fast.envs.probes.spaces import Continuous, DictObservation
from jaxrl_fast.errors import UserError

TINY = "--algo.num-envs 4 --algo.num-steps 16 --algo.hidden 8 --eval-episodes 4 --no-tensorboard"
PPO, DQN = "train ppo CartPole-v1", "train dqn CartPole-v1"
SAC, TD3, TQC = "train sac Pendulum-v1", "train td3 Pendulum-v1", "train tqc Pendulum-v1"
CROSSQ = "train crossq Pendulum-v1"


@dataclasses.dataclass
class Row:
    name: str
    line: str  # {run}: a copy of a real run; {file}: a file; {folder}: an empty folder
    says: tuple[str, ...]
    damage: Callable[[Path], None] | None = None  # done to the copy first
    patch: Callable[[pytest.MonkeyPatch], None] | None = None


HAS_ENVPOOL = envpool_adapter.SOURCE.installed()


def row(name, line, *says, damage=None, patch=None):
    return pytest.param(Row(name, line, says, damage, patch), id=name.replace(" ", "-"))


def config(**changes):
    """Damage: change keys of config.json; a dotted key goes into it."""

    def damage(run: Path):
        file = run / "config.json"
        content = json.loads(file.read_text())
        for key, value in changes.items():
            *path, last = key.split("__")
            part = content
            for name in path:
                part = part[name]
            if value is None:
                del part[last]
            else:
                part[last] = value
        file.write_text(json.dumps(content))

    return damage


def text(name: str, content: str):
    return lambda run: (run / name).write_text(content)


def truncate(which: str):
    """Damage: cut every file of a checkpoint in half."""

    def damage(run: Path):
        for file in (run / "checkpoints" / which).rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return damage


def drop_arrays(run: Path):
    for folder in (run / "checkpoints" / "last").glob("*/state/d"):
        shutil.rmtree(folder)


def drop_meta(run: Path):
    for folder in (run / "checkpoints" / "last").glob("*/meta"):
        shutil.rmtree(folder)


def no_checkpoints(run: Path):
    shutil.rmtree(run / "checkpoints")


def damaged_line(run: Path):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], "{ not json", *lines[1:]]) + "\n")


def no_wandb(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)


def without(package):
    """A patch: the library of a source is not installed."""
    return lambda monkeypatch: monkeypatch.setitem(sys.modules, package, None)


no_gymnax, no_brax, no_playground = map(without, ("gymnax", "brax", "mujoco_playground"))
no_gymnasium, no_ale = map(without, ("gymnasium", "ale_py"))


def broken_brax(monkeypatch):
    brax_adapter._envs.cache_clear()
    brax_adapter.about.cache_clear()
    monkeypatch.setitem(sys.modules, "brax.envs", None)


def no_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)


def thresholds(monkeypatch):
    """An environment whose reward depends on the action by a threshold alone."""
    from jaxrl_fast.envs.probes.spaces import Continuous

    @jf.settings
    class Thresholds(Continuous):
        @property
        def spec(self):
            return dataclasses.replace(super().spec, name="test/thresholds")

        def _reward(self, obs, action):
            return action[:, 0] > obs[:, 0]

    jf.register("test/thresholds", Thresholds)


TABLE = [
    # names
    row("unknown command", "trian ppo CartPole-v1", "command must be ", "got 'trian'",
        "train, sweep, plan, forecast,",
        "mean 'train'"),
    row("unknown algorithm", "train pppo CartPole-v1", "algorithm must be ", "got 'pppo'",
        "ppo, dqn", "did you mean 'ppo'"),
    row("unknown environment", "train ppo CartPol-v1", "environment must be ", "got 'CartPol-v1'",
        "did you mean 'CartPole-v1'"),
    row("unknown environment of gymnax", "train ppo gymnax:Breakout", "'gymnax:Breakout'",
        "did you mean 'gymnax:Breakout-MinAtar'"),
    row("algorithm and environment swapped", "train CartPole-v1 ppo", "train ppo CartPole-v1",
        "ALGO must be an algorithm, which comes first, got 'CartPole-v1'"),
    row("no algorithm", "train", "train ppo CartPole-v1"),
    row("no environment", "train ppo", "ENV must be an environment, got none"),
    row("names after a group", "train --algo.num-envs 4 ppo CartPole-v1", "ALGO ENV must be",
        "both come before --algo."),
    row("one name after a group", "train ppo --env.stack 2 CartPole-v1", "ENV must be ",
        "both come before --algo."),
    row("unknown flag", f"{PPO} --total-step 100", "flag must be ", "got '--total-step'",
        "did you mean '--total-steps'"),
    row("unknown algorithm flag", f"{PPO} --algo.learning-rat 1", "'--algo.learning-rat'",
        "'--algo.learning-rate'"),
    row("flag without its group", f"{PPO} --learning-rate 1", "'--learning-rate'",
        "mean '--algo.learning-rate'"),
    row("flag of another algorithm", f"{PPO} --algo.buffer-size 9", "'--algo.buffer-size'",
        "--help"),
    row("unknown environment flag", f"{PPO} --env.max-steps 9", "'--env.max-steps'",
        "'--env.max-steps-in-episode'"),
    row("a sweep's flag of train", "sweep ppo CartPole-v1 --no-tensorboard", "'--no-tensorboard'",
        "--no-tensorboard is a flag of `jaxrl-fast train`"),
    row("a flag of train, misspelled", "sweep ppo CartPole-v1 --no-tensorbord",
        "--no-tensorboard is a flag of"),
    row("a resume's flag of new runs", "train --resume {run} --seeds 3",
        "a resumed run keeps its settings"),
    row("a flag of eval", f"{PPO} --episodes 3", "--episodes is a flag of `jaxrl-fast eval`"),
    row("a flag that no command has", "plot {run} --title x", "got '--title'\n"),
    row("unknown flag of eval", "eval {run} --episode 3", "'--episode'",
        "did you mean '--episodes'"),
    row("flag without a value", f"{PPO} --seed",
        "--seed must be given a value, got none: --seed INT", "--help"),
    row("stray word", f"{PPO} Pendulum-v1", "argument must be a flag", "got 'Pendulum-v1'",
        "--help"),
    # worlds that are not for this algorithm, or not there
    row("continuous actions for dqn", "train dqn Pendulum-v1", "environment must be ",
        "got 'Pendulum-v1'",
        "dqn needs Discrete"),
    *(row(f"continuous actions for {name}", f"train {name} Pendulum-v1", f"{name} needs Discrete")
      for name in ("c51", "qr_dqn", "iqn", "rainbow", "apex", "pqn")),
    row("environments of impala's minibatches",
        "train impala CartPole-v1 --algo.num-envs 6 --algo.num-minibatches 4",
        "num_minibatches must be ", "got 4", "(whole environments are shuffled) = 6"),
    row("ratios of impala", "train impala CartPole-v1 --algo.rho-bar 0", "rho_bar must be ",
        "got 0", "(0, "),
    row("apex without priorities", "train apex CartPole-v1 --algo.no-prioritized",
        "prioritized must be ", "got False",
        "dqn can do without"),
    row("passes of a2c", "train a2c CartPole-v1 --algo.num-epochs 4", "'--algo.num-epochs'",
        "--help"),
    row("discrete actions for apg", "train apg CartPole-v1", "environment must be ",
        "got 'CartPole-v1'",
        "apg needs Box actions"),
    row("more than all directions", "train ars CartPole-v1 --algo.top-directions 17",
        "top_directions must be ", "got 17",
        "directions = 16"),
    row("no noise", "train es CartPole-v1 --algo.noise-std 0", "noise_std must be ", "got 0",
        "(0, "),
    row("environments of candidates", "train es CartPole-v1 --algo.num-envs 8", "'--algo.num-envs'",
        "--help"),
    row("no gradient for apg", "train apg test/thresholds", "environment must be ",
        "got 'test/thresholds'",
        "smoothly on the action",
        patch=thresholds),
    row("unknown environment of brax", "train ppo brax/antt", "environment must be ",
        "got 'brax/antt'",
        "did you mean 'brax/ant'"),
    row("brax that is broken upstream", "train ppo brax/swimmer", "environment must be ",
        "got 'brax/swimmer'",
        "is broken in brax"),
    row("unknown backend", "train ppo brax/ant --env.backend sprin", "env.backend must be ",
        "got 'sprin'",
        "did you mean 'spring'"),
    row("unknown flag of brax", "train ppo brax/ant --env.ctrl-cost 1", "'--env.ctrl-cost'",
        "'--env.ctrl-cost-weight'"),
    row("unknown physics", "train ppo brax/ant --env.randomize mass=1:2", "env.randomize must be ",
        "got 'mass'",
        "link.inertia.mass"),
    row("masses to the power 0", "train ppo brax/ant --env.randomize link.inertia.mass=1:2",
        "env.randomize must be ", "got 'link.inertia.mass'", "--env.backend generalized, or mjx"),
    row("physics without a range", "train ppo brax/ant --env.randomize gravity=2",
        "env.randomize must be ", "got 'gravity=2'",
        "1.5"),
    row("unknown resets", "train ppo brax/ant --env.resets cached", "env.resets must be ",
        "got 'cached'",
        "'pool', 'every_step'"),
    row("missing brax", "train ppo brax/ant", "environment must be ", "got 'brax/ant'",
        "pip install 'brax", patch=no_brax),
    row("broken brax", "train ppo brax/ant", "environment must be ", "got 'brax/ant'",
        "pip install 'brax", "halted",
        patch=broken_brax),
    row("extra playground", "train ppo playground/PointMass", "'playground/PointMass'",
        "pip install 'jaxrl_fast[playground]'", patch=no_playground),
    *(row(f"discrete actions for {name}", f"train {name} CartPole-v1", "environment must be ",
          "got 'CartPole-v1'",
        f"{name} needs Box")
      for name in ("sac", "td3", "tqc", "crossq")),
    row("stacked frames with statistics", f"{SAC} --algo.normalize-observations --env.stack 2",
        "normalize_observations must be ", "got True", "False with stacked frames"),
    row("gym", "train ppo gym:CartPol-v1", "environment must be ", "got 'gym:CartPol-v1'",
        "did you mean 'gym:CartPole-v1'"),
    row("envpool", "train ppo envpool:Pnog-v5", "environment must be ", "got 'envpool:Pnog-v5'",
        "nvPool" if HAS_ENVPOOL else "[envpool]"),
    row("ale", "train dqn ale:pnog", "environment must be ", "got 'ale:pnog'",
        "did you mean 'ale:Pong'"),
    row("gym, seeds on a mesh", "train ppo gym:CartPole-v1 --seeds 3 --mesh env=2", "mesh",
        "on the host"),
    row("gym, seeds and actors", "train ppo gym:CartPole-v1 --seeds 3 --actors 99",
        "actors must be ", "got 99", "num_envs"),
    row("gym, more actors than environments", "train ppo gym:CartPole-v1 --actors 99",
        "actors must be ", "got 99", "num_envs"),
    row("gym, compiled plan", "plan ppo gym:CartPole-v1 --compile", "--compile", "on the host"),
    row("gym, a mesh", "train ppo gym:CartPole-v1 --mesh env=2", "mesh", "on the host"),
    row("gym, action repeat", "train ppo gym:CartPole-v1 --env.action-repeat 2",
        "env.action_repeat must be ", "got 2",
        "own settings"),
    row("gym, no such module", "train ppo gym:nowhere:Env-v0", "environment must be ",
        "got 'gym:nowhere:Env-v0'", "module"),
    row("extra ray", "train ppo gym:CartPole-v1 --actors-on ray", "actors_on = 'ray'",
        "pip install 'jaxrl_fast[ray]'",
        patch=no_ray),
    row("extra gymnasium", "train ppo gym:CartPole-v1", "gym:CartPole-v1",
        "pip install 'jaxrl_fast[gymnasium]'",
        patch=no_gymnasium),
    row("extra atari", "train ppo ale:Pong", "ale:Pong", "pip install 'jaxrl_fast[atari]'",
        patch=no_ale),
    row("gym, a2c ahead", "train a2c gym:CartPole-v1 --ahead 1", "ahead must be ", "got 1",
        ": a2c learns from its own",
        "impala"),
    *(row(f"{flag} on the device", f"train dqn CartPole-v1 --{flag} {value}",
          f"{flag.replace('-', '_')} must be ",
        "is on the device")
      for flag, value in (("actors", 4), ("actors-on", "ray"), ("ahead", 1), ("host-timeout", 5),
                          ("restarts", 4))),
    *(row(f"envpool {setting} {value}", f"train ppo envpool:Pong-v5 --env.{setting} {value}", *says)
      for setting, value, *says in (
          ("img-height", -3, "'img_height': -3", "settings that EnvPool takes for Pong-v5"),
          ("noop-max", "x", "noop-max"),
          ("noop-max", 2.5, "env.noop_max must be ", "got 2.5", "an integer"),
      ) if HAS_ENVPOOL),
    row("unroll", "train ppo CartPole-v1 --unroll 0", "unroll must be ", "got 0", "from 1 to"),
    row("MNISTBandit", "train ppo MNISTBandit-bsuite", "environment must be ",
        "got 'MNISTBandit-bsuite'", "download"),
    row("extra gymnax", "train ppo Catch-bsuite", "Catch-bsuite", "pip install", patch=no_gymnax),
    row("extra wandb", f"{PPO} --wandb", "wandb", "pip install 'jaxrl_fast[wandb]'",
        patch=no_wandb),
    row("log wandb", f"{PPO} --log wandb:p", "wandb", "pip install 'jaxrl_fast[wandb]'",
        patch=no_wandb),
    row("log kind", f"{PPO} --log neptune:x", "--log",
        "jsonl:PATH, csv:PATH, tensorboard[:DIR], wandb[:PROJECT]"),
    # modules of the user
    row("import of nothing", f"{PPO} --import no_such_module", "--import must be ",
        "got 'no_such_module'", "can be imported"),
    row("import that fails", f"{PPO} --import {{file}}", "--import", "SyntaxError"),
    # sizes
    row("minibatches do not divide", f"{PPO} --algo.num-minibatches 7", "num_minibatches must be ",
        "got 7",
        "num_envs * num_steps"),
    row("no environments", f"{PPO} --algo.num-envs 0", "num_envs must be ", "got 0", "from 1"),
    row("negative steps", f"{PPO} --algo.num-steps -5", "num_steps must be ", "got -5", "from 1"),
    row("huge environments", f"{PPO} --algo.num-envs 1e12", "num_envs must be ",
        "got 1000000000000", "2147483647"),
    row("huge rollout", f"{PPO} --algo.num-envs 2e9 --algo.num-steps 64", "num_envs * num_steps",
        "2147483647"),
    row("no epochs", f"{PPO} --algo.num-epochs 0", "num_epochs must be ", "got 0", "from 1"),
    row("a size that is no number", f"{PPO} --algo.num-envs many", "--algo.num-envs must be ",
        "got 'many'", "an integer"),
    row("a size that is no integer", f"{PPO} --algo.num-envs 2.5", "--algo.num-envs must be ",
        "got '2.5'", "an integer"),
    row("layer of width 0", f"{PPO} --algo.hidden 64 0", "hidden must be ", "got (64, 0)",
        "positive integers"),
    row("layer that is no number", f"{PPO} --algo.hidden 64 wide", "--algo.hidden must be ",
        "got 'wide'", "an integer"),
    row("batch of 0", f"{DQN} --algo.batch-size 0", "batch_size must be ", "got 0", "from 1"),
    row("buffer too small", f"{DQN} --algo.buffer-size 8 --algo.num-envs 8", "buffer_size must be ",
        "got 8", "at least 16"),
    row("window longer than the buffer", f"{DQN} --algo.n-step 99999", "buffer_size must be ",
        "got 100000", "at least 800000",
        "n_step"),
    row("window as long as the buffer",
        f"{DQN} --algo.n-step 8 --algo.buffer-size 8 --algo.num-envs 1 --algo.batch-size 4",
        "buffer_size must be ", "got 8", "at least 9", "n_step"),
    row("batch above the buffer", f"{DQN} --algo.batch-size 65 --algo.buffer-size 64",
        "batch_size must be ", "got 65",
        "at most 64", "whole blocks"),
    row("one atom", "train c51 CartPole-v1 --algo.num-atoms 1", "num_atoms must be ", "got 1",
        "from 2"),
    row("one atom of rainbow", "train rainbow CartPole-v1 --algo.num-atoms 1", "num_atoms must be ",
        "got 1", "from 2"),
    row("no quantiles", "train qr_dqn CartPole-v1 --algo.num-quantiles 0", "num_quantiles must be ",
        "got 0", "from 1"),
    row("no fractions", "train iqn CartPole-v1 --algo.num-fractions 0", "num_fractions must be ",
        "got 0", "from 1"),
    row("all quantiles dropped", f"{TQC} --algo.drop-quantiles 25", "drop_quantiles must be ",
        "got 25",
        "below num_quantiles = 25"),
    row("negative dropped quantiles", f"{TQC} --algo.drop-quantiles -1", "drop_quantiles must be ",
        "got -1", "from 0"),
    row("no critics", f"{SAC} --algo.num-critics 0", "num_critics must be ", "got 0", "from 1"),
    row("no policy period", f"{SAC} --algo.policy-period 0", "policy_period must be ", "got 0",
        "from 1"),
    row("batch of sac above the buffer", f"{SAC} --algo.batch-size 257 --algo.buffer-size 256",
        "batch_size must be ",
        "got 257",
        "at most 256", "whole blocks"),
    row("pqn minibatches do not divide", "train pqn CartPole-v1 --algo.num-minibatches 7",
        "num_minibatches must be ", "got 7",
        "num_envs * num_steps"),
    row("no steps", f"{PPO} --total-steps 0", "total_steps must be ", "got 0", "from 1"),
    row("negative total", f"{PPO} --total-steps -5e5", "total_steps must be ", "got -500000",
        "from 1"),
    row("total is NaN", f"{PPO} --total-steps nan", "--total-steps must be ", "got 'nan'", "5e5"),
    row("total is huge", f"{PPO} --total-steps 1e30", "total_steps must be ", "got 1",
        "from 1 to 9007199254740992"),
    row("total overflows counters", f"{PPO} --total-steps 9e15", "total_steps must be ",
        "got 9000000000000000", "at most",
        "int32"),
    row("total overflows the rows", f"{DQN} --algo.num-steps 64 --total-steps 2e10",
        "total_steps must be ", "got 20000000000",
        "at most 17,179,869,184", "the rows of an environment are int32"),
    row("total is half a step", f"{PPO} --total-steps 0.5", "--total-steps must be ", "got '0.5'",
        "an integer"),
    row("a rate that no float holds", f"{PPO} --algo.learning-rate 1e-400000",
        "learning-rate must be ", "got '1e-400000'", "at least 1e-323"),
    row("a seed that no float holds", f"{PPO} --seed 1e-400000", "seed must be ",
        "got '1e-400000'", "at least 1e-323"),
    row("no seeds", f"{PPO} --seeds 0", "seeds must be ", "got 0", "from 1"),
    row("huge seeds", f"{PPO} --seeds 1e9", "seeds must be ", "got 1000000000", "1000000"),
    row("negative seed", f"{PPO} --seed -1", "seed must be ", "got -1", "from 0"),
    row("seed overflows", f"{PPO} --seed 4294967295 --seeds 2", "seed must be ", "got 4294967295",
        "with seeds = 2"),
    row("no evaluation episodes", f"{PPO} --eval-episodes 0", "eval_episodes must be ", "got 0",
        "from 1"),
    row("negative evaluation interval", f"{PPO} --eval-every -1", "eval_every must be ", "got -1",
        "from 0"),
    row("no log interval", f"{PPO} --log-every 0", "log_every must be ", "got 0", "from 1"),
    row("no horizon", f"{PPO} --horizon 0", "horizon must be ", "got 0", "from 1"),
    # numbers and choices
    row("learning rate NaN", f"{PPO} --algo.learning-rate nan", "learning_rate must be ", "got nan",
        "a finite number"),
    row("learning rate infinite", f"{PPO} --algo.learning-rate inf", "learning_rate must be ",
        "got inf", "a finite number"),
    row("learning rate negative", f"{PPO} --algo.learning-rate -1e-3", "learning_rate must be ",
        "got -0.001", "[0, inf)"),
    row("learning rate no number", f"{PPO} --algo.learning-rate fast",
        "--algo.learning-rate must be ", "got 'fast'",
        "a number"),
    row("discount above 1", f"{PPO} --algo.discount 1.5", "discount must be ", "got 1.5", "[0, 1]"),
    row("rate 0 in float32", f"{PPO} --algo.learning-rate 1e-50", "learning_rate must be ",
        "got 1e-50", "0, or at least 1.2e-38 in size", "; in float32 this is 0"),
    row("gravity 0 in float32", "train ppo Pendulum-v1 --env.g 1e-50", "env.g must be ",
        "got 1e-50", "0, or at least 1.2e-38 in size", "; in float32 this is 0"),
    row("clip ratio 0", f"{PPO} --algo.clip-ratio 0", "clip_ratio must be ", "got 0", "(0, inf)"),
    row("epsilon above 1", f"{DQN} --algo.epsilon-end 2", "epsilon_end must be ", "got 2",
        "[0, 1]"),
    row("support upside down", "train c51 CartPole-v1 --algo.v-min 1 --algo.v-max -1",
        "v_min must be ", "got 1",
        "below v_max = -1"),
    row("support of a point", "train rainbow CartPole-v1 --algo.v-min 100", "v_min must be ",
        "got 100", "below v_max = 100"),
    row("support NaN", "train c51 CartPole-v1 --algo.v-max nan", "v_max must be ", "got nan",
        "a finite number"),
    row("alpha above 1", f"{DQN} --algo.prioritized --algo.priority-exponent 1.5",
        "priority_exponent must be ", "got 1.5",
        "[0, 1]"),
    row("alpha below 0", f"{DQN} --algo.prioritized --algo.priority-exponent -0.1",
        "priority_exponent must be ", "got -0.1",
        "[0, 1]"),
    row("beta above 1", f"{DQN} --algo.prioritized --algo.importance-exponent 2",
        "importance_exponent must be ", "got 2",
        "[0, 1]"),
    row("beta below 0", f"{DQN} --algo.prioritized --algo.importance-exponent -1",
        "importance_exponent must be ", "got -1",
        "[0, 1]"),
    row("beta NaN", f"{DQN} --algo.prioritized --algo.importance-exponent nan",
        "importance_exponent must be ", "got nan",
        "a finite"),
    row("priority epsilon 0 in float32", f"{DQN} --algo.prioritized --algo.priority-epsilon 1e-50",
        "priority_epsilon must be ",
        "got 1e-50",
        "(0, inf)", "; in float32 this is 0"),
    row("kappa 0 in float32", f"{TQC} --algo.kappa 1e-50", "kappa must be ", "got 1e-50",
        "(0, inf)", "; in float32 this is 0"),
    row("atoms of one value in float32",
        "train c51 CartPole-v1 --algo.v-min 1e8 --algo.v-max 100000001", "v_min must be ",
        "got 100000000",
        "farther below v_max = 100000001", "float32"),
    row("priority epsilon 0", f"{DQN} --algo.prioritized --algo.priority-epsilon 0",
        "priority_epsilon must be ", "got 0",
        "(0, inf)"),
    row("munchausen over three steps", f"{DQN} --algo.munchausen --algo.n-step 3",
        "n_step must be ", "got 3",
        "1 with munchausen"),
    row("munchausen with c51", "train c51 CartPole-v1 --algo.munchausen", "munchausen must be ",
        "got True", "False", "c51"),
    row("munchausen with rainbow", "train rainbow CartPole-v1 --algo.munchausen --algo.n-step 1",
        "munchausen must be ",
        "got True"),
    row("lambda above 1", "train pqn CartPole-v1 --algo.return-lambda 1.5",
        "return_lambda must be ", "got 1.5", "[0, 1]"),
    row("targets that never move", f"{SAC} --algo.target-tau 0", "target_tau must be ", "got 0",
        "(0, 1]"),
    row("targets that overshoot", f"{SAC} --algo.target-tau 1.5", "target_tau must be ", "got 1.5",
        "(0, 1]"),
    row("temperature 0", f"{SAC} --algo.initial-temperature 0", "initial_temperature must be ",
        "got 0", "(0, inf)"),
    row("target entropy NaN", f"{SAC} --algo.target-entropy nan", "target_entropy must be ",
        "got nan", "a finite number"),
    row("negative exploration noise", f"{TD3} --algo.exploration-noise -0.1",
        "exploration_noise must be ", "got -0.1",
        "[0, inf)"),
    row("negative target noise", f"{TD3} --algo.target-noise -0.1", "target_noise must be ",
        "got -0.1", "[0, inf)"),
    row("kappa 0 of tqc", f"{TQC} --algo.kappa 0", "kappa must be ", "got 0", "(0, inf)"),
    row("momentum above 1", "train crossq Pendulum-v1 --algo.norm-momentum 1.1",
        "norm_momentum must be ", "got 1.1", "[0, 1)"),
    row("target return NaN", f"{PPO} --target-return nan", "target_return must be ", "got nan",
        "a finite number"),
    row("checkpoint minutes 0", f"{PPO} --checkpoint-minutes 0", "checkpoint_minutes must be ",
        "got 0", "(0, inf)"),
    row("evaluation mode", f"{PPO} --eval-mode best", "eval_mode must be ", "got 'best'",
        "'greedy', 'sample'"),
    row("batching", f"{PPO} --batching pmap", "batching must be ", "got 'pmap'", "'vmap'",
        "did you mean"),
    row("mesh", f"{PPO} --mesh env=two", "--mesh must be ", "got 'env=two'", "population=4,env=2"),
    row("mesh axis", f"{PPO} --mesh rows=2", "--mesh must be ", "got 'rows=2'",
        "population=4,env=2"),
    row("devices", f"{PPO} --devices many", "--devices must be ", "got 'many'", "or all"),
    *(row(f"mesh of {name}", f"train {name} Pendulum-v1 --mesh env=2", "mesh env must be ", "got 2",
        f": {name} compares or differentiates whole",
          "population=N") for name in ("apg", "ars", "es")),
    row("groups of apg", "train apg Pendulum-v1 --groups 2", "groups must be ", "got 2",
        ": apg compares"),
    row("more devices", f"{PPO} --devices 512", "devices must be ", "got 512", "at most",
        "host_platform_device_count"),
    row("groups", f"{PPO} --groups 3", "groups must be ", "got 3", "num_envs"),
    row("on NaN", f"{PPO} --on-nan ignore", "on_nan must be ", "got 'ignore'", "'mark'"),
    row("sweep of nothing", "sweep ppo CartPole-v1",
        "sweep must be given settings to compare, got none"),
    row("more members than a sweep can read back, in two programs",
        "sweep ppo CartPole-v1 --grid algo.num-steps=8,16 --seeds 600000", "seeds must be ",
        "got 600000", "at most 500,000 with 2 configurations"),
    row("grid value NaN", "sweep ppo CartPole-v1 --grid algo.learning-rate=nan,1",
        "learning_rate must be ", "got nan"),
    row("start from nowhere", f"{PPO} --start-from nothere", "start_from must be ",
        "here/nothere'"),
    row("sweep from nowhere", "sweep ppo CartPole-v1 --grid algo.discount=0.9,0.99 "
        "--start-from nothere", "start_from must be ", "here/nothere'"),
    row("start from another network", f"{PPO} --start-from {{run}} --algo.hidden 4",
        "start_from.params", "float32"),
    row("sweep of an unknown setting", "sweep ppo CartPole-v1 --grid algo.learning-rat=1",
        "algo.learning-rat", "did you mean"),
    row("resume of no sweep", "sweep --resume {folder}", "--resume must be ", "sweep.json"),
    row("network", f"{PPO} --algo.network cnnn", "network must be ", "got 'cnnn'",
        "did you mean 'cnn'"),
    row("network that does not fit", f"{PPO} --algo.network cnn", "network must be 'mlp'",
        "got 'cnn'"),
    row("network of no module", f"{PPO} --algo.network no_nets:Net", "algo.network must be ",
        "got 'no_nets'",
        "imported from here"),
    row("network of a broken module", f"{PPO} --algo.network broken:Net", "algo.network must be ",
        "got 'broken'",
        "SyntaxError"),
    row("network with a wrong name", f"{PPO} --algo.network jaxrl_fast.networks:MPL", "a name in",
        "did you mean 'MLP'"),
    row("network that is none", f"{PPO} --algo.network json:loads", "algo.network must be ",
        "got 'json:loads'",
        "Python's own"),
    row("network that is a function", f"{PPO} --algo.network optax:adam", "'optax:adam'",
        "flax.linen.Module"),
    row("network that needs fields", f"{PPO} --algo.network jaxrl_fast.networks:MLP",
        "fields have defaults", "'space'"),
    row("activation", f"{PPO} --algo.activation tan", "activation must be ", "got 'tan'",
        "did you mean 'tanh'"),
    row("episode limit 0", f"{PPO} --env.max-steps-in-episode 0",
        "env.max_steps_in_episode must be ", "got 0", "from 1"),
    row("episode limit half", f"{PPO} --env.max-steps-in-episode 2.5",
        "env.max_steps_in_episode must be ", "got 2.5",
        "integer"),
    row("gravity NaN", f"{PPO} --env.gravity nan", "env.gravity must be ", "got nan",
        "a finite number"),
    row("stack 0", f"{PPO} --env.stack 0", "env.stack must be ", "got 0", "from 1"),
    row("always sticky", f"{PPO} --env.sticky-actions 1", "env.sticky_actions must be ", "got 1",
        "[0, 1)"),
    row("reward clip", f"{PPO} --env.reward-clip -1", "env.reward_clip must be ", "got -1",
        "(0, inf)"),
    row("time limit is text", f"{PPO} --env.time-limit long", "env.time_limit must be ",
        "got 'long'", "an integer"),
    row("gymnax setting", "train ppo Catch-bsuite --env.rows 0", "env.rows must be ", "got 0",
        "from 1"),
    row("standard deviations upside down", f"{SAC} --algo.log-std-min 3 --algo.log-std-max -1",
        "log_std_min must be ", "got 3",
        "log_std_max = -1"),
    row("noise that never changes", f"{TD3} --algo.noise-correlation 1",
        "noise_correlation must be ", "got 1", "[0, 1)"),
    *(row(f"no reward for {name}", f"train {name} CartPole-v1 --algo.reward-scale 0",
          "reward_scale must be ", "got 0",
        "other than zero")
      for name in ("ppo", "a2c", "impala")),
    row("no reward", f"{SAC} --algo.reward-scale 0", "reward_scale must be ", "got 0",
        "other than zero"),
    row("momentum 1", f"{CROSSQ} --algo.norm-momentum 1", "norm_momentum must be ", "got 1",
        "[0, 1)"),
    row("beta 1", f"{CROSSQ} --algo.adam-beta 1", "adam_beta must be ", "got 1", "[0, 1)"),
    row("targets of crossq", f"{CROSSQ} --algo.target-tau 0.05", "target_tau must be ", "got 0.05",
        "no target networks"),
    row("layer norm of crossq", f"{CROSSQ} --algo.layer-norm", "layer_norm must be ", "got True",
        "batch normalisation"),
    row("negative mass", "train ppo brax/ant --env.randomize link.inertia.mass=-1:1",
        "env.randomize must be ", "above 0"),
    row("range that is none", "train ppo brax/ant --env.healthy-z-range 1.0 0.2",
        "env.healthy_z_range must be ",
        "got (1, 0.2)", "lower"),
    row("range with NaN", "train ppo brax/ant --env.healthy-z-range nan 1",
        "env.healthy_z_range must be ", "got (nan, 1)",
        "lower"),
    # the run directory
    row("out holds a run", f"{PPO} --out {{run}}", "out must be ", "run", "new or empty",
        "--resume"),
    row("out is a file", f"{PPO} --out {{file}}", "out must be ", "new or empty"),
    row("out below a file", f"{PPO} --out {{file}}/x", "out must be ", "can be written"),
    # config.json
    row("config missing", "train --config nowhere.json", "config must be ", "got 'nowhere.json'",
        "an existing config.json"),
    row("config of a folder without one", "train --config {folder}", "config must be ",
        "an existing config.json"),
    row("config is not JSON", "train --config {file}", "config must be ", "damaged"),
    row("config cut short", "train --config {run}", "config", "damaged",
        damage=text("config.json", '{"format": 1, ')),
    row("config empty", "train --config {run}", "config", "damaged",
        damage=text("config.json", "")),
    row("config of another program", "train --config {run}", "of jaxrl_fast",
        damage=text("config.json", '{"lr": 1}')),
    row("config is a list", "train --config {run}", "of jaxrl_fast",
        damage=text("config.json", "[1, 2]")),
    row("config of another format", "train --config {run}", "format 2", "99",
        damage=config(format=99)),
    row("config with an unknown algorithm", "train --config {run}", "algorithm", "'zzz'",
        damage=config(algorithm={"name": "zzz", "settings": {}})),
    row("config with an unknown environment", "train --config {run}", "environment must be ",
        "got 'Gone-v0'",
        damage=config(environment__name="Gone-v0")),
    row("config with an unknown setting", "train --config {run}",
        "algo.lr must be a setting of ppo", "got 1",
        damage=config(algorithm__settings__lr=1)),
    row("config with a bad setting", "train --config {run}", "num_envs must be ", "got 'x'",
        "an integer",
        damage=config(algorithm__settings__num_envs="x")),
    row("config with an unknown run setting", "train --config {run}", "run.stepz must be ", "got 1",
        damage=config(run__stepz=1)),
    row("config without settings", "train --config {run}", "algorithm.settings is",
        damage=config(algorithm__settings=None)),
    row("config whose run is a list", "train --config {run}", "run is a list",
        damage=config(run=[1])),
    row("config with bad imports", "train --config {run}", "imports is an integer", "not a list",
        damage=config(imports=5)),
    row("config whose import is gone", "train --config {run}", "--import gone_module",
        damage=config(imports=["gone_module"])),
    row("config with an algorithm of a script", "train --config {run}", "algorithm must be ",
        "got '__main__:Mine'",
        "module of its own",
        damage=config(algorithm__name="mine", algorithm__class="__main__:Mine")),
    row("config with another class of this name", "train --config {run}", "algorithm must be ",
        "got 'json:Mine'",
        "Python's own",
        damage=config(algorithm__class="json:Mine")),
    row("config with a class that is no algorithm", "train --config {run}", "algorithm must be ",
        "got 'flax.linen:Dense'",
        "subclass",
        damage=config(algorithm__class="flax.linen:Dense")),
    row("config with a network of a script", "train --config {run}", "algo.network must be ",
        "got '__main__:Net'",
        "module of its own",
        damage=config(algorithm__settings__network={"class": "__main__:Net", "fields": {}})),
    row("config beside an algorithm", "train ppo CartPole-v1 --config {run}",
        "ALGO ENV must be left out, got 'ppo CartPole-v1'"),
    # resume
    row("resume nothing", "train --resume nowhere", "--resume must be ", "got 'nowhere'",
        "an existing run directory"),
    row("resume without a run", "train --resume", "--resume", "--help"),
    row("resume a folder", "train --resume {folder}", "config must be ", "an existing config.json"),
    row("resume with a flag of new runs", "train --resume {run} --seed 3", "'--seed'",
        "train --resume --help"),
    row("resume beside an algorithm", "train ppo CartPole-v1 --resume {run}",
        "ALGO ENV must be left out, got 'ppo CartPole-v1'"),
    row("resume to fewer steps", "train --resume {run} --total-steps 64", "total_steps must be ",
        "got 64", "that are done"),
    row("resume with horizon 0", "train --resume {run} --horizon 0", "horizon must be ", "got 0",
        "from 1"),
    row("resume without a checkpoint", "train --resume {run}", "--resume must be ", "a checkpoint",
        damage=no_checkpoints),
    row("resume a damaged checkpoint", "train --resume {run} --total-steps 2000",
        "checkpoint must be ", "whole checkpoint",
        damage=truncate("last")),
    row("resume a checkpoint without arrays", "train --resume {run} --total-steps 2000",
        "checkpoint must be ",
        damage=drop_arrays),
    row("resume a checkpoint without meta", "train --resume {run} --total-steps 2000",
        "checkpoint must be ",
        damage=drop_meta),
    row("resume a foreign checkpoint", "train --resume {run} --total-steps 2000",
        "config must be ", "algo.hidden is [12] there and was [8] in training",
        damage=config(algorithm__settings__hidden=[12])),
    row("resume another algorithm's checkpoint", "train --resume {run} --total-steps 2000",
        "config must be ", "algorithm is jaxrl_fast.algorithms.dqn:DQN there and was ",
        damage=config(algorithm={"name": "dqn", "settings": {"learning_starts": 64}})),
    row("resume with a damaged log", "train --resume {run} --total-steps 2000", "metrics must be ",
        "line 2 is damaged",
        damage=damaged_line),
    # eval
    row("eval nothing", "eval", "jaxrl-fast eval RUN"),
    row("eval no folder", "eval nowhere", "run must be ", "got 'nowhere'",
        "an existing run directory"),
    row("eval a folder", "eval {folder}", "config must be ", "an existing config.json"),
    row("eval member out of range", "eval {run} --member 5", "member must be ", "got 5",
        "from 0 to 0"),
    row("eval negative member", "eval {run} --member -1", "member must be ", "got -1", "from 0"),
    row("eval no episodes", "eval {run} --episodes 0", "episodes must be ", "got 0", "from 1"),
    row("eval negative seed", "eval {run} --seed -1", "seed must be ", "got -1", "from 0"),
    row("eval which", "eval {run} --which first", "which must be ", "got 'first'",
        "'auto', 'best', 'last'"),
    row("eval mode", "eval {run} --mode random", "mode must be ", "got 'random'",
        "'greedy', 'sample'"),
    row("eval without a checkpoint", "eval {run}", "run must be ", "a run with a checkpoint",
        damage=no_checkpoints),
    row("eval a damaged best", "eval {run} --which best", "checkpoint must be ", "'last' is whole",
        damage=truncate("best")),
    row("eval a damaged last", "eval {run} --which last", "checkpoint must be ",
        damage=truncate("last")),
    row("eval a foreign checkpoint", "eval {run}", "algo.hidden is [12] there and was [8]",
        damage=config(algorithm__settings__hidden=[12])),
    # plot
    row("plot nothing", "plot", "jaxrl-fast plot RUN"),
    row("plot no folder", "plot {run} nowhere", "run must be ", "got 'nowhere'",
        "an existing run directory"),
    row("plot a folder", "plot {folder}", "config must be ", "an existing config.json"),
    row("plot without a log", "plot {run}", "run must be ", "metrics.jsonl",
        damage=lambda r: os.remove(r / "metrics.jsonl")),
    row("plot an empty log", "plot {run}", "run must be ", "metrics.jsonl has none",
        damage=text("metrics.jsonl", "")),
    row("plot a damaged log", "plot {run}", "metrics must be ", "line 2 is damaged",
        damage=damaged_line),
    row("plot an unknown metric", "plot {run} --metric episode_retrun", "'episode_retrun'",
        "mean 'episode_return'"),
    row("plot into a folder", "plot {run} --out {folder}", "--out must be ", "this is a directory"),
    row("plot into an unknown format", "plot {run} --out x.bmp", "x.bmp", ".png, .svg, .pdf"),
    row("plot below a file", "plot {run} --out {file}/x.png", "--out must be ", "can be written"),
    # a file of a run's own, a pipe
    *(row(f"{line.split()[0]} onto {name} of a run", f"{line} {{run}}/{name}",
          "must be another file", "is read from this one")
      for name in ("config.json", "metrics.jsonl", "result.json")
      for line in ("report {run} --out", "compare {run} {run} --csv", "plot {run} --out")),
    row("report onto a checkpoint", "report {run} --out {run}/checkpoints/mine.html",
        "--out must be another file", damage=text("checkpoints/mine.html", "")),
    row("report onto a link to a run's file", "report {run} --out {run}/link.html",
        "--out must be another file",
        damage=lambda r: os.symlink("config.json", r / "link.html")),
    *(row(f"{line.split()[0]} onto a pipe", f"{line} {{run}}/pipe", "must be the name of a file",
          "a device or a pipe", damage=lambda r: os.mkfifo(r / "pipe"))
      for line in ("report {run} --out", "compare {run} {run} --csv")),
    # list
    row("list with a bad import", "list --import no_such_module", "--import must be ",
        "got 'no_such_module'"),
    row("list an unknown flag", "list --imports x", "'--imports'", "did you mean '--import'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """One real run."""
    base = tmp_path_factory.mktemp("made")
    tools.train("ppo", base / "run", total_steps=512)
    return base / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_table_is_long_enough():
    names = [param.id for param in TABLE]
    assert len(names) >= 45 and len(set(names)) == len(names)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", TABLE)
def test_bad_command_line(case: Row, made, tmp_path, monkeypatch, capsys):
    run, here, folder, file = (tmp_path / name for name in ("run", "here", "folder", "broken.py"))
    here.mkdir(), folder.mkdir()
    file.write_text("def broken(:\n")
    if "{run}" in case.line:
        shutil.copytree(made, run)
        if case.damage:
            case.damage(run)
    if case.patch:
        case.patch(monkeypatch)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = contents(tmp_path)
    name = "broken" if "--import {file}" in case.line else str(file)
    code = cli.main(shlex.split(case.line.format(run=run, folder=folder, file=name)))
    printed = capsys.readouterr()
    assert code == 2, printed
    *others, last = printed.err.splitlines()
    assert last.startswith("jaxrl-fast: error: ") and len(last) < 700, printed.err
    assert all(line.startswith(("jaxrl-fast: warning: ", "compiling"))
               for line in others), printed.err
    assert "Traceback" not in printed.err + printed.out
    for part in case.says:
        assert part in printed.err, (part, printed.err)
    assert printed.out == ""
    after = {k: v for k, v in contents(tmp_path).items() if "__pycache__" not in k}
    assert after == before
    assert list(here.iterdir()) == []


class Net(nn.Module):
    activation: Callable = nn.relu


def local():
    """A class that no import finds."""

    @jf.settings
    class Local(jf.PPO):
        pass

    return Local()


def unbounded():
    """A probe that says nothing about how large an action may be."""

    @jf.settings
    class Unbounded(Continuous):
        @property
        def spec(self):
            return dataclasses.replace(super().spec,
                                       action=jf.Box(-float("inf"), float("inf"), (1,)))

    return Unbounded()


def misshapen(base=Continuous, **changes):
    """A probe with fields of its outcome changed by functions: what people write by mistake."""

    @jf.settings
    class Misshapen(base):
        def transition(self, noise, state, action):
            state, outcome = super().transition(noise, state, action)
            return state, outcome._replace(
                **{name: f(getattr(outcome, name)) for name, f in changes.items()})

    return Misshapen()


def learn(env):
    algo = jf.SAC(num_envs=4, batch_size=4, hidden=(4,), critic_hidden=(4,), learning_starts=8)
    return jax.eval_shape(jf.make_train(algo, env, 64), jax.random.key(0))


def one_step(env, action):
    key = jax.random.key(0)
    noise = jax.tree.map(lambda x: x[0], env.draw(key, 1, 4, 0))
    return env.step(noise, env.init(key, 4)[0], action)


FOUR = "environments that are stepped together"
CARTPOLE = lambda: jf.make("CartPole-v1")
CALLS = [
    ("unknown setting of train", lambda: jf.train(jf.PPO(), CARTPOLE(), 100, sede=1),
     ("sede must be ", "got 1", "seeds")),
    ("unknown setting of an algorithm", lambda: jf.PPO(num_env=4),
     ("num_env must be a setting of PPO", "got 4", "did you mean 'num_envs'")),
    ("unknown setting of an environment", lambda: unbounded().__class__(size=4),
     ("size must be a setting of Unbounded", "got 4")),
    ("preset of an environment's object", lambda: jf.preset("ppo", CARTPOLE()),
     ("environment must be a name", "CartPole")),
    ("number as a folder", lambda: jf.train(jf.PPO(), CARTPOLE(), 100, out=3),
     ("out must be ", "got 3", "a folder")),
    ("number to start from", lambda: jf.train(jf.PPO(), CARTPOLE(), 100, start_from=3),
     ("start_from must be ", "got 3", "a run directory")),
    ("rates without a sweep", lambda: jf.train(jf.PPO(learning_rate=jnp.ones(2)), CARTPOLE(), 100),
     ("learning_rate must be one number", "(2,) numbers", "sweep")),
    ("schedule of an ascent",
     lambda: jf.train(jf.PPO(learning_rate=lambda step: -1e-3), CARTPOLE(), 100),
     ("learning_rate must be a schedule of rates from 0 on", "begins with -0.001")),
    ("schedule of nothing",
     lambda: jf.train(jf.ARS(learning_rate=lambda step: jnp.nan), CARTPOLE(), 100),
     ("learning_rate must be a schedule", "begins with nan")),
    *((f"about of {name}",
       lambda about=about: jf.train(jf.PPO(), CARTPOLE(), 100, out="run", about=about),
       ("about must be ", *says))
      for name, about, says in (
          ("a number", 1, ("got 1", "a dict")), ("a list", ["note"], ("got ['note']",)),
          ("a key that is no text", {1: 2}, ("got {1: 2}",)),
          ("settings of the run", {"run": {}}, ("keys other than", "got 'run'")),
          ("a format", {"format": 9}, ("keys other than", "got 'format'")),
          ("an object", {"note": object()}, ("not JSON serializable",)),
          ("a number that is none", {"note": float("nan")}, ("JSON compliant",)),
      )),
    ("about of a sweep",
     lambda: jf.sweep(jf.PPO(), CARTPOLE(), 100, out="s", about={"algorithm": {}},
                      grid={"algo.discount": [0.9, 0.99]}),
     ("about must be keys other than", "got 'algorithm'")),
    ("class of a selection", lambda: jf.train(jf.PPO(), CARTPOLE(), 100, selection=jf.PBT),
     ("selection must be a jf.PBT or jf.Halving", "got <class")),
    ("grid of an object", lambda: jf.sweep(jf.PPO(), CARTPOLE(), 100, out="s",
                                           grid={"algo.network": [object(), "mlp"]}),
     ("grid algo.network must be values that sweep.json can hold", "got <object")),
    ("number as a key", lambda: CARTPOLE().init(0, 4), ("key must be ", "got 0", "jax.random.key")),
    ("no environments", lambda: CARTPOLE().init(jax.random.key(0), 0),
     ("num_envs must be ", "got 0")),
    ("experience of a number", lambda: jf.experience(3), ("run must be a run directory", "got 3")),
    ("environment without a name", lambda: jf.EnvSpec("", jf.Box(0.0, 1.0, (1,)), jf.Discrete(2)),
     ("EnvSpec.name must be ", "got ''")),
    ("float where an int is due", lambda: jf.PPO(num_envs=4.0),
     ("num_envs must be ", "got 4.0", "an integer")),
    ("bool where an int is due", lambda: jf.PPO(num_envs=True),
     ("num_envs must be ", "got True", "an integer")),
    ("text where a float is due", lambda: jf.PPO(learning_rate="1e-3"),
     ("learning_rate must be ", "got '1e-3'", "a number")),
    ("int where a bool is due", lambda: jf.PPO(clip_value=1),
     ("clip_value must be ", "got 1", "True or False")),
    ("unknown setting of a preset", lambda: jf.preset("ppo", "CartPole-v1", lr=1),
     ("algo.lr must be a setting of ppo", "got 1")),
    ("unknown setting of make", lambda: jf.make("CartPole-v1", gravty=1),
     ("env.gravty must be ", "got 1", "did you mean 'gravity'")),
    ("total_steps of make_train", lambda: jf.make_train(jf.PPO(), CARTPOLE(), total_steps=0),
     ("total_steps must be ", "got 0")),
    (
        "dqn on continuous actions",
        lambda: jf.make_train(jf.DQN(), jf.make("Pendulum-v1"), total_steps=10),
        ("Discrete",),
    ),
    *(
        (
            f"unbounded actions for {cls.name}",
            lambda cls=cls: jf.make_train(cls(), unbounded(), total_steps=10),
            ("environment must be ", "got 'probe/continuous'", f"{cls.name} needs bounded actions",
             "inf", "ars and es take these"),
        )
        for cls in (jf.SAC, jf.TD3, jf.TQC, jf.CrossQ)
    ),
    (
        "network with a lambda in a run directory",
        lambda: jf.train(jf.PPO(network=Net(lambda x: x)), CARTPOLE(), 100, out="run"),
        ("network.activation must be ", "got <function", "no lambda"),
    ),
    (
        "local class in a run directory",
        lambda: jf.train(local(), CARTPOLE(), 100, out="run"),
        ("algorithm must be ", "got 'local.<locals>.Local'", "a class of a module"),
    ),
    *(
        (f"{name} of another shape", lambda env=env: learn(env),
         (f"probe/continuous: {says[0]}", *says[1:]))
        for name, env, says in (
            ("column of rewards", misshapen(reward=lambda x: x[:, None]),
             ("reward must be ", "got 'float32[4, 1]'", "float32[4]", FOUR)),
            ("sum of rewards", misshapen(reward=lambda x: x.sum()),
             ("reward must be ", "got 'float32[]'", "float32[4]")),
            ("successor", misshapen(next_obs=lambda x: x[:, 0]),
             ("next_obs must be ", "got 'float32[4]'", "float32[4, 1]")),
            ("kind", misshapen(next_obs=lambda x: x.astype(int)),
             ("next_obs must be ", "got 'int32[4, 1]'", "float32[4, 1]")),
            ("names", misshapen(next_obs=lambda x: {"x": x}),
             ("next_obs must be ", "got 'dict'", "an array of shape [4, 1]")),
            ("termination", misshapen(terminated=lambda x: 1.0 * x),
             ("terminated must be ", "got 'float32[4]'", "bool[4]")),
            ("truncation", misshapen(truncated=lambda x: False),
             ("truncated must be ", "got 'bool[]'", "bool[4]")),
            ("reward within wrappers",
             jf.envs.ActionRepeat(misshapen(reward=lambda x: x[:, None]), 2),
             ("reward must be ", "got 'float32[4, 1]'",)),
        )
    ),
    (
        "entry of a dict of another shape",
        lambda: one_step(misshapen(DictObservation, next_obs=lambda x: x | {"row": x["column"]}),
                         jnp.zeros(4, int)),
        ("probe/dict: next_obs['row'] must be ", "got 'float32[4, 3]'", "float32[4, 2]"),
    ),
    (
        "dict without an entry",
        lambda: one_step(misshapen(DictObservation, next_obs=lambda x: {"row": x["row"]}),
                         jnp.zeros(4, int)),
        ("probe/dict: next_obs must be ", "got ['row']", "a dict of column, row"),
    ),
    (
        "action of another shape",
        lambda: one_step(jf.make("probe/continuous"), jnp.zeros(4)),
        ("probe/continuous: action must be ", "got 'float32[4]'", "float32[4, 1]"),
    ),
    ("load an empty path", lambda: jf.load(""), ("run must be ", "got ''")),
    ("load nothing", lambda: jf.load("nowhere"), ("run must be ", "got 'nowhere'",)),
    ("to_gymnasium of a name", lambda: jf.to_gymnasium("CartPole-v1"),
     ("env must be ", "got 'CartPole-v1'", "jf.make")),
    (
        "to_gymnasium of the host",
        lambda: jf.to_gymnasium(jf.make("gym:CartPole-v1"), 2),
        ("env must be ", "got 'CartPole-v1'", "gymnasium.make_vec"),
    ),
    ("to_gymnasium of none", lambda: jf.to_gymnasium(CARTPOLE(), 0),
     ("num_envs must be ", "got 0", "an integer from 1")),
    (
        "autoreset mode of to_gymnasium",
        lambda: jf.to_gymnasium(CARTPOLE(), 2, autoreset_mode="same"),
        ("autoreset_mode must be ", "got 'same'", "did you mean 'same_step'"),
    ),
    (
        "autoreset of a single environment",
        lambda: jf.to_gymnasium(CARTPOLE(), autoreset_mode="next_step"),
        ("autoreset_mode must be ", "got 'next_step'", "give num_envs"),
    ),
    (
        "render mode of to_gymnasium",
        lambda: jf.to_gymnasium(CARTPOLE(), render_mode="human"),
        ("render_mode must be ", "got 'human'", "None or 'rgb_array'"),
    ),
    (
        "pictures of what cannot be drawn",
        lambda: jf.to_gymnasium(jf.make("probe/dict"), 2, render_mode="rgb_array"),
        ("render_mode must be ", "got 'rgb_array'", "None for probe/dict"),
    ),
    ("register a taken name", lambda: jf.register("CartPole-v1", lambda: None),
     ("'CartPole-v1'", "not taken")),
    ("register no algorithm", lambda: jf.register_algorithm(int),
     ("algorithm must be ", "Algorithm")),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("call", "says"),
                         [pytest.param(c, s, id=n.replace(" ", "-")) for n, c, s in CALLS])
def test_bad_call(call, says, tmp_path, monkeypatch, nothing_compiles):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UserError, ValueError)) as error:
        call()
    for part in says:
        assert part in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cls", [jf.PPO, jf.ARS, jf.OpenES])
def test_unbounded_actions_are_accepted_by_the_algorithms_the_error_suggests(cls):
    jax.eval_shape(jf.make_train(cls(), unbounded(), total_steps=1), jax.random.key(0))


def test_an_error_while_xla_compiles_leaves_no_semaphores():
    """Those of an asynchronous environment: Python's tracker would print lines after ours."""
    code = """
import multiprocessing, sys
from jaxrl_fast.cli import command
from jaxrl_fast.engine import programs
from jaxrl_fast.errors import ConfigError

def fails(words):
    raise ConfigError("seed", 1, "something else")

queue = multiprocessing.get_context("spawn").Queue()
sys.argv, command._dispatch, programs.compiling = ["jaxrl-fast", "x"], fails, lambda: True
command.main()
"""
    done = tools.python(code)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_the_error_is_the_last_line_although_a_failed_write_leaves_coroutines():
    """Python warns of them when it collects them, here at the process's end."""
    code = """
import sys
from jaxrl_fast.cli import command
from jaxrl_fast.errors import ConfigError

async def save():
    pass

def fails(words):
    kept.append(save())
    raise ConfigError("seed", 1, "something else")

kept, sys.argv, command._dispatch = [], ["jaxrl-fast", "x"], fails
code = command.main()
kept.clear()
sys.exit(code)
"""
    done = tools.python(code)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
