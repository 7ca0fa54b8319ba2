"""gymnax's environments: by name, as a user's objects, and the package's loading."""
