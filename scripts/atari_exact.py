"""Compare games with ALE frame by frame, and print the counts while it plays.

    python scripts/atari_exact.py --frames 18000 pong breakout  # unbroken, one lane a game
    python scripts/atari_exact.py --seeds 8 --frames 300        # every game that ALE loads

The plain program's loop over instructions becomes one kernel: XLA's CPU otherwise launches about a
hundred for each instruction. A process that started JAX cannot set that, so this is a program.
"""

from __future__ import annotations

import argparse
import time

_SILENT = ("combat", "joust", "maze_craze", "warlords")  # ALE does not load these
_EVERY = 100  # frames between printed lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("games", nargs="*", help="default: every game that ALE loads")
    parser.add_argument("--frames", type=int, default=300, help="frames of each lane")
    parser.add_argument("--seeds", type=int, default=1, help="lanes of each game")
    args = parser.parse_args()
    from ale_py import roms

    from jaxrl_fast import runtime

    runtime.request_loop_kernels()

    from jaxrl_fast.testing import atari

    began = time.time()

    def show(frame: int, report: atari.AtariReport) -> None:
        if frame % _EVERY == 0 or frame == args.frames:
            print(f"frame {frame:,}: {sum(report.compared.values()):,} compared, "
                  f"{sum(report.equal.values()):,} equal, {time.process_time():.0f} s of CPU, "
                  f"{time.time() - began:.0f} s", flush=True)

    names = args.games or [name for name in roms.get_all_rom_ids() if name not in _SILENT]
    report = atari.check_atari(names, range(args.seeds), args.frames, strict=False, watch=show)
    for name, text in report.difference.items():
        print(f"{name}, {text}")
    return int(bool(report.difference))


if __name__ == "__main__":
    raise SystemExit(main())
