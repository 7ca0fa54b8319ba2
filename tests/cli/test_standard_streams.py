"""A command whose streams, working directory or file names cannot be used."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest

from jaxrl_fast.cli import command

pytestmark = pytest.mark.usefixtures("nothing_compiles")


def test_a_closed_stdout_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert command.main(["list"]) == 0


class Full(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_stdout_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Full())
    assert command.main(["list"]) == 1
    assert "cannot write to stdout or stderr" in capsys.readouterr().err


def test_a_removed_working_directory_is_named(run_cli, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = run_cli("train", "ppo", "CartPole-v1", "--total-steps", "256")
    assert code == 1
    assert "the working directory is gone" in err


def test_an_out_that_is_no_utf8_is_refused(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = b"l\xe4uf".decode("utf-8", "surrogateescape")
    code, _, err = run_cli("train", "ppo", "CartPole-v1", "--total-steps", "256", "--out", name)
    assert code == 2
    assert "--out must be a name in UTF-8" in err
    assert not list(tmp_path.iterdir())
