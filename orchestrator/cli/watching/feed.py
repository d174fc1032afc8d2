"""The run's feed, read from a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event; its data point at what changed, which is asked for elsewhere."""

    id: str
    """The last number that was given, which a resumed stream continues after."""
    kind: str
    data: str


def read_events(lines: Iterable[str]) -> Iterator[FeedEvent]:
    """Parse lines as the HTML standard says: comments and unknown fields are passed over."""
    last_id, kind, data = "", "", list[str]()
    for line in lines:
        if not line:
            if data or kind:
                yield FeedEvent(last_id, kind or "message", "\n".join(data))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
