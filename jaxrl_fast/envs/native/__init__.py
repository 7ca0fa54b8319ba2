"""Environments written in JAX here, one a file."""
