"""The text of `jaxrl-fast` alone: the commands in groups, and the first lines to try."""

from __future__ import annotations

from jaxrl_fast.cli.args import PROG
from jaxrl_fast.cli.help import heading

GROUPS = {  # {group: {a command as typed: what it does}}; with a prompt, a screen of 24 lines
    "Train": {
        "train ALGO ENV": "into a run directory; --resume RUN goes on",
        "sweep ALGO ENV": "many settings times many seeds, ranked",
        "plan ALGO ENV": "the device memory that such a run takes",
        "forecast ALGO ENV": "its time, memory and money, anywhere",
        "tune-speed ALGO ENV": "settings that make it faster, numbers equal",
        "compile ALGO ENV": "fill the compile cache for it",
    },
    "Look": {
        "eval RUN": "play episodes with the trained agent",
        "report RUN|SWEEP": "one HTML page; --serve: live",
        "plot RUN [RUN ...]": "the learning curves in one picture",
        "compare RUN RUN [RUN ...]": "final scores side by side",
        "profile ALGO ENV|RUN": "where an iteration's time goes",
    },
    "Share": {
        "export RUN": "the policy as stablehlo, onnx, safetensors",
        "push RUN hf://OWNER/NAME": "the policy to a model hub, with its card",
        "experience SOURCE FOLDER": "a run's replay, or a dataset, to learn from",
    },
    "More": {
        "list": "algorithms, environments, logs, presets",
        "new KIND NAME": "a working algorithm, environment, project",
        "doctor": "what this machine can do; remedies",
        "bench": "our speed beside each other library here",
        "ladder pong": "one game, learned faster rung by rung",
        "completion bash|zsh|fish": "names and flags at the tab key",
    },
}
USAGE = f"usage: {PROG} COMMAND ...    (COMMAND --help: first flags; --help-all: all)"
BEGIN = f"Begin with:  {PROG} train ppo CartPole-v1"


def show() -> None:
    """Print the commands; the first of a group has its name beside it, bold on a terminal."""
    print(USAGE)
    for name, commands in GROUPS.items():
        titles = [heading(f"{name:6}"), *[" " * 6] * len(commands)]
        for title, (typed, text) in zip(titles, commands.items(), strict=False):
            print(f"{title} {typed:26} {text}")
    print("", BEGIN, sep="\n")


def names() -> list[str]:
    """Return the commands, without what follows them."""
    return [typed.split()[0] for commands in GROUPS.values() for typed in commands]
