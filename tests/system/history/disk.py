"""A disk that can be made full and read-only: a small tmpfs where this process may mount one, else limits of a process.

A full tmpfs answers ENOSPC, a read-only one EROFS. Without mounts the server's own limit of a file's size
(RLIMIT_FSIZE) cuts writes short and answers EFBIG, which is neither, but as real.
"""

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Refusal = Literal["full", "read-only", "fsync"]
KIBIBYTES = 1 << 20
"""Size of the tmpfs: one gibibyte, of which only what is written takes memory."""
SHORT = 300
"""Bytes of a file that may be written where no tmpfs can be full."""


class Tmpfs:
    """A tmpfs at a folder."""

    name = "tmpfs"

    def __init__(self, folder: Path) -> None:
        """Mount it; OSError where this process may not."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if folder.is_mount():  # left by a run that was killed
            self.close()
        if not self._mount("-t", "tmpfs", "-o", f"size={KIBIBYTES}k", "history"):
            raise PermissionError(f"{folder}: no tmpfs can be mounted there")

    def refuse(self, how: Refusal) -> bool:
        """Leave no free page, or accept no write; False where a file is open for writing at this moment."""
        if how == "read-only":
            return self._mount("-o", "remount,ro")
        stats = os.statvfs(self._folder)
        used = (stats.f_blocks - stats.f_bfree) * stats.f_frsize >> 10
        return self._mount("-o", f"remount,size={used}k")

    def accept(self) -> None:
        if not self._mount("-o", f"remount,rw,size={KIBIBYTES}k"):
            raise OSError(f"{self._folder}: cannot be mounted writable again")

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self._folder], check=False)

    def _mount(self, *arguments: str) -> bool:
        command = ["mount", *arguments, str(self._folder)]
        try:
            return subprocess.run(command, check=False, capture_output=True).returncode == 0
        except FileNotFoundError:
            return False


class Limits:
    """A limit of the size of the files that a process writes, which a function names."""

    name = "RLIMIT_FSIZE"

    def __init__(self, pid: Callable[[], int]) -> None:
        self._pid = pid

    def refuse(self, how: Refusal) -> bool:
        """Allow no byte of a file, or some hundred; False where the process is gone."""
        return self._limit(SHORT if how == "full" else 0)

    def accept(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def close(self) -> None:
        pass

    def _limit(self, size: int) -> bool:
        try:
            resource.prlimit(self._pid(), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        except ProcessLookupError:
            return False
        return True


Disk = Tmpfs | Limits
