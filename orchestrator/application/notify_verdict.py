"""What people are told of a verdict that somebody asked for."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.application.message_links import verdict_link
from orchestrator.application.notify_people import notify_people
from orchestrator.domain.announcement import Announcement, LineageState
from orchestrator.store.verdict_lines import StoredVerdict


def announce_verdict(context: Context, stored: StoredVerdict) -> bool:
    """Tell of it, where its line stands elsewhere now; the same verdict again is no news."""
    verdict = stored.verdict
    state = LineageState.of(verdict.decision)
    subject = verdict.subject
    about = f"{subject.get('name', '')} {subject.get('version', '')}".strip()
    facts = {
        "gate": stored.gate,
        "product": verdict.product,
        "subject": subject.get("name", ""),
        "version": subject.get("version", ""),
        "git_sha": subject.get("git_sha", ""),
        "verdict": stored.id,
        "runs": " ".join(stored.runs),
    }
    return notify_people(
        context,
        Announcement(
            lineage=stored.lineage,
            state=state,
            title=f"{stored.gate} gate: {state.words}" + (f" for {about}" if about else ""),
            text=verdict.summary,
            url=verdict_link(context, stored.id),
            at=stored.created_at,
            key=f"verdict:{stored.id}",
            evaluated_at=stored.created_at,
            facts={name: text for name, text in facts.items() if text},
        ),
    )
