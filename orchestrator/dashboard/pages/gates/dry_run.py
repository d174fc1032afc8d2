"""The dry run of an edited policy: the form and its result."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Form, Response

from orchestrator.application.evaluate_gate import DryRunResult, dry_run, dry_run_policy
from orchestrator.application.gate_policies import find_policy
from orchestrator.application.gather_evidence import WrongProductError
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.verdict_tables import (
    SHOWN,
    RuleChange,
    changes,
    in_words,
    rule_table,
    severity,
)
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    run_of,
)
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Table, Text
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.gate.gate_documents import verdict_document
from orchestrator.domain.gate.verdict import StoredVerdict, Verdict, reasons_of

LINES_SHOWN = 400
LONGEST_LINE = 300
LONGEST_DIFF = 2_000
"""Maximum lines of a text that is compared, because the search is quadratic."""


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A line of a policy."""

    number: int
    text: str
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines of a policy, and the number of lines not shown."""

    lines: Sequence[PolicyLine]
    more: int


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference: ``+``, ``-``, a space, or ``@`` where some are left out."""

    sign: str
    text: str


def lines_of(text: str, problems: Sequence[Problem] = ()) -> Listing:
    """Return the numbered lines of a text; those with a problem are marked."""
    wrong = {problem.line for problem in problems}
    whole = text.splitlines()
    shown = [
        PolicyLine(number, line[:LONGEST_LINE], number in wrong)
        for number, line in enumerate(whole[:LINES_SHOWN], start=1)
    ]
    return Listing(shown, len(whole) - len(shown))


def diff_of(old: str, new: str) -> list[DiffLine] | None:
    """Return the changed lines; None for texts that are too long to compare."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > LONGEST_DIFF:
        return None
    found = difflib.unified_diff(before, after, lineterm="", n=3)
    return list(_changed(found))[:LINES_SHOWN]


def _changed(lines: Iterator[str]) -> Iterator[DiffLine]:
    for number, line in enumerate(lines):
        if number >= 2:  # the names of the files
            yield DiffLine(line[:1], line[1:] if line[:1] != "@" else line)


_CHANGES = (
    Column("rule", "Rule"),
    Column("stored", "Stored verdict"),
    Column("tried", "Dry run"),
)
_PAST = (
    Column("verdict", "Verdict"),
    Column("subject", "Subject"),
    Column("decided", "Decided"),
    Column("said", "Stored decision"),
    Column("would_say", "Dry run"),
    Column("changed", "What differs"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunOutcome:
    """The outcome of one dry run."""

    verdict: Verdict
    stored: StoredVerdict | None
    """The gate's newest verdict on the same runs; None without one."""
    runs: Sequence[str]
    tables: Sequence[Table]
    hidden: int
    """Number of rules that the page does not show."""

    @property
    def document(self) -> Mapping[str, object]:
        """Return the outcome for the JSON answer."""
        stored = self.stored.id if self.stored else None
        return {"verdict": verdict_document(self.verdict), "stored": stored}


def beside(request: PageRequest, gate: str, runs: Sequence[str], verdict: Verdict) -> DryRunOutcome:
    """Compare the dry run with the gate's newest verdict on the same runs."""
    looked_at = tuple(sorted(runs)) or _runs_of(verdict)
    last = looked_at[-1] if looked_at else None
    known = request.context.stores.gates.verdicts(gate=gate, run=last, limit=10) if last else []
    stored = next((one for one in known if tuple(sorted(one.runs)) == looked_at), None)
    rules = sorted(verdict.rules, key=severity)
    found = changes(stored.verdict.rules, rules) if stored else []
    return DryRunOutcome(
        verdict=verdict,
        stored=stored,
        runs=looked_at,
        tables=(
            *([_change_table(found)] if stored else []),
            rule_table(rules[:SHOWN], caption="Rules of the dry run, the worst first"),
        ),
        hidden=max(len(rules) - SHOWN, 0),
    )


def past_table(request: PageRequest, tried: Sequence[DryRunResult]) -> Table:
    """Return a row for each earlier verdict, newest first."""
    return Table(
        id="past",
        caption="Decisions on past evidence",
        columns=_PAST,
        rows=[_past(request, one) for one in tried],
        empty="The gate has not decided anything yet.",
        is_caption_hidden=True,
    )


def _runs_of(verdict: Verdict) -> tuple[str, ...]:
    """Return the runs in the inputs of the verdict's evidence rule, sorted; empty without them."""
    found = next((one.inputs.get("runs") for one in verdict.rules if one.kind == "evidence"), None)
    return tuple(sorted(map(str, found))) if isinstance(found, list | tuple) else ()


def _change_table(changes: Sequence[RuleChange]) -> Table:
    return Table(
        id="changes",
        caption="Rules with another outcome",
        columns=_CHANGES,
        rows=[_change(one) for one in changes[:SHOWN]],
        empty="Every blocking rule has the same outcome.",
        total=len(changes),
    )


def _change(one: RuleChange) -> Row:
    before = Badge(one.before) if one.before else Text(one.before_words)
    now = Badge(one.now) if one.now else Text(one.now_words)
    return Row((Text(one.rule, is_code=True), before, now), tone="bad" if one.is_worse else "")


def _past(request: PageRequest, one: DryRunResult) -> Row:
    stored, verdict = one.stored, one.verdict
    then = stored.verdict
    href = urls.verdict_url(stored.id)
    subject = then.subject
    differs = verdict is not None and verdict.decision is not then.decision
    told = in_words(changes(then.rules, verdict.rules)) if verdict else "its evidence is gone"
    return Row(
        (
            Text(stored.id, href),
            Text(subject.get("name", ""), note=subject.get("version", "")),
            Moment(then.at, request.now),
            Badge(then.decision, href),
            Badge(verdict.decision if verdict else "", note="another decision" * differs),
            Text(told),
        ),
        tone="warn" if differs else "",
    )


router = APIRouter()
MOST_PAST = 20
MOST_RUNS = 10
PROBLEMS_SHOWN = 50
_NAME = "policy"
_PATH = urls.GATES + "/{gate}/dry-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunForm:
    """The values of the form."""

    policy: str
    against: str = "newest"
    """``newest``, ``runs`` or ``past``."""
    runs: str = ""
    last: str = "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunAnswer:
    """The result of a dry run, or why there is none."""

    problems: Sequence[Problem] = ()
    """Problems of the policy's text."""
    refused: str = ""
    """Reason why the dry run was impossible, other than the policy's text; empty if possible."""
    outcome: DryRunOutcome | None = None
    past: Table | None = None

    @property
    def tables(self) -> Sequence[Table]:
        """Return the tables of the result."""
        told = self.outcome.tables if self.outcome else ()
        return (*told, *([self.past] if self.past else []))


@router.get(_PATH)
def show_form(request: PageRequestDep, gate: str) -> Response:
    """Show the gate's present policy in a form."""
    return _page(
        request, gate, DryRunForm(policy=find_policy(request.context, gate).text), DryRunAnswer()
    )


@router.post(_PATH)
def try_text(
    request: PageRequestDep,
    gate: str,
    _viewer: Annotated[Viewer, needs(Scope.READ)],
    policy: Annotated[str, Form()] = "",
    against: Annotated[str, Form()] = "newest",
    runs: Annotated[str, Form()] = "",
    last: Annotated[str, Form()] = "5",
) -> Response:
    """Evaluate the submitted policy and show the result; store nothing."""
    find_policy(request.context, gate)
    # Browsers send lines that end with CRLF.
    text = policy.replace("\r\n", "\n")
    written = DryRunForm(policy=text, against=against, runs=runs, last=last)
    try:
        found = _found(request, gate, written)
    except InvalidDocumentError as error:
        return _page(request, gate, written, DryRunAnswer(problems=error.problems), status=422)
    except (WrongProductError, PageMissingError) as error:
        return _page(request, gate, written, DryRunAnswer(refused=str(error)), status=422)
    return _page(request, gate, written, found)


def _found(request: PageRequest, gate: str, written: DryRunForm) -> DryRunAnswer:
    if written.against == "past":
        known = request.context.stores.gates.verdicts(gate=gate, limit=_last(written.last))
        tried = dry_run_policy(request.context, written.policy, known, name=_NAME)
        return DryRunAnswer(past=past_table(request, tried))
    names = written.runs.replace(",", " ").split() if written.against == "runs" else []
    if len(names) > MOST_RUNS:
        raise PageMissingError(f"name at most {MOST_RUNS} runs")
    if written.against == "runs" and not names:
        raise PageMissingError("name the runs: their ids, or the beginnings of these")
    runs = [run_of(request, name).id for name in names]
    verdict = dry_run(request.context, written.policy, runs, request.now, name=_NAME)
    return DryRunAnswer(outcome=beside(request, gate, runs, verdict))


def _last(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MOST_PAST):
        raise PageMissingError(f"of the last verdicts, choose from 1 to {MOST_PAST}")
    return int(text)


def _summary(result: DryRunAnswer) -> str:
    verdict = result.outcome.verdict if result.outcome else None
    return reasons_of(verdict.decision, verdict.summary) if verdict else ""


def _page(
    request: PageRequest, gate: str, written: DryRunForm, result: DryRunAnswer, *, status: int = 200
) -> Response:
    stored = find_policy(request.context, gate)
    tables = [replace(table, is_passing=True) for table in result.tables]
    return request.answer(
        Page(
            template="dry_run.html.j2",
            title=f"Dry run of {gate}",
            tables=tables,
            facts={
                "gate": stored,
                "written": written,
                "found": result,
                "problems": result.problems[:PROBLEMS_SHOWN],
                "more_problems": max(len(result.problems) - PROBLEMS_SHOWN, 0),
                "listing": lines_of(written.policy, result.problems) if result.problems else None,
                "parts": {table.id: table for table in tables},
                "is_edited": written.policy.rstrip() != stored.text.replace("\r\n", "\n").rstrip(),
                "most_past": MOST_PAST,
                "summary": _summary(result),
            },
            data={
                "problems": [asdict(problem) for problem in result.problems],
                "refused": result.refused,
                **(result.outcome.document if result.outcome else {}),
            },
            section=urls.GATES,
        ),
        status=status,
    )
