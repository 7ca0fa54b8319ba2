"""`jaxrl-fast train --resume`: go on with a run, in its folder and with its settings."""

from __future__ import annotations

from pathlib import Path

from jaxrl_fast.cli.args import DISTRIBUTED, IMPORT, OUTPUT, PROG, Option, parse, peek, positionals
from jaxrl_fast.cli.before_jax import spread
from jaxrl_fast.cli.options import resume_options
from jaxrl_fast.cli.output import logs_of, print_end, sinks_of
from jaxrl_fast.errors import ConfigError
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.load import HOST, resume_run
from jaxrl_fast.runs.train import Around

PLACE = ("devices", "mesh")  # where a run is resumed
CHANGED = ("total_steps", "horizon", *PLACE, *HOST)
OPTIONS = (
    Option("resume", "path", help="run directory to resume", metavar="RUN", hint="required"),
    *resume_options(*CHANGED), IMPORT, *OUTPUT, *DISTRIBUTED,
)  # fmt: skip


def resume(argv: list[str]) -> None:
    """Resume a run with the flags that a resume may change."""
    words, flags = positionals(argv, len(argv), OPTIONS)
    if words:
        what = " ".join(["--resume", *peek(argv, "--resume")[-1:]])
        valid = f"left out: {what} resumes the run with its own settings"
        raise ConfigError("ALGO ENV", " ".join(words), valid)
    about = "Resume a run, bit for bit as if it had never stopped."
    given = parse(f"{PROG} train --resume", about, OPTIONS, flags)
    run = Path(given["resume"])
    if not run.is_dir():
        raise ConfigError("--resume", str(run), "an existing run directory")
    content = configs.read_config(run)
    spread(argv, content)
    texts, tensorboard = logs_of(given)
    sinks = sinks_of(texts, run, content, content["run"].get("seeds", 1), resumed=True)
    settings = {name: given[name] for name in CHANGED if name in given}
    around = Around(sinks=sinks, tensorboard=tensorboard, progress=True)
    ended = resume_run(run, around, "--resume", modules=given.get("import", ()), **settings)
    print_end(ended, texts)
