"""Measure the overhead of a notebook's live cell: PPO on CartPole in a kernel, with and without it.

    python scripts/bench_notebook.py [--rounds N] [--steps N]

Each round trains both ways, in turns, in one kernel that has compiled before. Prints steps/s of all
runs, the ratio of their medians, the share of the clock's time that the cell's updates took on the
main thread, and the shares of the runs' CPU time of updates and of pictures after each run's first.
"""

from __future__ import annotations

import argparse

import nbformat
from nbclient import NotebookClient

CELL = """
import statistics, time
import jaxrl_fast as jf
from jaxrl_fast.logs.notebook import NotebookSink
from jaxrl_fast.runs.live_pictures import LivePictures

spent, drawn, shown = [], [], []
update, leave, picture = NotebookSink._update, LivePictures.__exit__, NotebookSink.picture

def timed(self, *args, **named):
    before = time.perf_counter(), time.thread_time()
    found = update(self, *args, **named)
    spent.append((time.perf_counter() - before[0], time.thread_time() - before[1]))
    return found

NotebookSink._update = timed
LivePictures.__exit__ = lambda self, *args: (leave(self, *args), drawn.append(self.share.spent))[0]
NotebookSink.picture = lambda self, *args: (picture(self, *args), shown.append(args))[0]
env, algo = jf.make("CartPole-v1"), jf.preset("ppo", "CartPole-v1")
train = lambda progress: jf.train(algo, env, STEPS, progress=progress, eval_every=0,
                                  eval_episodes=4)
train(False)
drawn.clear()
rates, seconds, cpu = {False: [], True: []}, 0.0, 0.0
for i in range(ROUNDS):
    for cell in (i % 2 == 0, i % 2 == 1):
        before = time.process_time()
        run = train(cell)
        rates[cell].append(run.steps_per_second)
        seconds += run.seconds["train"] if cell else 0.0
        cpu += time.process_time() - before if cell else 0.0
without, with_cell = (statistics.median(rates[cell]) for cell in (False, True))
wall, updates = (sum(x) for x in zip(*spent))
print("without:", *(f"{x:,.0f}" for x in rates[False]), "steps/s")
print("with:   ", *(f"{x:,.0f}" for x in rates[True]), "steps/s")
print(f"with / without: {with_cell / without:.3f}; updates: {100 * wall / seconds:.2f}% of "
      f"{seconds:.1f} s")
print(f"CPU time, {cpu:.1f} s: updates {100 * updates / cpu:.2f}%, {len(shown)} pictures "
      f"{100 * sum(drawn) / cpu:.2f}%")
NotebookSink._update, LivePictures.__exit__, NotebookSink.picture = update, leave, picture
"""


def cell(rounds: int, steps: int) -> str:
    """Return the code of the kernel's cell."""
    return CELL.replace("ROUNDS", str(rounds)).replace("STEPS", str(steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2_000_000, help="environment steps a run")
    args = parser.parse_args()
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell(args.rounds, args.steps))]
    NotebookClient(notebook, timeout=1800, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    print(*(out.text for out in outputs if out.output_type == "stream" and out.name == "stdout"))


if __name__ == "__main__":
    main()
