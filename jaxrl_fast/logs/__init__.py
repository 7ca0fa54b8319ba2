"""Where the numbers of a run go: log rows, metrics.jsonl, the terminal, TensorBoard and W&B, pictures of curves.

Knows nothing of training: rows come in as names and numbers.
"""
