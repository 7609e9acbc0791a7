"""Errors whose text is all that a user sees, with exit code 2: what was given cannot work, or there is no room."""

import errno

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class InputError(ValueError):
    """A user's mistake: says what was wrong, where, and what is allowed."""


def no_room(error: OSError) -> str | None:
    """What to say of a device that takes no more; None of any other error."""
    if error.errno not in FULL:
        return None
    return f"{error.filename or 'storage'}: {error.strerror}; what was finished stays: make room and run again"
