"""Rules of a verdict as a table: the worst first, each with what it saw and what was allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

from orchestrator.dashboard import urls
from orchestrator.dashboard.disclosure import Fact, Folded
from orchestrator.dashboard.labels import cut, in_utc
from orchestrator.dashboard.table import Badge, Column, Row, Table, Text
from orchestrator.domain.gate.quantities import as_percent, counted, some
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

SHOWN = 50
"""Rules of one page; `.json` has the whole verdict."""
_LISTED = 8
"""Of a list among a rule's inputs."""
_LONGEST = 400
"""Characters of one of its entries."""
COLUMNS = (
    Column("rule", "Rule"),
    Column("outcome", "Outcome"),
    Column("observed", "Observed"),
    Column("allowed", "Allowed"),
    Column("why", "Why"),
)
_ORDER = {
    RuleOutcome.VIOLATED: 0,
    RuleOutcome.UNKNOWN: 1,
    RuleOutcome.WAIVED: 2,
    RuleOutcome.TOLERATED: 3,
    RuleOutcome.OK: 4,
}
_RAN = ("passed", "failed", "timed_out")
"""Outcomes of a cell that was judged: the rules of its jobs say how."""
Inputs = Mapping[str, object]
Seen = Callable[[Inputs], tuple[str, str]]


def severity(rule: RuleResult) -> tuple[bool, bool, int, str]:
    """The worst first: what stands in the way, what only informs, and then what is ok."""
    is_ok = rule.outcome is RuleOutcome.OK
    return (is_ok, not rule.blocking, _ORDER[rule.outcome], rule.id)


def rule_table(
    rules: Sequence[RuleResult],
    *,
    caption: str,
    id: str = "rules",  # noqa: A002
    empty: str = "No rule came to anything.",
) -> Table:
    """Those rules, in that order."""
    return Table(
        id=id,
        caption=caption,
        columns=COLUMNS,
        rows=[_row(rule) for rule in rules],
        empty=empty,
        is_caption_hidden=True,
    )


def tone(rule: RuleResult) -> str:
    """How loud its row is."""
    if not rule.blocking:
        return ""
    return {RuleOutcome.VIOLATED: "bad", RuleOutcome.UNKNOWN: "warn"}.get(rule.outcome, "")


def summary_of(decision: str, summary: str) -> str:
    """A verdict's sentence without the decision, which stands beside it."""
    rest = summary.removeprefix(f"{decision}: ")
    return rest[:1].upper() + rest[1:]


def measured(rule: RuleResult) -> tuple[str, str]:
    """What it saw, and what the policy allows, in few words."""
    seen = _SEEN.get(rule.kind)
    return seen(rule.inputs) if seen is not None else ("", "")


def facts_of(inputs: Inputs) -> list[Fact]:
    """Everything that it was decided on, in lines that a person can read."""
    return [
        Fact(name.replace("_", " "), _said(value), _href(name, value))
        for name, value in inputs.items()
        if value not in ("", None, [], {})
    ]


def _row(rule: RuleResult) -> Row:
    observed, allowed = measured(rule)
    return Row(
        (
            Text(rule.id, is_code=True, note="" if rule.blocking else "only informs"),
            Badge(rule.outcome, note=f"by {some(list(rule.by))}" if rule.by else ""),
            Text(observed),
            Text(allowed),
            Folded(rule.sentence, facts_of(rule.inputs)),
        ),
        tone=tone(rule),
    )


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        pairs = ((k, v) for k, v in value.items() if v not in ("", None, [], {}))
        return "; ".join(f"{key}: {_said(each)}" for key, each in pairs)
    if isinstance(value, list | tuple):
        lines = [cut(_said(each), _LONGEST) for each in value[:_LISTED]]
        rest = len(value) - _LISTED
        joined = "\n" if any(isinstance(each, Mapping) for each in value[:_LISTED]) else ", "
        return joined.join([*lines, *([f"and {rest} more"] if rest > 0 else [])])
    return str(value)


def _href(name: str, value: object) -> str:
    is_run = name in ("run", "last_green", "reused_from") and isinstance(value, str) and value
    return urls.run_url(str(value)) if is_run else ""


def _text(inputs: Inputs, name: str) -> str:
    value = inputs.get(name, "")
    return cut(_said(value), _LONGEST) if value not in ("", None, [], {}, -1) else ""


def _platform(inputs: Inputs) -> tuple[str, str]:
    cells = inputs.get("cells")
    told = [cell for cell in cells if isinstance(cell, Mapping)] if isinstance(cells, list) else []
    said = ["ran" if cell.get("outcome") in _RAN else _went(cell) for cell in told]
    return some(list(dict.fromkeys(said))) or "no run was asked for it", "ran to its end"


def _went(cell: Inputs) -> str:
    return str(cell.get("outcome") or cell.get("state") or "").replace("_", " ")


def _job(inputs: Inputs) -> tuple[str, str]:
    failing, left = inputs.get("failing", 0), inputs.get("intolerable", 0)
    outcome = str(inputs.get("outcome", "")).replace("_", " ") or "no evidence"
    if not failing:
        return outcome, "passed"
    told = f"{failing} failed" if left == failing else f"{failing} failed, {left} not tolerated"
    return told, "0 not tolerated"


def _attestation(inputs: Inputs) -> tuple[str, str]:
    words = ("attested", "ingested", "simulated")
    told = [word for word in words if inputs.get(word) is True] or ["not attested"]
    return some([*told, *([str(inputs["mismatch"])] if inputs.get("mismatch") else [])]), str(
        inputs.get("policy", "")
    ).replace("_", " ")


def _missing(inputs: Inputs) -> tuple[str, str]:
    gaps = inputs.get("missing")
    lost = sum(gaps.values()) if isinstance(gaps, Mapping) else 0
    return f"{lost} missing of {inputs.get('collected', 0)}", (
        f"0 missing, at least {inputs['least']}" if inputs.get("least") else "0 missing"
    )


def _skips(inputs: Inputs) -> tuple[str, str]:
    most = inputs.get("max", -1)
    told = f"{inputs.get('skips', 0)} skipped, {inputs.get('other', 0)} for other reasons"
    return told, "any number" if most == -1 else f"{most} that count"


def _performance(inputs: Inputs) -> tuple[str, str]:
    budget = str(inputs.get("budget", "")) or ("" if "slowdown" in inputs else "a baseline")
    slowdown = inputs.get("slowdown")
    if not isinstance(slowdown, str):
        return f"{inputs.get('pairs', 0)} pairs", budget
    return slower(slowdown), budget or "shown only"


def slower(slowdown: str) -> str:
    """``3.1 % slower`` or ``2 % faster``."""
    amount = float(slowdown)
    return f"{as_percent(abs(amount))} {'slower' if amount >= 0 else 'faster'}"


def _approval(inputs: Inputs) -> tuple[str, str]:
    by = inputs.get("approved_by")
    return f"{len(by) if isinstance(by, list) else 0} approved", f"{inputs.get('need', 1)} needed"


def _freshness(inputs: Inputs) -> tuple[str, str]:
    ended, believed = str(inputs.get("ended_at", "")), _text(inputs, "max_age")
    return in_utc(datetime.fromisoformat(ended)) if ended else "never ended", believed


def _evidence(inputs: Inputs) -> tuple[str, str]:
    cells = inputs.get("cells")
    many = len(cells) if isinstance(cells, list | tuple) else 0
    return counted(many, "cell") + " believed", "at least 1"


def _subject(inputs: Inputs) -> tuple[str, str]:
    found = inputs.get("found")
    told = found.values() if isinstance(found, Mapping) else ()
    most = max((len(one) for one in told if isinstance(one, list | tuple)), default=0)
    seen = {0: "none is known", 1: "one subject"}.get(most, f"{most} subjects")
    needs = _text(inputs, "require")
    return seen, f"one, with {needs}" if needs else "one"


def _figures(seen: str, most: str, inputs: Inputs) -> tuple[str, str]:
    limit = inputs.get(most, "")
    return _text(inputs, seen), "any number" if limit == -1 else _text(inputs, most)


def _usd(inputs: Inputs) -> tuple[str, str]:
    return f"{_text(inputs, 'usd')} USD", f"{_text(inputs, 'max_usd')} USD"


_SEEN: Mapping[str, Seen] = {
    "platform": lambda inputs: _platform(inputs) if "cells" in inputs else ("", ""),
    "job": _job,
    "evidence": _evidence,
    "subject": _subject,
    "freshness": _freshness,
    "attestation": _attestation,
    "missing": _missing,
    "skips": _skips,
    "selection": partial(_figures, "unasked", "asked"),
    "new_failures": partial(_figures, "new", "max"),
    "flaky": partial(_figures, "seen", "max"),
    "known_issue": partial(_figures, "count", "max"),
    "performance": _performance,
    "cost": _usd,
    "approval": _approval,
    "degraded": partial(_figures, "degraded", "policy"),
}
