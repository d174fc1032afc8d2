"""What each ``--json`` of the command line prints: a JSON Schema, and the page that lists them.

The records come from the OpenAPI document and from the commands' own dataclasses.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from orchestrator.cli.commands.bisect import BisectAnswer
from orchestrator.cli.commands.emergency_stop import StopAnswer
from orchestrator.cli.failure_logs import FailureLine
from orchestrator.cli.wiring import BackupReport, RestoreReport
from orchestrator.domain.cloud_account import AccountCheck
from orchestrator.domain.gate.verdict import LATER, RuleResult, Verdict
from reports.model.comparison import CompareReport

SCHEMA_NAME = "cli.schema.json"
_OWN = (AccountCheck, BackupReport, BisectAnswer, FailureLine, RestoreReport, StopAnswer)
_ENDED, _SIGNED = "EndedResources", "SignedVerdict"
ANSWERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "doctor": (("", "AccountCheck[]"), ("CLOUD", "AccountCheck[]")),
    "plan": (("", "Plan"),),
    "run": (("", "RunResponse"),),
    "rerun": (("", "RunResponse"),),
    "watch": (("", "RunResponse"),),
    "ingest": (("", "IngestResponse"), ("DIR DIR", "IngestResponse[]")),
    "runs": (("", "RunSummary[]"),),
    "show": (("", "RunResponse"),),
    "failures": (("", "FailureLine[]"),),
    "slowest": (("", "TestDuration[]"),),
    "compare": (("", "CompareReport"),),
    "annotate": (("", "CheckedAnnotation[]"),),
    "lint": (("", "LintResponse"),),
    "cancel": (("", "Run"),),
    "cost": (
        ("", "Spending"),
        ("RUN", "RunCost"),
        ("--prices", "Price[]"),
        ("--refresh", "Refreshed"),
    ),
    "machines": (
        ("", "InventoryResponse"),
        ("--terminate", _ENDED),
        ("--terminate --all", "StopAnswer"),
    ),
    "db prune": (("", "PruneReport"),),
    "gate check": (("", "VerdictResponse"),),
    "gate dry-run": (("", "Verdict"),),
    "gate explain": (("", "VerdictResponse"), ("--replay", "ReplayResponse")),
    "gate history": (("", "VerdictLine[]"), ("--policies", "StoredPolicy[]")),
    "gate list": (("", "StoredPolicy[]"),),
    "gate verify": (("", _SIGNED),),
    "gate waive": (("", "WaiverResponse"),),
    "gate waivers": (("", "WaiverResponse[]"),),
    "gate approve": (("", "ApprovalResponse"), ("--waiver", "WaiverResponse")),
    "gate review": (("", "PayloadReviewResponse"),),
    "gate reviews": (("", "PayloadReviewResponse[]"),),
    "gate bisect": (("", "BisectAnswer"),),
    "gate keys list": (("", "KeyResponse[]"),),
    "gate keys rotate": (("", "KeyResponse"),),
    "gate keys retire": (("", "KeyResponse"),),
    "known-issue add": (("", "KnownIssueResponse"),),
    "known-issue list": (("", "KnownIssueResponse[]"),),
    "known-issue expire": (("", "KnownIssueResponse"),),
    "quarantine add": (("", "QuarantineResponse"),),
    "quarantine list": (("", "QuarantineResponse[]"),),
    "quarantine end": (("", "QuarantineResponse"),),
    "quarantine suggest": (("", "SuggestedQuarantine[]"),),
    "alias suggest": (("", "Matching"),),
    "alias list": (("", "Alias[]"),),
    "channel add": (("", "NewChannelResponse"),),
    "channel list": (("", "ChannelResponse[]"),),
    "channel test": (("", "DeliveryReceipt"),),
    "channel log": (("", "DeliveryResponse[]"),),
    "channel rotate": (("", "RenewedResponse"),),
    "schedule add": (("", "ScheduleResponse"),),
    "schedule list": (("", "ScheduleResponse[]"),),
    "schedule show": (("", "ScheduleResponse"),),
    "schedule pause": (("", "ScheduleResponse"),),
    "schedule resume": (("", "ScheduleResponse"),),
    "schedule trigger": (("", "Firing"),),
    "backup": (("", "BackupReport"),),
    "restore": (("", "RestoreReport"),),
    "audit list": (("", "ChainedEntry[]"),),
    "audit verify": (("", "AuditVerification"),),
    "token create": (("", "NewToken"),),
    "session list": (("", "BrowserSession[]"),),
    "token list": (("", "Token[]"),),
}
"""By command: the options or arguments, and the record that they print; ``[]`` is a list of it."""
_HEAD = f"""\
# JSON of the command line

What a command prints with `--json`, by the records of [{SCHEMA_NAME}]({SCHEMA_NAME}), a JSON
Schema (2020-12). `X[]` is an array. Records that the REST API answers too are those of its OpenAPI
document. Money is decimal text in US dollars, times are RFC 3339 in UTC, sizes are bytes and
durations seconds. Errors are sentences on standard error, with an
[exit code](cli.md#exit-codes); nothing is on standard output then.

`report --format json`, `export` and `schema` print documents of other formats.

"""


def schema(openapi: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema: ``$defs`` has each record, and ``$defs/seatrial COMMAND`` an answer.

    Args:
        openapi: The OpenAPI document.
    """
    known = copy.deepcopy(dict(openapi["components"]["schemas"]))
    for record in _OWN:
        _add(known, TypeAdapter(record).json_schema(mode="serialization"), record.__name__)
    _add_comparison(known)
    known[_ENDED] = _with_ended(known["InventoryResponse"])
    _add_signed(known)
    answers = {
        f"seatrial {command} {more}".strip(): _shape(shape)
        for command, variants in ANSWERS.items()
        for more, shape in variants
    }
    used: dict[str, Any] = {}
    for answer in answers.values():
        _collect(answer, known, used)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answers of seatrial COMMAND --json",
        "$defs": answers | dict(sorted(used.items())),
    }
    return dict(_moved(document))


def page() -> str:
    """Return the page that lists every answer."""
    rows = [
        f"| `{f'seatrial {command} {more}'.strip()}` | `{shape}` |"
        for command, variants in ANSWERS.items()
        for more, shape in variants
    ]
    return _HEAD + "| command | prints |\n|---|---|\n" + "\n".join(rows) + "\n"


def text(openapi: Mapping[str, Any]) -> str:
    """Return the schema as it is committed."""
    return json.dumps(schema(openapi), indent=1, ensure_ascii=False) + "\n"


def _shape(shape: str) -> dict[str, Any]:
    one = {"$ref": f"#/$defs/{shape.removesuffix('[]')}"}
    return {"type": "array", "items": one} if shape.endswith("[]") else one


def _add(known: dict[str, Any], found: dict[str, Any], name: str) -> None:
    known.update(found.pop("$defs", {}))
    known[name] = found


def _add_comparison(known: dict[str, Any]) -> None:
    """Add the compare report as `reports.registry.render_json` writes it."""
    found = TypeAdapter(CompareReport).json_schema(mode="serialization")
    inner = found.pop("$defs")
    inner["CompareReport"] = found
    names = {f"#/$defs/{name}": f"#/$defs/CompareReport.{name}" for name in inner}
    names["#/$defs/CompareReport"] = "#/$defs/CompareReport"
    for name, part in inner.items():
        known[names[f"#/$defs/{name}"].removeprefix("#/$defs/")] = _renamed(part, names)
    known["CompareReport.Absent"] = {
        "description": "A missing value with its reason.",
        "type": "object",
        "properties": {"not_measured": {"type": "string"}},
        "required": ["not_measured"],
    }


def _renamed(part: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(part, list):
        return [_renamed(one, names) for one in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":  # one that is not finite is written as missing
        return {"anyOf": [part, {"$ref": "#/$defs/CompareReport.Absent"}]}
    return {
        key: names[value] if key == "$ref" else _renamed(value, names)
        for key, value in part.items()
    }


def _with_ended(inventory: Mapping[str, Any]) -> dict[str, Any]:
    ended = {
        "description": "What was ended, as ``PROVIDER/ID``.",
        "type": "array",
        "items": {"type": "string"},
    }
    return {
        **inventory,
        "title": _ENDED,
        "properties": {**inventory["properties"], "ended": ended},
        "required": [*inventory["required"], "ended"],
    }


def _add_signed(known: dict[str, Any]) -> None:
    """Add the document that is signed: fields that came later are left out at their defaults."""
    verdict = _without_later(known["Verdict"], Verdict)
    rule = "SignedRule"
    known[rule] = _without_later(known["RuleResult"], RuleResult)
    rules = {"type": "array", "items": {"$ref": f"#/$defs/{rule}"}}
    version = {"description": "Version of the document.", "type": "integer"}
    properties = {**verdict["properties"], "v": version, "rules": rules}
    known[_SIGNED] = {**verdict, "properties": properties, "required": ["v", *verdict["required"]]}


def _without_later(found: Mapping[str, Any], record: type[Verdict] | type[RuleResult]) -> Any:  # noqa: ANN401 - any JSON
    later = {one.name for one in fields(record) if one.metadata == LATER}
    return {**found, "required": [name for name in found["required"] if name not in later]}


def _references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].rpartition("/")[2]
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from _references(one)


def _collect(part: object, known: Mapping[str, Any], used: dict[str, Any]) -> None:
    for name in _references(part):
        if name not in used:
            used[name] = known[name]
            _collect(known[name], known, used)


def _moved(part: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return it with references to OpenAPI's components leading to ``$defs``."""
    if isinstance(part, list):
        return [_moved(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: value.replace("#/components/schemas/", "#/$defs/") if key == "$ref" else _moved(value)
        for key, value in part.items()
    }
