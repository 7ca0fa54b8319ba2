"""Training on environments on the host: threads and processes step them for the learner.

`watch` guards against hanging environments, `play` asks a policy for actions, `threads` and `ray`
are the actors. `runs` logs and saves; the environments are in `envs/host`.
"""
