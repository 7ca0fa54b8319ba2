"""Ask pyright, as an editor does, for the hover text of every setting: help and default.

    python .ci/types/hover.py FOLDER

Writes a program into FOLDER that names every setting of the algorithms, of the native environments
and of `jf.train`. The text of a name holds its help, the text of a class its settings' defaults.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from jaxrl_fast.algorithms import algorithm_class, list_algorithms
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs.native.source import SOURCE
from jaxrl_fast.fields import help_of
from jaxrl_fast.registry import imported


class Editor:
    """A client of the language server, which speaks JSON-RPC on its standard streams."""

    def __init__(self, folder: Path):
        pipe = subprocess.PIPE
        self.server = subprocess.Popen(["pyright-langserver", "--stdio"], stdin=pipe, stdout=pipe)
        self.ids = itertools.count()
        root = {"uri": folder.as_uri(), "name": "user"}
        self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={}, workspaceFolders=[root])
        self.send(method="initialized", params={})

    def send(self, **message: Any) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self.server.stdin.flush()

    def read(self) -> dict[str, Any]:
        heads = dict(line.split(b": ") for line in iter(self.server.stdout.readline, b"\r\n"))
        return json.loads(self.server.stdout.read(int(heads[b"Content-Length"])))

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request; tells the server in between which Python to look at."""
        known = next(self.ids)
        self.send(id=known, method=method, params=params)
        while True:
            answer = self.read()
            if "method" in answer and "id" in answer:
                items = answer["params"].get("items") if answer["method"] == "workspace/configuration" else None
                self.send(id=answer["id"], result=items and [{"pythonPath": sys.executable} for _ in items])
            elif answer.get("id") == known:
                return answer["result"]


def program() -> tuple[list[str], list[tuple[int, str, str]]]:
    """Return a user's lines, and (line, name, its help) of settings in them; a class has ""."""
    lines, wanted = ["import jaxrl_fast as jf"], []
    algorithms = [algorithm_class(name) for name in list_algorithms()]
    environments = [imported(path) for path in SOURCE.names.values()]
    for cls in (*algorithms, *environments):
        lines += [f"from {cls.__module__} import {cls.__name__}", f"def _(x: {cls.__name__}):"]
        wanted.append((len(lines) - 1, cls.__name__, ""))
        for field in dataclasses.fields(cls):
            if field.init and field.name != "spec":
                lines.append(f"    x.{field.name}")
                wanted.append((len(lines) - 1, field.name, help_of(cls, field.name) or "a help"))
    for field in dataclasses.fields(RunConfig):
        if field.name != "total_steps":
            lines.append(f"jf.train(jf.PPO(), jf.make('CartPole-v1'), {field.name}=...)")
            wanted.append((len(lines) - 1, field.name, help_of(RunConfig, field.name)))
    return lines, wanted


def main(folder: Path) -> None:
    lines, wanted = program()
    file = folder / "settings.py"
    file.write_text("\n".join(lines))
    editor = Editor(folder)
    document = {"uri": file.as_uri(), "languageId": "python", "version": 1, "text": file.read_text()}
    editor.send(method="textDocument/didOpen", params={"textDocument": document})
    plain, wrong = lambda text: "".join(c for c in text.lower() if c.isalnum()), []
    for line, name, text in wanted:
        position = {"line": line, "character": lines[line].rindex(name) + 1}
        found = editor.ask("textDocument/hover", textDocument={"uri": file.as_uri()}, position=position)
        shown = (found or {}).get("contents", {}).get("value", "")
        defaults = re.findall(r"^    \w+: .* = .*,?$", shown, flags=re.M)
        if not (plain(text) in plain(shown) if text else defaults):
            wrong.append(f"{lines[line].strip()}: {shown!r} without {text or 'defaults'!r}")
    editor.server.kill()
    file.unlink()
    print(f"{len(wanted) - len(wrong)} of {len(wanted)} names have their hover text")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
