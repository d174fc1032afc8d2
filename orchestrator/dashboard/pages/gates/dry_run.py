"""A dry run of an edited policy: what it would say of a run, or of what the gate has judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Form, Response

from orchestrator.application.dry_run_policy import try_policy
from orchestrator.application.evaluate_gate import dry_run
from orchestrator.application.gate_policies import find_policy
from orchestrator.application.gather_evidence import WrongProductError
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.dry_run_result import Outcome, beside, past_table
from orchestrator.dashboard.pages.gates.policy_text import lines_of
from orchestrator.dashboard.pages.gates.rules import summary_of
from orchestrator.dashboard.path_lookup import run_of
from orchestrator.dashboard.responses import Asked, AskedDep, Page, PageMissingError
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import Table
from orchestrator.domain.person import Scope
from orchestrator.domain.problems import InvalidDocumentError, Problem

router = APIRouter()
MOST_PAST = 20
MOST_RUNS = 10
PROBLEMS_SHOWN = 50
_NAME = "policy"
_PATH = urls.GATES + "/{gate}/dry-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What stands in the form."""

    policy: str
    against: str = "newest"
    """``newest``, ``runs`` or ``past``."""
    runs: str = ""
    last: str = "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of it."""

    problems: Sequence[Problem] = ()
    """Of the text."""
    refused: str = ""
    """Why it could not be tried, where that is not the text's fault."""
    outcome: Outcome | None = None
    past: Table | None = None

    @property
    def tables(self) -> Sequence[Table]:
        """Those that it has."""
        told = self.outcome.tables if self.outcome else ()
        return (*told, *([self.past] if self.past else []))


@router.get(_PATH)
def show_form(asked: AskedDep, gate: str) -> Response:
    """The present policy, to be edited."""
    return _page(asked, gate, Written(policy=find_policy(asked.context, gate).text), Found())


@router.post(_PATH)
def try_text(
    asked: AskedDep,
    gate: str,
    _viewer: Annotated[Viewer, needs(Scope.READ)],
    policy: Annotated[str, Form()] = "",
    against: Annotated[str, Form()] = "newest",
    runs: Annotated[str, Form()] = "",
    last: Annotated[str, Form()] = "5",
) -> Response:
    """Evaluate, and keep nothing."""
    find_policy(asked.context, gate)
    # Browsers send lines that end as mail does; a policy's lines are counted either way.
    text = policy.replace("\r\n", "\n")
    written = Written(policy=text, against=against, runs=runs, last=last)
    try:
        found = _found(asked, gate, written)
    except InvalidDocumentError as error:
        return _page(asked, gate, written, Found(problems=error.problems), status=422)
    except (WrongProductError, PageMissingError) as error:
        return _page(asked, gate, written, Found(refused=str(error)), status=422)
    return _page(asked, gate, written, found)


def _found(asked: Asked, gate: str, written: Written) -> Found:
    if written.against == "past":
        known = asked.context.stores.gates.verdicts(gate=gate, limit=_last(written.last))
        tried = try_policy(asked.context, written.policy, known, name=_NAME)
        return Found(past=past_table(asked, tried))
    names = written.runs.replace(",", " ").split() if written.against == "runs" else []
    if len(names) > MOST_RUNS:
        raise PageMissingError(f"name at most {MOST_RUNS} runs")
    if written.against == "runs" and not names:
        raise PageMissingError("name the runs: their ids, or the beginnings of these")
    runs = [run_of(asked, name).id for name in names]
    verdict = dry_run(asked.context, written.policy, runs, asked.now, name=_NAME)
    return Found(outcome=beside(asked, gate, runs, verdict))


def _last(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MOST_PAST):
        raise PageMissingError(f"of the last verdicts, choose from 1 to {MOST_PAST}")
    return int(text)


def _summary(found: Found) -> str:
    verdict = found.outcome.verdict if found.outcome else None
    return summary_of(verdict.decision, verdict.summary) if verdict else ""


def _page(
    asked: Asked, gate: str, written: Written, found: Found, *, status: int = 200
) -> Response:
    stored = find_policy(asked.context, gate)
    tables = [replace(table, is_passing=True) for table in found.tables]
    return asked.answer(
        Page(
            template="dry_run.html.j2",
            title=f"Dry run of {gate}",
            tables=tables,
            facts={
                "gate": stored,
                "written": written,
                "found": found,
                "problems": found.problems[:PROBLEMS_SHOWN],
                "more_problems": max(len(found.problems) - PROBLEMS_SHOWN, 0),
                "listing": lines_of(written.policy, found.problems) if found.problems else None,
                "parts": {table.id: table for table in tables},
                "is_edited": written.policy.rstrip() != stored.text.replace("\r\n", "\n").rstrip(),
                "most_past": MOST_PAST,
                "summary": _summary(found),
            },
            data={
                "problems": [asdict(problem) for problem in found.problems],
                "refused": found.refused,
                **(found.outcome.told if found.outcome else {}),
            },
            section=urls.GATES,
        ),
        status=status,
    )
