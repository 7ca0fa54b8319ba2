"""Headless Chromium, for tests of the marker `browser`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu")


def page(address: str, profile: Path, *flags: str) -> str:
    """Return the HTML of a page once its scripts ran. `profile`: a folder for the browser's
    files."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "the marker `browser` needs Chromium on the PATH"
    command = [browser, *FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stderr[-2000:]
    return done.stdout
