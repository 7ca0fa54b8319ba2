"""Log rows as a CSV file, for spreadsheets and pandas: one line a row and member."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from jaxrl_fast.errors import writing
from jaxrl_fast.files import folders
from jaxrl_fast.logs.jsonl import number, numbers
from jaxrl_fast.logs.rows import FIXED, Row
from jaxrl_fast.logs.sinks import LoggedRun, Sink

HEAD = (*FIXED, "member")


def _begins(first: bytes) -> bool:
    """Return whether a file's first line is the head of such a log."""
    return first.rstrip().decode(errors="replace").split(",")[: len(HEAD)] == [*HEAD]


class CsvSink(Sink):
    """A CSV file: `env_steps`, `wall_seconds`, `steps_per_second`, `member`, then every metric.

    An empty cell has no value. A metric that first appears later is a new last column.
    """

    form = "csv:PATH"

    def __init__(self, path: str | Path):
        self.path, self._columns = Path(path), list(HEAD)
        self._file: Any = None

    @classmethod
    def of(cls, target: str, run: LoggedRun) -> CsvSink:
        """Return the sink of a new file, or a resumed run's log; else raises ConfigError."""
        return cls(run.log_file(target, _begins))

    def write(self, row: Row) -> None:
        fixed = [number(x, digits) if digits else int(x)
                 for digits, x in zip(FIXED.values(), row, strict=False)]
        values = {name: numbers(x) for name, x in row.metrics.items()}
        members = max(map(len, values.values()), default=1)
        with writing(self.path):
            self._widen(values)
            for i in range(members):
                cells = dict(zip(HEAD, [*fixed, i], strict=True))
                cells |= {name: x[i] for name, x in values.items() if i < len(x)}
                csv.writer(self._file).writerow([cells.get(name) for name in self._columns])
            self._file.flush()

    def _widen(self, names: Any) -> None:
        """Open the file with a column for each of `names`."""
        if self._file is None:
            self._columns = self._read()[0]
        new = [name for name in names if name not in self._columns]
        if new or not self.path.exists():
            self.close()
            lines = self._read()[1]
            self._columns = [*self._columns, *new]
            self._rewrite(lines)
        if self._file is None:
            self._file = open(self.path, "a", newline="")  # noqa: SIM115 - open as long as the sink

    def _read(self) -> tuple[list[str], list[dict[str, str]]]:
        """Return the columns and lines of the file; a torn last line is left out."""
        if not self.path.exists():
            return list(HEAD), []
        with open(self.path, newline="") as file:
            text = file.read()
        reader = csv.DictReader(text[: text.rfind("\n") + 1].splitlines(keepends=True))
        lines = list(reader)
        return list(reader.fieldnames or HEAD), lines

    def _rewrite(self, lines: list[dict[str, str]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with folders.replacing(self.path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(lines)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def cut(self, env_steps: int) -> None:
        """Drop the lines of later rows."""
        self.close()
        with writing(self.path):
            if self.path.exists():
                self._columns, lines = self._read()
                self._rewrite([line for line in lines if int(line["env_steps"]) <= env_steps])
