"""One run from start to end: chunk loop, result, checkpoints, run directory, resuming.

`train` is the entry; programs come from `engine`, many runs together from `sweeps`.
"""
