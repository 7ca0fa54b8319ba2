"""`jaxrl-fast train`: its flags for an algorithm and environment, the run, its output."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax

from jaxrl_fast import distributed, imports, runtime
from jaxrl_fast.algorithms import ALGORITHMS, algorithm_class, list_algorithms, presets
from jaxrl_fast.algorithms.base import Algorithm
from jaxrl_fast.algorithms.build import algorithm_settings, build_algorithm, import_named
from jaxrl_fast.cli import args
from jaxrl_fast.cli.args import DISTRIBUTED, HELP_FLAGS, OUTPUT, START
from jaxrl_fast.cli.before_jax import join, spread
from jaxrl_fast.cli.commands import COMMANDS
from jaxrl_fast.cli.option import Option, choices_text, show
from jaxrl_fast.cli.options import kind_of_value, option_of
from jaxrl_fast.cli.output import logs_of, print_end, sinks_of
from jaxrl_fast.engine.config import RunConfig, by_group
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import prepare
from jaxrl_fast.engine.tuned import add_tuned
from jaxrl_fast.envs import registry
from jaxrl_fast.envs.wrappers import COMMON, Common
from jaxrl_fast.errors import ConfigError, expected
from jaxrl_fast.files import folders
from jaxrl_fast.ops.precision import in_force
from jaxrl_fast.runs import config_json as configs
from jaxrl_fast.runs.description import device_name
from jaxrl_fast.runs.rundir import check_outside, numbered
from jaxrl_fast.values import path

OPTIONS = (*OUTPUT, *DISTRIBUTED)


@dataclasses.dataclass
class Plan:
    """A command line's subject, known before its flags are parsed; flags override the dicts."""

    prog: str
    description: str
    options: list[Option]
    cls: type[Algorithm] | None = None
    environment: str | None = None  # None: no name that `make` knows
    algo: dict[str, Any] = dataclasses.field(default_factory=dict)
    env: dict[str, Any] = dataclasses.field(default_factory=dict)
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    env_object: Any = None
    source: str = "defaults, no preset is tuned for this"
    about: dict[str, Any] = dataclasses.field(default_factory=dict)


@runtime.pause_gc()
def start(argv: list[str]) -> None:
    """Train a new run, or go on with the one of --resume."""
    argv = _wandb_project(argv)
    join(argv, configs.read_config)
    if args.has_flag(argv, "--resume"):
        from jaxrl_fast.cli.resume import resume

        return resume(argv)
    new_run(*read_plan(argv, "train"))


def _wandb_project(argv: list[str]) -> list[str]:
    """Return the flags with the project jaxrl_fast for a bare `--wandb`."""
    alone = [i for i, a in enumerate(argv) if a == "--wandb"
             and (i + 1 == len(argv) or argv[i + 1].startswith("-"))]
    return ["--wandb=jaxrl_fast" if i in alone else a for i, a in enumerate(argv)]


def read_plan(argv: list[str], command: str,
              members: int | None = None) -> tuple[Plan, dict[str, Any]]:
    """Return the plan of a command line for a new run, and its given flags.

    members: number of members for which devices are requested; None: the flags' seeds.
    """
    names, flags = args.positionals(argv, 2, options_of(command))
    file = args.peek(argv, "--config")
    if not file and args.has_flag(argv, "--config"):
        raise expected("--config", "the config.json of a run, or its run directory", "no value")
    content = configs.read_config(path("--config", file[-1])) if file else None
    spread(argv, content, members, names[1:])
    for module in args.peek(argv, "--import"):
        imports.import_user_module(module)
    plan = describe_train(names, flags, file[-1] if file else None, command)
    return plan, args.parse(plan.prog, plan.description, plan.options, flags)


def describe_train(names: list[str], flags: list[str], file: str | None,
                   command: str = "train") -> Plan:
    """Return the plan: algorithm, environment, settings, and the source of the defaults."""
    asks_help = any(f in HELP_FLAGS for f in flags)
    prog = " ".join([f"jaxrl-fast {command}", *names])
    late = ""
    if any(f.startswith(("--algo.", "--env.")) for f in flags):
        late = "; both come before --algo. and --env. flags"
    if file is not None:
        if names:
            valid = f"left out: --config {file} names the algorithm and the environment"
            raise ConfigError("ALGO ENV", " ".join(names), valid)
        algo, env, run, content = configs.load(file)
        origin = registry.describe(env)
        plan = Plan(f"{prog} --config {file}", f"Repeat {algo.name} on {env.spec.name}.",
                    [], type(algo), source=file)
        plan.algo = algorithm_settings(algo)
        plan.environment, plan.env = origin or (None, {})
        plan.env_object, plan.run = env, run.settings()
        if run.horizon == run.total_steps:
            plan.run["horizon"] = None
        plan.about = {k: content[k] for k in ("preset", "imports") if k in content}
    elif len(names) == 2 or asks_help:
        if len(names) == 2 and names[0] not in ALGORITHMS and names[1] in ALGORITHMS:
            right = f"jaxrl-fast {command} {names[1]} {names[0]}{late}"
            raise ConfigError("ALGO", names[0], f"an algorithm, which comes first: {right}")
        cls = algorithm_class(names[0]) if names else None
        plan = Plan(prog, _overview(cls, names, command), [], cls,
                    names[1] if len(names) == 2 else None)
        by_preset = len(names) == 2 and "--no-preset" not in flags
        found = presets.find_preset(*names) if by_preset else None
        if found:
            plan.algo, plan.run, plan.env = dict(found.algo), dict(found.run), dict(found.env)
            plan.source, plan.about = f"preset {found.name}", {"preset": found.name}
        elif "--no-preset" in flags:
            plan.source = "defaults"
    elif len(names) == 1:
        algorithm_class(names[0])
        valid = (
            f"an environment: {prog} CartPole-v1; `jaxrl-fast list environments` shows them{late}"
        )
        raise expected("ENV", valid, "none")
    else:
        valid = f"an algorithm and an environment: jaxrl-fast {command} ppo CartPole-v1{late}"
        raise expected("ALGO ENV", valid, "none")
    plan.options = options_of(command, plan)
    return plan


def options_of(command: str, plan: Plan | None = None) -> list[Option]:
    """Return the flags of a command that takes ALGO ENV.

    plan: adds the flags of its algorithm and environment.
    """
    plan, known = plan or Plan("", "", []), COMMANDS[command]
    omits = {*known.omits, *(("resume",) if plan.environment else ())}
    common = [option for option in (*_run_options(plan), *START) if option.name not in omits]
    return [*common, *known.options, *_algorithm_options(plan), *_environment_options(plan)]


def _overview(cls: type | None, names: list[str], command: str) -> str:
    if len(names) == 2:
        return (cls.__doc__ or "").strip()
    known = ", ".join(list(registry.list_environments())[:3])
    return (f"jaxrl-fast {command} {COMMANDS[command].takes} [flags]\n\n"
            f"algorithms: {', '.join(list_algorithms())}\n\n"
            f"environments: {known}, ...\n\n"
            "`jaxrl-fast list` shows them. With ALGO and ENV, the help has the flags of both.")


def _hint(plan: Plan, found: dict[str, Any], name: str) -> str:
    """Return the help's text about a default from a preset."""
    preset = name in found and plan.source.startswith("preset")
    return f"preset: {show(found[name])}" if preset else ""


def _run_options(plan: Plan) -> list[Option]:
    """Return the flags of every setting of a run, in the groups of `RunConfig`."""
    return [
        option_of(group, f.name, plan.run.get(f.name, f.default), _hint(plan, plan.run, f.name),
                  panel=group.__name__.lower())
        for group, fields in by_group(RunConfig).items()
        for f in fields
        if f.metadata.get("flag", "") is not None
    ]


def _algorithm_options(plan: Plan) -> list[Option]:
    options = []
    for field in dataclasses.fields(plan.cls) if plan.cls else ():
        if field.name == "spec" or not field.init:
            continue
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        default = plan.algo.get(field.name, default)
        missing = default is dataclasses.MISSING
        hint = "required" if missing else _hint(plan, plan.algo, field.name)
        options.append(option_of(plan.cls, field.name, None if missing else default, hint, "algo"))
    return options


def _environment_options(plan: Plan) -> list[Option]:
    if not plan.environment:
        return []
    options, settings = [], registry.settings_of(plan.environment)
    about = registry.about_settings(plan.environment)
    for name, default in settings.items():
        hint, value = _hint(plan, plan.env, name), plan.env.get(name, default)
        if name in COMMON:
            options.append(option_of(Common, name, value, hint, "env"))
            continue
        text = about[name].help if name in about else ""
        metavar = choices_text(about[name].choices) if name in about else ""
        options.append(Option(name, kind_of_value(default), value, text, hint, "env", metavar))
    return options


def resolve(plan: Plan, given: dict[str, Any]) -> tuple[Algorithm, Any, RunConfig]:
    """Return algorithm, environment and run settings: the flags on top of the plan."""
    picked = {g: {k.partition(".")[2]: v for k, v in given.items() if k.startswith(g + ".")}
              for g in ("algo", "env")}
    for option in plan.options:
        if option.hint == "required" and option.key not in given:
            raise ConfigError(option.flag, None, "given: it has no default")
    import_named(plan.cls, picked["algo"].items())
    algo = build_algorithm(plan.cls, plan.algo | picked["algo"])
    env = plan.env_object
    if env is None or picked["env"]:
        env = registry.make(plan.environment, **plan.env | picked["env"])
    known = [f.name for f in dataclasses.fields(RunConfig)]
    run = plan.run | {name: given[name] for name in known if name in given}
    if "experience" in given:
        run["experience_id"] = None  # config.json's belongs to another folder
    return algo, env, RunConfig(**run | ({"devices": None} if run.get("devices") == "all" else {}))


def new_run(plan: Plan, given: dict[str, Any]) -> None:
    """Train with the flags on top of the plan."""
    from jaxrl_fast.runs.train import Around, at_start, begin, check_out, check_start

    algo, env, config = resolve(plan, given)
    prepared, tuned = prepare(algo, env, at_start(config), about_of(plan, given)), None
    if plan.env_object is None:  # a repeated run has the settings of its config.json
        prepared, tuned = add_tuned(prepared)
    name = plan.environment or env.spec.name
    out = out_of(given, "runs", algo.name, name, f"s{config.seed}")
    distributed.on_first(lambda: check_outside(out))
    prepared = check_out(out, prepared)
    texts, tensorboard = logs_of(given)
    parts = [prepared.seed(i).config for i in range(config.seeds)] if in_turn(env, config) else ()
    sinks = sinks_of(texts, out, prepared.content, config.seeds, parts)
    start = check_start(prepared)  # a refused run prints its error alone
    print(f"{algo.name} on {name}: {plan.source}; {on_device(algo, config.deterministic)}")
    print(f"run directory: {out}", flush=True)
    if len(prepared.population.devices) > 1:
        print(prepared.population, flush=True)
    if tuned:
        print(f"speed: {tuned}; --no-tuned leaves it out", flush=True)
    print_end(begin(prepared, out, Around((), sinks, tensorboard, progress=True), start), texts)


def on_device(algo: Algorithm, deterministic: bool = False, platform: str | None = None) -> str:
    """Return a header's words about the device and its programs."""
    platform = platform or jax.default_backend()
    cost = ""
    if deterministic and platform == "gpu":
        cost = "; deterministic: without autotuning, scatters in order, slower"
    return f"device: {device_name()}, {in_force(algo.precision, platform)}{cost}"


def out_of(given: dict[str, Any], folder: str, *parts: str) -> Path:
    """Return the directory of `--out`; by default FOLDER/PART-PART-N with the first free N."""
    return folders.folder_path("--out", given["out"] if "out" in given
                               else numbered(folder, *parts))


def about_of(plan: Plan, given: dict[str, Any]) -> dict[str, Any]:
    """Return config.json's keys beside the settings: the preset, and modules to import."""
    modules = [*plan.about.get("imports", ()), *given.get("import", ())]
    return dict(plan.about) | ({"imports": list(dict.fromkeys(modules))} if modules else {})
