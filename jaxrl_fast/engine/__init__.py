"""The programs of training: an iteration, chunks, populations, evaluation, the memory plan.

This folder holds and compiles pure functions of settings, states and keys. `runs` writes files,
`actors` steps environments on the host.
"""
