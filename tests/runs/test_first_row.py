"""The work of a run of the command line before its first row: programs and imports."""

from __future__ import annotations

import json

from helpers import runs as tools

FIRST_ROW = """
import json, sys
from jax import monitoring
from jaxrl_fast.cli.command import main
from jaxrl_fast.logs.jsonl import JsonlSink
programs = []

def compiled(event, seconds, fun_name="", **_):
    if event.endswith("/backend_compile_duration"):
        programs.append(fun_name)

class Written(Exception):
    pass

def write(sink, row):
    raise Written

monitoring.register_event_duration_secs_listener(compiled)
JsonlSink.write = write
try:
    main(["train", "ppo", "CartPole-v1", "--out", sys.argv[1]])
except (Written, SystemExit):
    pass
print(json.dumps([programs, sorted(sys.modules)]))
"""
HEAVY = {
    "PIL", "brax", "chex", "gymnasium", "gymnax", "matplotlib", "mujoco", "orbax", "pandas",
    "scipy", "tensorboardX", "tensorstore", "toolz", "tyro",
}  # fmt: skip


def test_two_programs_and_no_heavy_package_before_the_first_row(tmp_path):
    """A third program costs 0.1 s or more, a package of this list 0.03 to 2 s."""
    done = tools.python(FIRST_ROW, str(tmp_path / "run"), timeout=120)
    programs, modules = json.loads(done.stdout.splitlines()[-1])
    assert len(programs) == 2, programs  # the state, and a chunk of log rows
    assert HEAVY & {name.partition(".")[0] for name in modules} == set()
    busy = "jaxrl_fast.doctor"  # it looks at a machine that is busy
    assert sum(x.startswith("jaxrl_fast") and not x.startswith(busy) for x in modules) <= 218
