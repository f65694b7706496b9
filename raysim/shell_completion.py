"""Scripts by which bash, zsh and fish complete raysim's commands, options, config names and keys."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from raysim.command_line import COMMANDS
from raysim.config.block import blocks_in
from raysim.config.bundled import bundled_names
from raysim.config.component import Component
from raysim.config.lookup import KINDS
from raysim.config.schema import Config
from raysim.reports.published import list_papers

SUMMARIES = {name: command.summary for name, command in COMMANDS.items()} | {"help": "explain a command"}
BASH = """\
# eval "$(raysim completion bash)" in ~/.bashrc
_raysim() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} first= value= words= keys= word
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "{commands}" -- "$cur")
        return
    fi
    for word in "${{COMP_WORDS[@]:2:COMP_CWORD-2}}"; do
        if [ -n "$value" ]; then value=; continue; fi
        case $word in {valued}) value=1 ;; -*) ;; *) first=$word ;; esac
    done
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case $cur in -*) ;; *) [ -z "$first" ] || words=$keys ;; esac
    [ -z "$value" ] || words=
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    case ${{COMPREPLY[0]}} in *=) compopt -o nospace ;; "") compopt -o filenames ;; esac
    mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -f -- "$cur")
}}
complete -F _raysim raysim
"""
ZSH = """\
#compdef raysim
# eval "$(raysim completion zsh)" in ~/.zshrc, after compinit
_raysim() {{
    local first= value= word
    if (( CURRENT == 2 )); then
        local -a commands=({commands})
        _describe command commands
        return
    fi
    for word in ${{words[3,CURRENT-1]}}; do
        if [ -n "$value" ]; then value=; continue; fi
        case $word in {valued}) value=1 ;; -*) ;; *) first=$word ;; esac
    done
    if [ -n "$value" ]; then _files; return; fi
    case ${{words[2]}} in
{cases}
    esac
    _files
}}
compdef _raysim raysim
"""


@dataclass(frozen=True)
class Completed:
    """What a shell completes after a command: its options, the words that come first, and those that follow.

    `valued` are the options that take a value.
    """

    options: Mapping[str, str]
    valued: list[str]
    first: list[str]
    further: list[str]


def write_script(shell: str) -> str:
    """Return the script for bash, zsh or fish."""
    return SCRIPTS[shell]({name: _completed(name) for name in COMMANDS} | {"help": Completed({}, [], [*COMMANDS], [])})


def _completed(name: str) -> Completed:
    options: dict[str, str] = {}
    valued: list[str] = []
    first: list[str] = []
    further: list[str] = []
    for action in COMMANDS[name].parser(name)._actions:
        if action.option_strings:
            options[action.option_strings[-1]] = action.help or ""
            valued += [*action.option_strings] * (action.nargs != 0)
        elif action.dest == "config":
            first, further = bundled_names(), [f"{key}=" for key in sorted({*config_keys(Config)})]
        elif action.dest == "kind":
            first = [kind.listed for kind in KINDS.values() if kind.listed]
        elif action.dest == "paper":
            first = list_papers()
        elif action.choices:
            first = [*map(str, action.choices)]
    return Completed(options, valued, first, further)


def config_keys(block: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield the dotted keys below a block, without those of single components: their import takes seconds."""
    for name, field in block.model_fields.items():
        yield above + name
        for below in blocks_in(field.annotation):
            if issubclass(below, Component):
                yield from (f"{above}{name}.{key}" for key in filter(None, [KINDS[below.what].key]))
            yield from config_keys(below, f"{above}{name}.")


def _valued(commands: Mapping[str, Completed]) -> str:
    """Return a pattern of the options that take a value."""
    return "|".join(sorted({option for one in commands.values() for option in one.valued}))


def _bash(commands: Mapping[str, Completed]) -> str:
    cases = (
        f"        {name}) words={shlex.quote(' '.join([*one.first, *one.options]))} "
        f"keys={shlex.quote(' '.join(one.further))} ;;"
        for name, one in commands.items()
    )
    return BASH.format(commands=" ".join(commands), valued=_valued(commands), cases="\n".join(cases))


def _zsh(commands: Mapping[str, Completed]) -> str:
    described = (shlex.quote(f"{name}:{SUMMARIES[name].replace(':', '')}") for name in commands)
    cases = []
    for name, one in commands.items():
        options, first, further = (shlex.join(words) for words in (one.options, one.first, one.further))
        cases.append(f"        {name}) compadd -- {options}")
        if first:
            cases.append(f'            [[ -n "$first" ]] || compadd -- {first}')
        if further:
            cases.append(f"            [[ -z \"$first\" ]] || compadd -S '' -- {further}")
        cases.append("            ;;")
    return ZSH.format(commands=" ".join(described), valued=_valued(commands), cases="\n".join(cases))


def _fish(commands: Mapping[str, Completed]) -> str:
    lines = ["# raysim completion fish | source, in ~/.config/fish/config.fish"]
    for name, one in commands.items():
        lines.append(f"complete -c raysim -n __fish_use_subcommand -f -a {name} -d {_fish_quote(SUMMARIES[name])}")
        after = f"complete -c raysim -n '__fish_seen_subcommand_from {name}'"
        for option, words in one.options.items():
            value = " -r" * (option in one.valued)
            lines.append(f"{after} -l {option.removeprefix('--')}{value} -d {_fish_quote(words)}")
        if one.first or one.further:
            lines.append(f"{after} -a {_fish_quote(' '.join([*one.first, *one.further]))}")
    return "\n".join(lines) + "\n"


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: Mapping[str, Callable[[Mapping[str, Completed]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
