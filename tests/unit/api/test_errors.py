"""Every error becomes a problem document, and none of them says too much."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from orchestrator.api.errors import FAULT_LIMIT, TABLE, AmbiguousRunError, install, pointer
from orchestrator.application.launch_run import PayloadMissingError
from orchestrator.domain.document_problems import InvalidDocumentError, Problem


def answered(error: Exception):
    app = FastAPI(openapi_url=None)
    install(app)

    @app.get("/raise")
    def fail() -> None:
        raise error

    client = TestClient(app, raise_server_exceptions=False)
    answer = client.get("/raise")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["instance"] == "/raise"
    assert body["type"].startswith("urn:seatrial:problem:")
    return answer


def made(kind: type[Exception]) -> Exception:
    if kind is InvalidDocumentError:
        return InvalidDocumentError("m.yaml", [Problem(("a",), "is wrong", 3, 7)])
    return AmbiguousRunError("01", ["012", "011"]) if kind is AmbiguousRunError else kind("why")


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_each_error_of_the_table_has_its_status(kind: type[Exception]) -> None:
    answer = answered(made(kind))
    assert answer.status_code == TABLE[kind].status
    assert answer.json()["title"] == TABLE[kind].title
    assert 400 <= answer.status_code < 600


def test_an_error_of_our_own_says_nothing_of_itself() -> None:
    answer = answered(RuntimeError("password=hunter2"))
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "RuntimeError" not in answer.text


def test_errors_of_the_framework_are_problems_too() -> None:
    assert answered(HTTPException(418)).json()["title"] == "I'm a Teapot"


def test_a_document_is_refused_with_every_place() -> None:
    problems = [Problem(("platforms", 0, "a/b~c"), "no such key", 4, 5), Problem((), "is empty")]
    body = answered(InvalidDocumentError("m.yaml", problems)).json()
    assert body["errors"] == [
        {"pointer": "/platforms/0/a~1b~0c", "detail": "no such key", "line": 4, "column": 5},
        {"pointer": "", "detail": "is empty"},
    ]
    assert body["detail"] == "m.yaml: line 4, column 5: platforms.0.a/b~c: no such key (and 1 more)"


def test_a_thousand_faults_do_not_make_an_answer_without_end() -> None:
    problems = [Problem(("jobs", n), "is wrong") for n in range(1000)]
    body = answered(InvalidDocumentError("m.yaml", problems)).json()
    assert len(body["errors"]) == FAULT_LIMIT
    assert body["detail"].endswith("(and 999 more)")


def test_text_that_is_no_unicode_can_be_answered() -> None:
    assert answered(PayloadMissingError("\ud800\x00")).json()["detail"] == "\ud800\x00"


def test_an_ambiguous_id_lists_what_it_could_mean() -> None:
    assert answered(AmbiguousRunError("01", ["012", "011"])).json()["matches"] == ["012", "011"]


def test_who_comes_without_a_token_is_told_how() -> None:
    kind = next(k for k, refusal in TABLE.items() if refusal.status == 401)
    assert answered(kind("x")).headers["www-authenticate"] == 'Bearer realm="seatrial"'


def test_pointers_follow_the_standard() -> None:
    assert pointer(()) == ""
    assert pointer(("a", 0, "b/c~d", "")) == "/a/0/b~1c~0d/"
