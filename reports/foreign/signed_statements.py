"""What people signed in a report of ours: it was held against the results when it was printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports.foreign.document import Line

_OURS = re.compile(r"^Run \S+ · evidence sha256 .{1,200} · template \w+ \d+$")
_SIGNED = re.compile(r"^Written by .{1,200}, \d{4}-\d\d-\d\d\b")
_BESIDE = re.compile(r"\(.{1,200}, \d{4}-\d\d-\d\d\): |^(?:The results contradict|No result backs)")


def is_ours(prose: Iterable[Line]) -> bool:
    """Whether a report's last line is that of the reports that Seatrial renders."""
    return any(_OURS.match(line.text) for line in prose)


def unsigned(
    lines: Sequence[Line], prose: Sequence[Line], boundaries: Sequence[int]
) -> tuple[Line, ...]:
    """The lines without those that a person signed, and without what was found against them.

    Args:
        lines: Sentences or entries of lists.
        prose: Where the signatures stand.
        boundaries: Lines of headings, tables, blocks and rules: a signed text goes back to one.
    """
    signed: set[int] = set()
    for line in prose:
        if _SIGNED.match(line.text):
            start = max((at for at in boundaries if at < line.number), default=0)
            signed.update(range(start, line.number + 1))
    return tuple(
        line for line in lines if line.number not in signed and not _BESIDE.search(line.text)
    )
