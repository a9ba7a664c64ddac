"""A segment of shared memory between two processes: used where attaching to it works, whatever the hosts are called."""

import ctypes
import errno
import mmap
import os
import secrets
import time
from pathlib import Path

from hetccl.errors import ResourceError

__all__ = ["Segment", "sweep"]

FOLDER = Path("/dev/shm")  # noqa: S108 - names in it cannot be guessed, and are never followed
_PREFIX = "hetccl-"
_STALE_SECONDS = 60
_COOKIE = 32
_PAGE = mmap.PAGESIZE


class Segment:
    """`size` zeroed bytes at `address`, after a page with a cookie that tells the right segment from any other."""

    def __init__(self, path: Path, cookie: bytes, memory: mmap.mmap) -> None:
        self.path, self.cookie = path, cookie
        self._memory = memory
        memory.madvise(mmap.MADV_DONTFORK)  # a child that outlives its parent must not hold it
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + _PAGE

    @classmethod
    def create(cls, size: int) -> "Segment":
        """A new one, with a name that nobody can guess. Raises ResourceError where there is no room for it."""
        path = FOLDER / f"{_PREFIX}{secrets.token_hex(16)}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ResourceError(f"{FOLDER} cannot be used: {error.strerror}") from None
        try:
            os.posix_fallocate(descriptor, 0, _PAGE + size)
            memory = mmap.mmap(descriptor, _PAGE + size)
        except OSError as error:
            path.unlink()
            if error.errno != errno.ENOSPC:
                raise ResourceError(f"{FOLDER} cannot be used: {error.strerror}") from None
            room = os.statvfs(FOLDER)
            raise ResourceError(
                f"{FOLDER} is too small: {(_PAGE + size) >> 10} KiB are needed for one more pair of ranks, "
                f"{room.f_bavail * room.f_frsize >> 10} of {room.f_blocks * room.f_frsize >> 10} KiB are free"
            ) from None
        finally:
            os.close(descriptor)
        cookie = secrets.token_bytes(_COOKIE)
        memory[:_COOKIE] = cookie
        return cls(path, cookie, memory)

    @classmethod
    def attach(cls, name: str, cookie: bytes, size: int) -> "Segment | None":
        """The peer's segment, or None where this process does not share that memory."""
        path = FOLDER / Path(name).name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if os.fstat(descriptor).st_size != _PAGE + size:
                return None
            memory = mmap.mmap(descriptor, _PAGE + size)
        finally:
            os.close(descriptor)
        if memory[:_COOKIE] != cookie:
            memory.close()
            return None
        return cls(path, cookie, memory)

    def unlink(self) -> None:
        """Take the name away: both sides have attached, or never will. The memory lives as long as either side."""
        self.path.unlink(missing_ok=True)


def sweep() -> None:
    """Remove what processes left that were killed between making a segment and taking its name away, seconds later."""
    for path in FOLDER.glob(f"{_PREFIX}*"):
        try:
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                path.unlink()
        except OSError:  # somebody else's, or gone already
            continue
