"""Programs of training: pure functions of settings, states and keys, and compilation.

`config` declares the settings of a run, `prepared` checks one, `memory_plan` refuses one that does
not fit, `iteration` is one rollout with its updates. The host's loop and the files of a run are in
`runs`.
"""
