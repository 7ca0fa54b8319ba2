"""scripts/browser: an exported policy plays CartPole in Chromium, by onnxruntime-web."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import threading
from pathlib import Path

import jax
import pytest

import jaxrl_fast as jf
from helpers import browser
from jaxrl_fast.engine.config import RunConfig

EXAMPLE = Path(__file__).resolve().parents[1] / "scripts/browser"
# of `npm install` there
MODULES = Path(os.environ.get("JAXRL_FAST_NODE_MODULES", EXAMPLE / "node_modules"))


@pytest.mark.browser
def test_a_policy_plays_in_a_browser(tmp_path):
    assert (MODULES / "onnxruntime-web").is_dir(), "needs `npm install` in scripts/browser"
    env = jf.make("CartPole-v1")
    algo = jf.PPO(hidden=(8,)).bind(env.spec)
    jf.Agent(algo, env, RunConfig(), algo.init(jax.random.key(0))).export(
        tmp_path / "policy.onnx", "onnx")
    shutil.copy(EXAMPLE / "index.html", tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        page = browser.page(address, tmp_path / "profile", "--virtual-time-budget=20000")
        server.shutdown()
        thread.join()
    told = re.search(r'<p id="told">step \d+, mean of (\d+) episodes: ([\d.]+)</p>', page)
    assert told and int(told[1]) > 1 and 5 < float(told[2]) < 500, page[-500:]
