"""Files and folders: locks, atomic writes, checksums, a checked reader of JSON."""
