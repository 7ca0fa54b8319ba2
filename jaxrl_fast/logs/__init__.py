"""Logs of a run: rows, files, terminal, boards, plots.

`rows` makes a row, `sinks` is the protocol of a log's target, `progress` the display. No code here
knows training.
"""
