"""`python -m jaxrl_fast` runs `jaxrl-fast`, without the working directory on `sys.path`."""

import os
import sys
from pathlib import Path

import jaxrl_fast
from jaxrl_fast.cli.command import main

if __name__ == "__main__":
    here, source = os.getcwd(), Path(jaxrl_fast.__file__).parents[1]
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # added by Python's `-m`
    if sys.path[:1] in ([here], [""]) and here not in (str(source), *asked):
        del sys.path[0]
    sys.exit(main())
