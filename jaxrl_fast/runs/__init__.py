"""One run from its start to its end: the chunk loop, what it returns, checkpoints, the run directory, loading and resuming.

`train` is the way in; what is compiled comes from `engine`, and many runs together are in `sweeps`.
"""
