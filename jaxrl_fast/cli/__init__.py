"""The command `jaxrl-fast`: one file a command, `args` for common flags.

Commands check the flags and call the library; a script can do the same from Python.
"""

from jaxrl_fast.cli.command import main

__all__ = ["main"]
