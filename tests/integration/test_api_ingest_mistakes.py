"""Mistakes of whoever hands evidence in: each is a sentence with its place, and stores nothing."""

from __future__ import annotations

import pytest

from tests.integration.test_api_ingest import NOTES, TEXT, URL, jobs_of, post, tar_of


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("platform: gcp-l5\n", "line 3, column 11: platform: no catalogue has 'gcp-l5'; did you"),
        ("date: 2026-03-03\n", "line 3, column 7: date: 2026-03-03 has not come yet"),
        ("jobs:\n  a: {file: mo.txt}\n", "line 4, column 13: jobs.a.file: there is no 'mo.txt'"),
        ("jobs: {mo: {title: X}}\n", "line 3, column 8: jobs.mo: no artifact tells of this job;"),
        (
            "suites: [{id: m, match: tests/test_mo.py}]\n",
            "line 3, column 25: suites.0.match: fits no test; did you mean 'tests/test_moe.py'?",
        ),
        ("suites: [{id: moe, match: 'tests/[x'}]\n", "suites.0.match: fits no test; "),
        ("suites: [{id: moe, match: ' '}]\n", "suites.0.match: must not be empty"),
        ('subject: {name: a, version: "1\\u202e"}\n', "characters that do not print"),
    ],
)
def test_notes_that_speak_of_what_there_is_not_are_refused_with_the_place(shared_api, notes, said):
    url = "/api/v1/ingest?" + ("" if "subject" in notes else "subject=a@1")
    url += "" if "platform" in notes else "&platform=gcp-l4"
    refused = post(shared_api, tar_of(**{"moe.txt": TEXT, "ingest_yaml": NOTES + notes}), url, 422)
    assert said in refused["detail"]
    assert shared_api.client.get("/api/v1/runs").json()["items"] == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("&rum=latest", "there is no 'rum' in the query; did you mean 'run'?"),
        ("&platform=aws-a10g", "'platform' occurs 2 times in the query"),
        ("&run=", "there is no run ''"),
        ("&name=a%00b", "is not printable"),
    ],
)
def test_a_mistaken_query_stores_nothing(shared_api, query, said):
    answer = shared_api.client.post(URL + query, content=TEXT.encode())
    assert answer.status_code in (404, 422)
    assert said in answer.json()["detail"]
    assert shared_api.client.get("/api/v1/runs").json()["items"] == []


@pytest.mark.parametrize("subject", ["a@\x1b[31m", "a@1\0", "a\u202e@1", "a" * 129 + "@1"])
def test_a_subject_that_nobody_could_read_is_refused(shared_api, subject):
    params = {"platform": "gcp-l4", "subject": subject}
    answer = shared_api.client.post("/api/v1/ingest", params=params, content=TEXT.encode())
    assert answer.status_code == 422
    assert "cannot be of a subject" in answer.json()["detail"]


def test_a_form_is_refused(shared_api):
    answer = shared_api.client.post(URL, files={"file": TEXT.encode()})
    assert (answer.status_code, "the body is a form" in answer.json()["detail"]) == (422, True)


def test_a_run_has_one_subject(api):
    run = post(api, TEXT.encode(), f"{URL}&name=a.txt")["run"]
    other = f"/api/v1/ingest?platform=aws-a10g&subject=torchbridge@0.4.7&run={run}"
    refused = post(api, TEXT.encode(), other, 422)
    assert "is of torchbridge 0.4.6, this is of torchbridge 0.4.7" in refused["detail"]


def test_notes_name_a_suite_by_its_id(api):
    said = NOTES + "jobs: {moe: {title: Mixture of Experts}}\n"
    run = post(api, tar_of(**{"moe.txt": TEXT, "ingest_yaml": said}))["run"]
    assert jobs_of(api, run)["moe"]["title"] == "Mixture of Experts"
