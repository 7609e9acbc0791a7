"""Errors shown to the user as plain text, with exit code 2: a mistake in the input, or a full disk."""

import errno

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class InputError(ValueError):
    """A user's mistake. The message names the place, the wrong value and the allowed values."""


def no_room(error: OSError) -> str | None:
    """Return a message to the user if the error means that storage is full or read-only. None for other errors."""
    if error.errno not in FULL:
        return None
    return f"{error.filename or 'storage'}: {error.strerror}. Finished work is kept. Make room and run again"
