"""When it happened: a person says it, or the artifacts do, or nobody."""

from __future__ import annotations

import pytest

from tests.integration.test_api_ingest import NOTES, TEXT, post, show, tar_of

XML = """\
<testsuite name="pytest" tests="1" timestamp="{at}">
<testcase classname="tests.test_moe" name="test_one" time="0.1"/>
</testsuite>
"""


def ingested(shared_api, **files: str):
    run = post(shared_api, tar_of(**files))["run"]
    return run, show(shared_api, run)["cells"][0]["ingested"]


@pytest.mark.parametrize(
    ("at", "dated_at", "remarks"),
    [
        ("2026-01-19T10:00:00+02:00", "2026-01-19T08:00:00Z", []),
        (
            "2026-01-19T10:00:00",
            "2026-01-19T10:00:00Z",
            ["its times have no zone: they are taken as UTC"],
        ),
    ],
)
def test_an_artifact_says_when(shared_api, at: str, dated_at: str, remarks: list[str]):
    run, said = ingested(shared_api, **{"a.xml": XML.format(at=at)})
    assert (said["dated_at"], said["is_dated"]) == (dated_at, True)
    assert said["sources"][0]["remarks"] == remarks
    page = shared_api.client.get(f"/api/v1/runs/{run}/reports/platform.md?cell=gcp-l4").text
    assert "**Date**: 2026-01-19" in page


def test_a_person_knows_better(shared_api):
    notes = NOTES + "date: 2026-01-18\n"
    files = {"a.xml": XML.format(at="2026-01-19T10:00:00Z"), "ingest_yaml": notes}
    _, said = ingested(shared_api, **files)
    assert (said["dated_at"], said["is_dated"]) == ("2026-01-18T00:00:00Z", True)


def test_nobody_says_when(shared_api):
    _, said = ingested(shared_api, **{"moe.txt": TEXT})
    assert (said["dated_at"], said["is_dated"]) == ("2026-03-01T12:00:00Z", False)
    _, said = ingested(shared_api, **{"a.xml": XML.format(at="2099-01-01T00:00:00Z")})
    assert said["is_dated"] is False
