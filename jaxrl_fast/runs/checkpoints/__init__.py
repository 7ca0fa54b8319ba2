"""Checkpoints: contents (`metadata`), saving and restoring (`save`), storage on disk (`store`).

`errors` has the messages of failures, `older_states` the states of older versions.
"""
