"""A verdict for a person: the decision first, then what stands in its way, then the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from orchestrator.cli.gate_responses import Rule, Verdict
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.view.glyphs import style_of, word
from orchestrator.domain.units import plural

BLAMED = 20
"""Tests that a window has room for."""
_WORST_FIRST = ("violated", "unknown", "waived", "tolerated", "ok")


def print_verdict(session: Session, verdict: Verdict, *, every: bool = False) -> None:
    """Write it down.

    Args:
        session: Where to write.
        verdict: What to write.
        every: Every rule with its sentence, not only those that are not ok.
    """
    head = Text(verdict.decision, style=style_of(verdict.decision))
    name = " ".join(part for part in (verdict.gate, verdict.id) if part)
    head.append(f"  {one_line(name)}  {_subject(verdict)}", style="")
    session.out.print(head, soft_wrap=True)
    if verdict.summary:
        session.print(one_line(verdict.summary))
    blocking = [rule for rule in verdict.rules if rule.blocking and (every or not rule.is_ok)]
    advisory = [rule for rule in verdict.rules if not rule.blocking and (every or not rule.is_ok)]
    _print_rules(session, "what stands in the way" if not every else "blocking", blocking)
    _print_blame(session, blocking)
    _print_rules(session, "for your information", advisory)
    _print_rest(session, verdict, every=every)
    for warning in verdict.warnings:
        session.print(f"warning: {one_line(warning)}")


def _subject(verdict: Verdict) -> str:
    known = verdict.subject
    name = f"{known.get('name', '')} {known.get('version', '')}".strip()
    return one_line(name or "nothing was looked at")


def _print_rules(session: Session, title: str, rules: Sequence[Rule]) -> None:
    if not rules:
        return
    session.out.print(Text(f"\n{title}", style="dim"))
    table = Table(box=None, pad_edge=False, show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", ratio=2)
    for rule in sorted(rules, key=_rank):
        by = f" [{', '.join(rule.by)}]" if rule.by else ""
        table.add_row(
            Text(one_line(rule.outcome), style=style_of(rule.outcome)),
            Text(one_line(rule.id)),
            Text(one_line(f"{rule.sentence}{by}")),
        )
    session.out.print(table)


def _print_blame(session: Session, rules: Sequence[Rule]) -> None:
    """Who broke the tests that stand in the way, where they ran again."""
    rows = [(rule, row) for rule in sorted(rules, key=_rank) for row in rule.inputs.blame]
    if not rows:
        return
    session.out.print(Text("\nwho broke it", style="dim"))
    table = Table(box=None, pad_edge=False, show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", ratio=2)
    for rule, row in rows[:BLAMED]:
        table.add_row(
            Text(word(row.answer), style=style_of(row.answer)),
            Text(one_line(row.nodeid or row.job)).append(f"\n{one_line(rule.id)}", style="dim"),
            Text(one_line(row.evidence)),
        )
    session.out.print(table)
    if len(rows) > BLAMED:
        session.print(f"and {plural(len(rows) - BLAMED, 'more test')}; --json has them all")


def _print_rest(session: Session, verdict: Verdict, *, every: bool) -> None:
    ok = Counter(rule.kind for rule in verdict.rules if rule.is_ok)
    if every or not ok:
        return
    kinds = ", ".join(f"{number} {one_line(kind)}" for kind, number in sorted(ok.items()))
    session.print(f"\n{plural(ok.total(), 'rule')} ok: {kinds}")


def _rank(rule: Rule) -> tuple[int, str]:
    known = rule.outcome in _WORST_FIRST
    return (_WORST_FIRST.index(rule.outcome) if known else 0, rule.id)
