"""Measure learning: algorithms x environments x seeds from one command.

    python scripts/bench_learning.py              # the table of docs/benchmarks.md
    python scripts/bench_learning.py --algorithms rainbow pqn --environments Breakout-MinAtar
    --seeds 3
    python scripts/bench_learning.py --ablation   # Rainbow without each of its switches, two games
    python scripts/bench_learning.py --peers --purejaxrl ~/purejaxrl  # PPO, DQN at its settings

Each pair is one run of `jf.train` with the presets and all seeds in one program (vmapped on an
accelerator, mapped over the cores of a CPU), 2e6 steps a seed on a CPU and 1e7 elsewhere. Its run
directory stays under --out: a run that was cut off goes on, one that has ended is not repeated.
--json gets everything; beside it, under the same name, are a table of the means with their 95%
intervals (.md) and a picture of each environment with the curves of its runs (-ENVIRONMENT.png); of
an ablation also one with all scores (-ablation.png).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import statistics
import sys
from pathlib import Path

import _peers
import _populations as populations
import bench_common as bench

from jaxrl_fast.bench import ours, theirs

ALGORITHMS = ("dqn", "rainbow", "qr_dqn", "pqn", "ppo")
GAMES = ("Breakout-MinAtar", "Asterix-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar",
         "Seaquest-MinAtar")
ABLATION = {  # of Rainbow; "distributional" is the class, not a setting
    "rainbow": {},
    "rainbow-double": {"double": False},
    "rainbow-dueling": {"dueling": False},
    "rainbow-multistep": {"n_step": 1},
    "rainbow-prioritized": {"prioritized": False},
    "rainbow-noisy": {"noisy": False, "epsilon_start": 1.0, "epsilon_end": 0.05,
                      "epsilon_fraction": 0.1},
    "rainbow-distributional": {},
}
ABLATED = ("Breakout-MinAtar", "SpaceInvaders-MinAtar")  # both learned within 3e5 steps
VARIANTS = ABLATION | {  # what else --algorithms takes: a preset with settings of its own
    "dqn-munchausen": {"munchausen": True},
    "dqn-layer_norm": {"layer_norm": True},
    "dqn-resets": {"reset_period": 9_000, "anneal_learning_rate": False},
    # two updates a step of 8 environments; the presets take one every four
    "dqn-ratio2": {"updates_per_iteration": 16},
}
COLUMNS = ("algorithm", "environment", "steps", "seeds", "mean", "95% interval", "by seed",
           "in training", "steps/s", "published")
PUBLISHED = {  # (family, game): a score, its steps and source
    (family, f"{game}-MinAtar"): f"{score} {source}"
    for family, source, scores in (
        ("ppo", "at 1e7 (gymnax)",
         {"Asterix": 15, "Breakout": 28, "Freeway": 58, "SpaceInvaders": 131}),
        ("dqn", "at 5e6 (MinAtar)",
         {"Asterix": 17, "Breakout": 10, "Freeway": 50, "SpaceInvaders": 43}),
    )
    for game, score in scores.items()
}


# The sweep
# --------------------------------------------------------------------------------------------------


def algorithm(jf, variant, game):
    """The preset of an algorithm, or of one of its variants."""
    algo = jf.preset(variant.partition("-")[0], game, **VARIANTS.get(variant, {}))
    if variant != "rainbow-distributional":
        return algo
    fields = [f.name for f in dataclasses.fields(jf.DQN) if f.name != "spec"]
    # the rest of Rainbow without C51's atoms
    return jf.DQN(**{name: getattr(algo, name) for name in fields})


def last_tenth(folder, member):
    """Mean episode return of the last tenth of a run's log, under the training policy."""
    from jaxrl_fast.logs.jsonl import read_jsonl

    rows = [row["episode_return"][member]
            for row in read_jsonl(folder / "metrics.jsonl") if "episode_return" in row]
    rows = [x for x in rows[-max(1, len(rows) // 10) :] if x is not None]
    return statistics.fmean(rows) if rows else math.nan


def check_same(algo, folder):
    """A run that is there already is of these settings; a preset may have changed since."""
    from jaxrl_fast.runs.config_json import encode_algorithm

    then = json.loads((folder / "config.json").read_text())["algorithm"]["settings"]
    now = json.loads(json.dumps(encode_algorithm(algo)["settings"]))
    if then != now:
        other = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        raise SystemExit(f"{folder} holds a run of other settings ({', '.join(other)}): move it "
                         f"away, or give another --out")


def train(args, jf, variant, game, steps, folder):
    """One run to its end, whatever was there of it before."""
    from jaxrl_fast.algorithms.presets import find_preset
    from jaxrl_fast.runs.rundir import RunDir

    if (folder / "config.json").exists():
        check_same(algorithm(jf, variant, game), folder)
    if (folder / "result.json").exists():
        return
    if RunDir(folder).resumable:
        jf.resume(folder, tensorboard=False)
        return
    if (folder / "config.json").exists():  # cut off before its first checkpoint
        shutil.rmtree(folder)
    settings = {"seed": args.first_seed, "seeds": args.seeds, "eval_every": 0,
                "eval_episodes": args.eval_episodes}
    found = find_preset(variant.partition("-")[0], game)
    env = jf.make(game, **(found.env if found else {}))
    jf.train(algorithm(jf, variant, game), env, steps, out=folder, tensorboard=False, **settings)


def learn(args, variant, game):
    jf = bench.prepare(host_devices=min(args.seeds, bench.cores()))
    import jax

    from jaxrl_fast.algorithms.presets import find_preset

    notes = []
    steps = args.total_steps or (2_000_000 if jax.default_backend() == "cpu" else 10_000_000)
    if not find_preset(variant.partition("-")[0], game):
        notes.append("no preset: the defaults")
    first = f"-from{args.first_seed}" if args.first_seed else ""
    folder = Path(args.out) / f"{variant}-{game}-{steps}x{args.seeds}{first}"
    train(args, jf, variant, game, steps, folder)
    result = json.loads((folder / "result.json").read_text())
    scores = [math.nan if x is None else x for x in result["eval_return"]]
    training = [last_tenth(folder, i) for i in range(args.seeds)]
    learned = {
        "algorithm": variant,
        "environment": game,
        "steps": steps,
        "seeds": result["seeds"],
        "mean": statistics.fmean(scores),
        "interval": bench.interval(scores),
        "scores": scores,
        "training": training,
        "run": str(folder),
    } | {name: result[name]
         for name in ("steps_per_second", "compile_seconds", "wall_seconds", "device", "versions")}
    bench.say("  " + table_row(learned))
    return {"machine": bench.machine(), "notes": notes, "learned": learned}


def table_row(x):
    cells = (
        x["algorithm"], x["environment"], f"{x['steps']:.0e}".replace("e+0", "e"),
        f"{x['seeds'][0]}-{x['seeds'][-1]}",
        f"{x['mean']:.2f}", f"± {x['interval']:.2f}", " ".join(f"{s:.2f}" for s in x["scores"]),
        f"{statistics.fmean(x['training']):.2f}", f"{x['steps_per_second'] or math.nan:,.0f}",
        PUBLISHED.get((x["algorithm"], x["environment"]), ""),
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def table(collected):
    """The rows that ended, as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += [table_row(row["learned"]) for row in collected.values() if "learned" in row]
    return "\n".join(lines) + "\n"


def draw(collected, path):
    """One picture an environment: the curves of all that was trained on it."""
    bench.prepare()
    from jaxrl_fast.logs import plots
    from jaxrl_fast.logs.jsonl import read_jsonl

    learned = [row["learned"] for row in collected.values() if "learned" in row]
    for game in dict.fromkeys(x["environment"] for x in learned):
        rows = {x["algorithm"]: read_jsonl(Path(x["run"]) / "metrics.jsonl")
                for x in learned if x["environment"] == game}
        print(plots.learning_curve(
            rows, path.with_name(f"{path.stem}-{game.replace('/', '-')}.png"), smooth=5, title=game
        ))


def draw_ablation(collected, path):
    """Scores of Rainbow without each of its switches over Rainbow's own mean: all games in one
    picture, every seed a dot."""
    bench.prepare()
    from jaxrl_fast.logs import plots

    learned = [row["learned"] for row in collected.values() if "learned" in row]
    whole = {x["environment"]: x["mean"]
             for x in learned if x["algorithm"] == "rainbow" and x["mean"] > 0}
    if not whole:
        return print("no picture of the ablation: it takes Rainbow's own row, with a mean above 0")
    variants = [name for name in ABLATION if any(x["algorithm"] == name for x in learned)][::-1]
    figure, axes = plots.figure()
    for k, (game, colour) in enumerate(zip(whole, plots.PALETTE, strict=False)):
        for x in (x for x in learned if x["environment"] == game):
            place = variants.index(x["algorithm"]) + 0.3 * (len(whole) - 1) / 2 - 0.3 * k
            scores, mean, half = (
                [s / whole[game] for s in x["scores"]], x["mean"] / whole[game],
                x["interval"] / whole[game]
            )
            label = game if x["algorithm"] == "rainbow" else None
            axes.plot([mean - half, mean + half], [place, place], color=colour, linewidth=2,
                      label=label)
            axes.plot([mean], [place], "o", color=colour, markersize=7)
            axes.plot(scores, [place] * len(scores), "o", color=colour, markersize=3, alpha=0.5)
    axes.axvline(1.0, color="0.6", linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(variants)),
                    [name.replace("rainbow-", "without ") for name in variants])
    what = "return over Rainbow's mean: the seeds, their mean and its 95% interval"
    plots.style(axes, what, "", "Rainbow without each of its switches")
    axes.legend(frameon=False)
    print(plots.save(figure, path.with_name(f"{path.stem}-ablation.png")))


# Beside PureJaxRL
# --------------------------------------------------------------------------------------------------


def beside(args, algorithm, config):
    """Both libraries at PureJaxRL's settings, in turns; a seed's score is the mean return of the
    last tenth of its training."""
    jf = bench.prepare()
    config = ours.scaled(config, args.scale)
    notes = []
    contestants = (
        [ours.run(jf, algorithm, config)] if populations.usable(jf, algorithm, notes) else [])
    contestants += theirs.purejaxrl(args.purejaxrl, algorithm.lower(), config, notes)
    row = {"machine": bench.machine(), "notes": notes} | bench.race(contestants, args.seeds)
    for name, result in row["contestants"].items():
        scores = result["scores"]
        result["mean"], result["interval"] = statistics.fmean(scores), bench.interval(scores)
        shown = " ".join(f"{x:.2f}" for x in scores)
        bench.say(f"  {config['ENV_NAME']}, {name}: {result['mean']:.2f} ± "
                  f"{result['interval']:.2f} (seeds {shown})")
    return row


PEERS = {
    "peer-cartpole": ("PPO", theirs.PPO_CARTPOLE),
    "peer-acrobot": ("PPO", theirs.PPO_CARTPOLE | {"ENV_NAME": "Acrobot-v1"}),
    "peer-dqn-cartpole": ("DQN", theirs.DQN_CARTPOLE),
} | {f"peer-{game}": ("PPO", _peers.PPO_MINATAR | {"ENV_NAME": game}) for game in GAMES}


def add_choices(parser):
    """Add the flags that choose the rows."""
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS,
                        help=f"default: {' '.join(ALGORITHMS)}")
    parser.add_argument("--environments", nargs="+", default=None,
                        help=f"default: {' '.join(GAMES)}; two for --ablation")
    parser.add_argument("--ablation", action="store_true",
                        help="Rainbow without each of its switches")
    parser.add_argument("--peers", action="store_true",
                        help="instead: beside PureJaxRL at its settings")


def rows_of(chosen):
    if chosen.peers:
        return {name: lambda args, row=row: beside(args, *row) for name, row in PEERS.items()}
    games = chosen.environments or (ABLATED if chosen.ablation else GAMES)
    pairs = [(variant, game) for game in games
             for variant in (ABLATION if chosen.ablation else chosen.algorithms)]
    return {f"{variant}/{game}": lambda args, pair=(variant, game): learn(args, *pair)
            for variant, game in pairs}


def main(argv):
    choices = argparse.ArgumentParser(add_help=False)
    add_choices(choices)
    rows = rows_of(choices.parse_known_args(argv)[0])
    parser = bench.parser(__doc__, rows)
    parser.set_defaults(timeout=6 * 3600, json="learning.json")
    add_choices(parser)
    _peers.add_arguments(parser, "purejaxrl")
    parser.add_argument("--seeds", type=int, default=5,
                        help="so many, from --first-seed on (default 5)")
    parser.add_argument("--first-seed", type=int, default=0,
                        help="100 for seeds on which no setting was chosen (default 0)")
    parser.add_argument("--total-steps", type=lambda x: int(float(x)),
                        help="default: 2e6 on a CPU, 1e7 elsewhere")
    parser.add_argument("--eval-episodes", type=int, default=128,
                        help="greedy episodes at the end (default 128)")
    parser.add_argument("--out", default="learning",
                        help="folder of the run directories (default: learning)")
    args = parser.parse_args(argv)
    code = bench.main(args, rows, argv)
    if not args.row and not args.peers:
        collected = json.loads(Path(args.json).read_text())
        Path(args.json).with_suffix(".md").write_text(table(collected))
        print(table(collected))
        draw(collected, Path(args.json))
        if args.ablation:
            draw_ablation(collected, Path(args.json))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
