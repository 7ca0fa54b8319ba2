"""Many runs: sweeps, searches, their results, and comparisons of runs.

`configurations` lists the settings to try, `samplers` their distributions, `selection` PBT and
halving. One run is in `runs`.
"""
