"""`jaxrl-fast plan`: the device memory of a run; with --compile also XLA's sizes."""

from __future__ import annotations

from typing import Any

from jaxrl_fast.cli.args import Option
from jaxrl_fast.cli.train import Plan, resolve
from jaxrl_fast.engine.backend import backend_of
from jaxrl_fast.engine.members import in_turn
from jaxrl_fast.engine.prepared import Prepared, prepare
from jaxrl_fast.errors import ConfigError

OPTIONS = (Option("compile", "bool", False, "also compile the programs and show XLA's sizes"),)


def print_plan(plan: Plan, given: dict[str, Any]) -> None:
    """Print the table; raises for a run that cannot fit, with sizes that would."""
    algo, env, config = resolve(plan, given)
    if given.get("compile") and not backend_of(env).one_program:
        valid = "left out with environments on the host, where a run is no single program"
        raise ConfigError("--compile", True, valid)
    prepared = prepare(algo, env, config, outline=True)
    forecast = prepared.plan
    if not given.get("compile") or not forecast.fits:
        print(forecast, flush=True)
        if in_turn(env, config):
            print(f"{config.seeds} seeds train one after another: memory is for one seed, "
                  "checkpoints are for each")
        return forecast.check()
    compiled = compile_programs(prepared)
    forecast = forecast.compiled(compiled.values())
    print(forecast)
    print(compare(forecast, compiled), flush=True)
    forecast.check()


def compile_programs(prepared: Prepared) -> dict[str, Any]:
    """Return XLA's memory analysis of every program of the run, for one device."""
    from jaxrl_fast import runtime
    from jaxrl_fast.engine.programs import Programs

    runtime.enable_compile_cache()
    programs = Programs(prepared)
    programs.compile(prepared.population.keys(prepared.config.member_seeds()), everything=True)
    return programs.memory_analysis()


def compare(forecast: Any, compiled: dict[str, Any]) -> str:
    """Return a line a program with bytes on one device, beside the forecast for the chunk."""
    from jaxrl_fast.doctor.quantities import gib

    lines = [f"  {'compiled, on one device':32}{'arguments':>12}{'results':>12}{'temporaries':>14}"]
    for name, x in compiled.items():
        sizes = x.argument_size_in_bytes, x.output_size_in_bytes, x.temp_size_in_bytes
        lines.append("  {:32}{:>12}{:>12}{:>14}".format(name, *map(gib, sizes)))
    there = compiled["chunk"].argument_size_in_bytes, compiled["chunk"].output_size_in_bytes
    guess = forecast.arguments, forecast.results
    off = [f"{100 * (g - t) / t:+.1f}%" for g, t in zip(guess, there, strict=True)]
    lines.append("  {:32}{:>12}{:>12}".format("forecast for the chunk", *map(gib, guess)))
    lines.append(f"  {'off by':32}{off[0]:>12}{off[1]:>12}")
    return "\n".join(lines)
