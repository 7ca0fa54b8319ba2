"""The time of an iteration by part, and ways to save it: `jaxrl-fast profile`.

`timing` compiles, warms and times the real programs of a run; everything else here reads them.
"""
