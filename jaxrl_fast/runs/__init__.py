"""One run from start to end: chunk loop, result, checkpoints, run directory, resuming.

`train` opens a run, `loop` drives it, `checkpoints/save` writes and restores it. Compiled programs
are in `engine`, many runs in `sweeps`.
"""
