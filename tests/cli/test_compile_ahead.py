"""`jaxrl-fast compile` fills the compile cache that a run in another process and folder hits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = (
    "ppo CartPole-v1 --total-steps 640 --algo.num-envs 4 --algo.num-steps 8 --algo.hidden 8 "
    "--eval-episodes 2"
)
CODE = """
import collections, sys
import jax
update = jax.config.update  # keep programs however fast they compile
jax.config.update = lambda name, value: update(name, 0.0 if "compile_time" in name else value)
from jaxrl_fast.cli import main
seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.rpartition("/")[2]]))
code = main(sys.argv[1:])
print(code, seen["cache_hits"], seen["cache_misses"])
"""


def run(line: str, folder: Path, cache: Path) -> tuple[list[int], set[str], str]:
    """Run a command line in `folder` -> ([exit code, hits, misses], programs in the cache, its
    output)."""
    folder.mkdir()
    own = {k: v
           for k, v in os.environ.items() if not k.startswith(
               ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE"))}
    ended = subprocess.run([sys.executable, "-c", CODE, *line.split()],
                           env=own | {"JAXRL_FAST_CACHE": str(cache)},
                           cwd=folder, capture_output=True, text=True, timeout=280)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    *text, last = ended.stdout.splitlines()
    return [int(x) for x in last.split()], {p.name for p in cache.glob("*-cache")}, "\n".join(text)


@pytest.mark.matrix(
    "tests/engine/test_programs.py::test_compiled_programs_are_kept_in_the_users_folder")
def test_a_second_process_in_another_folder_hits_the_cache(tmp_path):
    cache = tmp_path / "cache"
    (code, hits, _), made, text = run(f"compile {SETTINGS}", tmp_path / "first", cache)
    assert code == 0 and hits == 0 and made
    assert f"compile cache: {cache}" in text and "init, chunk, evaluate" in text
    assert not list((tmp_path / "first").iterdir())
    (code, hits, _), after, _ = run(f"train {SETTINGS} --seed 5 --no-pictures --no-tensorboard",
                                    tmp_path / "second", cache)
    names = lambda files: {name.split("-")[0] for name in files}
    # the chunk, the evaluation
    assert code == 0 and hits == len(made) and {"jit__lambda", "jit_score"} <= names(made)
    # a run compiles another, small function without a name
    assert not names(after - made) & {"jit_init", "jit_score"}


@pytest.mark.parametrize(
    ("line", "cache", "error"),
    [
        ("compile ppo gym:CartPole-v1", None,
         "environment must be one on the device, got 'CartPole-v1'"),
        ("compile ppo CartPole-v1", "off",
         "JAXRL_FAST_CACHE must be a folder or unset, got 'off': compile fills"),
        ("compile ppo", None,
         "ENV must be an environment, got none: jaxrl-fast compile ppo CartPole-v1"),
    ],
)
def test_nothing_to_fill(line, cache, error, run_cli, monkeypatch):
    if cache:
        import jax

        monkeypatch.setenv("JAXRL_FAST_CACHE", cache)
        before = jax.config.jax_compilation_cache_dir
        jax.config.update("jax_compilation_cache_dir", None)
        try:
            code, _, err = run_cli(*line.split())
        finally:
            jax.config.update("jax_compilation_cache_dir", before)
    else:
        code, _, err = run_cli(*line.split())
    assert code == 2 and f"jaxrl-fast: error: {error}" in err
