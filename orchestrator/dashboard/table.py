"""Tables of pages; each cell has a form for HTML, for JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Protocol

from orchestrator.dashboard.charts import Picture
from orchestrator.dashboard.labels import ago, cut, share, visible
from orchestrator.domain.charges import Cost
from orchestrator.domain.outcome import Counts
from orchestrator.domain.units import duration, most_usd, number, usd, utc
from orchestrator.domain.vocabulary import term

Plain = str | int | float | bool | None | Mapping[str, "Plain"] | Sequence["Plain"]


class TableCell(Protocol):
    """The value of one table cell."""

    @property
    def kind(self) -> str:
        """Name of the macro in ``cells.html.j2`` that renders the cell."""
        ...

    def plain(self) -> Plain:
        """The value for JSON and CSV, unrounded and unmasked."""
        ...

    def text(self) -> str:
        """The value as text for Markdown."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """Text, which may come from an untrusted source."""

    kind: ClassVar[str] = "text"
    value: str
    href: str = ""
    note: str = ""
    """A quieter second line."""
    is_code: bool = False
    short: str = ""
    """A shorter text that is shown instead of the value; the note has the rest."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Additional columns of JSON and CSV; on a page the note has them."""
    is_sentence: bool = False
    """Whether the text is a sentence of Seatrial with commands in backticks."""

    def plain(self) -> Plain:
        """The unformatted text."""
        return self.value

    def text(self) -> str:
        """The text with its note in one line."""
        note = ", ".join(self.more.values()) or self.note
        return noted(visible(cut(self.value)), visible(cut(note))).replace("\n", " ")


def noted(text: str, note: str) -> str:
    """Return the text with its note in brackets: ``failed (cancelled; 3 failed)``."""
    return f"{text} ({note})" if text and note else text or note


def named_test(
    nodeid: str, job: str, href: str = "", *, note: str = "", short: str = "", is_code: bool = False
) -> Text:
    """Return the cell of a test's name with its job, because several jobs may have a node id."""
    return Text(nodeid, href, note or job, is_code, short, more={"job": job})


@dataclass(frozen=True, slots=True)
class Number:
    """A number with its unit."""

    kind: ClassVar[str] = "number"
    value: float | None
    unit: str = ""
    href: str = ""
    is_loud: bool = False
    """Whether it is highlighted unless it is zero."""

    def plain(self) -> Plain:
        """The unrounded value; the unit is in the column's name."""
        return self.value

    def text(self) -> str:
        """The value with its unit."""
        if self.value is None:
            return "–"
        return f"{number(self.value)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Badge:
    """An outcome, a state or a decision: a word of the glossary."""

    kind: ClassVar[str] = "badge"
    word: str
    href: str = ""
    note: str = ""

    def plain(self) -> Plain:
        """The status word of the API."""
        return self.word.rpartition(":")[2] or None

    def text(self) -> str:
        """The glyph and the word with the note."""
        shown = term(self.word)
        return noted(f"{shown.glyph} {shown.word}", visible(self.note)) if self.word else "–"


@dataclass(frozen=True, slots=True)
class TestCounts:
    """Counts of tests, with the pass rate and the outcomes outside it."""

    kind: ClassVar[str] = "tally"
    counts: Counts
    href: str = ""
    is_partial: bool = False
    """Whether the counted cell or run ended early, even if no test is known to be missing."""

    @property
    def counted(self) -> int:
        """Return the denominator of the pass rate."""
        return self.counts.passed + self.counts.failed + self.counts.error

    @property
    def rate(self) -> str:
        """The pass rate."""
        return share(self.counts.passed, self.counted)

    @property
    def ran(self) -> str:
        """Text `` that ran`` if some tests did not run; else empty."""
        is_partial = self.is_partial or self.counts.missing or self.counts.not_run
        return " that ran" if is_partial else ""

    @property
    def beside(self) -> Sequence[tuple[str, int]]:
        """Return the outcomes outside of the rate with their numbers, without zeros."""
        told = ("failed", "error", "missing", "not_run", "skipped", "xfailed", "xpassed")
        counted = self.counts.as_dict()
        return tuple((word, counted[word]) for word in told if counted[word])

    def plain(self) -> Plain:
        """The counts and the pass rate."""
        rate = self.counts.pass_rate
        return {
            **self.counts.as_dict(),
            "pass_rate": float(rate) if isinstance(rate, Fraction) else None,
        }

    def text(self) -> str:
        """The pass rate with its counts: ``99.8% (447 of 448; 1 failed, 12 skipped)``."""
        words = ", ".join(term(word).counted(many) for word, many in self.beside)
        of = f"{self.counts.passed:,} of {self.counted:,}{self.ran}"
        return f"{self.rate} ({of}; {words})" if words else f"{self.rate} ({of})"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, which the browser converts to the viewer's time zone."""

    kind: ClassVar[str] = "moment"
    at: datetime | None
    now: datetime | None = None
    """The present time if the cell shows the age; None if it shows the time."""

    @property
    def iso(self) -> str:
        """The time for HTML's ``datetime`` attribute."""
        return "" if self.at is None else self.at.astimezone(UTC).isoformat(timespec="seconds")

    @property
    def shown(self) -> str:
        """The text of the cell: the time in UTC, or how long ago it was."""
        if self.at is None:
            return "–"
        return utc(self.at) if self.now is None else ago(self.at, self.now)

    def plain(self) -> Plain:
        """The time in RFC 3339, in UTC."""
        return self.iso or None

    def text(self) -> str:
        """The time in UTC."""
        return "–" if self.at is None else utc(self.at)


@dataclass(frozen=True, slots=True)
class Span:
    """A duration in seconds."""

    kind: ClassVar[str] = "number"
    seconds: float | None
    href: str = ""
    is_loud: bool = False

    def plain(self) -> Plain:
        """The duration in seconds."""
        return self.seconds

    def text(self) -> str:
        """The duration in words: ``1m 12s``."""
        return "–" if self.seconds is None else duration(self.seconds)


@dataclass(frozen=True, slots=True)
class Usd:
    """An amount of US dollars."""

    kind: ClassVar[str] = "number"
    amount: Decimal | None
    href: str = ""
    is_loud: bool = False
    is_most: bool = False
    """Whether it is a maximum, which is rounded up."""
    why_none: str = ""
    """Reason why there is no amount."""

    @classmethod
    def of(cls, cost: Cost, *, is_loud: bool = False) -> Usd:
        """Return the cell of a cost, with the reason if it has no amount."""
        return cls(cost.usd, is_loud=is_loud, why_none=cost.no_cost)

    def plain(self) -> Plain:
        """The amount as decimal text, as in the API."""
        return None if self.amount is None else format(self.amount, "f")

    def text(self) -> str:
        """The rounded amount: ``$1.20``; a dash for none."""
        if self.amount is None:
            return "–"
        return most_usd(self.amount) if self.is_most else usd(self.amount)


@dataclass(frozen=True, slots=True)
class PictureCell:
    """A small picture, and the values that it shows."""

    kind: ClassVar[str] = "drawn"
    picture: Picture
    values: Sequence[float | None]
    label: str
    """The same information in words."""

    def plain(self) -> Plain:
        """Return the drawn values as a list."""
        return list(self.values)

    def text(self) -> str:
        """The description of the drawing."""
        return self.label


@dataclass(frozen=True, slots=True)
class Trace:
    """One line of a long text, which is loaded when it is opened."""

    kind: ClassVar[str] = "trace"
    value: str
    href: str
    """URL of the page with the whole text, for browsers without JavaScript."""
    load: str
    """URL of JSON that has the text under ``shown``."""

    def plain(self) -> Plain:
        """Return the text without abbreviation."""
        return self.value

    def text(self) -> str:
        """The text in one line, cut to the limit."""
        return visible(cut(self.value)).replace("\n", " ")


@dataclass(frozen=True, slots=True)
class CellList:
    """Several values in one table cell."""

    kind: ClassVar[str] = "several"
    cells: Sequence[TableCell]

    def plain(self) -> Plain:
        """The values as a list."""
        return [cell.plain() for cell in self.cells]

    def text(self) -> str:
        """The values, separated by commas."""
        return ", ".join(cell.text() for cell in self.cells)


NOTED = "*"
"""Sign of an outcome with a note."""


@dataclass(frozen=True, slots=True)
class OutcomeMark:
    """An outcome in a grid: one sign, with a word for screen readers.

    It has no other information, because a grid has thousands of marks.
    """

    kind: ClassVar[str] = "mark"
    word: str
    """The outcome's word; empty without a result."""
    letter: str = ""
    """Letter of the failure's group; empty without one."""
    href: str = ""
    note: str = ""
    """A note such as ``2 of 5 jobs``, which is shown as the sign `NOTED`."""

    @property
    def tone(self) -> str:
        """Return the tone of the word."""
        return term(self.word).tone if self.word else "none"

    @property
    def sign(self) -> str:
        """Return the glyph."""
        return term(self.word).glyph if self.word else ""

    @property
    def shown(self) -> str:
        """Return the glyph with its letter and the sign of a note."""
        return f"{self.sign}{self.letter}{NOTED if self.note else ''}"

    @property
    def label(self) -> str:
        """The text for screen readers."""
        if not self.word:
            return "no result"
        said = f"{term(self.word).word} {self.letter}".rstrip()
        return f"{said} ({self.note})" if self.note else said

    def plain(self) -> Plain:
        """Return the outcome with its letter and note, if any; None without a result."""
        said = f"{self.word} {self.letter}".rstrip()
        return (f"{said} ({self.note})" if self.note else said) or None

    def text(self) -> str:
        """Sign, word and letter."""
        return f"{self.sign} {self.label}" if self.word else "–"


@dataclass(frozen=True, slots=True)
class NameList:
    """Several names: a page shows the first ones, and all of them as a tooltip."""

    kind: ClassVar[str] = "names"
    values: Sequence[str]
    shown: int = 2

    @property
    def hidden(self) -> int:
        """Return the number of hidden rows."""
        return max(len(self.values) - self.shown, 0)

    def plain(self) -> Plain:
        """The names as a list."""
        return list(self.values)

    def text(self) -> str:
        """The names, separated by commas."""
        return visible(cut(", ".join(self.values))).replace("\n", " ") or "–"


@dataclass(frozen=True, slots=True)
class Act:
    """A button that changes state after a confirmation; only on pages, for permitted viewers."""

    kind: ClassVar[str] = "act"
    label: str
    href: str
    csrf: str
    about: str = ""
    """The affected object."""

    def plain(self) -> Plain:
        """None: an action has no value."""
        return None

    def text(self) -> str:
        """Empty: an action has no text."""
        return ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    id: str
    """Name in JSON and CSV, including its unit, if any."""
    title: str
    is_number: bool = False
    href: str = ""
    """URL that sorts the table by this column."""
    sorted: str = ""
    """``ascending`` or ``descending`` if the rows are sorted by this column; else empty."""
    is_title_hidden: bool = False
    """Whether the title is only for screen readers, because the content is visually obvious."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in the order of the columns; the first one is the row's heading."""

    cells: Sequence[TableCell]
    id: str = ""
    """The row's anchor for links; empty without one."""
    tone: str = ""
    """``bad`` or ``warn`` to highlight the whole row; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a page, which is also in the page's `.json`, `.csv` and `.md`."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = "Nothing is here yet."
    """Text that is shown if there are no rows, with the next step."""
    command: str = ""
    """A command that is shown with this text; empty for none."""
    next: str = ""
    """URL of the next rows; empty if there are none."""
    total: int | None = None
    """Number of rows on all pages; None if it is expensive to count."""
    is_caption_hidden: bool = False
    """Whether the caption is hidden, because a heading names the table."""
    is_grid: bool = field(default=False)
    """Whether arrow keys move from cell to cell."""
    is_passing: bool = False
    """Whether the page answers a form, so that it has no URL and offers only Markdown."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the details."""

    name: str
    value: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class FoldedFacts:
    """A sentence with figures that are folded away."""

    kind: ClassVar[str] = "folded"
    value: str
    facts: Sequence[Fact] = ()

    def plain(self) -> Plain:
        """The summary sentence."""
        return self.value

    def text(self) -> str:
        """The summary sentence in one line."""
        return visible(cut(self.value)).replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab that shows the rows of one kind."""

    title: str
    many: int
    href: str
    is_now: bool
    tone: str = ""
