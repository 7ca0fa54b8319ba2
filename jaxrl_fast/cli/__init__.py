"""The command `jaxrl-fast`: one file a command, `args` for flags that several have.

Commands check what was typed and call the library; nothing that a script could not do from Python is done here.
"""

from jaxrl_fast.cli.command import main

__all__ = ["main"]
