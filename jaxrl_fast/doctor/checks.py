"""Advice from facts: each check looks at one thing and says what to type, or None."""

from __future__ import annotations

from collections.abc import Callable

from packaging.specifiers import SpecifierSet

from jaxrl_fast import runtime
from jaxrl_fast.doctor import known
from jaxrl_fast.doctor.facts import Advice, Facts
from jaxrl_fast.doctor.quantities import gib, si

Check = Callable[[Facts], Advice | None]
LEVELS = ("wrong", "faster", "note")
CHECKS: list[Check] = []
JAX_TAKES = 0.75  # part of a GPU's memory, at the start


def check(function: Check) -> Check:
    """Add a check to `CHECKS`; its advice bears its name."""
    CHECKS.append(function)
    return function


def advise(facts: Facts) -> tuple[Advice, ...]:
    """Return the advice: faults first, then by gain."""
    given = [*filter(None, (one(facts) for one in CHECKS)), *versions(facts), *switches(facts)]
    return tuple(sorted(given, key=lambda advice: (LEVELS.index(advice.level), -advice.gain)))


@check
def backend(facts: Facts) -> Advice | None:
    """JAX does not start, or its device cannot be measured."""
    found = facts.backend
    if not found.error:
        return None
    platforms = found.chosen or facts.variables.get("JAX_PLATFORMS", "")
    what = "the device cannot be measured" if found.platform else "JAX does not start"
    given = f" with JAX_PLATFORMS={platforms}" if platforms else ""
    why = found.error if ":" in found.error else f"{found.error}, no device or plugin of this kind"
    line = "unset JAX_PLATFORMS" if platforms else "python -c 'import jax; print(jax.devices())'"
    line = "unset XLA_FLAGS" if "XLA_FLAGS" in found.error else line
    return Advice("backend", "wrong", f"{what}{given}: {why}", line)


@check
def unknown_flags(facts: Facts) -> Advice | None:
    """XLA refuses a flag and would end each run."""
    names = facts.backend.unknown_flags
    if not names:
        return None
    text = f"this XLA refuses {', '.join(names)} and ends every program that JAX starts"
    kept = " ".join(f"{k}={v}" for k, v in facts.flags.items() if k not in names)
    line = f"export XLA_FLAGS='{kept}'" if kept else "unset XLA_FLAGS"
    return Advice("unknown_flags", "wrong", f"{text}; what follows was found without", line)


@check
def idle_card(facts: Facts) -> Advice | None:
    """A card is here and JAX runs on the CPU."""
    machine, found = facts.machine, facts.backend
    plugins = [name for name in known.PLUGINS if name in facts.versions]
    remedy = runtime.idle_card(found.platform, found.chosen, lambda: machine.nvidia)
    if remedy and facts.variables.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        text, line = "CUDA_VISIBLE_DEVICES hides the NVIDIA card", "unset CUDA_VISIBLE_DEVICES"
    elif remedy and plugins:
        text = f"an NVIDIA card is here and {plugins[0]} is installed, but JAX runs on the CPU"
        line = "JAX_PLATFORMS=cuda python -c 'import jax; print(jax.devices())'"
    elif remedy:
        text, _, line = remedy.partition(": ")
    else:
        return None
    return Advice("idle_card", "wrong", text, line)


@check
def no_card(facts: Facts) -> Advice | None:
    """JAX's plugin for NVIDIA cards is installed and finds none, as in a container without them."""
    found = facts.backend
    plugins = [name for name in known.PLUGINS if name in facts.versions]
    if found.platform != "cpu" or found.chosen or facts.machine.nvidia or not plugins:
        return None
    text = (f"{plugins[0]} is installed, but no NVIDIA card is visible: JAX runs on the CPU; a "
            "container sees one if it is started with --gpus all")
    return Advice("no_card", "note", text, "docker run --gpus all IMAGE doctor")


@check
def card_left_out(facts: Facts) -> Advice | None:
    """The user keeps JAX off a card."""
    found = facts.backend
    if found.platform != "cpu" or not found.chosen or not facts.machine.nvidia:
        return None
    text = f"JAX_PLATFORMS={found.chosen} keeps JAX off the NVIDIA card of this machine"
    return Advice("card_left_out", "faster", text, "unset JAX_PLATFORMS")


@check
def requirements(facts: Facts) -> Advice | None:
    """Installed versions do not fit each other."""
    if not facts.unmet:
        return None
    told = [
        f"{x.package} needs {x.name}{x.versions} (here: {x.found or 'none'})" for x in facts.unmet
    ]
    replaced = {x.name for x in facts.unmet}  # whose own needs change with them
    kept = [x for x in facts.unmet if x.package not in replaced] or facts.unmet
    line = "pip install " + " ".join(dict.fromkeys(f"'{x.name}{x.versions}'" for x in kept))
    return Advice("requirements", "wrong", "; ".join(told), line)


@check
def plugin(facts: Facts) -> Advice | None:
    """JAX's plugin for NVIDIA cards and jaxlib have different versions."""
    jaxlib = facts.versions.get("jaxlib", "")
    for name in known.PLUGINS:
        if facts.versions.get(name, jaxlib) != jaxlib:
            text = f"{name} {facts.versions[name]} does not fit jaxlib {jaxlib}: JAX leaves it out"
            extra = name.removeprefix("jax-").removesuffix("-plugin")
            line = f"pip install 'jax[{extra}]=={facts.versions.get('jax', jaxlib)}'"
            return Advice("plugin", "wrong", text, line)
    return None


@check
def cache_writable(facts: Facts) -> Advice | None:
    """The cache folder takes no program."""
    cache = facts.cache
    if not cache.error:
        return None
    text = f"the compile cache {cache.folder} cannot be written ({cache.error}): "
    line = "export JAXRL_FAST_CACHE=/tmp/jaxrl_fast-cache"
    return Advice("cache_writable", "wrong", text + "each run compiles anew", line)


@check
def cache_returns(facts: Facts) -> Advice | None:
    """A program that was written to the cache did not come back."""
    cache = facts.cache
    if not cache.folder or cache.error or cache.returned or not cache.requests:
        return None
    text = f"a program written to the compile cache {cache.folder} did not come back from it"
    return Advice("cache_returns", "wrong", text, f"rm -r {cache.folder}")


@check
def cache_off(facts: Facts) -> Advice | None:
    """The user has switched the cache off."""
    if facts.cache.folder or not facts.backend.platform:
        return None
    return Advice("cache_off", "faster", "the compile cache is off: each run compiles anew",
                  "unset JAXRL_FAST_CACHE")  # fmt: skip


@check
def cache_full(facts: Facts) -> Advice | None:
    """The cache is large, or its disk nearly full."""
    cache, free = facts.cache, facts.cache.free_bytes
    if cache.size_bytes < 20 * 2**30 and (free is None or free > 2**30):
        return None
    left = "" if free is None else f", {gib(free)} are free on its disk"
    text = f"the compile cache {cache.folder} holds {gib(cache.size_bytes)}{left}"
    line = f"find {cache.folder} -name '*-cache' -atime +30 -delete"
    return Advice("cache_full", "note", text, line)


@check
def busy_cores(facts: Facts) -> Advice | None:
    """Other processes take this one's cores."""
    machine = facts.machine
    if not machine.busy:
        return None
    load = "" if machine.load is None else f"load {machine.load:.1f} on {machine.all_cores} cores, "
    text = f"the machine is busy ({load}{machine.share:.0%} of a core for a busy thread): "
    text += "numbers are low"
    line = "ps -eo pcpu,etime,args --sort=-pcpu | head"
    return Advice("busy_cores", "faster", text, line, max(1.0, 1 / max(machine.share, 0.01)))


@check
def busy_card(facts: Facts) -> Advice | None:
    """Other processes use the card."""
    used = lambda card: card.utilization > 0.1 or card.used_bytes > 0.1 * card.total_bytes
    taken = [card for card in facts.machine.cards if used(card)]
    if not taken or facts.backend.platform != "gpu":
        return None
    card = max(taken, key=lambda card: card.used_bytes / card.total_bytes)
    free = 1 - card.used_bytes / card.total_bytes
    text = f"others use the {card.name} ({card.utilization:.0%} busy, {gib(card.used_bytes)} of "
    text += f"{gib(card.total_bytes)} taken): numbers are low"
    if free < JAX_TAKES:
        text += f", and JAX wants {JAX_TAKES:.0%} of its memory at the start"
        line = f"export XLA_CLIENT_MEM_FRACTION={0.9 * free:.2f}"
        return Advice("busy_card", "wrong", text, line)
    return Advice("busy_card", "faster", text, "nvidia-smi")


@check
def quota(facts: Facts) -> Advice | None:
    """The container allows fewer cores than XLA counts."""
    allowed, asked = facts.machine.quota, facts.variables.get("NPROC")
    cores = min(facts.machine.cores, int(asked)) if (asked or "").isdigit() else facts.machine.cores
    if allowed is None or allowed >= cores:
        return None
    text = f"the container allows {allowed:g} cores and XLA starts threads for {cores}, which wait"
    return Advice("quota", "faster", text, f"export NPROC={max(1, int(allowed))}", cores / allowed)


@check
def few_threads(facts: Facts) -> Advice | None:
    """NPROC keeps cores idle."""
    asked, cores = facts.variables.get("NPROC", ""), facts.machine.cores
    most = min(cores, facts.machine.quota or cores)
    if not asked.isdigit() or not 0 < int(asked) < int(most):
        return None
    text = f"NPROC={asked} leaves {cores - int(asked)} of {cores} cores idle"
    return Advice("few_threads", "faster", text, "unset NPROC", most / int(asked))


@check
def memory(facts: Facts) -> Advice | None:
    """Little of the host's memory is left."""
    free = facts.machine.available_bytes
    if free is None or free >= 2 * 2**30:
        return None
    text = f"{gib(free)} of memory are left; the compiler of a large program takes 2 GiB"
    return Advice("memory", "note", text, "ps -eo rss,args --sort=-rss | head")


@check
def seeds(facts: Facts) -> Advice | None:
    """A run of one seed uses one core of several."""
    asked, cores = facts.variables.get("NPROC", ""), facts.machine.cores
    cores = min(cores, int(asked)) if asked.isdigit() and int(asked) else cores
    if facts.backend.platform != "cpu" or cores < 2:
        return None
    text = f"a member of a population trains on one core: {cores} seeds take the time of one"
    line = f"jaxrl-fast train ppo CartPole-v1 --seeds {cores}"
    return Advice("seeds", "faster", text, line, cores)


@check
def precision(facts: Facts) -> Advice | None:
    """Products of torsos are faster in fewer bits."""
    products = facts.limits.products if facts.limits else {}
    exact, name = products.get("float32", 0.0), max(products, key=products.__getitem__, default="")
    if name in ("", "float32") or products[name] < 1.5 * exact:
        return None
    gain = products[name] / exact
    text = f"torsos can multiply in {name}: {si(products[name], 'FLOP/s')} instead of "
    text += f"{si(exact, 'FLOP/s')}; wide networks gain, small ones wait for launches"
    line = f"jaxrl-fast train ppo Breakout-MinAtar --algo.precision {name}"
    return Advice("precision", "faster", text, line, gain)


def versions(facts: Facts) -> list[Advice]:
    """Return advice for the versions here that are known to hurt (`known.PAIRS`)."""
    advice = []
    for one in known.PAIRS:
        here = facts.versions.get(one.package, "")
        meant = one.platform in ("", facts.backend.platform)
        avoided = facts.flags.get(one.unless[0], "").lower() in one.unless[1]
        if here and meant and not avoided and SpecifierSet(one.versions).contains(here):
            name, text = f"{one.package} {one.versions}", f"{one.package} {here}: {one.reason}"
            advice.append(Advice(name, one.level, text, one.remedy))
    return advice


def switches(facts: Facts) -> list[Advice]:
    """Return advice for flags and variables that hurt, and for flags that would help."""
    here = facts.backend.platform
    of = lambda switch, found: switch.name in found and switch.platform in ("", here) and (
        not switch.values or found[switch.name].lower() in switch.values)  # fmt: skip
    advice = []
    for one in known.HURTING_VARIABLES:
        if of(one, facts.variables):
            text = f"{one.name}={facts.variables[one.name]}: {one.reason}"
            advice.append(Advice(one.name, one.level, text, f"unset {one.name}"))
    for one in known.HURTING_FLAGS:
        if of(one, facts.flags):
            rest = " ".join(f"{k}={v}" for k, v in facts.flags.items() if k != one.name)
            text = f"{one.name}={facts.flags[one.name]}: {one.reason}"
            advice.append(Advice(one.name, one.level, text, f"export XLA_FLAGS='{rest}'"))
    for new in known.MISSING_FLAGS:
        if new.platform == here and new.flag not in facts.flags:
            line = f'export XLA_FLAGS="$XLA_FLAGS {new.flag}={new.value}"'
            text = f"{new.flag} is not set: {new.reason}"
            advice.append(Advice(f"{new.flag} missing", "faster", text, line, new.gain))
    return advice
