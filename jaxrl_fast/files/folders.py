"""Folders to write: where a path leads, whether it is writable, which process writes it.

A lock is a file `.lock` with its process, held by the operating system's lock. On a file system
without locks, the process in the file decides if it runs on this machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jaxrl_fast import distributed
from jaxrl_fast.errors import ConfigError, expected, writing
from jaxrl_fast.values import expand_home

LOCK = ".lock"
PROBE = ".probe-"  # begins the name of a folder that a killed process may leave
DEEPEST = ("x" * 100, "x" * 100)  # as long as any path below a run directory

# errors of fsync, or of opening a folder, where a file system has no such thing
NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES, errno.EISDIR)

Identity = tuple[int, int]  # (device, inode)

_held: set[Identity] = set()  # this process's lock files, which do not stop it
_names: list[int] = []  # the descriptor through which this process claims names


def folder_path(argument: str, path: str | Path) -> Path:
    """Return the folder of `path` ("new/../run" is run, ~ is home); raises ConfigError."""
    text = str(path) if isinstance(path, (str, os.PathLike)) else ""
    if not text.strip() or "\0" in text or (isinstance(path, Path) and path == Path()):
        raise ConfigError(argument, text or path, "the name of a folder")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        valid = "a name in UTF-8: checkpoints take no other; PYTHONUTF8=1 reads it as UTF-8"
        raise ConfigError(argument, text, valid) from error
    path = Path(expand_home(path))
    try:
        path.exists()  # raises for a name that is too long
        if ".." not in path.parts:
            return path
        found = path.resolve()
    except (OSError, RuntimeError) as error:
        raise not_writable(argument, path, error) from error
    if found.is_relative_to(Path.cwd()) and found != Path.cwd():
        return found.relative_to(Path.cwd())
    return found


def check_writable(argument: str, folder: Path) -> None:
    """Raise ConfigError unless files can be made in `folder`; tries, and leaves nothing behind."""
    probe = folder / f"{PROBE}{os.getpid()}-{os.urandom(4).hex()}"
    deep = probe / DEEPEST[0]
    made: list[Path] = []
    try:
        for path in (*reversed(deep.parents), deep):
            try:
                if not path.is_dir():
                    path.mkdir()
                    made.append(path)
            except FileExistsError:  # another process made it, or it is no folder
                if not path.is_dir():
                    raise
        with open(deep / DEEPEST[1], "xb") as file:
            file.write(bytes(4096))
    except OSError as error:
        raise not_writable(argument, folder, error) from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir()


def claim(folder: Path) -> bool:
    """Return whether no other process of this user has claimed this folder's name.

    The claim is a locked byte of one file among temporary files, and ends with the process. Where
    that file cannot be opened, every name is free.
    """
    if not _names:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = Path(tempfile.gettempdir(), f"jaxrl_fast-{os.getuid()}.names")
            descriptor = os.open(file, flags, 0o600)
        except OSError:
            return True
        if os.fstat(descriptor).st_uid != os.getuid():
            return True
        _names.append(descriptor)
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(folder)), digest_size=7).digest()
    try:
        fcntl.lockf(_names[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int.from_bytes(digest, "big"))
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new file beside `path` that atomically replaces it (links are not followed).

    Raises OSError for a device or a pipe, also behind a link such as /dev/stdout.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, no file", str(path))
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def sync(path: Path) -> None:
    """Write a file's bytes or a folder's names to the disk; raises OSError if it fails.

    Does nothing on a file system that cannot do so.
    """
    try:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


def not_writable(argument: str, path: Path, error: BaseException) -> ConfigError:
    text = str(path)
    if len(text) >= 300:
        text = f"{text[:60]}... ({len(text)} characters)"
    return ConfigError(argument, text,
                       f"a folder that can be written: {getattr(error, 'strerror', None) or error}")


def discard(folder: Path) -> None:
    """Remove the folder of a part that was killed before its first checkpoint; never a link."""
    trash = check_folder(folder)
    with writing(folder):
        if trash.exists():  # killed during an earlier removal
            shutil.rmtree(trash)
        if folder.exists():
            os.replace(folder, trash)
            shutil.rmtree(trash)


def check_folder(folder: Path) -> Path:
    """Return where `discard` moves `folder`; raises ConfigError if one is a link or a file."""
    trash = folder.with_name(folder.name + ".trash")
    for path in (folder, trash):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            found = "a file; move it elsewhere"
            if path.is_symlink():
                found = "a link; copy its target there"
            raise expected(str(path), "a folder in the run, to go on with it", found)
    return trash


def own_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files of `pattern` in `folder`, without pipes and links to other places."""
    root = os.path.realpath(folder)
    return [file for file in sorted(folder.glob(pattern))
            if file.is_file() and Path(os.path.realpath(file)).is_relative_to(root)]


class Lock:
    """A folder's lock while this process holds it."""

    def __init__(self, file: Path, descriptor: int):
        self.file, self.descriptor, self.key = file, descriptor, identity(descriptor)
        _held.add(self.key)

    def release(self) -> None:
        if self.key in _held:
            with contextlib.suppress(OSError):  # the folder may be gone
                if identity(self.file) == self.key:
                    self.file.unlink()
            _held.discard(self.key)
            os.close(self.descriptor)


def hold(argument: str, folder: Path, create: bool = False) -> Lock:
    """Lock the folder for this process; raises ConfigError, with the process that holds it."""
    file = folder / LOCK
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        for _ in range(20):
            who = holder(folder)
            if who:
                raise ConfigError(argument, str(folder),
                                  f"a folder that no other process writes: {who} does")
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            if _lock(descriptor) and identity(file) == identity(descriptor):
                about = {"pid": os.getpid(), "host": socket.gethostname(),
                         "since": time.strftime("%Y-%m-%d %H:%M:%S")}
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(about).encode(), 0)
                return Lock(file, descriptor)
            os.close(descriptor)  # another process was faster, or released the opened file
    except OSError as error:
        raise not_writable(argument, folder, error) from error
    raise ConfigError(argument, str(folder),
                      "a folder that no other process writes: several processes ask for it")


@contextlib.contextmanager
def hold_lock(argument: str, folder: Path, create: bool = False) -> Iterator[None]:
    """Hold the folder's lock for a block, in the first process; create: make the folder."""
    taken = distributed.on_first(lambda: (create and not folder.exists(),
                                          hold(argument, folder, create)))
    try:
        yield
    finally:
        if taken:
            new, lock = taken
            lock.release()
            with contextlib.suppress(OSError):  # created and left empty
                if new:
                    folder.rmdir()


def holder(folder: Path) -> str | None:
    """Return the process that writes to `folder` now, in words, or None."""
    file = folder / LOCK
    if identity(file) in _held:  # not even opened: closing it would release the lock
        return "this process"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if _lock(descriptor):
            return None
        about = _about(descriptor)
        if about:
            return f"process {about['pid']} on {about['host']}, since {about['since']},"
        return "another process"
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Return whether the lock on this file is now ours, until it is closed."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        about = _about(descriptor)  # a file system without locks
        return not about or (about["host"] == socket.gethostname() and not _lives(about["pid"]))
    return True


def _about(descriptor: int) -> dict | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(os.pread(descriptor, 1000, 0))
        if type(found["pid"]) is not int or not 0 < found["pid"] < 2**31:
            return None
        return {"pid": found["pid"], "host": str(found["host"])[:100],
                "since": str(found["since"])[:30]}
    return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def identity(path: Path | int) -> Identity | None:
    """Return (device, inode) of the file or folder that a path or descriptor leads to, or None."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
