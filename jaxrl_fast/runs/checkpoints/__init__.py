"""Checkpoints: contents (`metadata`), saving and restoring (`save`), storage on disk (`store`)."""
