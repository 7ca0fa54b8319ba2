"""What `jaxrl-fast` alone shows: the commands in groups, and what to begin with."""

from __future__ import annotations

from jaxrl_fast.cli.args import heading

HELP = """usage: jaxrl-fast COMMAND ...  (reinforcement learning as one XLA program)

train
  train ALGO ENV              train, into a run directory; --config FILE repeats
  train --resume RUN          go on from the last checkpoint
  sweep ALGO ENV              many settings times many seeds, ranked
  plan ALGO ENV               the device memory that such a run takes
  forecast ALGO ENV           time, memory and money of such a run, anywhere
  tune-speed ALGO ENV         settings with which such a run is faster and equal
  compile ALGO ENV            fill the compile cache for such a run
look
  eval RUN                    play episodes with the trained agent
  report RUN|SWEEP            a run or a sweep as one HTML page; --serve: live
  plot RUN [RUN ...]          the learning curves of runs in one picture
  compare RUN RUN [RUN ...]   final scores of runs side by side
  profile ALGO ENV|RUN        where an iteration's time goes, what would save it
take along
  export RUN --format FORMAT  the policy as stablehlo, onnx or safetensors
  push RUN hf://OWNER/NAME    the policy to a model hub, with its model card
  experience SOURCE FOLDER    a run's replay, or a dataset, for other runs
set out
  new KIND NAME               a working algorithm, environment or project
  list                        algorithms, environments, logs, samplers, presets
  doctor                      what this machine can do, what is wrong, remedies
  bench                       our speed beside each other library that is here
  ladder pong                 one game, learned faster rung by rung
  completion bash|zsh|fish    commands, names and flags at the tab key

The first flags of a command: `jaxrl-fast COMMAND --help`; all: `--help-all`.
Begin with:  jaxrl-fast train ppo CartPole-v1
"""
PARTS = ("train", "look", "take along", "set out")  # headings in it


def show() -> None:
    print(*(heading(line) if line in PARTS else line for line in HELP.splitlines()), sep="\n")
