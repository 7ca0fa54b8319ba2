"""The command `jaxrl-fast`: one file a command, `args` for common flags.

A flag of a run is a setting in `engine.config`; a flag of one command is an `Option` in its file.
Commands check the flags and call the library; a script can do the same from Python.
"""

from jaxrl_fast.cli.command import main

__all__ = ["main"]
