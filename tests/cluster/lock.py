"""One holder a machine of what cannot be had twice."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.processes import poll


@contextmanager
def only_one(path: Path | None, timeout: float) -> Iterator[None]:
    """Hold the lock file at path (None: no lock); it is free again when its holder ends, however it ends.

    Waits at most timeout seconds and then raises TimeoutError.
    """
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:

        def taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        poll(f"the lock {path} (another test run holds it)", taken, timeout, interval=0.2)
        yield
