"""The commands of `jaxrl-fast`: one entry each, for calls, help, completion and errors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxrl_fast.cli.option import Option


class Command(NamedTuple):
    """One command.

    run: "file:function" in `cli/`. tries: what to type after the name, for its help. flags: name of
    the tuple of its own options in that file. omits: flags of `train` that a command with ALGO ENV
    does not take. plans: whether the function takes (plan, flags) of `read_plan`. backend: whether
    the command starts JAX's backend.
    """

    takes: str  # after the name
    text: str  # what it does, in 44 characters
    run: str
    tries: tuple[str, ...]
    flags: str = "OPTIONS"
    omits: tuple[str, ...] = ("out", "resume")
    plans: bool = False
    backend: bool = True

    @property
    def of_a_run(self) -> bool:
        """Return whether the command takes an algorithm, an environment and a run's settings."""
        return self.takes.startswith("ALGO ENV")

    @property
    def module(self) -> Any:
        return importlib.import_module(f"jaxrl_fast.cli.{self.run.partition(':')[0]}")

    @property
    def function(self) -> Callable[..., None]:
        return getattr(self.module, self.run.partition(":")[2])

    @property
    def options(self) -> Sequence[Option]:
        return getattr(self.module, self.flags)


GROUPS: dict[str, dict[str, Command]] = {  # with a prompt, the overview is a screen of 24 lines
    "Train": {
        "train": Command(
            "ALGO ENV", "into a run directory; --resume RUN goes on", "train:start",
            ("ppo CartPole-v1 --seeds 8 --algo.learning-rate 1e-3",
             "dqn Breakout-MinAtar --env.sticky-actions 0.1 --seeds 4"), omits=()),
        "sweep": Command(
            "ALGO ENV", "many settings times many seeds, ranked", "sweep:start",
            ("ppo CartPole-v1 --seeds 4 --grid algo.discount=0.9,0.99",),
            omits=("config", "horizon")),
        "plan": Command(
            "ALGO ENV", "the device memory that such a run takes", "plan:print_plan",
            ("dqn Breakout-MinAtar --seeds 8",), plans=True),
        "forecast": Command(
            "ALGO ENV", "its time, memory and money, anywhere", "forecast:tell",
            ("ppo CartPole-v1 --total-steps 1e8",), plans=True),
        "tune-speed": Command(
            "ALGO ENV", "settings that make it faster, numbers equal", "tune_speed:tune",
            ("ppo CartPole-v1",), plans=True),
        "compile": Command(
            "ALGO ENV", "fill the compile cache for it", "ahead:compile_ahead",
            ("ppo CartPole-v1 --seeds 8",), plans=True),
    },
    "Look": {
        "eval": Command(
            "RUN", "play episodes with the trained agent", "runs:evaluate",
            ("RUN --episodes 32",), "EVAL"),
        "report": Command(
            "RUN|SWEEP", "one HTML page; --serve: live", "report:report", ("RUN --serve",)),
        "plot": Command(
            "RUN [RUN ...]", "the learning curves in one picture", "runs:plot",
            ("RUN RUN --out curves.png",), "PLOT", backend=False),
        "compare": Command(
            "RUN RUN [RUN ...]", "final scores side by side", "runs:compare",
            ("RUN RUN --csv scores.csv",), "COMPARE", backend=False),
        "profile": Command(
            "ALGO ENV|RUN", "where an iteration's time goes", "profile:profile",
            ("ppo CartPole-v1 --try",)),
    },
    "Share": {
        "export": Command(
            "RUN", "the policy as stablehlo, onnx, safetensors", "export:export",
            ("RUN --format onnx",)),
        "push": Command(
            "RUN hf://OWNER/NAME", "the policy to a model hub, with its card", "push:push",
            ("RUN hf://OWNER/NAME --private",)),
        "experience": Command(
            "SOURCE FOLDER", "a run's replay, or a dataset, to learn from", "experience:keep",
            ("RUN replay",)),
    },
    "More": {
        "list": Command(
            "[PART]", "algorithms, environments, logs, presets", "list:show", ("environments",),
            backend=False),
        "new": Command(
            "KIND NAME", "a working algorithm, environment, project", "new:new",
            ("environment maze",), backend=False),
        "doctor": Command(
            "", "what this machine can do; remedies", "doctor:examine", ("--picture limits.png",),
            backend=False),
        "bench": Command(
            "[ROW ...]", "our speed beside each other library here", "bench:compare",
            ("ppo_cartpole --turns 1",)),
        "ladder": Command(
            "pong", "one game, learned faster rung by rung", "ladder.command:ladder", ("pong",)),
        "completion": Command(
            "bash|zsh|fish", "names and flags at the tab key", "completion:completion", ("bash",),
            backend=False),
    },
}  # fmt: skip
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
