"""Environments written in JAX, one a file."""
