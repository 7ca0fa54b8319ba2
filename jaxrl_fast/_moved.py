"""Old module names, for programs, pickles and config.json files of older versions."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
_FOLDERS = {  # {folder: old names of its modules, OLD=NEW if the last part is another}
    "": (
        "hosts=distributed signatures=fields summary=tree envs.aside=background "
        "envs.host.aside=background"
    ),
    "files": "folders forms checksums",
    "ops": (
        "returns losses distributions statistics sums stacking optim optimizer_settings "
        "aggregate lowering scopes"
    ),
    "logs": (
        "sinks runs.rows jsonl boards terminal plots time_plot "
        "walltime reports"
    ),
    "networks": "networks.batch_norm=torsos",
    "memory": "memory.uniform=ring",
    "memory.experience": "memory.adapted memory.dataset memory.files memory.filled memory.mixed",
    "envs": "exact own_spaces",
    "envs.native": (
        "envs.acrobot envs.breakout envs.cartpole envs.mountain_car envs.pendulum envs.draw"
    ),
    "envs.gymnax": (
        "envs.gymnax_adapter=adapter envs.gymnax_import=loading envs.gymnax_objects=objects"
    ),
    "envs.physics": (
        "envs.physics=api envs.brax_adapter envs.playground_adapter envs.mujoco_tools "
        "envs.randomize"
    ),
    "envs.host": (
        "envs.host=api envs.ale_adapter envs.envpool_adapter envs.gymnasium_adapter "
        "envs.gymnasium_objects envs.gymnasium_spaces envs.gymnasium_worker"
    ),
    "envs.probes": "envs.probes=control envs.probes_spaces=spaces",
    "envs.export": "to_gymnasium to_gymnasium_spaces=spaces stepper",
    "algorithms.common": (
        "algorithms.actor_critic algorithms.control algorithms.control_networks algorithms.descent "
        "algorithms.evolution algorithms.normalize algorithms.policy_gradient "
        "algorithms.policy_search algorithms.replay algorithms.value_based"
    ),
    "algorithms": "presets algorithms.action_spaces=base",
    "engine": (
        "grid members population iterate=iteration collect=rollout evaluate offline "
        "plan=prepared plan_table=memory_plan programs"
    ),
    "actors": (
        "watch host_play=play groups groups_async ray_actors=ray host_programs=on_host "
        "actors.programs=on_host"
    ),
    "runs": (
        "agent train loop session=result runs.session=result rundir config=config_json load "
        "reading record=pictures signals sanity=sentinel runs.sanity=sentinel "
        "runs.lost=sentinel runs.evaluation=sentinel start_from in_turn=seeds_in_turn "
        "seed_results seed_folders=seed_results runs.seed_folders=seed_results"
    ),
    "runs.checkpoints": (
        "saves=save runs.saves=save checkpoint=store runs.checkpoint=store "
        "runs.checkpoints.restore=save runs.checkpoint_errors=errors older_states "
        "runs.older_states"
    ),
    "sweeps": (
        "selection priors=samplers sweeps.priors=samplers sweep configurations "
        "sweep_results=results comparison sweep_plots=plots tuning sweeps.sweep_json=parts"
    ),
    "cli": (
        "cli_args=args cli_experience=experience cli_list=list cli_plan=plan cli_runs=runs "
        "cli_sweep=sweep cli_train=train"
    ),
    "cli.ladder": "cli_ladder=command ladder=rungs ladder_torch=torch_dqn",
}
MOVED = {
    old: f"{folder}.{new or old.rpartition('.')[2]}".lstrip(".")
    for folder, names in _FOLDERS.items()
    for old, _, new in (name.partition("=") for name in names.split())
}


def today(module: str) -> str:
    """Return the current name of a module of this package; other names unchanged."""
    root, _, rest = module.partition(".")
    return f"{root}.{MOVED.get(rest, rest)}" if root == PACKAGE and rest else module


def contents_of(*modules: str, owner: str = "") -> Callable[[str], Any]:
    """Return a `__getattr__` that finds the definitions of `modules`.

    owner: the module that has it, by default the folder of `modules`.
    """

    def __getattr__(name: str) -> Any:
        for home in [] if name.startswith("__") else [f"{PACKAGE}.{module}" for module in modules]:
            found = getattr(importlib.import_module(home), name, None)
            if getattr(found, "__module__", None) == home:  # not an import of the module
                return found
        here = owner or modules[0].rpartition(".")[0]
        raise AttributeError(f"module '{PACKAGE}.{here}' has no attribute {name!r}")

    return __getattr__


class OldNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name with a DeprecationWarning, if nothing else has that name."""

    def find_spec(self, fullname: str, path: Any = None,
                  target: Any = None) -> importlib.machinery.ModuleSpec | None:
        is_old = today(fullname) != fullname
        return importlib.util.spec_from_loader(fullname, self) if is_old else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is {today(spec.name)} now", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(today(spec.name))
        spec.loader_state = module.__spec__  # Python is about to overwrite `spec`
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let imports find old names, once."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.append(OldNames())
