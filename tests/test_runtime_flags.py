"""The XLA flag without which jaxlib 0.10 hangs: set where it is needed, the user's own kept, said where it is too late."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys

import pytest

from jaxrl_fast import runtime

FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
SHOW = "import os, warnings; {before}import jaxrl_fast; print(os.environ.get('XLA_FLAGS', ''))"
IMPORTED_LATE = "import jax; jax.devices(); "


def run(before: str = "", **more: str) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | more
    code = SHOW.format(before=before)
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


def test_the_flag_is_set_only_for_hanging_jaxlibs():
    ended = run()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ([f"{FLAG}=false"] if runtime.vmap_hangs_on_cpu() else [])


def test_the_users_flags_stay():
    ended = run(XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert ended.stdout.split()[0] == "--xla_cpu_enable_fast_math=false" and ended.returncode == 0
    if runtime.vmap_hangs_on_cpu():
        assert run(XLA_FLAGS=f"{FLAG}=true").stdout.split() == [f"{FLAG}=true"]


def test_a_file_of_flags_is_read(tmp_path):
    (tmp_path / "flags").write_text("--xla_cpu_enable_fast_math=false\n--xla_dump_to=\n")
    ended = run(XLA_FLAGS=str(tmp_path / "flags"))
    kept = ["--xla_cpu_enable_fast_math=false", "--xla_dump_to="]
    set_here = [*kept, f"{FLAG}=false"] if runtime.vmap_hangs_on_cpu() else [str(tmp_path / "flags")]
    assert ended.stdout.split() == set_here, ended.stderr
    assert run(XLA_FLAGS=str(tmp_path / "none")).stdout.strip() == str(tmp_path / "none")


def test_a_late_flag_is_a_warning():
    ended = run(IMPORTED_LATE)
    assert ("was started before `import jaxrl_fast`" in ended.stderr) == runtime.vmap_hangs_on_cpu()
    assert FLAG not in ended.stdout and ended.returncode == 0


@pytest.mark.parametrize(("version", "hangs"), [
    ("0.10.2", True), ("0.10.9", True), ("0.11.0", False), ("0.11.2", False), ("0.12.0", False), ("1.0.0", False),
])  # fmt: skip
def test_which_versions_hang_and_which_divide_batched_products(version, hangs):
    assert runtime.vmap_hangs_on_cpu(version) == hangs
    assert runtime.divides_batches(version) != hangs


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_pauses_until_a_run_has_started(enabled):
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with runtime.starting(), runtime.starting():
            assert not gc.isenabled()
            runtime.started()
            assert gc.isenabled() == enabled
        with contextlib.suppress(ValueError), runtime.starting():
            raise ValueError
        assert gc.isenabled() == enabled
        with runtime.starting():
            runtime._paused.clear()  # as a run in another thread does
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
