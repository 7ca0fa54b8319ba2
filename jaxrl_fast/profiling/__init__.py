"""Where the time of an iteration goes, and what would save it: `jaxrl-fast profile`.

`timing` compiles, warms and times the real programs of a run; everything else here reads them.
"""
