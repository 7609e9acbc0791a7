"""A file that is changed as nobody should change it."""

import os


def overwrite(path, data):
    """Change a file in place: as long as before, and with the times that it had."""
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of a file system ticks slowly
        with path.open("r+b") as opened:
            opened.write(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
