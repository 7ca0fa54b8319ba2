"""Files and folders by themselves: locks, atomic writes, checksums, and a checked reader of JSON.

What the files of a run mean is in `runs`.
"""
