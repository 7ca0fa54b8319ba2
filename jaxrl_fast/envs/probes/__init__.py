"""Tiny environments, each of which asks one thing of an algorithm; their answers are known."""
