"""`jaxrl-fast ladder`: one task, learned faster by rung; `rungs` trains, `command` prints."""
