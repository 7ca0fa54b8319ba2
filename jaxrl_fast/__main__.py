"""`python -m jaxrl_fast` is `jaxrl-fast`."""

import sys

from jaxrl_fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
