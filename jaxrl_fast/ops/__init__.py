"""Pure maths on arrays: returns, losses, distributions, optimizers, statistics, stacks.

No code here knows environments, networks or algorithms.
"""
