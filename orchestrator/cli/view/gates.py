"""A verdict on a terminal: the decision, then blocking rules, then the rest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeGuard

from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.cli.view.glyphs import style_of, word
from orchestrator.client.transport import read
from orchestrator.domain.collected_tests import Hook
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult, Verdict, reasons_of
from orchestrator.domain.units import plural

BLAMED = 20
"""Maximum tests that are shown."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{12})[0-9a-f]{52}")
"""Length of digests in sentences; JSON and commands have them in full."""
_EXCUSED = frozenset({RuleOutcome.WAIVED, RuleOutcome.TOLERATED})
_WORST_FIRST = tuple(reversed(RuleOutcome))


def print_verdict(
    session: Session, verdict: Verdict, *, name: str = "", every: bool = False
) -> None:
    """Print a verdict.

    Args:
        session: The session that prints.
        verdict: The verdict.
        name: Id of a stored verdict; empty for one that is not stored.
        every: Whether rules that are ok are printed with their sentences, too.
    """
    head = Text(verdict.decision, style=style_of(verdict.decision))
    named = " ".join(part for part in (verdict.gate, name) if part)
    head.append(f"  {one_line(named)}  {_subject(verdict)}", style="")
    session.out.print(head, soft_wrap=True)
    if verdict.summary:
        session.print(one_line(reasons_of(verdict.decision, verdict.summary)))
    session.print(one_line(_evaluated(verdict)))
    blocking = [
        rule
        for rule in verdict.rules
        if rule.blocking and (every or rule.outcome is not RuleOutcome.OK)
    ]
    advisory = [
        rule
        for rule in verdict.rules
        if not rule.blocking and (every or rule.outcome is not RuleOutcome.OK)
    ]
    if every:
        _print_rules(session, "blocking", blocking)
    else:
        excused = [rule for rule in blocking if rule.outcome in _EXCUSED]
        in_the_way = [rule for rule in blocking if rule.outcome not in _EXCUSED]
        _print_rules(session, "blocking rules", in_the_way)
        _print_rules(session, "what is excused", excused)
    _print_blame(session, blocking)
    _print_rules(session, "for your information", advisory)
    _print_visible(session, verdict, every=every)
    _print_rest(session, verdict, every=every)
    for warning in verdict.warnings:
        session.print(f"warning: {one_line(warning)}")


def _evaluated(verdict: Verdict) -> str:
    """Return ``evaluated: ingested run 01jq, ended 2026-01-20 11:00 UTC``, for every run."""
    inputs = {rule.id: rule.inputs for rule in verdict.rules}
    ended: dict[str, str] = {}
    ingested: set[str] = set()
    for rule in verdict.rules:
        for cell in _rows(rule, "cells") if rule.kind == "platform" else ():
            at = str(inputs.get(f"freshness/{cell.get('cell')}", {}).get("ended_at", ""))
            run = str(cell.get("run"))
            ended[run] = max(ended.get(run, ""), at)
            if inputs.get(f"attestation/{cell.get('cell')}", {}).get("ingested"):
                ingested.add(run)
    runs = inputs.get("evidence", {}).get("runs")
    names = [str(run) for run in runs] if _is_list(runs) else []
    told = [_run(name, ended.get(name, ""), is_ingested=name in ingested) for name in names]
    return f"evaluated: {'; '.join(told) or 'no run'}"


def _run(name: str, ended: str, *, is_ingested: bool) -> str:
    """Return the run with the end of its evidence, and whether a cell of it was ingested."""
    said = f"{'ingested ' if is_ingested else ''}run {name}"
    if not ended:
        return said
    return f"{said}, ended {datetime.fromisoformat(ended).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _rows(rule: RuleResult, key: str) -> list[Mapping[str, object]]:
    told = rule.inputs.get(key)
    return [row for row in told if isinstance(row, Mapping)] if _is_list(told) else []


def _subject(verdict: Verdict) -> str:
    known = verdict.subject
    name = f"{known.get('name', '')} {known.get('version', '')}".strip()
    return one_line(name or "nothing was looked at")


def _print_rules(session: Session, title: str, rules: Sequence[RuleResult]) -> None:
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
            Text(one_line(f"{_DIGEST.sub(_shortened, rule.sentence)}{by}")),
        )
    session.out.print(table)


def _shortened(match: re.Match[str]) -> str:
    return f"sha256:{match[1]}"


def _print_blame(session: Session, rules: Sequence[RuleResult]) -> None:
    """Print the root causes of blocking failures whose tests were retested."""
    rows = [(rule, row) for rule in sorted(rules, key=_rank) for row in _blamed(rule)]
    if not rows:
        return
    session.out.print(Text("\nroot cause", style="dim"))
    table = Table(box=None, pad_edge=False, show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", ratio=2)
    for rule, row in rows[:BLAMED]:
        table.add_row(
            Text(word(row["answer"]), style=style_of(row["answer"])),
            Text(one_line(row["nodeid"] or row.get("job", ""))).append(
                f"\n{one_line(rule.id)}", style="dim"
            ),
            Text(one_line(row["evidence"])),
        )
    session.out.print(table)
    if len(rows) > BLAMED:
        session.print(f"and {plural(len(rows) - BLAMED, 'more test')}; --json has them all")


def _blamed(rule: RuleResult) -> list[Mapping[str, str]]:
    """Return ``nodeid, answer, evidence`` of failing tests from the rule's inputs."""
    return read(list[Mapping[str, str]], rule.inputs.get("blame", []))


_ALWAYS_SHOWN = ("own_environment", "lost_attempts", "untested")
"""Kinds of rules whose results are printed even if they are ok."""


def _is_shown(rule: RuleResult) -> bool:
    counted = rule.inputs.get("other") or rule.inputs.get("expected_failures")
    skips = rule.kind == "skips" and counted
    return rule.kind in _ALWAYS_SHOWN or bool(skips or rule.inputs.get("renamed"))


def _print_visible(session: Session, verdict: Verdict, *, every: bool) -> None:
    """Print the remarks of rules that are ok but limit what a PASS means."""
    ok = [rule for rule in verdict.rules if rule.outcome is RuleOutcome.OK and not every]
    lines = [rule.sentence for rule in ok if _is_shown(rule)]
    lines += [
        f"{rule.id}: {line}" for rule in ok if rule.kind == "selection" for line in _had(rule)
    ]
    if lines:
        session.out.print(Text("\nok, with remarks", style="dim"))
    for line in lines:
        session.print(one_line(line))


def _had(rule: RuleResult) -> Iterator[str]:
    for row in _rows(rule, "deselected"):
        yield f"{row.get('by')} deselected {plural(int(str(row.get('count'))), 'test')}"
    for row in _rows(rule, "modules"):
        yield f"{row.get('path')} skipped itself as a whole ({row.get('why')})"
    for row in _rows(rule, "ignored"):
        yield f"{row.get('path')} was not looked into ({row.get('why')})"
    hooks: dict[tuple[str, bool], list[Hook]] = {}
    for row in _rows(rule, "hooks"):
        hook = Hook(name=str(row.get("name")), file=str(row.get("file")))
        hooks.setdefault((hook.file, hook.is_implemented), []).append(hook)
    for (_, is_implemented), same in hooks.items():
        shown = same[:1] if is_implemented else same
        more = f" and {plural(len(same) - 1, 'more hook')}" if len(same) > len(shown) else ""
        yield from (f"{one.sentence}{more}" for one in shown)
    for name, noun in (("modules", "module"), ("ignored", "path"), ("hooks", "hook")):
        hidden = rule.inputs.get(f"more_{name}")
        if isinstance(hidden, int):
            yield f"and {plural(hidden, f'more {noun}')} that the verdict does not name"


def _print_rest(session: Session, verdict: Verdict, *, every: bool) -> None:
    ok = Counter(rule.kind for rule in verdict.rules if rule.outcome is RuleOutcome.OK)
    if every or not ok:
        return
    kinds = ", ".join(f"{number} {one_line(kind)}" for kind, number in sorted(ok.items()))
    session.print(f"\n{plural(ok.total(), 'rule')} ok: {kinds}")


def _rank(rule: RuleResult) -> tuple[int, str]:
    return _WORST_FIRST.index(rule.outcome), rule.id
