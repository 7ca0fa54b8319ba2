"""Tiny environments with known values, each testing one part of an algorithm."""
