"""What all commands do alike: exit codes, one line for an error, and the door to all of them."""

import errno
import subprocess

import pytest

from rayhier import __main__ as door
from rayhier.command import REMOVED, run_command
from rayhier.spec import InputError


def raising(error):
    def body():
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("k: got 0; allowed: 1 or more"), "error: k: got 0; allowed: 1 or more"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.txt"), "error: a.txt: No such file; nothing was written"),
        (OSError(errno.ENOSPC, "No space left", "b"), "error: b: No space left. Finished work is kept. Make room and"),
        (KeyError("inner"), "error: 'inner'"),
    ],
)
def test_an_error_is_one_line_and_code_2(error, said, capsys):
    assert run_command(raising(error), failures=(KeyError,), unfinished="; nothing was written") == 2
    assert capsys.readouterr().err.startswith(said)


def test_other_ends(capsys):
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()))
    with pytest.raises(OSError, match="without a message"):
        run_command(raising(OSError("without a message")))
    assert run_command(raising(KeyboardInterrupt()), stopped="go on with the same command") == 130
    assert capsys.readouterr().err == "go on with the same command\n"
    assert [run_command(lambda: None), run_command(lambda: 3)] == [0, 3]


@pytest.mark.parametrize("name", door.COMMANDS)
def test_every_command_explains_itself_by_its_name(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        door.main([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: rayhier {name} ")


def test_the_door_lists_all_commands_and_refuses_others(capsys):
    with pytest.raises(SystemExit, match="0"):
        door.main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"  {name}" in listed for name in door.COMMANDS)
    with pytest.raises(SystemExit, match="2"):
        door.main(["fly"])
    assert "invalid choice: 'fly'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("rayhier ev", "eval"),
        ("rayhier run --pl", "--plan"),
        ("rayhier run a.yaml --stage calib", "calibrate"),
        ("rayhier run --set a=1 ", ""),
        ("rayhier index mai", "maintain"),
        ("rayhier index add w --up", "--upsert"),
    ],
)
def test_bash_completes_commands_options_and_choices(words, completed, capsys):
    with pytest.raises(SystemExit, match="0"):
        door.main(["--completion", "bash"])
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rayhier; echo "${COMPREPLY[*]}"'
    command = ["bash", "-c", f"{capsys.readouterr().out}\n{ask}", "bash", *words.split(" ")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == completed


def test_zsh_and_fish_get_the_same_words(capsys):
    for shell, expected in (("zsh", "compinit"), ("fish", "__fish_seen_subcommand_from add' -l upsert")):
        with pytest.raises(SystemExit, match="0"):
            door.main(["--completion", shell])
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize("removed", sorted(REMOVED))
def test_a_removed_command_or_option_is_code_2_and_says_what_to_do(removed, capsys):
    _, command, *rest = removed.split()
    with pytest.raises(SystemExit, match="2"):
        door.main([command, *rest, "WORKDIR"])
    assert f"{removed.split()[-1]}: removed; {REMOVED[removed]}" in capsys.readouterr().err
