"""Ask pyright, as an editor does, for the hover text of every setting, and for what it completes.

    python .ci/types/hover.py FOLDER

Writes a program into FOLDER that names every setting of the algorithms, of the native environments
and of `jf.train`. The text of a name holds its help, the text of a class its settings' defaults.
Completion has every public name, the names of the native environments, and the settings of calls.
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

import jaxrl_fast as jf
from jaxrl_fast.algorithms import algorithm_class, list_algorithms
from jaxrl_fast.engine.config import RunConfig
from jaxrl_fast.envs.native.source import SOURCE
from jaxrl_fast.envs.registry import settings_of
from jaxrl_fast.fields import help_of
from jaxrl_fast.registry import import_object


class Editor:
    """A client of the language server, which speaks JSON-RPC on its standard streams."""

    def __init__(self, folder: Path):
        pipe = subprocess.PIPE
        self.server = subprocess.Popen(["pyright-langserver", "--stdio"], stdin=pipe, stdout=pipe)
        self.ids = itertools.count()
        root, can = {"uri": folder.as_uri(), "name": "user"}, {"workspace": {"configuration": True}}
        self.ask("initialize", processId=None, rootUri=folder.as_uri(),
                 capabilities=can, workspaceFolders=[root])
        self.send(method="initialized", params={})

    def send(self, **message: Any) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self.server.stdin.flush()

    def read(self) -> dict[str, Any]:
        heads = dict(line.split(b": ") for line in iter(self.server.stdout.readline, b"\r\n"))
        return json.loads(self.server.stdout.read(int(heads[b"Content-Length"])))

    def open(self, file: Path, text: str) -> None:
        file.write_text(text)
        document = {"uri": file.as_uri(), "languageId": "python", "version": 1, "text": text}
        self.send(method="textDocument/didOpen", params={"textDocument": document})

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request; tells the server in between which Python to look at."""
        known = next(self.ids)
        self.send(id=known, method=method, params=params)
        while True:
            answer = self.read()
            if "method" in answer and "id" in answer:
                items = (
                    answer["params"].get("items") if answer["method"] == "workspace/configuration"
                    else None
                )
                self.send(id=answer["id"], result=items
                          and [{"pythonPath": sys.executable} for _ in items])
            elif answer.get("id") == known:
                return answer["result"]


def program() -> tuple[list[str], list[tuple[int, str, str]]]:
    """Return a user's lines, and (line, name, its help) of settings in them; a class has ""."""
    lines, wanted = ["import jaxrl_fast as jf"], []
    algorithms = [algorithm_class(name) for name in list_algorithms()]
    environments = [import_object(path) for path in SOURCE.names.values()]
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


def calls() -> dict[str, set[str]]:
    """Return what an editor must offer, by the line before the cursor."""
    keywords = lambda cls: {f.name for f in dataclasses.fields(cls) if f.init and f.name != "spec"}
    run = keywords(RunConfig)
    known = {"jf.": set(jf.__all__), 'jf.make("': set(SOURCE.names)}
    known |= {f'jf.make("{name}", ': set(settings_of(name)) for name in SOURCE.names}
    known |= {f"{name}(": keywords(getattr(jf, name[3:]))
              for name in ("jf.PPO", "jf.DQN", "jf.SAC")}
    begun = "(jf.PPO(), jf.make('CartPole-v1'), "  # no number: pyright completes nothing after one
    known |= {f"jf.{name}{begun}": run for name in ("train", "plan")}
    return known | {f"jf.sweep{begun}": run - {"population"}}


def completed(editor: Editor, folder: Path) -> list[str]:
    """Return a line for each call whose names an editor does not offer."""
    missing = []
    for i, (line, names) in enumerate(calls().items()):
        file = folder / f"call_{i}.py"
        ends = "" if line.endswith(".") else '")' if line.endswith('"') else ")"
        editor.open(file, f"import jaxrl_fast as jf\n{line}{ends}")
        at = {"line": 1, "character": len(line)}
        found = editor.ask("textDocument/completion", textDocument={"uri": file.as_uri()},
                           position=at) or {}
        offered = {item["label"].strip("='\"") for item in found.get("items", ())}
        if names - offered:
            missing.append(f"{line} is not completed with {sorted(names - offered)}")
        file.unlink()
    print(f"{len(calls()) - len(missing)} of {len(calls())} calls are completed")
    return missing


def main(folder: Path) -> None:
    lines, wanted = program()
    file = folder / "settings.py"
    editor = Editor(folder)
    editor.open(file, "\n".join(lines))
    plain, wrong = lambda text: "".join(c for c in text.lower() if c.isalnum()), []
    for line, name, text in wanted:
        position = {"line": line, "character": lines[line].rindex(name) + 1}
        found = editor.ask("textDocument/hover", textDocument={"uri": file.as_uri()},
                           position=position)
        shown = (found or {}).get("contents", {}).get("value", "")
        defaults = re.findall(r"^    \w+: .* = .*,?$", shown, flags=re.M)
        if not (plain(text) in plain(shown) if text else defaults):
            wrong.append(f"{lines[line].strip()}: {shown!r} without {text or 'defaults'!r}")
    print(f"{len(wanted) - len(wrong)} of {len(wanted)} names have their hover text")
    wrong += completed(editor, folder)
    editor.server.kill()
    file.unlink()
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
