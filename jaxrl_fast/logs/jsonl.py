"""`metrics.jsonl`: rows to strict JSON lines and back, torn ends, cuts.

    {"env_steps": 2048, "wall_seconds": 0.31, "steps_per_second": 268000.0, "loss": 1.5, ...}

One object a line; a metric is a number, or a list over several members; null means not finite.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxrl_fast.errors import ConfigError, WriteError, writing
from jaxrl_fast.files import folders
from jaxrl_fast.files.forms import misfit
from jaxrl_fast.logs.rows import FIXED, Row
from jaxrl_fast.logs.sinks import LoggedRun, Sink

CELL = (int, float, type(None), [(int, float, type(None), bool)], bool)  # a value of a row
ROW = {**dict.fromkeys(FIXED, (int, float, type(None))), "env_steps": int, "*": CELL}


def number(value: Any, digits: int) -> float | None:
    value = float(value)
    return round(value, digits) if math.isfinite(value) else None


def numbers(values: Any) -> list[Any]:
    """Convert [K] of any dtype to Python numbers: float32's fewest digits, None if not finite."""
    array = np.atleast_1d(np.asarray(values)).reshape(-1)
    if array.dtype.kind in "iub":
        return [int(v) for v in array]
    if array.dtype.itemsize <= 4:
        texts = [str(v) for v in array.astype(np.float32)]
    else:
        texts = [f"{v:.9g}" for v in array.tolist()]
    return [v if math.isfinite(v) else None for v in map(float, texts)]


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a file, metrics as lists; raises ConfigError, but skips a torn end."""
    return [metrics_to_lists(row) for _, row in _lines(Path(path))]


def metrics_to_lists(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line's row with its metrics as lists, as `read_jsonl` does."""
    return {name: x if name in FIXED or isinstance(x, list) else [x] for name, x in row.items()}


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line, parse_constant=lambda text: text)  # NaN: a text fits no form
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return None
    return row if misfit(row, ROW) is None else None


def _check_regular(path: Path) -> None:
    """Raise ConfigError for a pipe or a device, which would never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigError("metrics", str(path), "a regular file")


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Return every line of the file with its row, without a torn last one."""
    _check_regular(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError("metrics", str(path),
                          f"a readable metrics.jsonl: {error.strerror}") from error
    rows = [(i, line, _parse(line)) for i, line in enumerate(lines, 1) if line.strip()]
    for i, _, row in rows[:-1]:
        if row is None:
            raise ConfigError("metrics", str(path),
                              f"a metrics.jsonl of jaxrl_fast; line {i} is damaged. Checkpoints "
                              "can be read without it; without the line, or the file, `train "
                              "--resume` (from Python: jf.resume) goes on and says which rows are "
                              "missing")
    return [(line, row) for _, line, row in rows if row is not None]


def mend(path: Path) -> None:
    """Make the file end with a whole line; a link becomes a file with its content."""
    _check_regular(path)
    if path.is_symlink():
        _replace(path, _whole(path) if path.exists() else b"")
    if not path.exists() or not path.stat().st_size:
        return
    data = path.read_bytes()
    if not data.endswith(b"\n") or _parse(data[data.rfind(b"\n", 0, -1) + 1 : -1]) is None:
        _replace(path, _whole(path))


def _whole(path: Path, env_steps: float = math.inf) -> bytes:
    """Return the whole lines of the rows up to `env_steps`, byte for byte."""
    return b"".join(line + b"\n" for line, row in _lines(path) if row["env_steps"] <= env_steps)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _replace(path: Path, content: bytes) -> None:
    with folders.replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        _sync(file)


def line_of(row: Row) -> bytes:
    for name in row.metrics:
        if name in FIXED:
            raise ConfigError("metric", name, f"a name other than {', '.join(FIXED)}")
    rounded = lambda x, digits: number(x, digits) if digits else int(x)
    record: dict[str, Any] = {name: rounded(x, digits)
                              for (name, digits), x in zip(FIXED.items(), row, strict=False)}
    for name, values in row.metrics.items():
        found = numbers(values)
        record[name] = found[0] if len(found) == 1 else found
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


class JsonlSink(Sink):
    """Lines of strict JSON, as in `metrics.jsonl`; the first row creates the file.

    Each row reaches the operating system at once and the disk in `flush`.
    """

    form = "jsonl:PATH"

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file: Any = None

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> JsonlSink:
        """Return the sink of a second file, new or a resumed run's; else raises ConfigError."""
        return cls(run.log_file(target, lambda first: _parse(first) is not None))

    def write(self, row: Row) -> None:
        line = line_of(row)
        with self._writing():
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                mend(self.path)
                self._file = open(self.path, "ab")  # noqa: SIM115 - open as long as the sink
            self._file.write(line)
            self._file.flush()
            if folders.identity(self._file.fileno()) != folders.identity(self.path):
                raise FileNotFoundError(errno.ENOENT, "it was removed while the run wrote it")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise WriteError for a file that cannot be written, and drop it with its buffer."""
        try:
            yield
        except OSError as error:
            file, self._file = self._file, None
            with contextlib.suppress(OSError, AttributeError):
                file.close()
            raise WriteError(self.path, error) from error

    def flush(self) -> None:
        if self._file is not None:
            with self._writing():
                _sync(self._file)

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def cut(self, env_steps: int) -> None:
        """Replace the file, if it is there, by its rows up to `env_steps`."""
        self.close()
        with writing(self.path):
            content = _whole(self.path, env_steps) if self.path.exists() else None
            if content is not None and content != self.path.read_bytes():
                _replace(self.path, content)
