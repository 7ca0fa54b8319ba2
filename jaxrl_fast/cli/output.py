"""Logs of a training command beside the run directory, and its last lines on the terminal."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.logs.sinks import LoggedRun, Sink, sink_of
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.rundir import seed_folder

PICTURES = ("curve.png", "rollout.gif", "rollout.html")  # drawn at the end of a run


def logs_of(given: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the texts "KIND:TARGET" of --log and --wandb, and whether TensorBoard is on."""
    texts = [*given.get("log", ()),
             *(f"wandb:{project}" for project in [given.get("wandb")] if project is not None)]
    return texts, given.get("tensorboard", True) and "tensorboard" not in texts


def sinks_of(
    texts: Sequence[str], run: Path, content: dict[str, Any], seeds: int,
    parts: Sequence[RunConfig] = (), resumed: bool = False
) -> Any:
    """Return the sinks of `texts` as a function of a run's settings, for seeds in turn.

    Raises ConfigError for a bad text, before anything is written. content: config.json's, for
    sinks.  seeds: of the whole run.  parts: the settings of runs that train one after another.
    """
    whole = LoggedRun(run, content, group=run.name if resumed else None, resumed=resumed)

    def make(part: RunConfig) -> list[Sink]:
        own = content | {"run": configs.encode_run(part)}  # a resume may have another end
        logged = whole._replace(content=own)
        if part.seeds != seeds:
            logged = LoggedRun(seed_folder(run, part.seed), own, run.name, part.seed, resumed)
        return [sink_of(text, logged) for text in texts]

    written: dict[str, str] = {}
    for text in texts:
        file = getattr(sink_of(text, whole), "path", None)
        if isinstance(file, Path):
            real = os.path.realpath(file)
            if real in written:
                raise ConfigError("--log", text,
                                  f"a file of its own: --log {written[real]} writes the same")
            written[real] = text
    for part in parts:
        make(part)
    return make if texts else ()


def print_end(s: Any, logs: Sequence[str] = ()) -> None:
    """Print the score and the next commands. logs: texts of --log, which a resume needs again."""
    from jaxrl_fast.ops.aggregate import interval, span
    from jaxrl_fast.runs.report import format_import_flags

    mean, *_ = interval(s.eval_return)
    kind = f"mean of {s.eval_episodes} {s.config.eval_mode} episodes"
    if s.config.members == 1:
        print(f"return {mean:.2f}, {kind}")
    else:
        what = "members" if s.config.population else "seeds"
        print(f"return {mean:.2f}{span(s.eval_return)} over {s.config.members} {what}, each the "
              f"{kind}")
        if s.config.seeds == s.config.members <= 16:
            print("  by seed: " + "  ".join(f"{s.config.seed + i}: {x:.2f}"
                                            for i, x in enumerate(s.eval_return)))
    for member, where in s.lost.items():
        print(f"member {member} ({s.config.label(member)}) was lost at {where['env_steps']:,} "
              f"steps: {where['reason']}")
    if s.config.target_return is not None and all(s.reached[i] for i in s.live):
        print(f"every member has reached {s.config.target_return:g}")
    what = "updates" if s.config.offline else "steps"
    each = "" if s.config.members == 1 else " a member"
    rate = f", {s.steps_per_second:,.0f} {what}/s" if s.steps_per_second > 0 else ""
    print(f"{s.env_steps:,} {what}{each} in {s.wall_seconds:.1f} s{rate}")
    drawn = [s.out.path / name for name in PICTURES
             if s.config.pictures and (s.out.path / name).exists()]
    if drawn:
        print("pictures: " + "  ".join(map(str, drawn)))
    print("what comes next:")
    run = shlex.quote(str(s.out.path))
    imports = format_import_flags(configs.read_config(s.out.path))
    # past its horizon an annealed rate is 0
    anneals = getattr(s.algo, "anneal_learning_rate", False) and not callable(s.algo.learning_rate)
    horizon = f" --horizon {2 * s.env_steps}" if anneals else ""
    print(f"  jaxrl-fast eval {run}{imports}")
    again = "".join(f" --log {shlex.quote(text)}" for text in logs)
    print(f"  jaxrl-fast train --resume {run} --total-steps {2 * s.env_steps}{horizon}{imports}"
          f"{again}")
    print(f"  jaxrl-fast report {run}{imports}")
