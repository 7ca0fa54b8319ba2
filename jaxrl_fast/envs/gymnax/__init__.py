"""Environments of gymnax: by name, as objects of a user, and what is loaded of the package."""
