"""A notebook's shell that keeps what a cell shows."""

from __future__ import annotations

from typing import Any


class Shell:
    """IPython's shell of a kernel, as far as the display sees it."""

    kernel = None

    def __init__(self, fails: bool = False):
        self.sent: list[tuple[dict[str, str], str, bool]] = []  # (data, its output's id, updates)
        self.fails, self.display_pub = fails, self

    def publish(self, data: dict[str, str], metadata: Any, transient: Any, update: bool) -> None:
        if self.fails:
            raise OSError("the front end is gone")
        self.sent.append((data, transient["display_id"], update))

    @property
    def pages(self) -> list[str]:
        return [data["text/html"] for data, _, _ in self.sent]

    @property
    def pictures(self) -> list[tuple[dict[str, str], str, bool]]:
        return [one for one in self.sent if one[1].endswith("-picture")]
