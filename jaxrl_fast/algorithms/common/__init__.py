"""What several algorithms share: actor-critics, replay, value-based learning, control, evolution, normalisation.

An algorithm that a user can name has a file of its own beside this folder.
"""
