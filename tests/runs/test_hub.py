"""A model hub on loopback, behind the real client: what is pushed is loaded again."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import jaxrl_fast as jf
from helpers import runs as tools
from jaxrl_fast.errors import MissingExtraError
from jaxrl_fast.fields import changed_settings
from jaxrl_fast.runs import hub, pictures

SHA = "0" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """The part of a hub that the client asks for: repositories with one revision."""

    protocol_version = "HTTP/1.1"
    repositories: dict[str, dict[str, bytes]] = {}
    private: dict[str, bool] = {}

    def answer(self, content: bytes | dict | list, code: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), "X-Repo-Commit": SHA,
                            **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.partition("?")[0].strip("/").split("/")
        if self.headers.get("Authorization") != "Bearer secret":
            return self.answer({"error": "no token"}, 401)
        if parts == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.repositories.setdefault(name, {})
            self.private[name] = (
                asked.get("private") is True or asked.get("visibility") == "private")
            return self.answer({"url": f"http://{self.headers['Host']}/{name}"})
        if parts == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        name = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [{"path": x["path"], "uploadMode": "regular", "shouldIgnore": False}
                     for x in json.loads(body)["files"]]
            return self.answer({"files": files})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.repositories[name][line["value"]["path"]] = base64.b64decode(
                    line["value"]["content"])
        return self.answer(
            {"commitUrl": f"http://{self.headers['Host']}/{name}/commit/{SHA}", "commitOid": SHA})

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[0] == "api":
            name = "/".join(parts[2:4])
            if name not in self.repositories:
                return self.answer({"error": "not found"}, 404, X_Error_Code="RepoNotFound")
            if "tree" in parts:
                sizes = {file: len(content) for file, content in self.repositories[name].items()}
                return (
                    self.answer([{
                        "type": "file", "path": file, "size": n, "oid": SHA
                    } for file, n in sizes.items()])
                )
            siblings = [{"rfilename": file} for file in self.repositories[name]]
            return self.answer(
                {"id": name, "sha": SHA, "siblings": siblings, "private": self.private[name]})
        name, file = "/".join(parts[:2]), "/".join(parts[4:])
        content = self.repositories[name][file]
        self.answer(content, ETag=f'"{hashlib.sha1(content).hexdigest()}"')

    do_HEAD = do_GET

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """The repositories of a hub that `huggingface_hub` talks to."""
    Hub.repositories, Hub.private = {}, {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_TOKEN", "secret")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        forget()  # the client reads the environment at its import
        yield Hub.repositories
        server.shutdown()
        thread.join()
        forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "run"
    tools.train("ppo", path, seeds=2, batching="vmap")
    frames = [np.full((6, 8, 3), 20 * i, np.uint8) for i in range(9)]
    pictures.rollout_gif(frames, path / "rollout.gif")
    return path


@pytest.mark.hub
def test_a_policy_goes_to_the_hub_and_comes_back(trained, remote, run_cli):
    code, out, err = run_cli("push", str(trained), "hf://me/cart-pole", "--member", "1",
                             "--private")
    assert code == 0 and "/me/cart-pole" in out and "jf.load('hf://me/cart-pole')" in out, err
    files = remote["me/cart-pole"]
    assert {"README.md", "config.json", "policy.safetensors", "rollout.gif"} <= set(files)
    assert (
        not [file for file in files if file.endswith((".pkl", ".pickle", ".py", ".bin"))]
        and Hub.private["me/cart-pole"]
    )
    card = files["README.md"].decode()
    scores = tools.read(trained / "result.json")["eval_return"]
    assert (
        f"{np.mean(scores):,.2f}" in card and "library_name: jaxrl_fast" in card
        and "mean_reward" in card
    )
    assert (
        "![rollout](rollout.gif)" in card and 'jf.load("hf://me/cart-pole")' in card
        and "| `num_envs` | 4 |" in card
    )
    shown = dict(re.findall(r"\| `(\w+)` \| (.*) \|", card))
    assert shown == {name: str(x) for name, x in changed_settings(tools.algorithm("ppo")).items()}
    agent, again = jf.load(trained, member=1), jf.load("hf://me/cart-pole@main")
    tools.assert_same(again.state.params, agent.state.params)
    assert again.score == agent.score


@pytest.mark.hub
def test_a_repository_without_a_policy_is_refused(trained, remote):
    with pytest.raises(jf.ConfigError,
                       match=r"path must be a repository that can be read .*got 'hf://me/nothing'"):
        jf.load("hf://me/nothing")
    remote["me/other"] = {"README.md": b"", "config.json": b"{}"}
    Hub.private["me/other"] = False
    with pytest.raises(jf.ConfigError,
                       match=r"a repository that `jaxrl-fast push` wrote.*; it has no "
                             r"policy.safetensors"):
        jf.load("hf://me/other")
    remote["me/code"] = {"config.json": b"{}", "policy.safetensors": b"\x80\x04K\x01.",
                         "evil.py": b"raise SystemExit"}
    Hub.private["me/code"] = False
    with pytest.raises(jf.ConfigError, match="config"):
        jf.load("hf://me/code")


@pytest.mark.hub
def test_a_hub_that_refuses_is_one_line(trained, remote, monkeypatch, run_cli):
    monkeypatch.setenv("HF_TOKEN", "wrong")
    forget()
    code, _, err = run_cli("push", str(trained), "hf://me/mine")
    assert (
        code == 1 and err.count("\n") == 1 and "the hub did not take me/mine" in err and not remote)
    assert "`hf auth login` sets a token" in err
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens: no token helps
    forget()
    code, _, err = run_cli("push", str(trained), "hf://me/mine")
    assert code == 1 and "the hub did not take me/mine" in err and "auth login" not in err


@pytest.mark.parametrize("text", ["hf://me", "hf://", "hf://a/b/c", "hf://a/b@", "hf://a b/c", 3])
def test_bad_addresses(text):
    with pytest.raises(jf.ConfigError, match="target must be hf://OWNER/NAME or"):
        hub.repository("target", text)
    assert hub.repository("target", "hf://a/b-1.c@v1/x") == ("a/b-1.c", "v1/x")


def test_a_push_names_the_missing_extra(trained, run_cli, modules):
    assert "hf://OWNER/NAME must be given, got none" in run_cli("push", str(trained))[2]
    assert "target must be hf://OWNER/NAME" in run_cli("push", str(trained), "me/mine")[2]
    modules(huggingface_hub=None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxrl_fast\[hub\]'"):
        jf.load("hf://me/mine")
