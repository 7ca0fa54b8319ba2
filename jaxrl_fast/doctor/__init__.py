"""What a machine and its installation can do, and what to change: `jaxrl-fast doctor`.

`facts` are what was found (`machine`, `software`, `child` read them, `limits` measures a device),
`checks` turn facts into advice, `report` prints both. Nothing here trains, or knows of a run.
"""
