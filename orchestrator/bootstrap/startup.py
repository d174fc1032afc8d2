"""How a process starts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import modules without looking for garbage: there is none, and the search takes a fifth."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
