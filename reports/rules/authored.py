"""Rules about what people wrote: a claim that the results contradict is printed with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.domain.copied_fields import extended
from orchestrator.domain.ingested import RunAnnotation
from orchestrator.domain.lint_findings import AnnotationConflict, CheckedAnnotation, ForeignDocument
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord
from orchestrator.domain.vocabulary import term
from reports import format as fmt
from reports.document_lint.parsing import Fraction, fractions, percents, quantities, read, words
from reports.document_lint.rules.hardware import check_architecture, check_fp8
from reports.document_lint.rules.money import check_prices
from reports.model.blocks import CommandTable
from reports.model.platform import PlatformReport
from reports.model.summary import SummaryReport
from reports.model.values import Absent, Claim, Contradiction, ReportModel, Status
from reports.rules.blocks import RuleFinding, differs, tally_figures
from reports.rules.registry import kind_figures

Figures = tuple[int, ...]

ABSOLUTE = re.compile(r"\b(all|every|fully|100\s?%|perfect|production.ready)\b", re.IGNORECASE)
_NUMERAL = re.compile(r"(?<![\w.-])\d[\d,]*")


def claims_rule(report: ReportModel) -> Iterator[RuleFinding]:
    """Check each claim's figures against the report."""
    known, status = _known(report)
    for claim in report.conclusion:
        if claim.rule in ("outcome", "run"):
            yield from _outcome(claim, status)
        elif ABSOLUTE.search(claim.text):
            yield "error", "claim", f"a word without a rule: {claim.text}"
        if claim.rule in known:
            what = f"figures of {claim.rule}"
            yield from differs("claim", what, claim.figures, known[claim.rule])
            yield from _numerals(claim)
        elif claim.figures:
            yield "error", "claim", f"nothing in the report backs the figures of {claim.rule}"


def _numerals(claim: Claim) -> Iterator[RuleFinding]:
    said = tuple(int(found.replace(",", "")) for found in _NUMERAL.findall(claim.text))
    if claim.figures:
        yield from differs("claim", f"numbers in {claim.text!r}", said, claim.figures)


def _outcome(claim: Claim, status: Status) -> Iterator[RuleFinding]:
    word = term(status.code).word.upper()
    if not re.search(rf"Outcome(?: of the run)?: \S+ {word}\b", claim.text):
        yield "error", "claim", f"the outcome is {word}, the claim says: {claim.text}"
    if status.code != "passed" and "because every job" in claim.text:
        yield "error", "claim", "the rule of a pass is quoted for what did not pass"


def _known(report: ReportModel) -> tuple[Mapping[str, Figures], Status]:
    if isinstance(report, PlatformReport):
        return dict(_of_platform(report)), report.status
    if isinstance(report, SummaryReport):
        return dict(_of_summary(report)), report.status
    return kind_figures(report), getattr(report, "status", Status("running"))


def _of_platform(report: PlatformReport) -> Iterator[tuple[str, Figures]]:
    yield "tests", tally_figures(report.suites.total)
    tables = (report.demos, report.use_cases, report.benchmarks)
    for table in tables:
        yield f"jobs.{table.kind}", _jobs(table)
    degraded = [r for t in tables for r in t.rows if r.status.degraded is not None]
    suites = [row for row in report.suites.rows if row.status.degraded is not None]
    yield "degraded", (len(degraded) + len(suites),)


def _of_summary(report: SummaryReport) -> Iterator[tuple[str, Figures]]:
    yield "total", tally_figures(report.total.tally)
    yield "accelerators", tally_figures(report.accelerators.tally)
    yield "degraded", (sum(len(row.degraded) for row in report.rows),)
    yield "run", (report.passed_cells.part, report.passed_cells.whole)


def _jobs(table: CommandTable) -> Figures:
    passed = len([row for row in table.rows if row.status.code == "passed"])
    known = [row.checks for row in table.rows if not isinstance(row.checks, Absent)]
    held = sum(checks.passed for checks in known)
    judged = sum(checks.passed + checks.failed for checks in known)
    return (passed, len(table.rows), held, judged) if known else (passed, len(table.rows))


_ABSOLUTE = re.compile(
    r"(?i)\b(all|every|fully|100\s?%|perfect(?:ly)?|completely|entire(?:ly)?)(?!\w)"
)
_READY = re.compile(r"(?i)production[ -]ready|ready for production|suitable for production")
_PLATFORMS = re.compile(r"(?i)\b(?:all|every|each)\s+(?:\w+\s+)?(?:platforms?|backends?|clouds?)\b")
_SUCCESS = re.compile(
    r"(?i)\bpass|\bwork|functional|validated|\bsupported|complet|succe|correct|\bready|\bcover"
)
_DENIED = re.compile(
    r"(?i)\bnot (?:all|every|fully)\b|\bfail|\bexcept|\bbut\b|\bdegraded\b|fell back"
)
_TESTS = re.compile(r"(?i)\btests?\b")
_DEMOS = re.compile(r"(?i)\bdemo(?:s|nstrations?)?\b|\bchecks?\b|\buse cases?\b")
_COUNTED = re.compile(r"(?i)\ball\s+(?:of the\s+)?(\d[\d,]*)\s+(?:\w+\s+)?tests?\b")
_PLACE = re.compile(r"\b(GPU|TPU|CPU|AMD|NVIDIA|A10G|L4|T4|MI300X|[AH]100)s?\b")
_FEATURE = re.compile(r"\b(?=\w*[A-Z]\w*[A-Z0-9])[A-Z]\w+")
_STOP = frozenset({"test", "tests", "demo", "demos", "suite", "benchm", "report", "native"})


@dataclass(frozen=True, slots=True)
class _Scope:
    """The scope of an annotation."""

    cells: tuple[CellRecord, ...]
    everything: tuple[CellRecord, ...]

    @property
    def jobs(self) -> tuple[tuple[CellRecord, JobRecord], ...]:
        return tuple((cell, job) for cell in self.cells for job in cell.jobs)

    @property
    def counts(self) -> Counts:
        return sum((cell.counts for cell in self.cells), Counts())


def check_annotation(annotation: RunAnnotation, evidence: Evidence) -> tuple[Contradiction, ...]:
    """Return the contradictions of an annotation to the results.

    An ``error`` is contradicted by results; a ``warning`` is backed by none. ``where`` is the
    annotation's cell, or ``run``; the message is one sentence of plain text.
    """
    cells = evidence.record.cells
    chosen = tuple(cell for cell in cells if not annotation.cell or cell.id == annotation.cell)
    scope = _Scope(chosen, cells)
    text = f"{annotation.title}\n{annotation.text}" if annotation.title else annotation.text
    said = [found for sentence in _sentences(text) for found in _judge(sentence, scope)]
    said += _facts(text)
    where = annotation.cell or "run"
    unique = dict.fromkeys(said)
    return tuple(Contradiction(level, rule, where, message) for level, rule, message in unique)


def _sentences(text: str) -> Iterator[str]:
    document = read(ForeignDocument("annotation", text))
    for line in sorted(document.everything, key=lambda line: line.number):
        for part in re.split(r"(?<=[.!?])\s+(?=[A-Z\d])", line.text):
            if part.strip():
                yield part.strip()


def _judge(sentence: str, scope: _Scope) -> Iterator[RuleFinding]:
    found = [*_shares(sentence, scope), *_rates(sentence, scope), *_places(sentence, scope)]
    found += _degraded(sentence, scope)
    found += [] if found else [*_absolute(sentence, scope)]
    yield from found
    if _READY.search(sentence):
        bad = _worst(scope)
        level = "error" if bad else "warning"
        why = bad or "no gate has decided that"
        yield level, "readiness", f"{_short(sentence)}: {why}"


def _short(sentence: str) -> str:
    return repr(sentence if len(sentence) <= 100 else f"{sentence[:100]}…")


def _worst(scope: _Scope) -> str:
    """Return the first cell that did not pass, or job that ran degraded; empty if none."""
    for cell in scope.cells:
        if cell.outcome is not Outcome.PASSED:
            ended = fmt.ended(cell.outcome.value) if cell.outcome else f"is {cell.state.value}"
            return f"{cell.id} {ended}"
    for cell, job in scope.jobs:
        if job.degraded is not None:
            return f"{job.title or job.id} of {cell.id} ran degraded: {job.degraded}"
    return ""


def _tallies(scope: _Scope, *, demos: bool) -> set[tuple[int, int]]:
    """Return every (part, whole) of the results."""
    if demos:
        pairs = [_checks(job) for _, job in scope.jobs if job.kind != "suite"]
        per_cell = [[_checks(j) for j in c.jobs if j.kind == "demo"] for c in scope.cells]
        sums = [(sum(p for p, _ in c), sum(w for _, w in c)) for c in per_cell]
        jobs = [job for _, job in scope.jobs if job.kind == "demo"]
        passed = len([job for job in jobs if job.outcome is Outcome.PASSED])
        return {*pairs, *sums, (passed, len(jobs)), _added(pairs)}
    every = [scope.counts, *(c.counts for c in scope.cells), *(j.counts for _, j in scope.jobs)]
    return {
        (counts.passed, whole)
        for counts in every
        for whole in (counts.collected, counts.passed + counts.failed + counts.error)
    }


def _added(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(part for part, _ in pairs), sum(whole for _, whole in pairs)


def _checks(job: JobRecord) -> tuple[int, int]:
    judged = [check for check in job.checks if check.outcome != "skipped"]
    return len([check for check in judged if check.outcome == "passed"]), len(judged)


def _shares(sentence: str, scope: _Scope) -> Iterator[RuleFinding]:
    """``x/y tests`` and ``z % of the tests`` are among the results' own."""
    demos = bool(_DEMOS.search(sentence)) and not _TESTS.search(sentence)
    if not demos and not _TESTS.search(sentence):
        return
    known = _tallies(scope, demos=demos)
    for share in fractions(sentence):
        if (share.part, share.whole) not in known:
            yield "error", "figure", f"{share}: the results have {_claim_text(scope, demos=demos)}"
    rates = {100 * part / whole for part, whole in known if whole}
    for stated in percents(sentence) if not list(fractions(sentence)) else ():
        if not any(stated.contains(rate) for rate in rates):
            message = f"{stated.text}: the results have {_claim_text(scope, demos=demos)}"
            yield "error", "figure", message
    for number in _COUNTED.findall(sentence):
        yield from _every_test(int(number.replace(",", "")), scope)


def _claim_text(scope: _Scope, *, demos: bool) -> str:
    if demos:
        part, whole = _added([_checks(job) for _, job in scope.jobs if job.kind == "demo"])
        return f"{Fraction(part, whole)} checks of demos"
    counts = scope.counts
    judged = counts.passed + counts.failed + counts.error
    share = Fraction(counts.passed, judged)
    return f"{share} ({share.percent:.1f}%) judged tests passed, {counts.skipped} skipped"


def _every_test(number: int, scope: _Scope) -> Iterator[RuleFinding]:
    every = [scope.counts, *(c.counts for c in scope.cells), *(j.counts for _, j in scope.jobs)]
    same = [counts for counts in every if counts.collected == number]
    if not any(counts.passed == number for counts in same):
        found = same[0] if same else scope.counts
        message = f"not all of {number}: {found.passed} of {found.collected} passed"
        yield "error", "figure", f"{message}, {found.skipped} were skipped"


def _rates(sentence: str, scope: _Scope) -> Iterator[RuleFinding]:
    """Check that claimed throughputs were measured."""
    measured = [
        sorted(fact.samples)[len(fact.samples) // 2]
        for _, job in scope.jobs
        for fact in job.metrics
        if fact.samples and fact.unit.endswith(("/s", "/sec"))
    ]
    stated = [q for q in quantities(sentence) if q.is_rate and q.unit != "/s"]
    for printed in stated if measured else ():
        near = min(measured, key=lambda value: abs(value - printed.value))
        if not printed.contains(near, slack=1e-3):
            message = f"{printed.text}: the nearest that was measured is {near:,.6g}"
            yield "error", "figure", message


def _places(sentence: str, scope: _Scope) -> Iterator[RuleFinding]:
    """Check that a feature claimed on a platform has a job there."""
    if not _SUCCESS.search(sentence) or not re.search(r"\bon\b", sentence):
        return
    ahead, _, after = sentence.partition(" on ")
    features = [f for f in _FEATURE.findall(ahead) if not _PLACE.fullmatch(f)]
    features = [f for f in features if any(_about(f, job) for _, job in _all_jobs(scope))]
    for place in _PLACE.findall(after):
        cells = [cell for cell in scope.everything if _is_at(cell, place)]
        for feature in features:
            ran = [
                job
                for cell in cells
                for job in cell.jobs
                if _about(feature, job) and job.outcome is not Outcome.NOT_RUN
            ]
            if not ran:
                yield "error", "scope", f"{feature} on {place}: no job of that kind ran there"


def _all_jobs(scope: _Scope) -> Iterator[tuple[CellRecord, JobRecord]]:
    return ((cell, job) for cell in scope.everything for job in cell.jobs)


def _about(feature: str, job: JobRecord) -> bool:
    return bool(words(feature) <= words(f"{job.title} {job.id}"))


def _is_at(cell: CellRecord, place: str) -> bool:
    wanted = cell.platform.accelerator
    board = f"{wanted.vendor} {wanted.name}" if wanted else ""
    said = f"{cell.id} {cell.platform.provider} {board}".lower()
    if place == "GPU":
        return bool(wanted and wanted.vendor in ("nvidia", "amd", "intel"))
    if place == "CPU":
        return wanted is None and "tpu" not in said
    return place.lower() in said


def _degraded(sentence: str, scope: _Scope) -> Iterator[RuleFinding]:
    """Find praise of degraded jobs."""
    if not _SUCCESS.search(sentence) or _DENIED.search(sentence):
        return
    for cell, job in scope.jobs:
        if job.degraded is not None and _names(sentence, job):
            message = f"{_short(sentence)}: {job.title or job.id} of {cell.id} ran degraded"
            yield "error", "degraded", f"{message}: {job.degraded}"


def _names(sentence: str, job: JobRecord) -> bool:
    about = words(job.title or job.id) - _STOP
    return bool(about) and about <= words(sentence)


def _absolute(sentence: str, scope: _Scope) -> Iterator[RuleFinding]:
    """Check absolute claims: contradicted ones are errors, unknown ones warnings."""
    said = _ABSOLUTE.search(sentence)
    if not said or not _SUCCESS.search(sentence) or _DENIED.search(sentence):
        return
    if _PLATFORMS.search(sentence):
        whole = _Scope(scope.everything, scope.everything)
        worst = _worst(whole)
        if worst:
            yield "error", "claim", f"{_short(sentence)}: {worst}"
        return
    named = [job for _, job in scope.jobs if _names(sentence, job)]
    bad = [job for job in named if job.outcome is not Outcome.PASSED or job.counts.skipped]
    if bad:
        yield "error", "claim", f"{_short(sentence)}: {_state(bad[0])}"
    elif _TESTS.search(sentence) and not named and scope.counts.passed != scope.counts.collected:
        yield "error", "claim", f"{_short(sentence)}: {_claim_text(scope, demos=False)}"
    elif not named and not _TESTS.search(sentence):
        worst = _worst(scope)
        level = "error" if worst and re.search(r"(?i)fully|complete", sentence) else "warning"
        why = worst if level == "error" else f"no result is about {said[0].lower()!r} of that"
        yield level, "claim", f"{_short(sentence)}: {why}"


def _state(job: JobRecord) -> str:
    counts = job.counts
    ended = fmt.ended(job.outcome.value) if job.outcome else "is not over"
    beside = f": {counts.failed + counts.error} failed, {counts.skipped} skipped"
    return f"{job.title or job.id} {ended}{beside if counts.collected else ''}"


def _facts(text: str) -> Iterator[RuleFinding]:
    """Check known facts of boards and prices."""
    document = read(ForeignDocument("annotation", text))
    for rule, check in (
        ("architecture", check_architecture), ("fp8", check_fp8), ("price", check_prices),
    ):  # fmt: skip
        for mark in check(document):
            yield mark.level, rule, mark.message


def authored_of(evidence: Evidence, cell: str = "") -> tuple[CheckedAnnotation, ...]:
    """Return annotations of one cell, or of the run and every cell."""
    told = evidence.record.annotations
    return tuple(_checked(s, evidence) for s in told if not cell or s.cell == cell)


def _checked(run_annotation: RunAnnotation, evidence: Evidence) -> CheckedAnnotation:
    return extended(CheckedAnnotation, run_annotation, doubts=doubts_of(run_annotation, evidence))


def doubts_of(run_annotation: RunAnnotation, evidence: Evidence) -> tuple[AnnotationConflict, ...]:
    """Return the contradictions of an annotation."""
    return tuple(
        AnnotationConflict(f.level, f.message) for f in check_annotation(run_annotation, evidence)
    )
