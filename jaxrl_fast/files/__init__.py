"""Files and folders: locks, atomic writes, checksums, a checked reader of JSON.

The meaning of a run's files is in `runs`.
"""
