"""What the tests of the command line share."""

from __future__ import annotations

import pytest

from jaxrl_fast.cli import command as cli


@pytest.fixture
def run_cli(capsys):
    """(exit code, stdout, stderr) of a command line, in this process."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = cli.main(list(argv))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
