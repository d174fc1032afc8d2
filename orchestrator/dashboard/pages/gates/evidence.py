"""What a verdict names beside its rules: failing tests, who broke them, and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.dashboard import urls
from orchestrator.dashboard.disclosure import Folded
from orchestrator.dashboard.pages.gates.intervals import interval
from orchestrator.dashboard.pages.gates.rules import slower, tone
from orchestrator.dashboard.table import Badge, Cell, Column, Drawn, Number, Row, Table, Text
from orchestrator.domain.gate.quantities import as_percent, percent
from orchestrator.domain.gate.verdict import RuleResult

SHOWN = 50
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
    "ours": "the subject",
    "dependency": "a dependency",
    "image_or_driver": "the image or the driver",
    "machine": "this machine",
    "flaky": "nobody: it is flaky",
    "unknown": "unknown",
}
Found = Mapping[str, object]


def evidence_tables(rules: Sequence[RuleResult]) -> Iterator[Table]:
    """Those that have rows, each with no more than a page has room for."""
    failing = [(rule, one) for rule in rules for one in _listed(rule, "results")]
    if failing:
        many = sum(_whole(rule.inputs.get("failing")) for rule in rules if rule.kind == "job")
        caption = f"Failing tests: {_of(len(failing), 'named by the rules')}; {many:,} failed"
        yield _table("failing", caption, _FAILING, [_failing(*row) for row in failing])
    blame = [(rule, one) for rule in rules for one in _listed(rule, "blame")]
    if blame:
        caption = f"Root cause: {_of(len(blame), 'answers')}"
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
    """Rows among a rule's inputs; what was written otherwise is not shown."""
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
            Folded(str(one.get("evidence", ""))),
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


def _interval(told: Mapping[str, str], budget: str) -> Cell:
    if not (told["low"] and told["high"]):
        return Text("")
    low, value, high = (float(told[name]) for name in ("low", "slowdown", "high"))
    label = f"from {as_percent(low)} to {as_percent(high)} slower"
    limit = float(percent(budget)) if budget else None
    return Drawn(interval(low, value, high, limit), (low, value, high), label)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
