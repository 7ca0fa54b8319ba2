"""`jaxrl-fast push`: a trained policy to a model hub."""

from __future__ import annotations

from jaxrl_fast.cli.args import AGENT, Option, load_agent, read_arguments

OPTIONS = (Option("private", "bool", False, "make a new repository private"), *AGENT)


def push(argv: list[str]) -> None:
    """Upload the policy of a run with its model card."""
    about = "Upload the policy of a run, with scores, video, curve and settings as its model card."
    (run, target), given = read_arguments("push", about, argv)
    from jaxrl_fast.runs import hub

    hub.repository("target", target)  # refused before anything is read
    print(hub.push(run, load_agent(run, given), target, given.get("private", False)))
    print(f"what comes next:\n  jf.load({target!r})")
