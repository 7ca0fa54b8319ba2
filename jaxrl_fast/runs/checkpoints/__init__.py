"""Checkpoints: contents (`metadata`), saving (`save`), storage on disk (`store`), `restore`.

`errors` has the messages of failures, `older_states` the states of older versions. This folder
knows the run directory's paths, not its other files.
"""
