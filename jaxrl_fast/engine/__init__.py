"""The programs that train: one iteration, chunks of them, populations, evaluation, the memory plan.

Everything here is a pure function of settings, states and keys, or compiles one. Nothing is written to a disk here, and no
environment on the host is stepped: see `runs` and `actors`.
"""
