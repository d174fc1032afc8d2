"""Log lines of the engine's steps name their run, cell and attempt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_KEY: ContextVar[str] = ContextVar("key", default="")
_NAMES = ("run", "cell", "attempt")


@contextmanager
def step_of(key: str) -> Iterator[None]:
    """Prefix the log lines of this context with run, cell and attempt.

    Args:
        key: A cell's id (``RUN-NUMBER``) or an attempt's (``RUN-NUMBER-NUMBER``).
    """
    token = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(token)


class StepFormatter(logging.Formatter):
    """Formats ``TIME LEVEL LOGGER run=RUN cell=NUMBER attempt=NUMBER: MESSAGE``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(about)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; outside of steps it names no run, cell or attempt."""
        parts = _KEY.get().split("-") if _KEY.get() else []
        record.about = "".join(f" {name}={part}" for name, part in zip(_NAMES, parts, strict=False))
        return super().format(record)
