"""`jaxrl-fast completion`: the script by which a shell completes commands, names and flags."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import operator
from collections.abc import Sequence
from typing import Annotated, Any

from jaxrl_fast.cli.args import HELP_FLAGS, PROG, Option, read_arguments
from jaxrl_fast.cli.commands import COMMANDS
from jaxrl_fast.cli.help import field_of
from jaxrl_fast.cli.list import PARTS
from jaxrl_fast.cli.new import KINDS
from jaxrl_fast.errors import check_choice

SHELLS = {
    "bash": f"source <({PROG} completion bash)    # in ~/.bashrc",
    "zsh": f"source <({PROG} completion zsh)    # in ~/.zshrc, after compinit",
    "fish": f"{PROG} completion fish | source    # in ~/.config/fish/config.fish",
}
OPTIONS = ()


def completion(argv: list[str]) -> None:
    """Print the script of a shell."""
    what = "Print a script that completes commands, names and flags."
    about = "\n\n".join([what, *SHELLS.values()])
    names, _ = read_arguments("completion", about, argv)
    check_choice("SHELL", names[0], SHELLS)
    import tyro

    from jaxrl_fast.cli.other_flags import flags_of  # imports JAX

    known = {name: flags_of(name) for name in COMMANDS}
    parts = (Annotated[_shape(name, options), tyro.conf.subcommand(name)]
             for name, options in known.items())
    everything: Any = functools.reduce(operator.or_, parts)
    with contextlib.redirect_stdout(io.StringIO()) as script, contextlib.suppress(SystemExit):
        tyro.cli(everything, prog=PROG, args=["--tyro-print-completion", names[0]], config=())
    ours = _OURS.replace("KNOWN", repr(_names())).replace("VALUES", repr(_values(known)))
    ours = ours.replace("SETTINGS", repr(_settings()))
    named = script.getvalue().replace(_ASKS, f"{ours}{_ASKS}").replace(
        repr(["-h", "--help"]), repr([*HELP_FLAGS]))
    sourced = (
        f"[[ $zsh_eval_context[-1] == loadautofunc ]] && {_ZSH} || compdef _tyro_jaxrl_fast {PROG}"
    )
    print(named.replace(_ZSH, sourced).replace(*_FISH), end="")


# a line of tyro's Python, in every shell's script
_ASKS = "    completions = get_completions(words, current_index, COMPLETION_SPEC)"
# Linux takes arguments of up to 128 KiB
_FISH = ("($python_cmd -c \"$pycode\" $words $current)",
         "(printf '%s' \"$pycode\" | $python_cmd - $words $current)")
# right in a folder of `fpath`; a script that is sourced registers the function
_ZSH = '_tyro_jaxrl_fast "$@"'
# without double quotes, which the script of fish cannot hold
_OURS = """\
    typed = words[current_index] if current_index < len(words) else str()
    found = VALUES.get(words[1], {}).get(words[current_index - 1]) if current_index > 2 else None
    places, place = KNOWN.get(words[1], ()) if current_index > 1 else (), current_index - 2
    first = not any(word.startswith('-') for word in [*words[2:current_index], typed])
    if found is None and first and 0 <= place < len(places):
        found = places[place]
    groups = dict(zip(('--algo', '--env'), words[2:4])) if current_index > 3 else {}
    if found is None and words[1:2] and words[1] in KNOWN:
        found = SETTINGS.get(groups.get(typed.partition('.')[0]))
        for name in groups.values() if current_index == len(words) else ():
            for flag in SETTINGS.get(name, ()):  # of fish, which passes the words before the cursor
                print(flag)
    if found is not None:
        found = found or __import__('glob').glob(typed + '*')
        print(chr(10).join(name + chr(9) + name for name in found if name.startswith(typed)))
        return
"""


def _names() -> dict[str, list[list[str]]]:
    """Return {command: the words for each of its places}; no words: the names of files."""
    from jaxrl_fast.algorithms import ALGORITHMS
    from jaxrl_fast.bench.rows import ROWS
    from jaxrl_fast.envs import registry

    run = [[name for name, _ in ALGORITHMS.items()],
           [name for name in registry.list_environments() if ":" not in name]]
    known = {"new": [list(KINDS)], "completion": [list(SHELLS)], "ladder": [["pong"]],
             "list": [list(PARTS)], "bench": [list(ROWS)] * len(ROWS)}
    others = {name: run if command.of_a_run else [[]] * 9
              for name, command in COMMANDS.items() if command.takes}
    return others | known


def _values(commands: dict[str, Sequence[Option]]) -> dict[str, dict[str, list[str]]]:
    """Return {command: {flag: its choices}}; no choices: the names of files."""
    files = ("path", "file", "picture")
    of = lambda o: [] if o.kind in files else o.shown_metavar[1:-1].split(",")
    return {name: {o.flag: of(o) for o in options
                   if o.kind in files or (o.kind != "bool" and o.shown_metavar.startswith("{"))}
            for name, options in commands.items()}


def _settings() -> dict[str, list[str]]:
    """Return {name: its own flags} of every algorithm and of this package's environments."""
    from jaxrl_fast.algorithms import ALGORITHMS
    from jaxrl_fast.cli.train import describe_train
    from jaxrl_fast.envs import registry

    natives = [n for n, row in registry.list_environments().items() if row.source == "native"]
    lines = [(name, "algo", (name, natives[0])) for name, _ in ALGORITHMS.items()]
    lines += [(name, "env", ("ppo", name)) for name in natives]
    flags = lambda o: [o.flag, o.off] if o.kind == "bool" else [o.flag]
    return {name: [flag for o in describe_train([*words], [], None).options if o.group == group
                   for flag in flags(o)] for name, group, words in lines}


def _shape(name: str, options: Sequence[Option]) -> Any:
    """Return a dataclass with a command's flags, for tyro."""
    flags = [field_of(f"option_{i}", option) for i, option in enumerate(options)]
    return dataclasses.make_dataclass(f"{name.title()}Command", flags)
