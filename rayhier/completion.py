"""Scripts for bash, zsh and fish that complete commands, options and their choices. Shells complete file names."""

import argparse
from collections.abc import Iterator, Mapping

BASH = """\
_rayhier() {{
  local before="${{COMP_WORDS[*]:1:$((COMP_CWORD - 1))}}" now="${{COMP_WORDS[$COMP_CWORD]}}" words=""
  case "$before" in
{cases}
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
    """Write the script of one of SHELLS for the commands, name -> parser."""
    if shell == "fish":
        return "".join(f"complete -c rayhier -n '{when}' {what}\n" for when, what in _fish("", commands))
    cases = "\n".join(f'    {before}) words="{words}" ;;' for before, words in _cases("", commands))
    return ("" if shell == "bash" else ZSH) + BASH.format(cases=cases)


def _cases(before: str, commands: Commands) -> Iterator[tuple[str, str]]:
    """Yield patterns of the words before the cursor and what may follow. The first pattern that fits counts."""
    yield f'"{before}"', " ".join(commands)
    for name, parser in commands.items():
        command = f"{before} {name}".strip()
        inner, options = _parts(parser)
        yield from _cases(command, inner) if inner else ()
        yield from ((f'"{command}"*" {option}"', words) for option, words in options.items() if words)
        yield f'"{command}"*', " ".join(options)


def _fish(before: str, commands: Commands) -> Iterator[tuple[str, str]]:
    """Yield conditions of fish and what may follow."""
    names, seen = " ".join(commands), "".join(f"__fish_seen_subcommand_from {word}; and " for word in before.split())
    yield f"{seen}not __fish_seen_subcommand_from {names}", f"-xa '{names}'"
    for name, parser in commands.items():
        inner, options = _parts(parser)
        yield from _fish(f"{before} {name}", inner) if inner else ()
        for option, words in options.items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            yield f"{seen}__fish_seen_subcommand_from {name}", flag + (f" -xa '{words}'" if words else "")


def _parts(parser: argparse.ArgumentParser) -> tuple[Commands, dict[str, str]]:
    """Return the commands inside a command, and its options with their choices."""
    commands, options = dict[str, argparse.ArgumentParser](), dict[str, str]()
    for action in parser._actions:  # noqa: SLF001  argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            commands = action.choices
        options |= {option: " ".join(map(str, action.choices or ())) for option in action.option_strings}
    return commands, options
