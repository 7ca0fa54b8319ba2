"""`jaxrl-fast push`: a trained policy to a model hub."""

from __future__ import annotations

from jaxrl_fast import runtime
from jaxrl_fast.cli.args import AGENT, PROG, Option, parse, positionals
from jaxrl_fast.errors import expected
from jaxrl_fast.values import path as path_of

OPTIONS = (Option("private", "bool", False, "make a new repository private"), *AGENT)


def push(argv: list[str]) -> None:
    """Upload the policy of a run with its model card."""
    names, flags = positionals(argv, 3, ("--private",))
    about = "Upload the policy of a run, with scores, video, curve and settings as its model card."
    given = parse(f"{PROG} push RUN hf://OWNER/NAME", about, OPTIONS, flags)
    if len(names) != 2:
        raise expected("RUN hf://OWNER/NAME", f"given: {PROG} push RUN hf://OWNER/NAME",
                       " ".join(names) or "none")
    runtime.enable_compile_cache()
    from jaxrl_fast.runs import hub
    from jaxrl_fast.runs.load import load

    run, target = path_of("run", names[0]), names[1]
    hub.repository("target", target)  # refused before anything is read
    agent = load(run, given.get("which", "auto"), given.get("member"), given.get("import", ()))
    print(hub.push(run, agent, target, given.get("private", False)))
    print(f"what comes next:\n  jf.load({target!r})")
