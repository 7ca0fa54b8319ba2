"""Logs of a run: rows, files, terminal, boards, plots. No code here knows training."""
