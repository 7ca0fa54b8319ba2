"""Abilities and faults of a machine and its installation: `jaxrl-fast doctor`.

`facts` holds the findings (`machine`, `software`, `child` read them, `limits` measures a device),
`checks` turn facts into advice, `report` prints both. Nothing here trains, or knows of a run.
"""
