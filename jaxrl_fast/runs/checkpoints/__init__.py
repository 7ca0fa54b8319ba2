"""Checkpoints: contents (`metadata`), saving and restoring (`save`), disk (`store`)."""
