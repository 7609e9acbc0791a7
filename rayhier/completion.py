"""Scripts for bash, zsh and fish that complete commands, options and their choices. Shells complete file names."""

import argparse
from collections.abc import Iterator, Mapping

BASH = """\
_rayhier() {{
  local before="${{COMP_WORDS[*]:1:$((COMP_CWORD - 1))}}" now="${{COMP_WORDS[$COMP_CWORD]}}" words=""
  case "$before" in
{lines}
  esac
  [[ "$words" == -* && "$now" != -* ]] && words=""
  COMPREPLY=($(compgen -W "$words" -- "$now"))
}}
complete -o default -F _rayhier rayhier
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
SHELLS = ("bash", "zsh", "fish")
Commands = Mapping[str, argparse.ArgumentParser]


def script(shell: str, commands: Commands) -> str:
    """Write the completion script for one of SHELLS. `commands` maps names to parsers."""
    lines = [line for words in _walk("", commands) for line in (_fish if shell == "fish" else _bash)(*words)]
    if shell == "fish":
        return "".join(f"complete -c rayhier -n '{line}\n" for line in lines)
    return ("" if shell == "bash" else ZSH) + BASH.format(lines="\n".join(lines))


def _walk(before: str, commands: Commands) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield words before the cursor, and the commands and options that may follow. Inner commands come first."""
    yield before, " ".join(commands), {}
    for name, parser in commands.items():
        options = dict[str, str]()
        for action in parser._actions:  # noqa: SLF001  argparse has no public list
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                yield from _walk(f"{before} {name}".strip(), action.choices)
            options |= {option: " ".join(map(str, action.choices or ())) for option in action.option_strings}
        yield f"{before} {name}".strip(), "", options


def _bash(before: str, commands: str, options: dict[str, str]) -> Iterator[str]:
    if commands:
        yield f'    "{before}") words="{commands}" ;;'
        return
    yield from (f'    "{before}"*" {option}") words="{words}" ;;' for option, words in options.items() if words)
    yield f'    "{before}"*) words="{" ".join(options)}" ;;'


def _fish(before: str, commands: str, options: dict[str, str]) -> Iterator[str]:
    seen = [f"__fish_seen_subcommand_from {word}" for word in before.split()]
    if commands:
        yield f"{'; and '.join([*seen, f'not __fish_seen_subcommand_from {commands}'])}' -xa '{commands}'"
    for option, words in options.items():
        flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
        yield f"{'; and '.join(seen)}' {flag}" + (f" -xa '{words}'" if words else "")
