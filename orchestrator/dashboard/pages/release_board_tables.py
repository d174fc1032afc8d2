"""The tables of the release board: versions by platforms, pass rates, states of gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import ClassVar

from orchestrator.application.benchmarks import RateTrend
from orchestrator.application.gate_status import GateStatus, WaitReason
from orchestrator.application.release_board import Absence, Board, BoardCell, BoardRow
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, sparkline
from orchestrator.dashboard.labels import age, ago, cut, shortened, visible
from orchestrator.dashboard.pages.gates.gate_list import wait_texts
from orchestrator.dashboard.responses import PageRequest
from orchestrator.dashboard.table import (
    Badge,
    CellList,
    Column,
    Moment,
    Plain,
    Row,
    Table,
    TableCell,
    TestCounts,
    Text,
)
from orchestrator.domain.gate.verdict import RuleOutcome, VerdictLine
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import Term, term
from orchestrator.store.release_board import LiveRun

Figure = tuple[Term, int]
"""A counted term with its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionEvidence:
    """The results of a version on a platform: outcome, counts, age."""

    kind: ClassVar[str] = "evidence"
    word: str
    href: str = ""
    counts: Counts = Counts()
    at: datetime | None = None
    now: datetime | None = None
    note: str = ""
    is_stale: bool = False

    @property
    def figures(self) -> Sequence[Figure]:
        """The number of passed tests, and the other counts that are not zero."""
        if not self.counts.collected:
            return ()
        return [(term("passed"), self.counts.passed), *beside(self.counts)]

    @property
    def reader_text(self) -> str:
        """The counts in words."""
        return in_words(self.figures)

    @property
    def age(self) -> str:
        """Return the age of the evidence."""
        return age(self.at, self.now) if self.at is not None and self.now is not None else ""

    @property
    def why_stale(self) -> str:
        """The reason why the evidence is stale; empty if it is not."""
        return "older than the gates believe" if self.is_stale else ""

    def plain(self) -> Plain:
        """The outcome with its counts."""
        if self.at is None:
            return {"outcome": self.word}
        return {
            "outcome": self.word,
            **self.counts.as_dict(),
            "at": self.at.isoformat(timespec="seconds"),
            "note": self.note or None,
            "stale": self.why_stale or None,
        }

    def text(self) -> str:
        """``✗ failed (975 passed, 4 failed; 7 h; stale)``."""
        shown = term(self.word)
        stale = "stale" if self.is_stale else ""
        more = "; ".join(part for part in (self.reader_text, self.note, self.age, stale) if part)
        return f"{shown.glyph} {shown.word} ({more})" if more else f"{shown.glyph} {shown.word}"


@dataclass(frozen=True, slots=True)
class PassRate:
    """A pass rate: its newest value, its history and its counts."""

    kind: ClassVar[str] = "rate"
    trend: RateTrend
    low: float
    """Pass rate in percent at the lower edge of the picture."""
    late: str
    """Age of the platform's newest day; empty if no other platform has a newer one."""

    @property
    def tally(self) -> TestCounts:
        """Return the counts of the newest day."""
        return TestCounts(self.trend.latest.counts)

    @property
    def picture(self) -> Picture | None:
        """The pass rate in percent with a point for each day; None for a single day."""
        if len(self.trend.days) < 2:
            return None
        rates = [_percentage(day.counts.pass_rate) for day in self.trend.days]
        return sparkline(rates, low=self.low, high=100.0, width=96, height=22)

    @property
    def label(self) -> str:
        """The picture in words."""
        days = self.trend.days
        told = f"{self.trend.cell}, {plural(len(days), 'day')}"
        return f"{told}: from {_rate(days[0].counts)} to {self.rate}"

    @property
    def rate(self) -> str:
        """The newest pass rate."""
        return _rate(self.trend.latest.counts)

    @property
    def of(self) -> str:
        """The newest counts as ``passed/counted``."""
        if not self.tally.counted:
            return ""
        return f"{self.tally.counts.passed:,}/{self.tally.counted:,}"

    @property
    def figures(self) -> Sequence[Figure]:
        """Latest outcome counts shown next to the pass rate."""
        return beside(self.trend.latest.counts)

    @property
    def reader_text(self) -> str:
        """The figures in words."""
        return in_words(self.figures)

    @property
    def change(self) -> str:
        """``+0.3`` or ``−1.2`` percentage points; empty without a change."""
        return points(self.trend.change)

    @property
    def is_worse(self) -> bool:
        """Whether the pass rate fell."""
        return self.trend.change is not None and self.trend.change < 0

    def plain(self) -> Plain:
        """The newest counts, and the rate of each day."""
        return {
            **self.trend.latest.counts.as_dict(),
            "pass_rate": _fraction(self.trend.latest.counts.pass_rate),
            "change": _fraction(self.trend.change),
            "days": [
                {
                    "day": day.day.isoformat(),
                    "runs": day.runs,
                    **day.counts.as_dict(),
                    "pass_rate": _fraction(day.counts.pass_rate),
                }
                for day in self.trend.days
            ],
        }

    def text(self) -> str:
        """The newest rate with its counts, and the change."""
        change = f", {self.change} points" if self.change else ""
        late = f", {self.late} old" if self.late else ""
        return f"{self.tally.text()}{change}{late}"


def beside(counts: Counts) -> list[Figure]:
    """Return the counts of outcomes other than passed, without zeros."""
    return [(term(word), many) for word, many in TestCounts(counts).beside]


def in_words(figures: Iterable[Figure]) -> str:
    """Return the figures as words, such as ``4 failed, 15 skipped``."""
    return ", ".join(what.counted(many) for what, many in figures)


def points(change: Fraction | None) -> str:
    """Return a change of a rate in percentage points; empty if there is none."""
    if not change:
        return ""
    size = abs(float(change)) * 100
    shown = f"{size:.1f}" if size >= 0.05 else "<0.1"
    return f"{'+' if change > 0 else '−'}{shown}"


def _rate(counts: Counts) -> str:
    return TestCounts(counts).rate


def _percentage(rate: Fraction | None) -> float | None:
    return None if rate is None else float(rate) * 100


def _fraction(rate: Fraction | None) -> float | None:
    return None if rate is None else float(rate)


_FIRST_COMMAND = "seatrial init && seatrial run seatrial.yaml"
_ALL = "all suites"
_NOTHING = Text("–")
_STEP = 5.0
_TESTS = "tests"
"""The reason of most failures; it is not shown, because the counts show it."""


def board_table(request: PageRequest, board: Board) -> Table:
    """Return the table of versions by platforms."""
    return Table(
        id="board",
        caption="Versions by platforms, the newest first",
        columns=[
            Column("version", "Version"),
            Column("gates", "Gates"),
            *(Column(f"cell.{name}", visible(cut(name, 60))) for name in board.names),
        ],
        rows=[
            Row(
                (
                    _version(request, row),
                    _verdicts(row),
                    *(_square(request, row, square) for square in row.squares),
                )
            )
            for row in board.rows
        ],
        empty="Nothing has been launched yet: the first run of a matrix makes the first line.",
        command=_FIRST_COMMAND,
        next=request.here(before=board.next) if board.next else "",
        is_caption_hidden=True,
    )


def _version(request: PageRequest, row: BoardRow) -> Text:
    when = ago(row.at, request.now) if row.at is not None else "no evidence yet"
    if row.live is not None:
        when += "; a run goes on"
    href = urls.run_url(row.live.run if row.live is not None else row.newest_run)
    return Text(row.of.version, href, note=f"{row.of.subject} · {when}")


def _verdicts(row: BoardRow) -> TableCell:
    if not row.verdicts:
        return Text("–", note="no verdict")
    return CellList(
        [
            Badge(one.decision, urls.verdict_url(one.id), note=cut(one.gate, 40))
            for one in row.verdicts
        ]
    )


def _square(request: PageRequest, row: BoardRow, square: BoardCell) -> TableCell:
    cell = square.cell
    if cell is None and row.live is not None:
        return VersionEvidence(word="queued", href=urls.run_url(row.live.run), note="a run goes on")
    if cell is None:
        is_late = square.absence is Absence.PENDING
        return _NOTHING if is_late else VersionEvidence(word="missing", note="no run has it")
    notes = (
        "not in the newest run" if square.is_superseded else "",
        some_jobs(cell.jobs, square.other_jobs),
        "" if cell.reason == _TESTS else cell.reason.replace("_", " "),
        cell.matrix if square.others and cell.matrix != _main_matrix(row) else "",
        "" if cell.counts.collected or cell.outcome is not Outcome.PASSED else "no tests",
        cell.counts.nothing_passed if cell.outcome is Outcome.PASSED else "",
        "simulated" if cell.simulated else "",
        cell.origin,
    )
    return VersionEvidence(
        word=cell.outcome or "done",
        href=urls.cell_url(cell.run, cell.name),
        counts=cell.counts,
        at=cell.at,
        now=request.now,
        note=", ".join(note for note in notes if note),
        is_stale=square.is_stale,
    )


def some_jobs(jobs: Collection[object], others: Collection[object]) -> str:
    """Return ``2 of 5 jobs`` for evidence that lacks `others`; empty if it lacks none."""
    return f"{len(jobs)} of {plural(len(jobs) + len(others), 'job')}" if others else ""


def _main_matrix(row: BoardRow) -> str:
    """Return the matrix of most cells of a version."""
    counted = Counter(one.cell.matrix for one in row.squares if one.cell is not None)
    return counted.most_common(1)[0][0]


def live_table(request: PageRequest, live: Sequence[LiveRun]) -> Table:
    """Return the table of unfinished runs."""
    return Table(
        id="live",
        caption="Running now",
        columns=(
            Column("run", "Run"),
            Column("version", "Version"),
            Column("matrix", "Matrix"),
            Column("cells", "Cells"),
            Column("launched_at", "Launched"),
        ),
        rows=[
            Row(
                (
                    Text(one.run, urls.run_url(one.run), is_code=True),
                    Text(one.of.version, note=one.of.subject),
                    Text(one.matrix),
                    Text(", ".join(f"{n} {term(state).word}" for state, n in one.cells.items())),
                    Moment(one.launched_at, request.now),
                )
            )
            for one in live
        ],
        empty="Nothing is running.",
        is_caption_hidden=True,
    )


def rates_table(trends: Mapping[tuple[str, str], RateTrend], names: Sequence[str]) -> Table:
    """Return pass rates by platform and suite: the newest day, and the days before it."""
    jobs = sorted({job for _, job in trends})
    if len(jobs) == 2:  # one suite alone is all suites
        jobs = [job for job in jobs if job]
    cells = [name for name in names if any((name, job) in trends for job in jobs)]
    cells += sorted({cell for cell, _ in trends} - set(cells))
    low = lowest(trends.values())
    newest = max((trend.latest.day for trend in trends.values()), default=date.min)
    return Table(
        id="rates",
        caption="Pass rate by platform and suite",
        columns=[
            Column("platform", "Platform"),
            *(Column(f"suite.{job}" if job else "all", _title(job)) for job in jobs),
        ],
        rows=[
            Row((Text(cell), *(_rate_cell(trends.get((cell, job)), low, newest) for job in jobs)))
            for cell in cells
        ],
        empty="No suite was run in these days: choose more of them.",
        is_caption_hidden=True,
    )


def _title(job: str) -> str:
    return visible(cut(job, 60)) if job else _ALL


def _rate_cell(trend: RateTrend | None, low: float, newest: date) -> TableCell:
    if trend is None:
        return _NOTHING
    behind = (newest - trend.latest.day).days
    return PassRate(trend, low, f"{behind} d" if behind else "")


def lowest(trends: Iterable[RateTrend]) -> float:
    """Return the common lower edge of all charts, a multiple of five percent."""
    rates = (day.counts.pass_rate for trend in trends for day in trend.days)
    least = min((float(rate) * 100 for rate in rates if rate is not None), default=100.0)
    return min(least // _STEP * _STEP, 100.0 - _STEP)


_LONGEST = 160
_SERIOUS = frozenset(
    {
        WaitReason.VERDICT,
        WaitReason.JUDGEMENT,
        WaitReason.RUN,
        WaitReason.FRESH_EVIDENCE,
        WaitReason.POLICY,
    }
)
"""Reasons to wait that only the gate's sentence shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSentence:
    """The decision of a gate and its reasons."""

    gate: str
    word: str
    """Outcome of its newest verdict; empty without one."""
    verdict: str
    href: str
    about: str
    """Version and age of the verdict: ``for 0.4.40, 2 h ago``."""
    reason: str
    """Sentence of the first blocking rule that decided the verdict."""
    more: int
    """Number of the other rules that decided the verdict."""
    waits: Sequence[Text]

    @property
    def tone(self) -> str:
        """Return the tone of the decision."""
        return term(self.word).tone if self.word else "warn"

    @property
    def text(self) -> str:
        """The whole sentence as text."""
        said_so = term(self.word).word if self.word else "no verdict yet"
        more = f" (and {self.more} more)" if self.more else ""
        why = f": {self.reason}{more}" if self.reason else ""
        return f"{self.gate}: {said_so} {self.about}{why}".rstrip()


def gate_sentence(request: PageRequest, status: GateStatus) -> GateSentence:
    """Return a sentence about the gate's newest verdict in any lineage."""
    gate = status.stored.gate
    waits = [
        text
        for wait, text in zip(status.waits, wait_texts(status), strict=True)
        if wait.lack in _SERIOUS
    ]
    if not status.lines:
        return GateSentence(
            gate=gate,
            word="",
            verdict="",
            href=urls.gate_url(gate),
            about="",
            reason="",
            more=0,
            waits=waits,
        )
    newest = status.lines[0].head.newest
    reasons = _reasons(newest)
    version = newest.subject.get("version", "")
    of = f"for {version}, " if version else ""
    return GateSentence(
        gate=gate,
        word=newest.decision,
        verdict=newest.id,
        href=urls.verdict_url(newest.id),
        about=f"{of}{ago(newest.created_at, request.now)}",
        reason=shortened(reasons[0], _LONGEST) if reasons else "",
        more=max(len(reasons) - 1, 0),
        waits=waits,
    )


def _reasons(verdict: VerdictLine) -> list[str]:
    """Return the sentences of blocking rules: violated before unknown, new failures first."""
    ranks = {RuleOutcome.VIOLATED: 0, RuleOutcome.UNKNOWN: 1}
    loud = [rule for rule in verdict.rules if rule.blocking and rule.outcome in ranks]
    loud.sort(key=lambda rule: (ranks[rule.outcome], rule.kind != "new_failures"))
    return [rule.sentence for rule in loud]
