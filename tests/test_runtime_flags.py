"""The XLA flag without which jaxlib 0.10 hangs is set where needed, and the user's own is kept."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys

import pytest

from jaxrl_fast import runtime

FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
RUNTIME = "from jaxrl_fast import runtime; "
LATE = "import jax; jax.devices(); "
FORK = """
import json, os, sys
import jax, numpy  # what takes long; this package reads XLA_FLAGS when it is imported

for i, (before, flags) in enumerate(json.loads(sys.argv[1])):
    child = os.fork()  # JAX's backend has not started
    if not child:
        if flags is not None:
            os.environ["XLA_FLAGS"] = flags
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{i}.{name}", os.O_CREAT | os.O_WRONLY), stream)
        exec(before)
        import jaxrl_fast
        print(os.environ.get("XLA_FLAGS", ""))
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, (before, flags)
"""
MATH = "--xla_cpu_enable_fast_math=false"
CASES = {"none": ("", None), "own": ("", MATH), "own scheduler": ("", f"{FLAG}=true"),
         "loops": (f"{RUNTIME}runtime.request_loop_kernels(); ", None),
         "late loops": (f"{LATE}{RUNTIME}assert not runtime.request_loop_kernels(); ", None),
         "file": ("", "flags"), "no file": ("", "none"), "late": (LATE, None)}


@pytest.fixture(scope="module")
def imported(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """(XLA_FLAGS, stderr) after `import jaxrl_fast` by case, in processes that one with JAX has
    forked."""
    folder = tmp_path_factory.mktemp("flags")
    (folder / "flags").write_text(f"{MATH}\n--xla_dump_to=\n")
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    ended = subprocess.run([sys.executable, "-c", FORK, json.dumps([*CASES.values()])], env=env,
                           cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    read = lambda i, name: (folder / f"{i}.{name}").read_text()
    return {case: (read(i, "out"), read(i, "err")) for i, case in enumerate(CASES)}


def test_the_flag_is_set_only_for_hanging_jaxlibs(imported):
    out, _ = imported["none"]
    assert out.split() == ([f"{FLAG}=false"] if runtime.vmap_hangs_on_cpu() else [])


def test_an_import_without_jaxlib_says_what_to_install():
    code = ("from importlib import metadata\nfind = metadata.version\n"
            "def version(name):\n"
            "    if name == 'jaxlib': raise metadata.PackageNotFoundError(name)\n"
            "    return find(name)\n"
            "metadata.version = version\n"
            "try: import jaxrl_fast\n"
            "except ImportError as error: print(error)")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "jaxlib must be installed, got none: pip install jax\n", ended.stderr


def test_the_users_flags_stay(imported):
    assert imported["own"][0].split()[0] == MATH
    if runtime.vmap_hangs_on_cpu():
        assert imported["own scheduler"][0].split() == [f"{FLAG}=true"]


def test_a_file_of_flags_is_read(imported):
    out, err = imported["file"]
    kept = [MATH, "--xla_dump_to="]
    assert out.split() == ([*kept, f"{FLAG}=false"] if runtime.vmap_hangs_on_cpu()
                           else ["flags"]), err
    assert imported["no file"][0].strip() == "none"


def test_loops_become_kernels_on_request_before_the_backend_starts(imported):
    flag = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold="
    assert flag in imported["loops"][0]
    assert "xla_backend_extra_options" not in imported["late loops"][0]


def test_a_late_flag_is_a_warning(imported):
    out, err = imported["late"]
    assert ("was started before `import jaxrl_fast`" in err) == runtime.vmap_hangs_on_cpu()
    assert FLAG not in out


@pytest.mark.parametrize(("version", "hangs"), [
    ("0.10.2", True), ("0.10.9", True), ("0.11.0", False), ("0.11.2", False), ("0.12.0", False),
    ("1.0.0", False),
])  # fmt: skip
def test_versions_that_hang_or_divide_batched_products(version, hangs):
    assert runtime.vmap_hangs_on_cpu(version) == hangs
    assert runtime.divides_batches(version) != hangs


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_pauses_until_a_run_has_started(enabled):
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with runtime.pause_gc(), runtime.pause_gc():
            assert not gc.isenabled()
            runtime.resume_gc()
            assert gc.isenabled() == enabled
        with contextlib.suppress(ValueError), runtime.pause_gc():
            raise ValueError
        assert gc.isenabled() == enabled
        with runtime.pause_gc():
            runtime._paused.clear()  # as a run in another thread does
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
