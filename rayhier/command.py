"""Run a command of the shell: print errors in one line, set the exit code, and end quietly at Ctrl-C."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import NoReturn

from typing_extensions import override

from rayhier.spec.errors import InputError, no_room

MISTAKE, STOPPED = 2, 130
"""Exit codes: MISTAKE after a user's mistake or a file that cannot be read or written, STOPPED after Ctrl-C."""
REMOVED = {
    "rayhier cluster": "rayhier inspect WORKDIR shows the tree of an index, and ray start --head starts a Ray cluster",
    "rayhier index embed": "rayhier run SPEC encodes all documents before a server moves to their index",
    "rayhier run --measure": "rayhier run SPEC notes rates of this machine, which later plans use",
    "rayhier search --workers": "cut the file of queries, and search each part on another machine",
    "rayhier run --carry": "rayhier run SPEC builds the index while a server goes on with the one before, then swaps",
}
"""Commands and options that were removed, and what to do instead."""


class Parser(argparse.ArgumentParser):
    """A parser of arguments that says what to do instead of a command or an option that was removed."""

    @override
    def error(self, message: str) -> NoReturn:
        given = re.findall(r"[\w-]+", message.partition("(choose")[0])
        removed = [word for word in given if f"{self.prog} {word}" in REMOVED]
        super().error(f"{removed[0]}: removed; {REMOVED[f'{self.prog} {removed[0]}']}" if removed else message)


def run_command(
    body: Callable[[], int | None],
    *,
    failures: tuple[type[Exception], ...] = (),
    unfinished: str = "",
    stopped: str = "stopped",
) -> int:
    """Run the body of a command. Returns its exit code, and prints errors that users can mend as one line.

    Such errors are InputError, an OSError that names a file, and the types in `failures`. `unfinished` tells in the
    line of an OSError what became of unfinished work. `stopped` is the line after Ctrl-C.
    """
    try:
        code = body()
        sys.stdout.flush()
    except BrokenPipeError:  # the output's reader closed the output, so Python's last flush must go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InputError as error:
        return _mistake(str(error))
    except failures as error:
        return _mistake(str(error))
    except OSError as error:
        if (message := no_room(error)) is None:
            if error.strerror is None:
                raise
            message = f"{error.filename or 'storage'}: {error.strerror}{unfinished}"
        return _mistake(message)
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return STOPPED
    return code or 0


def end(code: int) -> NoReturn:
    """End this process. After Ctrl-C, skip Python's cleanup, in which threads of native code sometimes aborted."""
    if code == STOPPED and "ray" not in sys.modules:  # Ray ends its processes in the cleanup
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("faiss").setLevel(logging.WARNING)  # faiss reports each instruction set that is missing


def _mistake(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return MISTAKE
