"""A trained agent as a file for other programs; each format is a module (`formats`)."""
