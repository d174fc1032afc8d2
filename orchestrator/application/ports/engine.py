"""Port of durable execution: a flow resumes where it was when its process died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Final, Protocol

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]
"""Result of a step: recorded, and replayed instead of running the step again."""


class _NotYet(Enum):
    NOT_YET = "not yet"

    def __repr__(self) -> str:
        return "NOT_YET"


NOT_YET: Final = _NotYet.NOT_YET
"""Result of a poll without a result yet; a type of its own, never a falsy value."""

NotYet = _NotYet
Body = Callable[..., Value]
Look = Callable[..., "Value | NotYet"]


class NotServedError(Exception):
    """This process serves no project that the flow's cell is of."""


class Durable(Protocol):
    """Durable operations of a flow. Names are recorded: their order must not change."""

    async def once(self, name: str, body: Body, *args: str) -> Value:
        """Run the body once, record its result, and replay it afterwards."""
        ...

    async def until(self, name: str, look: Look, *args: str, every_s: float) -> Value:
        """Poll repeatedly without holding a thread; record only the final result."""
        ...


class FinishedFlows(Protocol):
    """Records of the engine about flows that ended."""

    def forget(
        self, before: datetime, is_over: Callable[[list[str]], set[str]], *, dry: bool
    ) -> Iterator[int]:
        """Delete records of flows that ended before a time, or count them; yield sums by batch.

        `is_over` returns which of these cells are over for good.
        """
        ...
