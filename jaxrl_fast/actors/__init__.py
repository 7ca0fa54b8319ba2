"""Training on environments that step on the host: threads and processes that step them, and what they hand to the learner.

`watch` guards against environments that hang, `play` asks a policy for actions, `threads` and `ray` are the actors. How a run
is logged and saved is in `runs`; the environments themselves are in `envs/host`.
"""
