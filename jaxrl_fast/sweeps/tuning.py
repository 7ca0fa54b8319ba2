"""Optuna searches: rounds of trials, each trained as the parts of one sweep.

Optuna's storage is a journal file in the sweep's folder. A resumed sampler starts anew with the
known trials.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxrl_fast import distributed
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import import_named
from jaxrl_fast.algorithms.presets import resolve_names
from jaxrl_fast.engine.config import RunConfig, run_config
from jaxrl_fast.engine.iteration import check_types
from jaxrl_fast.engine.keywords import SweepSettings
from jaxrl_fast.engine.members import configure, spread_members
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.envs.base import Environment
from jaxrl_fast.errors import ConfigError, check_int, import_optional
from jaxrl_fast.logs.sinks import check_hooks
from jaxrl_fast.logs.terminal import shows
from jaxrl_fast.ops.aggregate import iqm
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.train import check_start
from jaxrl_fast.sweeps.configurations import check_names
from jaxrl_fast.sweeps.folder import folder_of, lock_folder, open_folder
from jaxrl_fast.sweeps.parts import FORMAT, Sweep, read_folder, split
from jaxrl_fast.sweeps.results import SweepResult, read_sweep
from jaxrl_fast.sweeps.samplers import sampler_of
from jaxrl_fast.sweeps.sweep import finish, reopen, run_parts

JOURNAL = "optuna.log"


def tune(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None = None, *,
    sample: Mapping[str, str], trials: int, members: int, out: str | Path = "auto",
    sampler: Any = None, progress: bool | None = None, about: dict[str, Any] | None = None,
    hooks: Sequence[Any] = (), **settings: Unpack[SweepSettings],
) -> SweepResult:  # fmt: skip
    """Search settings with Optuna, a population of `members` trials at a time.

    Each of `trials` configurations is trained with every seed; their IQM is maximised. algo,
    env, total_steps, sample, out, hooks, progress: as in `sweep`.  sampler: of `optuna.samplers`,
    by default TPE with a constant liar. The folder of the same search is resumed; trials that never
    trained are queued again.
    """
    with open_search(algo, env, total_steps, sample, trials, members, out, sampler, about, hooks,
                     **settings) as opened:
        return train_trials(*opened, shows(progress))


@contextlib.contextmanager
def open_search(
    algo: Algorithm | str, env: Environment | str, total_steps: int | None = None,
    sample: Mapping[str, str] | None = None, trials: int = 0, members: int = 0,
    out: str | Path = "auto", sampler: Any = None, about: dict[str, Any] | None = None,
    hooks: Sequence[Any] = (), **settings: Unpack[SweepSettings],
) -> Iterator[tuple[Any, Any, Path, Sweep, dict[str, Any]]]:  # fmt: skip
    """Yield the arguments of `train_trials` for a new search, checked and its folder locked.

    The arguments are `tune`'s.
    """
    optuna = import_optuna()
    check_hooks(hooks)
    check_int("trials", trials, 1, 1_000_000)
    check_int("members", members, 1, 1_000_000)
    if not sample:
        raise ConfigError("sample", sample, 'settings to search, such as {"algo.learning_rate": '
                                            '"loguniform:1e-5,1e-2"}')
    algo, env, total_steps, settings, about = resolve_names(algo, env, total_steps, settings, about)
    check_types(algo, env)
    config = run_config(total_steps, {"on_nan": "mark", **settings}, algo)
    check_names(algo, env, {}, sample, config)
    if config.population is not None or config.selection is not None:
        raise ConfigError("population", config.population, "None: Optuna suggests the settings")
    spread_members(env, config, members * config.seeds)
    _check_values(algo, env, sample, config)
    out, about = folder_of(out, algo, env), about or {}
    search = {"trials": trials, "members": members}
    sweep = Sweep(algo, env, config, about, (), hooks)
    asked = {"format": FORMAT, "base": sweep.base, "sample": dict(sample),
             "optuna": search, "configurations": [], "parts": []}
    with lock_folder(out):
        content = open_folder(out, asked, ("sample",))
        _check_journal(content, out)
        content["optuna"] = search  # trials may grow
        configs.write_json(out / "sweep.json", content)
        study = _study(optuna, out, config.seed, sampler)
        yield optuna, study, out, sweep, content


def import_optuna() -> Any:
    optuna = import_optional("optuna", "a search by Optuna", "optuna", "create_study")
    if distributed.several():
        raise ConfigError("distributed", True,
                          "False for a search by Optuna, which asks and answers in one process")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check_values(algo: Algorithm, env: Environment, sample: Mapping[str, str],
                  config: RunConfig) -> None:
    """Raise ConfigError for a value that no range or choice of the settings allows."""
    samplers = {name: sampler_of(name, text) for name, text in sample.items()}
    named = [(name.removeprefix("algo."), v) for name, x in samplers.items() for v in x.values]
    import_named(type(algo), named)
    ends = {name: sampler.values or (sampler.at(0.0), sampler.at(1.0 - 1e-9))
            for name, sampler in samplers.items()}
    low, high = ({name: values[end] for name, values in ends.items()} for end in (0, -1))
    choices = [low | {name: v} for name, sampler in samplers.items() for v in sampler.values]
    for settings in [low, high, *choices]:
        check_start(prepare(*configure(algo, env, settings), dataclasses.replace(config, seeds=1)))


def _study(optuna: Any, out: Path, seed: int, sampler: Any = None) -> Any:
    """Return the folder's study, a new one if there is none."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's warnings about experimental features
        storage = JournalStorage(JournalFileBackend(str(out / JOURNAL)))
        study = optuna.create_study(storage=storage, study_name="jaxrl_fast",
                                    direction="maximize", load_if_exists=True)
        if sampler is None:  # a resumed sampler must not repeat its suggestions
            number = int(np.random.SeedSequence([seed, len(study.trials)]).generate_state(1)[0])
            sampler = optuna.samplers.TPESampler(seed=number, constant_liar=True)
    study.sampler = sampler
    return study


def resume_search(
    out: str | Path, modules: Sequence[str] = (), progress: bool = False,
    devices: int | str | None = None, mesh: Mapping[str, int] | None = None, argument: str = "out",
) -> SweepResult:  # fmt: skip
    """Resume a search, with TPE; the arguments are those of `sweep.resume_sweep`."""
    optuna, out = import_optuna(), Path(out)
    content = read_folder(out, argument)
    if "optuna" not in content:
        raise ConfigError("out", str(out),
                          "a search by Optuna; this is another sweep (`sweep.resume_sweep`)")
    _check_journal(content, out)
    place = {"devices": devices, "mesh": mesh}
    with reopen(out, content, content["optuna"]["members"], modules, place, argument) as sweep:
        study = _study(optuna, out, sweep.config.seed)
        return train_trials(optuna, study, out, sweep, content, progress, place)


def _check_journal(content: dict[str, Any], out: Path) -> None:
    if content["configurations"] and not (out / JOURNAL).is_file():
        raise ConfigError("out", str(out),
                          f"a search with its {JOURNAL}, where Optuna keeps its trials")


def train_trials(
    optuna: Any, study: Any, out: Path, sweep: Sweep, content: dict[str, Any], progress: bool,
    place: dict[str, Any] | None = None,
) -> SweepResult:  # fmt: skip
    """Ask for trials and train them until there are enough."""
    search, sweep = content["optuna"], _with_trials(sweep, content)
    numbers, done = [c["trial"] for c in content["configurations"]], {}
    _queue_again(optuna, study, set(numbers))
    while True:
        if numbers:
            run_parts(out, sweep, content["parts"], progress, place, done)
            result = read_sweep(out)
            _tell(optuna, study, result)
        left = search["trials"] - len(numbers)
        if left <= 0:
            finish(result)
            return result
        asked = [study.ask() for _ in range(min(left, search["members"]))]
        samplers = {name: sampler_of(name, text) for name, text in content["sample"].items()}
        chosen = [{name: sampler.suggest(trial, name) for name, sampler in samplers.items()}
                  for trial in asked]
        first = len(content["configurations"])
        numbers += [trial.number for trial in asked]
        content["configurations"] += [c | {"trial": t.number}
                                      for c, t in zip(chosen, asked, strict=True)]
        sweep = _with_trials(sweep, content)
        content["parts"] += [dataclasses.asdict(part) for part in split(sweep, first=first)]
        configs.write_json(out / "sweep.json", content)
        if progress:
            print(f"Optuna: trials {numbers[-len(asked)]} to {numbers[-1]} of {search['trials']}",
                  flush=True)


def _with_trials(sweep: Sweep, content: dict[str, Any]) -> Sweep:
    """Return the search with the configurations of all trials so far."""
    settings = [{k: v for k, v in c.items() if k != "trial"} for c in content["configurations"]]
    return dataclasses.replace(sweep, configurations=settings)


def _queue_again(optuna: Any, study: Any, known: set[int]) -> None:
    """Queue trials that are in no part: the process ended before training."""
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if trial.number not in known:
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            if trial.params:
                study.enqueue_trial(trial.params)


def _tell(optuna: Any, study: Any, result: SweepResult) -> None:
    """Tell Optuna the new scores; a trial without any score has failed."""
    state = optuna.trial.TrialState
    waiting = {t.number for t in study.get_trials(deepcopy=False, states=(state.RUNNING,))}
    for c, settings in enumerate(result.content["configurations"]):
        if settings["trial"] in waiting:
            score = iqm(result.scores[c])
            known = math.isfinite(score)
            study.tell(settings["trial"], score if known else None,
                       state=state.COMPLETE if known else state.FAIL)

