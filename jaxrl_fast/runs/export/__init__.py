"""A trained agent as a file for other programs; a format is a module with a line in `formats`."""
