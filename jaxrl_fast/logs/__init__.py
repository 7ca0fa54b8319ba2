"""Logs of a run: rows, metrics.jsonl, the terminal, TensorBoard and W&B, plots of curves.

No code here knows training: rows are names and numbers.
"""
