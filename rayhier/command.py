"""What all commands do alike: one line for an error, exit codes, Ctrl-C, and a reader that has seen enough."""

import logging
import os
import sys
from collections.abc import Callable

from rayhier.spec.errors import InputError, no_room

MISTAKE, STOPPED = 2, 130
"""Exit codes: of a user's mistake or a file that cannot be read or written, and of a command that Ctrl-C stopped."""


def run_command(
    body: Callable[[], int | None],
    *,
    failures: tuple[type[Exception], ...] = (),
    unfinished: str = "",
    stopped: str = "stopped",
) -> int:
    """Run the body of a command; returns its exit code.

    An InputError, an OSError with a file's name, and `failures` are printed as one line; `unfinished` says what an
    OSError leaves, `stopped` what Ctrl-C leaves.
    """
    try:
        code = body()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough; at its end Python flushes once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InputError as error:
        return _mistake(str(error))
    except failures as error:
        return _mistake(str(error))
    except OSError as error:
        if (said := no_room(error)) is None:
            if error.strerror is None:
                raise
            said = f"{error.filename or 'storage'}: {error.strerror}{unfinished}"
        return _mistake(said)
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return STOPPED
    return code or 0


def log_to_stderr() -> None:
    """Show the log on standard error, as `-v` asks."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)


def _mistake(said: str) -> int:
    print(f"error: {said}", file=sys.stderr)
    return MISTAKE
