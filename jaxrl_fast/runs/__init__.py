"""One run from start to end: chunk loop, result, checkpoints, run directory, resuming."""
