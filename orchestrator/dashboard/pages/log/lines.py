"""Lines of a log as a page shows them: text, and words for how it is set off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.application.read_log import LogLine
from orchestrator.dashboard.labels import visible
from orchestrator.domain.terminal import Stretch, stretches
from orchestrator.domain.units import size

LONGEST = 2_000
"""Characters of a line."""
MOST_PARTS = 24
"""Of one line; what follows is plain."""
_PAGE_PARTS = 2_000
"""Of all lines of a page that is read without JavaScript."""
Part = tuple[str, str]
"""Text, and the classes that it has."""


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line."""

    number: int
    parts: Sequence[Part]
    size_bytes: int
    is_cut: bool
    """More of it is there than is shown."""

    @property
    def whole(self) -> str:
        """What leads to all of it."""
        return f"whole line, {size(self.size_bytes)}"

    def plain(self) -> dict[str, object]:
        """For JSON."""
        told: dict[str, object] = {"line": self.number, "parts": self.parts}
        return told | {"size_bytes": self.size_bytes} if self.is_cut else told


def shown_line(line: LogLine) -> ShownLine:
    """As a terminal leaves it, with nothing hidden, and cut where it is long."""
    text, is_cut = _text(line)
    parts: list[Part] = []
    room = LONGEST
    for stretch in _few(stretches(text)):
        shown = visible(stretch.text)
        parts.append((shown[:room], _classes(stretch)))
        room -= len(shown)
        if room < 0:
            break
    return ShownLine(line.number, parts, line.size_bytes, is_cut or room < 0)


def for_page(lines: Iterable[ShownLine]) -> list[ShownLine]:
    """The lines, plain from where a page would have too many parts."""
    room, shown = _PAGE_PARTS, []
    for line in lines:
        room -= len(line.parts)
        if room < 0 and len(line.parts) > 1:
            whole = "".join(text for text, _ in line.parts)
            line = ShownLine(line.number, [(whole, "")], line.size_bytes, line.is_cut)
        shown.append(line)
    return shown


def part_of_line(data: bytes, limit: int, *, is_first: bool) -> str:
    """Some bytes from within a line, as text that is cut between characters."""
    begin = 0
    while not is_first and begin < len(data) and _goes_on(data[begin]):
        begin += 1
    end = min(limit, len(data))
    while end < len(data) and _goes_on(data[end]):
        end += 1
    return visible(data[begin:end].decode("utf-8", "replace"))


def _goes_on(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _text(line: LogLine) -> tuple[str, bool]:
    if not line.tail:
        return line.head.decode("utf-8", "replace"), False
    # A progress bar of a thousand steps: what counts is its end.
    _, was_over, last = line.tail.rstrip(b"\r").partition(b"\r")
    if was_over:
        return last.decode("utf-8", "replace"), False
    return line.head.decode("utf-8", "replace"), True


def _few(parts: Sequence[Stretch]) -> Sequence[Stretch]:
    if len(parts) <= MOST_PARTS:
        return parts
    rest = "".join(part.text for part in parts[MOST_PARTS - 1 :])
    return [*parts[: MOST_PARTS - 1], Stretch(rest)]


def _classes(stretch: Stretch) -> str:
    return " ".join(f"t-{word}" for word in stretch.style.split())
