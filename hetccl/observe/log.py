"""hetccl's log: one line a fact on stderr, each beginning with the rank that says it."""

import logging
import sys

_NAME = "hetccl"


class _Stderr(logging.Handler):
    """Writes to what sys.stderr is when the record comes."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def configure(level: str, rank: int) -> logging.Logger:
    """The logger of this process, which is `rank` of the world, from `level` (a name of logging's) on."""
    logger = logging.getLogger(_NAME)
    logger.setLevel(level)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(_Stderr())
    for handler in logger.handlers:
        handler.setFormatter(logging.Formatter(f"[hetccl rank {rank}] %(message)s"))
    return logger
