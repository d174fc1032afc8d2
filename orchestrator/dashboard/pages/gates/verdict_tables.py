"""Tables of a verdict: rules, changes since another verdict, exceptions and evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from orchestrator.application.gate_policies import policy_of
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, Shape
from orchestrator.dashboard.labels import cut
from orchestrator.dashboard.responses import PageRequest
from orchestrator.dashboard.table import (
    Badge,
    Column,
    Fact,
    FoldedFacts,
    Number,
    PictureCell,
    Row,
    Table,
    TableCell,
    Text,
)
from orchestrator.domain.gate.policy import as_percent, counted, percent, some
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult, StoredVerdict
from orchestrator.domain.outcome import Reason
from orchestrator.domain.units import utc
from orchestrator.domain.vocabulary import TERMS, phrase

SHOWN = 50
"""Maximum rules on a page; `.json` has the whole verdict."""
_LISTED = 8
"""Maximum entries that are shown of a list among a rule's inputs."""
_LONGEST = 400
"""Maximum characters of a listed entry."""
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
"""Outcomes of a cell that ran; the rules of its jobs give the reason of a failure."""
Inputs = Mapping[str, object]
Seen = Callable[[Inputs], tuple[str, str]]


def severity(rule: RuleResult) -> tuple[bool, bool, int, str]:
    """Return the sort key of rules: blocking failures, advisory failures, then the rest."""
    is_ok = rule.outcome is RuleOutcome.OK
    return (is_ok, not rule.blocking, _ORDER[rule.outcome], rule.id)


def rule_table(
    rules: Sequence[RuleResult],
    *,
    caption: str,
    id: str = "rules",  # noqa: A002
    empty: str = "No rule has a result.",
) -> Table:
    """Return the table of these rules, in their order."""
    return Table(
        id=id,
        caption=caption,
        columns=COLUMNS,
        rows=[_row(rule) for rule in rules],
        empty=empty,
        is_caption_hidden=True,
    )


def tone(rule: RuleResult) -> str:
    """Return the tone of a rule's row."""
    if not rule.blocking:
        return ""
    return {RuleOutcome.VIOLATED: "bad", RuleOutcome.UNKNOWN: "warn"}.get(rule.outcome, "")


def measured(rule: RuleResult) -> tuple[str, str]:
    """Return the measured value and the limit of a rule as short texts."""
    seen = _SEEN.get(rule.kind)
    return seen(rule.inputs) if seen is not None else ("", "")


def facts_of(inputs: Inputs) -> list[Fact]:
    """Return the rule's non-empty inputs as facts."""
    return [
        Fact(name.replace("_", " "), _sentence(value), _href(name, value))
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
            FoldedFacts(rule.sentence, facts_of(rule.inputs)),
        ),
        tone=tone(rule),
    )


def _sentence(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        pairs = ((k, v) for k, v in value.items() if v not in ("", None, [], {}))
        return "; ".join(f"{phrase(str(key))}: {_sentence(each)}" for key, each in pairs)
    if isinstance(value, list | tuple):
        lines = [cut(_sentence(each), _LONGEST) for each in value[:_LISTED]]
        rest = len(value) - _LISTED
        joined = "\n" if any(isinstance(each, Mapping) for each in value[:_LISTED]) else ", "
        return joined.join([*lines, *([f"and {rest} more"] if rest > 0 else [])])
    return _readable(str(value))


def _readable(text: str) -> str:
    """Return a stored time or code in a readable form, and any other text unchanged."""
    if text in TERMS or text in _REASONS:
        return phrase(text)
    try:
        return utc(datetime.fromisoformat(text)) if _STORED_TIME.match(text) else text
    except ValueError:
        return text


_REASONS = frozenset(Reason)
_STORED_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)\Z")


def _href(name: str, value: object) -> str:
    is_run = name in ("run", "last_green", "reused_from") and isinstance(value, str) and value
    return urls.run_url(str(value)) if is_run else ""


def _text(inputs: Inputs, name: str) -> str:
    value = inputs.get(name, "")
    return cut(_sentence(value), _LONGEST) if value not in ("", None, [], {}, -1) else ""


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
    """Return a slowdown in percent as ``3.1 % slower`` or ``2 % faster``."""
    amount = float(slowdown)
    return f"{as_percent(abs(amount))} {'slower' if amount >= 0 else 'faster'}"


def _approval(inputs: Inputs) -> tuple[str, str]:
    by = inputs.get("approved_by")
    return f"{len(by) if isinstance(by, list) else 0} approved", f"{inputs.get('need', 1)} needed"


def _freshness(inputs: Inputs) -> tuple[str, str]:
    ended, believed = str(inputs.get("ended_at", "")), _text(inputs, "max_age")
    return utc(datetime.fromisoformat(ended)) if ended else "never ended", believed


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


class Ruled(Protocol):
    """A rule with its outcome."""

    @property
    def id(self) -> str:
        """Return the rule's id."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether it can stop a release."""
        ...

    @property
    def outcome(self) -> RuleOutcome:
        """The rule's outcome."""
        ...


_BADNESS = (
    RuleOutcome.OK,
    RuleOutcome.TOLERATED,
    RuleOutcome.WAIVED,
    RuleOutcome.UNKNOWN,
    RuleOutcome.VIOLATED,
)


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A blocking rule whose outcome differs from the previous verdict."""

    rule: str
    before: RuleOutcome | None
    """Outcome in the previous verdict; None if the rule did not block there."""
    now: RuleOutcome | None
    was_there: bool = True
    is_there: bool = True
    """Whether the rule exists in the new verdict; a rule that only informs does not block."""

    @property
    def before_words(self) -> str:
        """Text for a rule that did not block before."""
        return "only informed" if self.was_there else "was not there"

    @property
    def now_words(self) -> str:
        """Text for a rule that does not block now."""
        return "only informs" if self.is_there else "is gone"

    @property
    def is_worse(self) -> bool:
        """Whether the rule's new outcome is worse."""
        return _badness(self.now) > _badness(self.before)


def changes(before: Sequence[Ruled], now: Sequence[Ruled]) -> list[RuleChange]:
    """Return blocking rules whose outcome changed, those that became worse first."""
    old, new = _blocking(before), _blocking(now)
    were, are = {rule.id for rule in before}, {rule.id for rule in now}
    found = [
        RuleChange(rule, old.get(rule), new.get(rule), rule in were, rule in are)
        for rule in sorted({*old, *new})
        if old.get(rule) is not new.get(rule)
    ]
    return sorted(found, key=lambda one: (not one.is_worse, one.rule))


def in_words(changes: Sequence[RuleChange]) -> str:
    """Return the changes as one line, such as ``2 worse: job/a, job/b; 1 better: cost``."""
    worse = [one.rule for one in changes if one.is_worse]
    better = [one.rule for one in changes if not one.is_worse]
    told = [f"{len(worse)} worse: {some(worse, 2)}"] if worse else []
    told += [f"{len(better)} better: {some(better, 2)}"] if better else []
    return "; ".join(told) or "no blocking rule changed"


def _blocking(rules: Iterable[Ruled]) -> Mapping[str, RuleOutcome]:
    return {rule.id: rule.outcome for rule in rules if rule.blocking}


def _badness(outcome: RuleOutcome | None) -> int:
    return 0 if outcome is None else _BADNESS.index(outcome)


_COLUMNS = (
    Column("id", "Exception"),
    Column("kind", "Kind"),
    Column("rules", "Changed"),
    Column("reason", "Why"),
    Column("people", "People"),
    Column("until", "Until"),
)
Words = tuple[str, str, str, str]
"""Kind, reason, owner, expiry."""


def exception_table(request: PageRequest, stored: StoredVerdict) -> Iterator[Table]:
    """Yield a table of the exceptions that changed a rule's outcome, if there are any."""
    changed: dict[str, list[str]] = {}
    for rule in stored.verdict.rules:
        if rule.kind not in ("known_issue", "flaky"):
            for name in rule.by:
                changed.setdefault(name, []).append(rule.id)
    if not changed:
        return
    known = _known(request, stored)
    rows = [_exception_row(name, rules, known) for name, rules in sorted(changed.items())]
    caption = "Exceptions that changed a rule's outcome"
    yield Table(
        id="exceptions", caption=caption, columns=_COLUMNS, rows=rows[:SHOWN], total=len(rows)
    )


def _exception_row(name: str, rules: list[str], known: Mapping[str, Words]) -> Row:
    kind, reason, who, until = known.get(name, ("", "", "", ""))
    href = urls.KNOWN_ISSUES if kind == "known issue" else ""
    rest = (Text(kind), Text(some(rules)), Text(reason), Text(who), Text(until))
    return Row((Text(name, href, is_code=True), *rest))


def _known(request: PageRequest, stored: StoredVerdict) -> dict[str, Words]:
    """Return descriptions by exception: from the verdict, its policy, and the gate's waivers."""
    gates = request.context.stores.gates
    found = {"flaky": ("flaky allowance", "It passed when it was run again.", "", "")}
    found |= dict(_label_and_words(rule) for rule in stored.verdict.rules if _tells(rule))
    version = gates.policy_version(stored.verdict.policy_digest)
    for one in policy_of(version).spec.exceptions if version else ():
        who = f"{one.author}, approved by {', '.join(one.approved_by)}"
        found[one.id] = ("exception", one.reason, who, one.expires.isoformat())
    for given in gates.waivers(gate=stored.gate):
        waiver = given.waiver
        approval = f"approved by {waiver.approver}" if waiver.approver else "not approved"
        who = f"{waiver.author}, {approval}"
        found[waiver.id] = ("waiver", waiver.reason, who, f"{waiver.expires:%Y-%m-%d %H:%M} UTC")
    return found


def _tells(rule: RuleResult) -> bool:
    return rule.kind == "known_issue" or rule.id.startswith("quarantine/")


def _label_and_words(rule: RuleResult) -> tuple[str, Words]:
    """Return the id of a known issue or quarantine, and its texts."""
    inputs = rule.inputs
    kind = "known issue" if rule.kind == "known_issue" else "quarantine"
    owner, until = str(inputs.get("owner", "")), _readable(str(inputs.get("expires", "")))
    return rule.by[0] if rule.by else rule.id, (kind, rule.sentence, owner, until)


_WIDTH, _HEIGHT, _MIDDLE = 120, 18, 9


def interval(low: float, value: float, high: float, limit: float | None) -> Picture:
    """Return a picture of an interval: its line, the value as a point, zero and limit as strokes.

    Args:
        low: Lower end of the interval.
        value: The estimate.
        high: Upper end of the interval.
        limit: The maximum that the policy allows; None without one.
    """
    known = [low, value, high, 0.0, *([limit] if limit is not None else [])]
    left, right = min(known), max(known)

    def x(at: float) -> str:
        share = (at - left) / (right - left) if right > left else 0.5
        return f"{4 + (_WIDTH - 8) * share:.1f}"

    tone = "good" if limit is None or high <= limit else "bad" if low > limit else "warn"
    strokes = [
        _stroke(x(0.0), "axis"),
        *([_stroke(x(limit), "limit")] if limit is not None else []),
    ]
    bar = Shape(
        "rect",
        tone,
        (
            ("x", x(low)),
            ("y", str(_MIDDLE - 2)),
            ("width", f"{max(float(x(high)) - float(x(low)), 1.0):.1f}"),
            ("height", "4"),
        ),
    )
    point = Shape("circle", "point", (("cx", x(value)), ("cy", str(_MIDDLE)), ("r", "3")))
    return Picture(_WIDTH, _HEIGHT, (*strokes, bar, point), "interval")


def _stroke(x: str, name: str) -> Shape:
    ends = (("x1", x), ("y1", "1"), ("x2", x), ("y2", str(_HEIGHT - 1)))
    return Shape("line", name, ends)


_FAILING = (
    Column("test", "Test"),
    Column("rule", "Job"),
    Column("tolerated_by", "Tolerated by"),
    Column("count", "Failures", is_number=True),
    Column("signature", "Failure"),
)
_BLAME = (
    Column("answer", "Root cause"),
    Column("test", "Test"),
    Column("rule", "Job"),
    Column("evidence", "Evidence"),
)
_PERFORMANCE = (
    Column("benchmark", "Benchmark"),
    Column("outcome", "Outcome"),
    Column("change", "Change"),
    Column("interval", "Interval"),
    Column("budget", "Budget"),
    Column("detectable", "Minimum detectable effect"),
    Column("pairs", "Pairs", is_number=True),
    Column("p_adjusted", "Adjusted p"),
)
_ANSWERS = {
    "subject": "the subject",
    "dependency": "a dependency",
    "image_or_driver": "the image or the driver",
    "machine": "this machine",
    "flaky": "flaky test",
    "unknown": "unknown",
}
Found = Mapping[str, object]


def evidence_tables(rules: Sequence[RuleResult]) -> Iterator[Table]:
    """Yield the tables of failing tests, root causes and benchmarks that have rows."""
    failing = [(rule, one) for rule in rules for one in _listed(rule, "results")]
    if failing:
        many = sum(_whole(rule.inputs.get("failing")) for rule in rules if rule.kind == "job")
        caption = f"Failing tests: {_of(len(failing), 'named by the rules')}; {many:,} failed"
        yield _table("failing", caption, _FAILING, [_failing(*row) for row in failing])
    blame = [(rule, one) for rule in rules for one in _listed(rule, "blame")]
    if blame:
        caption = f"Root cause: {_of(len(blame), 'answer' if len(blame) == 1 else 'answers')}"
        yield _table("blame", caption, _BLAME, [_blamed(*row) for row in blame])
    measured = [rule for rule in rules if rule.kind == "performance"]
    if measured:
        caption = f"Benchmarks against the baseline: {_of(len(measured), 'measured')}"
        yield _table("performance", caption, _PERFORMANCE, [_benchmark(one) for one in measured])


def _table(id: str, caption: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:  # noqa: A002
    return Table(id=id, caption=caption, columns=columns, rows=rows[:SHOWN], total=len(rows))


def _of(many: int, what: str) -> str:
    return f"the first {SHOWN} of {many:,} {what}" if many > SHOWN else f"{many:,} {what}"


def _listed(rule: RuleResult, name: str) -> Iterator[Found]:
    """Yield the rows of a list in a rule's inputs; entries of another form are skipped."""
    rows = rule.inputs.get(name)
    if rule.kind == "job" and isinstance(rows, list | tuple):
        yield from (one for one in rows if isinstance(one, Mapping))


def _failing(rule: RuleResult, one: Found) -> Row:
    signature, by = str(one.get("signature", "")), one.get("by")
    is_open = bool(_whole(one.get("intolerable")))
    known = ", ".join(map(str, by)) if isinstance(by, list | tuple) else ""
    message = str(one.get("message", ""))
    return Row(
        (
            Text(str(one.get("name", "")) or "the job itself", is_code=True),
            Text(rule.id.removeprefix("job/")),
            Text(known) if known else Text("nothing" if is_open else ""),
            Number(_whole(one.get("count"))),
            Text(
                message or signature,
                urls.signature_url(signature) if signature else "",
            ),
        ),
        tone="bad" if is_open and rule.blocking else "",
    )


def _blamed(rule: RuleResult, one: Found) -> Row:
    answer = str(one.get("answer", ""))
    return Row(
        (
            Text(_ANSWERS.get(answer, answer)),
            Text(str(one.get("nodeid", "")) or "the job itself", is_code=True),
            Text(rule.id.removeprefix("job/")),
            FoldedFacts(str(one.get("evidence", ""))),
        )
    )


def _benchmark(rule: RuleResult) -> Row:
    inputs = rule.inputs
    told = {name: str(inputs.get(name, "")) for name in ("slowdown", "low", "high", "detectable")}
    budget = str(inputs.get("budget", ""))
    return Row(
        (
            Text(
                rule.id.removeprefix("performance/"), note="" if rule.blocking else "only informs"
            ),
            Badge(rule.outcome, note=str(inputs.get("reason", ""))),
            Text(slower(told["slowdown"]) if told["slowdown"] else "not measured in pairs"),
            _interval(told, budget),
            Text(budget or "none"),
            Text(as_percent(float(told["detectable"])) if told["detectable"] else ""),
            Number(_whole(inputs.get("pairs"))),
            Text(str(inputs.get("p_adjusted", ""))),
        ),
        tone=tone(rule),
    )


def _interval(values: Mapping[str, str], budget: str) -> TableCell:
    if not (values["low"] and values["high"]):
        return Text("")
    low, value, high = (float(values[name]) for name in ("low", "slowdown", "high"))
    label = f"from {as_percent(low)} to {as_percent(high)} slower"
    limit = float(percent(budget)) if budget else None
    return PictureCell(interval(low, value, high, limit), (low, value, high), label)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
