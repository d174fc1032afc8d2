"""Durable execution: a flow that goes on where it was when its process died."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]
"""What a step answers with: it is recorded, and replayed instead of running the step again."""


class _NotYet(Enum):
    NOT_YET = "not yet"

    def __repr__(self) -> str:
        return "NOT_YET"


NOT_YET: Final = _NotYet.NOT_YET
"""What a look answers while there is nothing to record; a type of its own, never a falsy value."""

NotYet = _NotYet
Body = Callable[..., Value]
Look = Callable[..., "Value | NotYet"]


class Durable(Protocol):
    """What a flow may ask of its engine. Names are recorded: their order must not change."""

    async def once(self, name: str, body: Body, *args: str) -> Value:
        """Run the body, record its answer, and replay it ever after."""
        ...

    async def until(self, name: str, look: Look, *args: str, every_s: float) -> Value:
        """Look again and again, without holding a thread; record only the final answer."""
        ...
