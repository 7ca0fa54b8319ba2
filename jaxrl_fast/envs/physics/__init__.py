"""Environments of brax and MuJoCo Playground: what they share, an adapter each, and randomised physics."""
