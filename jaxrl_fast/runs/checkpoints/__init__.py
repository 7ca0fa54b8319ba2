"""Checkpoints of a run: what of it is saved (`metadata`), when and where from (`save`), and how it lies on the disk (`store`).

`restore` is the way back for a run, `errors` what is said where one fails, `older_states` the states of older versions.
Knows the run directory's paths, not its other files.
"""
