"""Training on environments on the host: threads and processes step them for the learner.

`handover` gives rollouts to the learner and agents to the actors; `threads` and `ray` are the kinds
of actors, `on_host` the programs of such a run. Adapters of host environments are in `envs.host`.
"""
