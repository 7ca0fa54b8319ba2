"""Checksums of a folder's files, written when it is complete and verified before reading.

A sum modulo 2^64 of a file's 64-bit words, each times an odd number of its place: it detects every
change within a word, and takes half the time of CRC-32.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxrl_fast.files import forms

NAME = "checksums.json"
# files written after the checksums, or removed
LATER = (NAME, ".lock", "commit_success.txt", "_CHECKPOINT_METADATA")
# what readers open in a checkpoint or a memory; a user may add other files
READ = ("state", "meta", "store", "layout.json")
# how files of file managers and network disks begin
FOREIGN = ("._", ".nfs", ".DS_Store", "Thumbs.db", "desktop.ini")
POLL = 0.02  # seconds between two looks into a folder
_BLOCK = 1 << 15  # words with one power of `_GOLDEN`
_BLOCKS = 4  # read at once: they stay in the cache
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def write_checksums(folder: Path, early: Mapping[tuple, list[Any]] = MappingProxyType({})) -> None:
    """Write sizes and sums of all files below `folder` into it, soon after they were written.

    early: sums by (name, size, mtime in ns) of the file, see `early_checksums`.
    """
    sums = {name: early.get(_version(file)) or checksum(file) for name, file in _files(folder)}
    (folder / NAME).write_text(json.dumps(sums, indent=0) + "\n")


def early_checksums(files: Iterable[Path]) -> dict[tuple, list[Any]]:
    """Return the sums of complete files by (name, size, mtime in ns), for `write_checksums`."""
    return {_version(file): checksum(file) for file in files}


class EarlyChecksums:
    """Sums of files that match a pattern in a folder, each made in a thread once it rests.

    A file rests if two looks find the same size and time. Sums go by name, size and time, so that a
    renamed folder keeps them.
    """

    def __init__(self, folder: Path, pattern: str):
        self._folder, self._pattern = folder, pattern
        self._sums: dict[tuple, list[Any]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, name="checksums", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        before, tried = set[tuple](), set[tuple]()
        while not self._ends.wait(POLL):
            files = dict(_versions(self._folder.glob(self._pattern)))
            resting, before = (files.keys() & before) - tried, set(files)
            for version in resting:
                if self._ends.is_set():
                    return
                tried.add(version)
                with contextlib.suppress(OSError):  # read again, and reported, with all files
                    self._sums |= early_checksums([files[version]])

    def finish(self) -> dict[tuple, list[Any]]:
        """End the thread and return the sums by (name, size, mtime in ns)."""
        self._ends.set()
        self._thread.join()
        return self._sums


def verify_checksums(folder: Path) -> None:
    """Raise ValueError with the first file that differs; a folder without checksums passes."""
    if not (folder / NAME).exists():  # of an older version
        return
    written = forms.read_json(folder / NAME, "checksums", f"a table of checksums ({NAME})",
                              {"*": [(int, str)]})
    there = dict(_files(folder))
    for name in there.keys() - written.keys():
        if Path(name).parts[0] in READ and not Path(name).name.startswith(FOREIGN):
            raise ValueError(f"{NAME} lacks {name}")
    for name, expected in written.items():
        if name not in there:
            raise ValueError(f"{name} is missing")
        if checksum(there[name]) != expected:
            raise ValueError(f"{name} changed after it was written (its checksum differs)")


def checksum(file: Path) -> list[Any]:
    """Return [size, 16 hexadecimal digits]."""
    blocks = np.empty((_BLOCKS, _BLOCK), "<u8")
    flat, size, total = blocks.reshape(-1), 0, 0
    with open(file, "rb", buffering=0) as opened:
        while count := _fill(opened, memoryview(flat).cast("B")):
            words = -(-count // 8)
            flat.view(np.uint8)[count : 8 * words] = 0
            whole, rest = divmod(words, _BLOCK)
            sums = np.einsum("ij,j->i", blocks[:whole], _WEIGHTS).tolist()
            if rest:
                sums.append(int(np.einsum("i,i", flat[words - rest : words], _WEIGHTS[:rest])))
            for one in sums:
                total = (total * _GOLDEN + one) & _MASK
            size += count
    return [size, f"{total:016x}"]


def _version(file: Path) -> tuple[str, int, int]:
    """Return (name, size, mtime in ns): equal while the file is unchanged."""
    found = file.stat()
    return file.name, found.st_size, found.st_mtime_ns


def _versions(files: Iterable[Path]) -> Iterator[tuple[tuple[str, int, int], Path]]:
    """Yield (version, file) of the files that are there: orbax moves and deletes them meanwhile."""
    with contextlib.suppress(OSError):  # a folder that went
        for file in files:
            with contextlib.suppress(OSError):
                yield _version(file), file


def _fill(opened: Any, buffer: memoryview) -> int:
    done = 0
    while done < len(buffer) and (count := opened.readinto(buffer[done:])):
        done += count
    return done


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name not in LATER:
            yield str(file.relative_to(folder)), file


_WEIGHTS = np.arange(1, _BLOCK + 1, dtype="<u8") * np.uint64(_GOLDEN) | np.uint64(1)
