"""`jaxrl-fast list`: the names of algorithms, environments, sinks, samplers and presets."""

from __future__ import annotations

from jaxrl_fast.cli.args import IMPORT, PROG, parse


def show(argv: list[str]) -> None:
    """Print the algorithms, environments, log sinks, samplers and presets."""
    given = parse(f"{PROG} list", "Algorithms, environments that are installed, log sinks, samplers and presets.", [IMPORT], argv)
    from jaxrl_fast.algorithms import ALGORITHMS, presets
    from jaxrl_fast.envs import registry
    from jaxrl_fast.imports import import_user_module
    from jaxrl_fast.logs.sinks import SINKS
    from jaxrl_fast.sweeps.samplers import SAMPLERS

    for module in given.get("import", ()):
        import_user_module(module)
    print("algorithms")
    for name, cls in ALGORITHMS.items():
        print(f"  {name:8} {_first_line(cls)}")
    sources: dict[str, list[str]] = {}
    for name, entry in (registry.list_environments() | registry.list_families()).items():
        title = entry.source if entry.installed else f"{entry.source}, not installed: {entry.install}"
        sources.setdefault(title, []).append(name)
    print("environments")
    for title, names in sources.items():
        print(f"  {title}")
        print("".join(f"    {name}\n" for name in names), end="")
    for title, known in (("log sinks: --log", SINKS), ("samplers: --sample", SAMPLERS)):
        print(title)
        for name, cls in known.items():
            print(f"  {cls.form or name:19} {_first_line(cls)}")
    print("presets")
    for found in presets.PRESETS:
        print(f"  {found.name}")


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
