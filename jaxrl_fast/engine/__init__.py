"""Programs of training: pure functions of settings, states and keys, and compilation."""
