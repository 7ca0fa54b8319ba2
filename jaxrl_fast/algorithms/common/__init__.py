"""Parts that several algorithms share: actor-critics, replay, value-based learning, control.

An algorithm that `jaxrl-fast list` names has its own file beside this folder.
"""
