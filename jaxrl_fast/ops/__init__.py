"""Pure maths on arrays: returns, losses, distributions, optimizers, statistics, frame stacks.

Knows nothing of environments, networks or algorithms.
"""
