"""The description that others generate clients from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from orchestrator.api.app import create_app
from orchestrator.api.channels import ChannelTestRequest, RotateRequest
from orchestrator.api.gate_signoff import ApprovalRequest
from orchestrator.api.gates import DryRunRequest, EvaluateRequest, PolicyRequest
from orchestrator.api.history import AliasDecisionRequest, MatchRequest
from orchestrator.api.known_issues import KnownIssueRequest
from orchestrator.api.prune import PruneRequest
from orchestrator.api.reports import LintRequest
from orchestrator.api.retests import BisectRequest, ConfirmationRunRequest, RetestRequest
from orchestrator.api.runs import AnnotationsRequest, RerunRequest, RunRequest
from orchestrator.api.schedules import ScheduleRequest, TriggerRequest
from orchestrator.api.tokens import TokenRequest
from orchestrator.application.channels import NewChannel
from orchestrator.application.context import Context
from orchestrator.application.payloads import NewReview
from orchestrator.application.quarantine import NewQuarantine
from orchestrator.application.sign_off import NewWaiver
from tests.unit.api.openapi_breaks import breaks, references

OPERATIONS = {
    ("post", "/api/v1/plan"): "plan", ("post", "/api/v1/ingest"): "ingest",
    ("post", "/api/v1/runs"): "launch", ("get", "/api/v1/runs"): "list_runs",
    ("get", "/api/v1/runs/{run_id}"): "show_run",
    ("post", "/api/v1/runs/{run_id}/cancel"): "cancel",
    ("post", "/api/v1/runs/{run_id}/rerun"): "rerun",
    ("post", "/api/v1/runs/{run_id}/rerun/plan"): "plan_again",
    ("get", "/api/v1/runs/{run_id}/events"): "stream_events",
    ("get", "/api/v1/runs/{run_id}/cells/{cell}/log"): "read_log",
    ("get", "/api/v1/runs/{run_id}/cells/{cell}/tests"): "list_tests",
    ("get", "/api/v1/runs/{run_id}/slowest-tests"): "list_slowest_tests",
    ("get", "/api/v1/runs/{run_id}/cells/{cell}/artifacts/{name}"): "get_artifact",
    ("get", "/api/v1/runs/{run_id}/reports/{kind}.{format}"): "get_report",
    ("get", "/api/v1/runs/{run_id}/reports/{cell}/SUMMARY.{format}"): "get_cell_report",
    ("get", "/api/v1/runs/{run_id}/reports/{kind}/plots"): "list_report_plots",
    ("get", "/api/v1/runs/{run_id}/export/{format}"): "export_run",
    ("get", "/api/v1/runs/{run_id}/annotations"): "list_annotations",
    ("post", "/api/v1/runs/{run_id}/annotations"): "create_annotations",
    ("get", "/api/v1/runs/{run_id}/cells/{cell}/retests"): "list_retests",
    ("post", "/api/v1/runs/{run_id}/cells/{cell}/retests"): "add_retest",
    ("delete", "/api/v1/runs/{run_id}/cells/{cell}/retests"): "end_retests",
    ("get", "/api/v1/runs/{run_id}/cells/{cell}/bisect"): "get_bisect_range",
    ("post", "/api/v1/runs/{run_id}/cells/{cell}/bisect"): "bisect",
    ("post", "/api/v1/runs/{run_id}/cells/{cell}/bisect/plan"): "plan_bisect",
    ("post", "/api/v1/runs/{run_id}/confirmation-run"): "start_confirmation_run",
    ("get", "/api/v1/compare"): "compare_runs", ("post", "/api/v1/lint"): "lint_documents",
    ("put", "/api/v1/payloads/{sha256}"): "put_payload_archive",
    ("get", "/api/v1/payloads/{sha256}"): "get_payload",
    ("head", "/api/v1/payloads/{sha256}"): "head_payload",
    ("put", "/api/v1/subjects/{sha256}"): "put_subject_wheel",
    ("get", "/api/v1/platforms"): "list_platforms",
    ("get", "/api/v1/schema/matrix"): "get_matrix_schema",
    ("get", "/api/v1/schema/payload"): "get_payload_schema",
    ("get", "/api/v1/failure-groups"): "list_failure_groups",
    ("get", "/api/v1/tests"): "list_known_tests",
    ("get", "/api/v1/tests/{test_id}/history"): "get_test_history",
    ("get", "/api/v1/benchmarks/{benchmark}/series"): "get_benchmark_series",
    ("get", "/api/v1/aliases"): "list_aliases", ("post", "/api/v1/aliases"): "match_tests",
    ("post", "/api/v1/aliases/{alias_id}/confirm"): "confirm_alias",
    ("post", "/api/v1/aliases/{alias_id}/reject"): "reject_alias",
    ("post", "/api/v1/aliases/{alias_id}/undo"): "undo_alias",
    ("get", "/api/v1/known-issues"): "list_known_issues",
    ("post", "/api/v1/known-issues"): "create_known_issue",
    ("post", "/api/v1/known-issues/{issue_id}/expire"): "expire_known_issue",
    ("get", "/api/v1/schedules"): "list_schedules", ("post", "/api/v1/schedules"): "add_schedule",
    ("get", "/api/v1/schedules/{name}"): "show_schedule",
    ("put", "/api/v1/schedules/{name}"): "replace_schedule",
    ("post", "/api/v1/schedules/{name}/pause"): "pause_schedule",
    ("post", "/api/v1/schedules/{name}/resume"): "resume_schedule",
    ("post", "/api/v1/schedules/{name}/trigger"): "trigger_schedule",
    ("delete", "/api/v1/schedules/{name}"): "remove_schedule",
    ("get", "/api/v1/channels"): "list_channels", ("post", "/api/v1/channels"): "create_channel",
    ("delete", "/api/v1/channels/{channel}"): "remove_channel",
    ("post", "/api/v1/channels/{channel}/test"): "send_test",
    ("post", "/api/v1/channels/{channel}/rotate"): "rotate_channel_secret",
    ("get", "/api/v1/channels/{channel}/deliveries"): "list_deliveries",
    ("get", "/api/v1/gates"): "list_gates", ("get", "/api/v1/gates/{name}"): "get_gate",
    ("put", "/api/v1/gates/{name}"): "put_gate",
    ("get", "/api/v1/gates/{name}/policies"): "list_gate_policies",
    ("post", "/api/v1/gates/{name}/evaluate"): "evaluate",
    ("post", "/api/v1/gates/{name}/dry-run"): "dry_run_gate",
    ("get", "/api/v1/gates/{name}/verdicts"): "list_verdicts",
    ("get", "/api/v1/verdicts/{verdict_id}"): "get_verdict",
    ("get", "/api/v1/verdicts/{verdict_id}/statement"): "get_statement",
    ("get", "/api/v1/verdicts/{verdict_id}/evidence"): "get_frozen_evidence",
    ("get", "/api/v1/verdicts/{verdict_id}/replay"): "replay_verdict",
    ("get", "/api/v1/payload-reviews"): "list_payload_reviews",
    ("post", "/api/v1/payload-reviews"): "create_payload_review",
    ("get", "/api/v1/waivers"): "list_waivers", ("post", "/api/v1/waivers"): "create_waiver",
    ("get", "/api/v1/approvals"): "list_approvals",
    ("post", "/api/v1/approvals"): "create_approval", ("get", "/api/v1/keys"): "list_keys",
    ("get", "/api/v1/keyring"): "get_keyring", ("post", "/api/v1/keys/rotate"): "rotate_keys",
    ("post", "/api/v1/keys/{key_id}/retire"): "retire_signing_key",
    ("get", "/api/v1/quarantines"): "list_quarantines",
    ("get", "/api/v1/quarantines/suggestions"): "list_quarantine_suggestions",
    ("post", "/api/v1/quarantines"): "create_quarantine",
    ("post", "/api/v1/quarantines/{quarantine_id}/end"): "end_one_quarantine",
    ("get", "/api/v1/tokens"): "list_tokens", ("post", "/api/v1/tokens"): "create_token",
    ("delete", "/api/v1/tokens/{token_id}"): "revoke_token", ("get", "/api/v1/costs"): "get_costs",
    ("get", "/api/v1/sessions"): "list_sessions",
    ("delete", "/api/v1/sessions/{session_id}"): "revoke_session",
    ("get", "/api/v1/costs/prices"): "get_prices",
    ("post", "/api/v1/costs/refresh"): "refresh_costs",
    ("get", "/api/v1/machines"): "list_machines",
    ("post", "/api/v1/machines/terminate-all"): "terminate_all",
    ("get", "/api/v1/audit"): "list_audit_entries",
    ("get", "/api/v1/audit/export"): "export_audit_log",
    ("get", "/api/v1/audit/verification"): "verify_audit_log",
    ("get", "/api/v1/prune"): "preview_prune", ("post", "/api/v1/prune"): "prune_now",
    ("post", "/api/v1/machines/{provider}/{machine_id}/terminate"): "terminate_machine",
    ("get", "/api/v1/runs/{run_id}/cells/{cell}/access"): "get_access",
    ("post", "/api/v1/waivers/{waiver_id}/approve"): "approve_one_waiver",
    ("get", "/healthz"): "get_health", ("get", "/readyz"): "get_readiness",
    ("get", "/metrics"): "get_metrics",
}  # fmt: skip
"""What clients may rely on: a change here is a change of the interface."""
GOLDEN = Path(__file__).parents[2] / "golden" / "openapi.json"
REVIEWED = (
    {
        f"{field} has another type": "a cost that nobody states is null, no zero"
        for field in (
            "CellCost.bill",
            "CellRecord.cost_usd",
            "RunCost.bill",
            "RunResponse.cost_usd",
            "RunSummary.cost_usd",
            "RunTotal.total_usd",
        )
    }
    | {"ProviderCost.bill has another type": "a machine without a price has no amount"}
    | {
        f"{field} has another type": "costs by state have the state `stated` too"
        for field in ("CellCost.phases", "RunCost.phases")
    }
    | {
        f"the schema ListResponse_{item}_ is gone": "a page has `items` too, and `next`: a client"
        " that reads no further sees the first page only"
        for item in (
            "Alias",
            "ApprovalResponse",
            "BrowserSession",
            "DeliveryResponse",
            "KnownIssueResponse",
            "PayloadReviewResponse",
            "QuarantineResponse",
            "ScheduleResponse",
            "StoredPolicy",
            "Token",
            "WaiverResponse",
        )
    }
    | dict.fromkeys(
        ("the schema RetestsRequest is gone", "RunRequest.retests has another type"),
        "the schema has another name, RetestLimits, and the same JSON",
    )
)
"""Changes since the last release that break clients, and why they were meant, as `breaks` tells
them.
"""
UNPAGED: dict[str, str] = {
    "list_channels": "a project has at most 100",
    "get_benchmark_series": "one per platform that measured it, of at most `runs` runs",
    "get_prices": "shipped tables of prices, refreshed and not added to",
    "get_test_history": "the newest `limit` results: its flakiness is that of these results",
    "list_failure_groups": "computed of at most 500 runs, the largest first: sizes change between"
    " two pages; `is_cut` tells if there were more failures",
    "list_keys": "one per rotation; who verifies needs every one",
    "list_machines": "what the clouds have now: a part of it could hide a machine",
    "list_platforms": "the providers of this version",
    "list_quarantine_suggestions": "computed of the failures of the newest runs",
    "list_report_plots": "the plots of one report",
    "list_retests": "the retests of one cell, whose budget limits them",
    "list_slowest_tests": "the first `limit`, the slowest first",
}
"""Why a read with a list has no pages."""
OPEN = {"get_health", "get_readiness"}
BODIES: dict[str, type] = {
    body.__name__: body
    for body in (
        RunRequest, RerunRequest, TokenRequest, MatchRequest, AliasDecisionRequest, PruneRequest,
        KnownIssueRequest, LintRequest, PolicyRequest, EvaluateRequest, DryRunRequest,
        NewWaiver, NewReview, ApprovalRequest, AnnotationsRequest, BisectRequest,
        RetestRequest, ConfirmationRunRequest, NewQuarantine, NewChannel,
        ChannelTestRequest, RotateRequest, ScheduleRequest, TriggerRequest,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(cast(Context, None), guard=None).openapi()


def test_the_document_is_the_one_that_was_looked_at(document: dict[str, Any]) -> None:
    kept = document | {"info": document["info"] | {"version": "any"}}
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    broken = sorted(set(breaks(json.loads(GOLDEN.read_text("utf-8")), document)) - REVIEWED.keys())
    assert not broken, "this breaks clients: name it in REVIEWED if that is meant"
    if os.environ.get("SEATRIAL_WRITE_GOLDENS"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), (
        "the OpenAPI document has changed: SEATRIAL_WRITE_GOLDENS=1 pytest tests/unit/api writes "
        "the new one; read its diff before you commit it"
    )


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


_SCHEMAS = ("components", "schemas")
_LAUNCH = ("paths", "/api/v1/runs", "post")


@pytest.mark.parametrize(
    ("where", "key", "value", "told"),
    [
        (("paths",), "/api/v1/runs", None, "GET /api/v1/runs is gone"),
        (("paths", "/api/v1/runs"), "get", None, "GET /api/v1/runs is gone"),
        (("paths", "/api/v1/runs", "get"), "parameters", [], "GET /api/v1/runs takes no branch"),
        ((*_LAUNCH, "responses"), "202", None, "POST /api/v1/runs no longer answers 202"),
        (_SCHEMAS, "RunSummary", None, "the schema RunSummary is gone"),
        ((*_SCHEMAS, "RunSummary", "properties"), "outcome", None, "RunSummary.outcome is gone"),
        ((*_SCHEMAS, "RunSummary"), "required", [], "RunSummary.outcome may be absent"),
        (
            (*_SCHEMAS, "RunSummary", "properties"),
            *("matrix", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            "RunSummary.matrix has another type",
        ),
        ((*_SCHEMAS, "ChannelKind"), "enum", [], "ChannelKind is never 'github'"),
        (
            (*_SCHEMAS, "TokenRequest", "properties", "scope"),
            *("enum", ["read"], "TokenRequest.scope is never 'run'"),
        ),
        ((*_SCHEMAS, "RunRequest", "properties"), "name", None, "RunRequest.name is gone"),
        ((*_SCHEMAS, "RunRequest"), "required", ["matrix", "name"], "RunRequest.name is needed"),
        (
            (*_SCHEMAS, "RunRequest", "properties"),
            *("subject", {"type": "string"}),
            "RunRequest.subject has another type",
        ),
    ],
)
def test_what_breaks_clients_is_told(
    document: dict[str, Any], where: tuple[str, ...], key: str, value: object, told: str
) -> None:
    changed = json.loads(json.dumps(document))
    part = changed
    for name in where:
        part = part[name]
    part.pop(key)
    if value is not None:
        part[key] = value
    assert told in set(breaks(document, changed))


def test_what_is_only_added_breaks_nobody(document: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(document))
    assert set(breaks(document, changed)) == set()
    schemas = changed["components"]["schemas"]
    schemas["RunSummary"]["properties"]["more"] = {"type": "string"}
    schemas["RunSummary"]["required"].append("more")
    schemas["RunRequest"]["properties"]["more"] = {"type": "string", "default": ""}
    schemas["RunRequest"]["properties"]["name"]["description"] = "said otherwise"
    changed["paths"]["/api/v1/more"] = changed["paths"]["/api/v1/runs"]
    assert set(breaks(document, changed)) == set()


def test_operations_keep_their_names(document: dict[str, Any]) -> None:
    found = {(m, p): operation["operationId"] for m, p, operation in operations(document)}
    assert found == OPERATIONS
    assert len(set(found.values())) == len(found)


def test_every_list_has_pages_or_a_reason(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    unpaged = set()
    for method, path, operation in operations(document):
        if method != "get":
            continue
        content = operation["responses"]["200"].get("content", {}).get("application/json", {})
        answers = [schemas[ref.rpartition("/")[2]] for ref in references(content)]
        if not any("items" in one.get("properties", {}) for one in answers):
            continue
        names = {one["name"] for one in operation.get("parameters", [])}
        has_cursor = len(names & {"after", "before"}) == 1
        if "limit" in names and has_cursor:
            assert all("next" in one["required"] for one in answers), path
        else:
            unpaged.add(operation["operationId"])
    assert unpaged == set(UNPAGED)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    led = {ref.removeprefix("#/components/schemas/") for ref in references(document)}
    assert led
    assert led <= set(schemas)
    assert "HTTPValidationError" not in schemas


def test_every_operation_answers_faults_with_a_problem_document(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        content = operation["responses"]["default"]["content"]
        assert list(content) == ["application/problem+json"], path
        assert "422" not in operation["responses"], path


def test_all_but_health_ask_for_a_token(document: dict[str, Any]) -> None:
    for _, _, operation in operations(document):
        asked = operation.get("security")
        name = operation["operationId"]
        assert asked == (None if name in OPEN else [{"HTTPBearer": []}]), name


def test_every_body_has_examples_that_its_schema_takes(document: dict[str, Any]) -> None:
    checked = 0
    for method, path, operation in operations(document):
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content["examples"], (method, path)
            for example in content["examples"].values():
                assert example["summary"]
                if media == "application/json":
                    schema = next(references(content["schema"]))
                    TypeAdapter(BODIES[schema.rpartition("/")[2]]).validate_python(example["value"])
                    checked += 1
    assert checked >= 7


def test_launching_needs_an_idempotency_key(document: dict[str, Any]) -> None:
    for path in ("/api/v1/runs", "/api/v1/runs/{run_id}/rerun"):
        parameters = document["paths"][path]["post"]["parameters"]
        key = next(p for p in parameters if p["name"] == "Idempotency-Key")
        assert key["in"] == "header"
        assert key["required"] is True


def test_parameters_are_described_once_and_typed(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        named = [(p["in"], p["name"]) for p in operation.get("parameters", [])]
        assert len(named) == len(set(named)), path
        assert {n for place, n in named if place == "path"} == {
            part.strip("{}") for part in path.replace(".", "/").split("/") if part.startswith("{")
        }
        assert all("schema" in p for p in operation.get("parameters", []))


def test_money_is_text_and_never_a_number(document: dict[str, Any]) -> None:
    seen = 0
    for schema in document["components"]["schemas"].values():
        for name, found in schema.get("properties", {}).items():
            if "usd" in name:
                one = found.get("additionalProperties", found)
                types = {one.get("type"), *(o.get("type") for o in one.get("anyOf", []))}
                assert types <= {"string", "null", None}, name
                seen += 1
    assert seen >= 8
