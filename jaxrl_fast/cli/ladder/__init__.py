"""`jaxrl-fast ladder`: one task, learned faster and faster. `rungs` runs them, `command` prints and draws them."""
