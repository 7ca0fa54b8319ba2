"""Trained policies on a model hub: `jf.load("hf://owner/name")` and `jaxrl-fast push`."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_fast import tree
from jaxrl_fast.errors import ConfigError, RunError, brief, import_optional
from jaxrl_fast.fields import changed_settings
from jaxrl_fast.files import folders
from jaxrl_fast.ops.aggregate import span
from jaxrl_fast.runs.agent import Agent
from jaxrl_fast.runs.export.safetensors import FOLDER
from jaxrl_fast.runs.rundir import RunDir, run_path

PREFIX = "hf://"
PICTURES = ("rollout.gif", "curve.png")  # of a run directory, for the model card


def is_remote(path: Any) -> bool:
    return isinstance(path, str) and path.startswith(PREFIX)


def repository(argument: str, text: Any) -> tuple[str, str | None]:
    """Return (owner/name, revision or None) of "hf://owner/name[@revision]"."""
    found = re.fullmatch(rf"{PREFIX}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?",
                         text if isinstance(text, str) else "")
    if found is None:
        raise ConfigError(argument, text, f"{PREFIX}OWNER/NAME or {PREFIX}OWNER/NAME@REVISION")
    return found[1], found[2]


def _library() -> Any:
    return import_optional("huggingface_hub", "a model hub", "hub", "snapshot_download")


def fetch(argument: str, text: str) -> Path:
    """Return the folder of a policy from the hub's cache on this machine, downloaded if needed.

    Only config.json and the arrays are taken; nothing of the repository runs.
    """
    name, revision = repository(argument, text)
    library = _library()
    try:
        there = library.snapshot_download(name, revision=revision, allow_patterns=list(FOLDER))
    except Exception as error:
        raise ConfigError(argument, text,
                          f"a repository that can be read ({brief(error)})") from error
    folder = Path(there)
    missing = [file for file in FOLDER if not (folder / file).is_file()]
    if missing:
        raise ConfigError(argument, text,
                          f"a repository that `jaxrl-fast push` wrote; it has no {missing[0]}")
    return folder


def push(run: str | Path, agent: Agent, target: str, private: bool = False) -> str:
    """Upload an agent of a run directory with its model card, and return the address.

    The card has scores, the video, the learning curve, settings, and how to use the policy.

    Raises:
        ConfigError: for a folder that holds no run, or a bad `target`.
        RunError: if the hub refuses or cannot be reached.
    """
    name, revision = repository("target", target)
    if revision:
        raise ConfigError("target", target, f"{PREFIX}{name}: a push goes to the newest revision")
    library, run = _library(), run_path("run", run)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "policy"
        agent.export(folder, "safetensors")
        pictures = [file for file in PICTURES if folders.own_files(run, file)]
        for file in pictures:
            shutil.copy(run / file, folder / file)
        (folder / "README.md").write_text(model_card(library, agent, run, name, pictures))
        try:
            api = library.HfApi()
            address = str(api.create_repo(name, private=private, exist_ok=True))
            message = f"{agent.algo.name} on {agent.environment}"
            api.upload_folder(repo_id=name, folder_path=str(folder), commit_message=message)
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            refused = status in (401, 403) or "Token" in type(error).__name__
            hint = "; `hf auth login` sets a token" if refused else ""
            raise RunError(f"the hub did not take {name}: {brief(error)}{hint}") from error
    return address


def model_card(library: Any, agent: Agent, run: Path, name: str, pictures: Sequence[str]) -> str:
    """Return README.md of the repository, with the hub's metadata."""
    title, scores = f"{agent.algo.name} on {agent.environment}", _scores(agent, run)
    results = [
        library.EvalResult(
            task_type="reinforcement-learning", dataset_type=agent.environment,
            dataset_name=agent.environment,
            metric_type="mean_reward", metric_value=round(float(np.mean(scores)), 2),
        )
    ] if scores else []  # fmt: skip
    data = library.ModelCardData(
        library_name="jaxrl_fast", model_name=title, eval_results=results,
        tags=["reinforcement-learning", "jax", agent.algo.name, agent.environment],
    )  # fmt: skip
    final = f"{np.mean(scores):,.2f}{span(np.array(scores))}" if scores else "not evaluated"
    members = f" ({len(scores)} members)" if len(scores) > 1 else ""
    changed = changed_settings(tree.as_numbers(agent.algo)).items()
    settings = "\n".join(f"| `{key}` | {value} |" for key, value in changed if key != "spec")
    shown = "\n\n".join(f"![{file.partition('.')[0]}]({file})" for file in pictures)
    return f"""---
{data.to_yaml()}
---
# {title}

Trained with jaxrl_fast. Final return{members}: {final}.

{shown}

```python
import jaxrl_fast as jf

agent = jf.load("{PREFIX}{name}")
print(agent.evaluate(episodes=16))
agent.video().save("agent.gif")
```

`config.json` holds every setting: `jaxrl-fast train --config config.json` trains it again.

| setting | value |
|---|---|
{settings}
"""


def _scores(agent: Agent, run: Path) -> list[float]:
    """Return the final returns of the members, or the agent's own."""
    result = RunDir(run).result() if (run / "result.json").is_file() else {}
    found = [x for x in result.get("eval_return") or () if x is not None]
    return found or ([agent.score] if agent.score is not None else [])
