"""The programs of training: pure functions of settings, states and keys, and their compilation."""
