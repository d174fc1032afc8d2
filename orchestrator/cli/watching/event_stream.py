"""The run's feed, read from a stream of server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.cli.safe_text import one_line


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event; its data point at what changed, which is asked for elsewhere."""

    id: str
    """The last number that was given, which a resumed stream continues after."""
    kind: str
    data: str


@dataclass(frozen=True, slots=True)
class Notice:
    """What the controller tells people of a run, once."""

    about: str
    """A cell, or a word for the run."""
    text: str

    def __str__(self) -> str:
        return f"{one_line(self.about)}: {one_line(self.text)}"


def notice_of(event: FeedEvent) -> Notice | None:
    """The words in an event; None where it has none, or where the run shows the same."""
    try:
        data = json.loads(event.data)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("shown"):
        return None
    text = data.get("notice")
    about = data.get("cell") or event.kind
    return Notice(str(about), text) if isinstance(text, str) and text else None


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
